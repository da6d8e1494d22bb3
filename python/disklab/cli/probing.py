"""A probe on the terminal: its cells as the trials of a run, shown, kept and reported."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.text import Text

from disklab.cli.output import console, notes, print_json
from disklab.cli.rehearsing import report_of
from disklab.cli.run_progress import RunView
from disklab.events import (
    Emit,
    Factors,
    PhaseStarted,
    PlannedTrial,
    RunFinished,
    RunStarted,
    TrialFinished,
    TrialStarted,
    fan_out,
)
from disklab.interrupts import ended_once
from disklab.probe import cells, fio
from disklab.probe import report as tables
from disklab.probe.cells import Plan
from disklab.probe.charts import check_chart_path, write_chart
from disklab.probe.emulated import ATTACH_S, At, Emulated, Look, look_here
from disklab.probe.fio_results import record
from disklab.probe.known import Disk, disk_of, read_experiment, resolved, trial_of
from disklab.probe.known import Trial as DeviceTrial
from disklab.probe.run import CellEnded, CellResult, Event, Listener, expected_fill_s
from disklab.procedures.outcome import planned_record
from disklab.procedures.preparation import environment
from disklab.report import terminal
from disklab.results import ExperimentNote, Run, begun
from disklab.results.event_log import EventLog
from disklab.spec import Experiment, Trial


@dataclass(frozen=True)
class Output:
    """Where the results go, beside the terminal."""

    json: bool = False
    folder: Path | None = None
    chart: Path | None = None


@dataclass
class Follower:
    """Listens to a probe: shows each cell as a trial of a run, prints it and keeps it at once."""

    title: str
    trials: Sequence[tuple[int, Factors]]
    """Number and levels of each cell that there may be; no levels: the cell's own."""
    show: Emit
    as_json: bool
    run: Run | None = None
    ended: int = 0
    began: float = field(default_factory=time.monotonic)

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, CellEnded):
            self._keep(event.result)
            return
        if isinstance(event, PhaseStarted) and event.phase == "measure":
            self.began, place = time.monotonic(), self.ended + 1
            cell = {"cell": event.detail}
            number = self.trials[self.ended][0]
            self.show(TrialStarted(place, len(self.trials), number, 0, cell))
            event = PhaseStarted("measure")
        self.show(event)

    def _keep(self, cell: CellResult) -> None:
        number, factors = self.trials[self.ended]
        self.ended += 1
        result = record(cell, number, self.title, factors)
        result = result.model_copy(update={"environment": environment()})
        if self.run is not None:
            self.run.append(result)
        content = result.model_dump(mode="json")
        if self.as_json:
            print_json(content)
        shown = {**content, "factors": {"disk": cell.subject, "cell": cell.cell.title}}
        took_s = time.monotonic() - self.began
        self.show(TrialFinished(number, 0, result.status, took_s, shown))


@contextmanager
def following(
    output: Output,
    title: str,
    expected_s: float,
    trials: Sequence[tuple[int, Factors]],
    run: Run | None = None,
) -> Iterator[Follower]:
    """Yield what hears a probe; `run`: the one that keeps its results, if that is not of `--out`.

    `expected_s`: how long all of it should take.
    """
    with ExitStack() as opened:
        if run is None and output.folder is not None:
            run = made_run(output.folder, title)
        if run is not None:
            opened.enter_context(run.writing())
        view: Emit = opened.enter_context(RunView(notes()))
        if run is not None:
            view = fan_out(opened.enter_context(EventLog(run.folder)), view)
        each_s = expected_s / len(trials)
        planned = tuple(PlannedTrial(number, 0, levels, each_s) for number, levels in trials)
        kept = run if output.folder is not None else None
        name, folder = (kept.info.id, kept.folder) if kept else ("", Path())
        view(RunStarted(name, folder, "probe", title, 0, planned, 0, 0))
        follower = Follower(title, trials, view, output.json, run)
        yield follower
        if run is not None:
            run.end()
        if kept is not None:
            view(RunFinished(name, folder, follower.ended, 0, interrupted=False, mode="probe"))


def made_run(out: Path, title: str, of: Experiment | None = None) -> Run:
    """Make the run of a probe; `of` an experiment, with its trials."""
    note = ExperimentNote(title=title)
    if of is not None:
        note = ExperimentNote(title=title, source=of.source, file=str(of.path))
    info = begun("probe", note, environment=environment())
    if of is None:
        return Run.create(out, info)
    planned = [planned_record(trial) for trial in of.trials("rehearse")]
    return Run.create(out, info, experiment_text=of.document.text, planned=planned)


NAMES = {"None": "no caching", "ReadOnly": "ReadOnly", "ReadWrite": "ReadWrite"}


