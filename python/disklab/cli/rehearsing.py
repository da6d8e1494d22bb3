"""A rehearsal on the terminal: the plan, progress while it runs, and where the results are."""

from __future__ import annotations

from rich.console import Console

from disklab.cli.output import print_json
from disklab.cli.run_progress import RunView
from disklab.events import Emit, Event, TrialFinished, fan_out
from disklab.procedures.preparation import Prepared
from disklab.procedures.rehearsal import rehearse

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def run_it(prepared: Prepared, console: Console, *, as_json: bool) -> int:
    """Rehearse and show it; return the exit code. 1: no trial has figures that can be used."""
    with RunView(console) as view:
        listeners: list[Emit] = [view, *([_print_result] if as_json else [])]
        run = rehearse(prepared, fan_out(*listeners))
    if view.interrupted:
        return INTERRUPTED
    return 0 if any(result.usable for result in run.results()) else 1


def _print_result(event: Event) -> None:
    if isinstance(event, TrialFinished):
        print_json(dict(event.result))
