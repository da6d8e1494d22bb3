"""How the command line prints: tables for people, JSON for programs, errors on standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from disklab.errors import DisklabError, Problem, UserError
from disklab.terminal import SafeConsole, json_line, width_of

if TYPE_CHECKING:
    from disklab.results import Run
    from disklab.results.required import Outcome
    from disklab.spec import Experiment

# `--check`: exit codes that say whether what is promised is kept.

MISSED = 3
"""The exit code where something misses what it promises."""
OVER_BUDGET = 90
"""Of `run`, beside the exit codes of its command: it did more than its budget or base."""
CANNOT_TELL = 4
"""The exit code where nothing surely misses its promise, and something may."""

Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Exit code 3 if a requirement is missed, 4 if that cannot be decided."
    ),
]


def needs_promise(experiment: Experiment, *, check: bool) -> None:
    """Raise UserError where `--check` is given and no cell requires anything."""
    if check and all(cell.spec.require is None for cell in experiment.cells):
        rule, way_out = "the experiment requires nothing", "write `require:` into the file"
        raise UserError(Problem("--check", str(experiment.path), rule, way_out))


def code_of(outcomes: Collection[Outcome | None]) -> int:
    """Return the exit code of judgements; None among them: nothing could be judged."""
    from disklab.results.required import Outcome  # noqa: PLC0415 - it brings polars

    if {Outcome.MISSED, Outcome.CANNOT_SUSTAIN} & set(outcomes):
        return MISSED
    return 0 if outcomes and set(outcomes) == {Outcome.MET} else CANNOT_TELL


def code_of_run(run: Run) -> int:
    """Return the exit code of a run: of all its trials that require something."""
    from disklab.results.required import judged, required_of  # noqa: PLC0415 - it brings polars

    planned = run.planned()
    kept = judged(run.results(), planned)
    promising = [trial.trial for trial in planned if required_of(trial.spec) is not None]
    return code_of([kept[trial].outcome if trial in kept else None for trial in promising])


Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output.", show_default=False),
]


def console() -> Console:
    """Return the console of standard output: plain, and wide when it has no width of its own."""
    return SafeConsole(width=width_of(sys.stdout))


def notes() -> Console:
    """Return the console of standard error, for progress, warnings and errors."""
    return SafeConsole(stderr=True, width=width_of(sys.stderr), soft_wrap=True)


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    sys.stdout.write(json_line(content))


def warn(message: str) -> None:
    """Print a warning on standard error."""
    notes().print(Text.assemble(("warning: ", "yellow"), message))


MOST_TOLD_BYTES = 1 << 16


def warn_once(message: str) -> None:
    """Print a warning that holds on each run of this machine, unless it was printed before.

    What was printed is kept without its figures, which move; where that cannot be kept, the warning
    is printed again.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    told = Path(cache) / "disklab/warnings-told.txt"
    line = re.sub(r"\d[\d.,]*", "N", " ".join(message.split()))
    with suppress(OSError, UnicodeError):
        known = told.read_text(encoding="utf-8") if told.is_file() else ""
        if line in known.splitlines():
            return
        told.parent.mkdir(parents=True, exist_ok=True)
        kept = known if len(known) < MOST_TOLD_BYTES else ""
        told.write_text(f"{kept}{line}\n", encoding="utf-8")
    warn(message)


def report(error: DisklabError, *, as_json: bool) -> None:
    """Print an error: all its problems, and no traceback."""
    if as_json:
        content: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
        if isinstance(error, UserError):
            content["problems"] = [vars(problem) for problem in error.problems]
        print_json({"ok": False, "error": content})
        return
    for line in str(error).splitlines():
        notes().print(Text.assemble(("error: ", "bold red"), line))