def probe_path(wanted: At, output: Output, look: Look = look_here) -> Sequence[CellResult]:
    """Probe a directory, file or device, hold it against what is known of it, and report."""
    check(wanted.plan, output)
    listeners: list[Listener] = []
    with ended_once(), ExitStack() as opened:

        def tell(event: Event) -> None:
            if not listeners:
                # A place that cannot be probed is told before a folder of results is made.
                seconds, trials = expected_s(wanted.plan, 1, attached=False), own(wanted.plan, 1)
                follower = following(output, str(wanted.path), seconds, trials)
                listeners.append(opened.enter_context(follower))
            listeners[0](event)

        results = look(wanted, tell).results
    show_results(results, output)
    return results


def probe_emulated(
    disks: Sequence[Disk], plan: Plan, output: Output, look: Look = look_here
) -> Sequence[CellResult]:
    """Make each disk, probe it, remove it; report all side by side."""
    check(plan, output)
    for disk in disks:
        resolved(disk)  # every wrong wish is told before the first disk is made
    vm = f" on {disks[0].vm}" if disks[0].vm else ""
    title = f"{disks[0].disks}{vm}, emulated"
    results: list[CellResult] = []
    seconds, trials = expected_s(plan, len(disks)), own(plan, len(disks))
    with ended_once(), following(output, title, seconds, trials) as tell:
        for disk in disks:
            # Disks of one probe differ in their caching alone.
            name = disk.disks if len(disks) == 1 else NAMES[disk.caching]
            tell(PhaseStarted("build", f"{name}: attaching an emulated disk"))
            results += look(Emulated(disk, name, plan), tell).results
    show_results(results, output, title)
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
    experiment, of_file = read_experiment(file)
    devices: dict[str, list[Trial]] = {}
    for trial in of_file:
        # Trials of one device differ only in what fio does.
        names = [str(level) for name, level in trial.factors.items() if "workload" not in name]
        devices.setdefault(", ".join(names) or experiment.title, []).append(trial)
    plans = {}
    for name, trials in devices.items():
        resolved(disk_of(trials[0]))  # every wrong name is told before the first disk is made
        plans[name] = plan_of_trials([*map(trial_of, trials)], override)
        check(plans[name], output)
    seconds = sum(expected_s(plan, 1) for plan in plans.values())
    levels = [(trial.index, trial.factors) for trials in devices.values() for trial in trials]
    results: list[CellResult] = []
    with ended_once(), TemporaryDirectory(prefix="disklab-probe-") as folder:
        run = made_run(output.folder or Path(folder), experiment.title, experiment)
        with following(output, experiment.title, seconds, levels, run) as tell:
            for name, trials in devices.items():
                tell(PhaseStarted("build", f"{name}: attaching and formatting an emulated disk"))
                first = trial_of(trials[0])
                wanted = Emulated(first.disk, name, plans[name], first.filesystem)
                results += look(wanted, tell).results
        if not output.json:
            terminal.show(report_of(run), console())
            console().print(Text("\nagainst the catalogue's promise", style="bold"))
            tables.show_table(results, console())
    write_chart_when_asked(results, output, experiment.title)
    return results


def plan_of_trials(trials: Sequence[DeviceTrial], override: Override) -> Plan:
    """Return the plan that measures the trials of one device, in the order of the file."""
    return Plan(
        cells=tuple(trial.cell for trial in trials),
        duration_s=override.duration_s or trials[0].duration_s,
        size_bytes=override.size_bytes or cells.DEFAULT_SIZE_BYTES,
        engine=override.engine,
    )


def check(plan: Plan, output: Output) -> None:
    """Raise UserError unless everything is there that the probe will need."""
    fio.find_fio(plan.engine)
    fio.check_memory(plan)
    if output.chart is not None:
        check_chart_path(output.chart)


def own(plan: Plan, subjects: int) -> list[tuple[int, Factors]]:
    """Return the numbers of so many subjects' cells, which have levels of their own."""
    return [(number, {}) for number in range(subjects * len(plan.cells))]


def expected_s(plan: Plan, subjects: int, *, attached: bool = True) -> float:
    """Return how long the probe of so many subjects should take."""
    each_s = len(plan.cells) * plan.duration_s + expected_fill_s(plan)
    return subjects * (each_s + (ATTACH_S if attached else 0.0))


def show_results(results: Sequence[CellResult], output: Output, title: str = "") -> None:
    """Show the results, unless JSON lines have told them, and write the chart when asked."""
    if not output.json:
        tables.show(results, console(), title or None)
    write_chart_when_asked(results, output, title)


def write_chart_when_asked(results: Sequence[CellResult], output: Output, title: str) -> None:
    """Write the chart of `--chart`."""
    if output.chart is not None:
        write_chart(results, output.chart, title)
        notes().print(Text(f"chart: {output.chart}"))
