"""Shows a running probe: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from disklab.probe import wording
from disklab.probe.run import CellEnded, CellResult, Event, StepProgress, StepStarted


class ProgressView:
    """A listener to the probe's events that writes to one console (standard error)."""

    def __init__(self, console: Console, expected_s: float) -> None:
        """Take the console and the time that all steps are expected to need, in seconds."""
        self.console = console
        self.expected_s = expected_s
        self.done_s = 0.0
        self.step_s = 0.0
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> ProgressView:
        """Start the bar when there is a terminal."""
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[left]} left"),
                console=self.console,
                transient=True,
            )
            left = wording.clock(self.expected_s)
            self.task = self.bar.add_task("starting", total=self.expected_s, left=left)
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, StepStarted):
            self.begin(f"{event.subject}: {event.what}", event.expected_s)
        elif isinstance(event, StepProgress):
            # A step that outlasts its guess waits at its end; it never takes from the next.
            self.advance(min(event.elapsed_s, self.step_s))
        elif isinstance(event, CellEnded):
            self.console.print(line(event.result), highlight=False, markup=False)

    def begin(self, description: str, expected_s: float) -> None:
        """Close the step before and open the next."""
        self.done_s += self.step_s
        self.step_s = expected_s
        if self.bar is None or self.task is None:
            self.console.print(description, highlight=False, markup=False)
        else:
            self.bar.update(self.task, description=description)
        self.advance(0.0)

    def advance(self, in_step_s: float) -> None:
        """Move the bar."""
        if self.bar is not None and self.task is not None:
            completed = self.done_s + in_step_s
            left = wording.clock(self.expected_s - completed)
            self.bar.update(self.task, completed=completed, left=left)


def line(result: CellResult) -> str:
    """Return one finished cell in a line."""
    measured = result.measurement
    percentiles = measured.latency.percentiles_ns
    return (
        f"  {wording.iops(measured.iops)} IOPS, "
        f"{wording.mb_per_s(measured.bytes_per_s)} MB/s, p50 {wording.duration(percentiles[50])}, "
        f"p99 {wording.duration(percentiles[99])}"
    )
