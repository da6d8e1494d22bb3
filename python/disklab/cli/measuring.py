"""A measurement on the terminal: its plan and the question, progress, and its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.text import Text

from disklab.cli.output import console
from disklab.cli.rehearsing import follow
from disklab.errors import Problem, UserError
from disklab.events import Emit
from disklab.machines.protocol import Machine
from disklab.measurement import preparation
from disklab.measurement.hosts_file import HostsFile
from disklab.measurement.machines_of import open_machine
from disklab.measurement.preparation import HostPlan, Wanted
from disklab.procedures.life import live
from disklab.results import Run


def run_it(  # noqa: PLR0913 - the options of the command
    wanted: Wanted,
    out: Path,
    notes: Console,
    *,
    plan: bool,
    yes: bool,
    as_json: bool,
    on_end: str | None,
) -> int:
    """Show the plan, ask, measure, report; return the exit code. 1: nothing usable was measured."""
    with ExitStack() as undo:
        machines = open_all(wanted.hosts.file, wanted.names, notes, undo)
        plans = preparation.look(wanted, machines)
        _show(wanted, plans, console() if plan and not as_json else notes)
        missing = [problem for one in plans for problem in one.missing]
        if missing:
            raise UserError(*missing)
        if plan:
            return 0
        ask(notes, yes=yes)
        planned, stage = preparation.prepare(wanted, plans, machines, out)
        work: Callable[[Emit], Run] = lambda emit: live(planned, stage, emit)  # noqa: E731
        code = follow(work, notes, as_json=as_json, on_end=on_end)
        for text in stage.told:
            notes.print(Text.assemble(("warning: ", "yellow"), text))
        return code


def open_all(
    given: HostsFile, names: Sequence[str], notes: Console, undo: ExitStack
) -> dict[str, Machine]:
    """Return hosts as machines; what is said of their links goes to `notes`."""

    def told(text: str) -> None:
        notes.print(Text(text))

    return {
        name: open_machine(name, given.hosts[name], given.ssh_config, undo, told) for name in names
    }


def _show(wanted: Wanted, plans: list[HostPlan], to: Console) -> None:
    for line in preparation.in_words(wanted, plans):
        to.print(Text(line))


def ask(notes: Console, *, yes: bool) -> None:
    """Return when the user agrees. Raises UserError where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        rule = "nobody can be asked whether the hosts may be used as planned"
        raise UserError(Problem("--yes", "(not given)", rule, "read the plan, then give --yes"))
    answer = notes.input("Begin? [y/N] ")
    if answer.strip().lower() not in {"y", "yes"}:
        rule = "was not agreed to; nothing was changed"
        raise UserError(Problem("the plan", answer.strip() or "no", rule, "change the hosts file"))
