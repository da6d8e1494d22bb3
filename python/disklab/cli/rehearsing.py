"""A run on the terminal, rehearsed or measured: progress while it goes on, and its answer."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from disklab.cli.output import console, print_json
from disklab.cli.run_progress import RunView
from disklab.errors import Problem, UserError
from disklab.events import Emit, Event, RunFinished, RunStarted, TrialFinished, Warned, fan_out
from disklab.machines import programs
from disklab.privilege.stage import Divided, Root
from disklab.privilege.talk import Link
from disklab.procedures.preparation import Check, Prepared
from disklab.procedures.rehearsal import rehearse
from disklab.results import Run
from disklab.results.event_log import Wish, wish_of

if TYPE_CHECKING:
    from disklab.report.report import Report

# Tells somebody that a run ended: a command of the user's, or an address that takes JSON.

# Longer than a slow chat server takes; a run's exit waits for it.
SECONDS = 30


class OnEnd:
    """A subscriber that knows what is to be told when the run is over."""

    def __init__(self, what: str, warn: Emit) -> None:
        self._what = what
        self._warn = warn
        self._told = {"status": "failed", "run": "", "folder": "", "title": ""}

    def __call__(self, event: Event) -> None:
        """Remember which run it is and how it ended."""
        if isinstance(event, RunStarted):
            self._told.update(run=event.run_id, folder=str(event.folder), title=event.title)
        elif isinstance(event, RunFinished):
            self._told["status"] = "interrupted" if event.interrupted else "finished"

    def tell(self) -> None:
        """Run the command, or send to the address. What fails is a warning: the run is over."""
        if not self._told["run"]:
            return
        try:
            if is_address(self._what):
                send(self._what, self._told)
            else:
                names = {f"DISKLAB_{name.upper()}": value for name, value in self._told.items()}
                command = ["/bin/sh", "-c", self._what]
                ended = programs.run(command, SECONDS, variables=names, inherits=True, shown=True)
                if ended.code != 0:
                    raise OSError(f"it ended with code {ended.code}")
        except OSError as error:
            self._warn(Warned(f"--on-end {self._what!r} failed: {error}"))


@contextmanager
def telling(what: str | None, warn: Emit) -> Iterator[list[Emit]]:
    """Yield the subscriber, or none, and tell at the end of the block, however it ends."""
    if what is None:
        yield []
        return
    told = OnEnd(what, warn)
    try:
        yield [told]
    finally:
        told.tell()


def check_on_end(what: str | None) -> str | None:
    """Return it. A user error for an address that cannot be sent to, and a program not there."""
    if what is None or not urlsplit(what).scheme or Path(what.split()[0]).exists():
        return what
    if not is_address(what) and "://" in what.split()[0]:
        rule = "is an address that disklab does not send to"
        raise UserError(Problem("--on-end", what, rule, "write http:// or https://, or a command"))
    return what


def is_address(what: str) -> bool:
    """Return whether it is an address and not a command."""
    return what.startswith(("http://", "https://")) and " " not in what


def send(address: str, told: dict[str, str]) -> None:
    """POST what happened as JSON. `text` is what chat servers show. Raises URLError."""
    said = f"disklab: {told['title'] or told['run']}: {told['status']}"
    body = json.dumps({"text": said, **told}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(address, body, headers)  # noqa: S310 - http and https only
    with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310
        pass


INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def run_it(
    prepared: Prepared,
    notes: Console,
    *,
    as_json: bool,
    on_end: str | None = None,
    root: Root | None = None,
) -> int:
    """Rehearse, show it, report it; return the exit code. 1: no trial has usable figures.

    `root`: the process that makes the beds; None: this one does.
    """
    stage = None if root is None else divided(root, prepared)
    work = partial(rehearse, prepared, stage=stage)
    return follow(work, notes, as_json=as_json, on_end=on_end)


def root_of(link: Link | None) -> tuple[Root | None, Check | None]:
    """Return root's part of this command, and how it looks at this machine; None: there is none."""
    if link is None:
        return None, None
    root = Root(link)
    return root, root.check


def divided(root: Root, prepared: Prepared) -> Divided:
    """Return the stage of a rehearsal whose beds root's part makes."""
    title = prepared.experiment.title
    return Divided(root, prepared.run, prepared.catalog, prepared.seed, title)


def follow(
    work: Callable[[Emit], Run], notes: Console, *, as_json: bool, on_end: str | None = None
) -> int:
    """Do the work of a run, show it, report it; return the exit code as `run_it` does."""
    with RunView(notes) as view, telling(on_end, view) as told:
        listeners: list[Emit] = [view, *told, *([_print_result] if as_json else [])]
        run = work(fan_out(*listeners))
    if view.interrupted:
        # Who stopped it on the live page looks for the report there; Ctrl-C is to end at once.
        if wish_of(run.folder) is Wish.STOP and run.results():
            answer(run, notes, as_json=as_json)
        return INTERRUPTED
    answer(run, notes, as_json=as_json)
    return 0 if any(result.usable for result in run.results()) else 1


def answer(run: Run, notes: Console, *, as_json: bool) -> None:
    """Write the page, beside what was published of the experiment, and show the table."""
    # Charts take a third of a second to import, which a plan or a refusal does not need.
    from disklab.report import files  # noqa: PLC0415
    from disklab.report.terminal import show  # noqa: PLC0415

    report = report_of(run)
    # With JSON, standard output belongs to the results.
    show(report, notes if as_json else console())
    page = files.write_page(report, run.inside("report.html"))
    notes.print(Text(f"report: {page}"))


def report_of(run: Run) -> Report:
    """Return the report of a run beside what was published of its experiment, if anything was."""
    from disklab.report import files  # noqa: PLC0415 - as above
    from disklab.report.report import Report  # noqa: PLC0415

    try:
        published = files.references([run], wanted=True)
    except UserError:
        published = []
    return Report.of([run, *published])


def _print_result(event: Event) -> None:
    if isinstance(event, TrialFinished):
        print_json(dict(event.result))
