"""A run on the terminal, rehearsed or measured: progress while it goes on, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.text import Text

from disklab.cli.on_end import telling
from disklab.cli.output import console, print_json
from disklab.cli.run_progress import RunView
from disklab.errors import UserError
from disklab.events import Emit, Event, TrialFinished, fan_out
from disklab.privilege.stage import Divided, Root
from disklab.privilege.wire import Link
from disklab.procedures.preparation import Check, Prepared
from disklab.procedures.rehearsal import rehearse
from disklab.results import Run
from disklab.results.wishes import Wish, wish_of

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
    from disklab.report.report import Report  # noqa: PLC0415
    from disklab.report.terminal import show  # noqa: PLC0415

    try:
        published = files.references([run], wanted=True)
    except UserError:
        published = []  # nothing was published of it
    report = Report.of([run, *published])
    # With JSON, standard output belongs to the results.
    show(report, notes if as_json else console())
    page = files.write_page(report, run.inside("report.html"))
    notes.print(Text(f"report: {page}"))


def _print_result(event: Event) -> None:
    if isinstance(event, TrialFinished):
        print_json(dict(event.result))
