"""`disklab probe`: from what is to be probed to a report."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from disklab.errors import Problem, UserError
from disklab.interrupts import ended_once
from disklab.probe import cells, fio
from disklab.probe.cells import Plan
from disklab.probe.charts import check_chart_path
from disklab.probe.emulated import ATTACH_S, At, Emulated, Look, look_here
from disklab.probe.fio_results import record
from disklab.probe.known import DeviceExperiment, Disk, Trial, published, read_experiment, resolved
from disklab.probe.report import Compared, show_comparison, show_results, write_chart_when_asked
from disklab.probe.run import (
    CellEnded,
    CellResult,
    Event,
    Listener,
    Output,
    StepProgress,
    StepStarted,
    expected_fill_s,
)
from disklab.probe.wording import clock, duration, iops, mb_per_s
from disklab.terminal import SafeConsole, json_line

# Keeps results as JSON lines; adds to a folder and never overwrites what is there.


def environment() -> dict[str, Any]:
    """Return what must be known of the machine to judge or redo a run."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def create_results(folder: Path) -> TextIO:
    """Open a new file of results in `folder`, named by the time; makes the folder when missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        # Two probes in one second get different names; ten thousand do not happen.
        for number in range(10_000):
            suffix = f"-{number}" if number else ""
            try:
                return (folder / f"probe-{stamp}{suffix}.jsonl").open("x", encoding="utf-8")
            except FileExistsError:
                continue
    except OSError as error:
        way_out = "name a folder that you may write to"
        rule = f"cannot be written: {error.strerror}"
        raise UserError(Problem("--out", str(folder), rule, way_out)) from None
    raise UserError(Problem("--out", str(folder), "has no free name", "name another folder"))


class Recorder:
    """A listener that writes each finished cell at once, so that a crash loses none of them."""

    def __init__(self, streams: Sequence[TextIO], experiment: str | None = None) -> None:
        """Take the streams to write to, such as standard output and a file of results."""
        self.streams = streams
        self.experiment = experiment
        self.environment = environment()
        self.trials = 0

    def __call__(self, event: Event) -> None:
        """Write one JSON object a line."""
        if isinstance(event, CellEnded):
            told = record(event.result, self.trials, self.experiment)
            line = json_line({**told, "environment": self.environment})
            self.trials += 1
            for stream in self.streams:
                stream.write(line)
                stream.flush()


@contextmanager
def recorder(output: Output, experiment: str | None = None) -> Iterator[Recorder]:
    """Yield a recorder to what the user asked for: standard output, a folder, both or neither."""
    with ExitStack() as opened:
        streams: list[TextIO] = [sys.stdout] if output.json else []
        if output.folder is not None:
            results = opened.enter_context(create_results(output.folder))
            print(f"results: {results.name}", file=sys.stderr)  # noqa: T201
            streams.append(results)
        yield Recorder(streams, experiment)


# Shows a running probe: a bar with the time left on a terminal, plain lines elsewhere.


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
            left = clock(self.expected_s)
            self.task = self.bar.add_task("starting", total=self.expected_s, left=left)
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
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
            left = clock(self.expected_s - completed)
            self.bar.update(self.task, completed=completed, left=left)


def line(result: CellResult) -> str:
    """Return one finished cell in a line."""
    measured = result.measurement
    percentiles = measured.latency.percentiles_ns
    return (
        f"  {iops(measured.iops)} IOPS, "
        f"{mb_per_s(measured.bytes_per_s)} MB/s, p50 {duration(percentiles[50])}, "
        f"p99 {duration(percentiles[99])}"
    )


NAMES = {"None": "no caching", "ReadOnly": "ReadOnly", "ReadWrite": "ReadWrite"}


def probe_path(wanted: At, output: Output, look: Look = look_here) -> Sequence[CellResult]:
    """Probe a directory, file or device, hold it against what is known of it, and report."""
    checked(wanted.plan, output)
    listeners: list[Listener] = []
    with ended_once(), ExitStack() as opened:

        def tell(event: Event) -> None:
            if not listeners:
                # A place that cannot be probed is told before a file of results is made.
                seconds = expected_s(wanted.plan, 1, attached=False)
                listeners.append(opened.enter_context(listening(output, seconds)))
            listeners[0](event)

        results = look(wanted, tell).results
    show_results(results, output)
    return results


def probe_emulated(
    disks: Sequence[Disk], plan: Plan, output: Output, look: Look = look_here
) -> Sequence[CellResult]:
    """Make each disk, probe it, remove it; report all side by side."""
    checked(plan, output)
    for disk in disks:
        resolved(disk)  # every wrong wish is told before the first disk is made
    results: list[CellResult] = []
    with ended_once(), listening(output, expected_s(plan, len(disks))) as tell:
        for disk in disks:
            # Disks of one probe differ in their caching alone.
            name = disk.disks if len(disks) == 1 else NAMES[disk.caching]
            tell(StepStarted(name, "attaching an emulated disk", ATTACH_S))
            results += look(Emulated(disk, name, plan), tell).results
    vm = f" on {disks[0].vm}" if disks[0].vm else ""
    show_results(results, output, f"{disks[0].disks}{vm}, emulated")
    return results


@dataclass(frozen=True)
class Override:
    """What the command line changes in an experiment; None: as the file says."""

    duration_s: float | None = None
    size_bytes: int | None = None
    engine: cells.Engine = "libaio"


def probe_experiment(
    file: Path, override: Override, output: Output, look: Look = look_here
) -> Sequence[CellResult]:
    """Probe every device of an experiment, each emulated, beside what was published of it."""
    experiment = read_experiment(file)
    devices = devices_of(experiment)
    for trial in experiment.trials:
        resolved(trial.disk)  # every wrong name is told before the first disk is made
    plans = {name: plan_of_trials(trials, override) for name, trials in devices.items()}
    longest = max(plans.values(), key=lambda plan: len(plan.cells) * plan.duration_s)
    checked(longest, output)
    compared = []
    seconds = sum(expected_s(plan, 1) for plan in plans.values())
    with ended_once(), listening(output, seconds, experiment.path.stem) as tell:
        for name, trials in devices.items():
            tell(StepStarted(name, "attaching and formatting an emulated disk", ATTACH_S))
            disk, filesystem = trials[0].disk, trials[0].filesystem
            probed = look(Emulated(disk, name, plans[name], filesystem), tell)
            compared.append(Compared(name, probed.results, published(disk), probed.envelope))
    if not output.json:
        show_comparison(compared, experiment.title)
    results = [result for one in compared for result in one.results]
    write_chart_when_asked(results, output, experiment.title)
    return results


def devices_of(experiment: DeviceExperiment) -> dict[str, list[Trial]]:
    """Return the trials of each device: those that differ only in what fio does."""
    devices: dict[str, list[Trial]] = {}
    for trial in experiment.trials:
        names = [level for factor, level in trial.levels.items() if "workload" not in factor]
        devices.setdefault(", ".join(names) or experiment.title, []).append(trial)
    return devices


def plan_of_trials(trials: Sequence[Trial], override: Override) -> Plan:
    """Return the plan that measures the trials of one device, in the order of the file."""
    return Plan(
        cells=tuple(trial.cell for trial in trials),
        duration_s=override.duration_s or trials[0].duration_s,
        size_bytes=override.size_bytes or cells.DEFAULT_SIZE_BYTES,
        engine=override.engine,
    )


def checked(plan: Plan, output: Output) -> None:
    """Raise UserError unless everything is there that the probe will need."""
    fio.find_fio(plan.engine)
    fio.check_memory(plan)
    if output.chart is not None:
        check_chart_path(output.chart)


def expected_s(plan: Plan, subjects: int, *, attached: bool = True) -> float:
    """Return how long the probe of so many subjects should take."""
    each_s = len(plan.cells) * plan.duration_s + expected_fill_s(plan)
    return subjects * (each_s + (ATTACH_S if attached else 0.0))


@contextmanager
def listening(output: Output, seconds: float, experiment: str | None = None) -> Iterator[Listener]:
    """Yield a listener that shows the progress and writes finished cells where they were wished."""
    with (
        recorder(output, experiment) as record,
        ProgressView(SafeConsole(stderr=True), seconds) as view,
    ):

        def tell(event: Event) -> None:
            view(event)
            record(event)

        yield tell
