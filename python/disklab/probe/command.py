"""`disklab probe`: from the command line's words to a report."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from disklab.errors import Problem, UserError
from disklab.probe import fio, target
from disklab.probe.cells import Plan
from disklab.probe.charts import check_chart_path
from disklab.probe.console import ProgressView
from disklab.probe.promise import Attached
from disklab.probe.report import show_results
from disklab.probe.request import Output
from disklab.probe.run import Event, Known, Listener, Subject, expected_fill_s, probe, runnable
from disklab.probe.store import recorder


def probe_path(
    path: Path,
    plan: Plan,
    output: Output,
    *,
    known: Attached | None = None,
    destroy_data: bool = False,
) -> None:
    """Probe a directory, file or device, hold it against what is known of it, and report."""
    program = fio.find_fio(plan.engine)
    fio.check_memory(plan)
    if output.chart is not None:
        check_chart_path(output.chart)
    with (
        terminated_as_interrupt(),
        target.open_region(path, plan, ours=False, destroy_data=destroy_data) as region,
    ):
        subject = Subject(region.shown, region, Known(known) if known else None)
        check_cells_remain(plan, subject)
        expected_s = expected_time_s([subject], plan)
        with recorder(output) as record, ProgressView(Console(stderr=True), expected_s) as view:
            results = probe(program, subject, plan, each(view, record))
    show_results(results, output)


def each(*listeners: Listener) -> Listener:
    """Return a listener that passes every event on to all of them, in order."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


def expected_time_s(subjects: list[Subject], plan: Plan) -> float:
    """Return how long the probe of all subjects should take."""
    total_s = 0.0
    for subject in subjects:
        fitted = runnable(plan, subject.region)
        total_s += len(fitted.cells) * fitted.duration_s
        total_s += expected_fill_s(fitted) if subject.region.writable else 0.0
    return total_s


def check_cells_remain(plan: Plan, subject: Subject) -> None:
    """Refuse a plan of writes alone where nothing may be written."""
    if not runnable(plan, subject.region).cells:
        rule = "disklab never writes to what it did not create, and the plan has only writes"
        way_out = "choose --rw randread, or name a directory where the probe makes its own file"
        raise UserError(Problem("--rw", subject.region.shown, rule, way_out))


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the probe as Ctrl-C does, so that everything is cleaned up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
