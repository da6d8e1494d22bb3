"""A device experiment: fio on one emulated volume, no database. The probe does the measuring."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from disklab.engine.messages import View
from disklab.events import Emit, PhaseStarted, Progress
from disklab.probe import fio
from disklab.probe.cells import MIB, Engine, Plan
from disklab.probe.emulated import ATTACH_S, made_for_probe
from disklab.probe.fio_results import figures_of
from disklab.probe.known import trial_of
from disklab.probe.run import (
    CellResult,
    Event,
    OurSubject,
    expected_fill_s,
    probe,
)
from disklab.procedures import outcome
from disklab.procedures.outcome import Frame
from disklab.procedures.record import followed
from disklab.procedures.turn import Turn
from disklab.results import TrialResult
from disklab.telemetry import Disk, Emulator, Source
from disklab.telemetry.gaps import Gaps

# What an emulated disk does while fio uses it, told about once a second: fio tells at its end.

# As the experiment file calls the disk.
NAME = "device"
INTERVAL_S = 1.0


def behind(path: Path) -> Path:
    """Return the block device that a file lies on, or that a path is."""
    status = path.stat()
    number = status.st_rdev if path.is_block_device() else status.st_dev
    # Symbolic links to the devices, by their numbers: see sysfs(5).
    shown = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    return Path("/dev") / shown.name


@dataclass
class DeviceWatch:
    """Tells of each second what the device and its limits did.

    The rate is that of the block device, which is what fio completes; what splits a large I/O on
    its way counts more often. A 99th percentile is known only at the end, from fio.
    """

    emit: Emit
    phase: str
    sources: tuple[Source, ...]
    slow: int = 1
    """Seconds of this machine for each second of the disk."""
    client: Gaps = field(default_factory=Gaps)
    """When fio asked for nothing between two seconds in which it did."""
    _idle_s: float = 0.0
    _last_s: float = 0.0
    _done: float = 0.0
    _queue: float = 0.0
    """I/Os under way in the last second, on average."""
    _seen: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, emit: Emit, phase: str, path: Path, show: Callable[[], View], slow: int = 1
    ) -> DeviceWatch:
        """Begin to watch what fio opens as `path`; `show` returns its volume as it is now."""
        sources = (Disk(NAME, behind(path)), Emulator(NAME, show))
        watch = cls(emit, phase, sources, slow)
        # Remembers where the counters stand.
        watch._ask(0.0)
        return watch

    def tick(self, elapsed_s: float) -> None:
        """Tell of the last second when it is over; `elapsed_s` is since the start, of here."""
        interval_s = elapsed_s - self._last_s
        if interval_s < INTERVAL_S:
            return
        self._last_s = elapsed_s
        self._ask(interval_s)
        rate = sum(self._seen.get(f"disk {NAME}: {kind}_iops", 0.0) for kind in ("read", "write"))
        self._done += rate * interval_s / self.slow
        self._note_idle(rate, interval_s / self.slow)
        t_s = elapsed_s / self.slow
        told = Progress(self.phase, t_s, round(self._done), None, rate, seen=dict(self._seen))
        self.emit(told)

    def _note_idle(self, rate: float, interval_s: float) -> None:
        """Count a second in which nothing was done and nothing was under way."""
        if not rate and not self._queue:
            # Before its first I/O fio starts.
            self._idle_s += interval_s if self._done else 0.0
            return
        self.client.add(self._idle_s)
        self._idle_s = 0.0

    def _ask(self, interval_s: float) -> None:
        for source in self.sources:
            for metric, value in source.sample(interval_s / self.slow, self.slow):
                if metric == "queue":
                    self._queue = value
                if followed(source.name, metric):
                    self._seen[f"{source.name}: {metric}"] = value


# Large enough that neither a host cache block nor the file system's journal matters, small enough
# to be written in seconds at the 25 MB/s of the slowest disk.
REGION_BYTES = 256 * MIB
ENGINE: Engine = "libaio"


@dataclass(frozen=True)
class DeviceTurn:
    """What fio is to do for a turn."""

    turn: Turn

    @property
    def plan(self) -> Plan:
        """One cell, as long as the effort allows."""
        asked = trial_of(self.turn.trial)
        duration_s = min(asked.duration_s, self.turn.effort.longest_run_s)
        slow = self.turn.trial.share.time_dilation
        spec = self.turn.trial.spec
        return Plan(
            (asked.cell,),
            duration_s,
            REGION_BYTES,
            ENGINE,
            slow,
            # A short rehearsal warms up as much shorter.
            spec.workload.warm_up_s * duration_s / asked.duration_s,
            spec.before.credits_ratio,
        )


def check(turn: Turn) -> None:
    """Raise UserError when fio or the memory for its buffers is missing."""
    fio.find_fio(ENGINE)
    fio.check_memory(DeviceTurn(turn).plan)


def run(turn: Turn, frame: Frame, started: str, emit: Emit) -> TrialResult:
    """Make the disk, fill the region, measure, remove the disk; return the result."""
    asked, plan = trial_of(turn.trial), DeviceTurn(turn).plan
    name = ", ".join(map(str, turn.trial.factors.values())) or frame.title
    emit(PhaseStarted("build", f"{asked.disk.disks} on {asked.disk.vm}, {asked.filesystem}"))
    with made_for_probe(asked.disk, name, plan, asked.filesystem) as subject:
        tell = _Teller(emit, subject, plan.time_dilation)
        (cell,) = probe(fio.find_fio(plan.engine), subject, plan, tell)
    stood_still = tell.stood_still(cell.measurement.runtime_s)
    cell = replace(cell, invalid=(*cell.invalid, *stood_still))
    return result_of(turn, frame, started, cell)


class _Teller:
    """Takes the probe's events and tells of phases and of each second in them."""

    def __init__(self, emit: Emit, subject: OurSubject, slow: int) -> None:
        self._emit = emit
        self._path, self._show = subject.region.path, subject.known.show
        self._slow = slow
        self._of_subject = f"{subject.name}: "
        self._watch: DeviceWatch | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case PhaseStarted(phase=phase, detail=detail):
                # A trial has one disk, and its event is named after the trial already.
                self._emit(PhaseStarted(phase, detail.removeprefix(self._of_subject)))
                # The disk's time is slow only while it is measured.
                slow = 1 if phase == "fill" else self._slow
                self._watch = DeviceWatch.of(self._emit, phase, self._path, self._show, slow)
            case Progress(t_s=elapsed_s) if self._watch is not None:
                self._watch.tick(elapsed_s)

    def stood_still(self, measured_s: float) -> list[str]:
        """Return why the last step says nothing of the disk: fio asked for nothing."""
        watch = self._watch
        reason = None if watch is None else watch.client.reason("fio", measured_s)
        return [] if reason is None else [reason]


def expected_s(turn: Turn) -> float:
    """Return a guess of how long a turn takes: the disk is made, filled and measured."""
    plan = DeviceTurn(turn).plan
    return ATTACH_S + expected_fill_s(plan) + plan.duration_s * plan.time_dilation


def result_of(turn: Turn, frame: Frame, started: str, cell: CellResult) -> TrialResult:
    """Return a measured cell as a result."""
    base = outcome.base(frame, turn.trial, turn.repeat)
    return TrialResult.model_validate({**dict(base), **figures_of(cell), "started": started})
