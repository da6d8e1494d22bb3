"""`disklab probe`: from what is to be probed to a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from disklab.interrupts import ended_once
from disklab.probe import cells, fio
from disklab.probe.cells import Plan
from disklab.probe.charts import check_chart_path
from disklab.probe.comparison import Compared
from disklab.probe.console import ProgressView
from disklab.probe.emulated import ATTACH_S
from disklab.probe.experiment import DeviceExperiment, Trial, read_experiment
from disklab.probe.known import Disk, resolved
from disklab.probe.looking import At, Emulated, Look, look_here
from disklab.probe.published import published
from disklab.probe.report import show_comparison, show_results, write_chart_when_asked
from disklab.probe.request import Output
from disklab.probe.run import (
    CellResult,
    Event,
    Listener,
    StepStarted,
    expected_fill_s,
)
from disklab.probe.store import recorder
from disklab.terminal import SafeConsole

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
