"""A device experiment: fio on one emulated volume, no database. The probe does the measuring."""

from __future__ import annotations

from dataclasses import dataclass, replace

from disklab.events import Emit, PhaseStarted
from disklab.probe import fio
from disklab.probe.cells import MIB, Engine, Plan
from disklab.probe.emulated import ATTACH_S, made_for_probe
from disklab.probe.experiment import trial_of
from disklab.probe.record import latency_record, record
from disklab.probe.run import (
    CellResult,
    Event,
    StepProgress,
    StepStarted,
    Subject,
    expected_fill_s,
    probe,
)
from disklab.probe.verdict import Outcome
from disklab.procedures import outcome
from disklab.procedures.device_watch import DeviceWatch
from disklab.procedures.outcome import Frame
from disklab.procedures.turn import Turn
from disklab.results import Bottleneck, LimitWait, Operation, TrialResult
from disklab.results import Telemetry as TelemetryRecord

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
    name = ", ".join(asked.levels.values()) or frame.title
    emit(PhaseStarted("build", f"{asked.disk.disks} on {asked.disk.vm}, {asked.filesystem}"))
    with made_for_probe(asked.disk, name, plan, asked.filesystem) as subject:
        tell = _Teller(emit, subject, plan.time_dilation)
        (cell,) = probe(fio.find_fio(plan.engine), subject, plan, tell)
    stood_still = tell.stood_still(cell.measurement.runtime_s)
    cell = replace(cell, invalid=(*cell.invalid, *stood_still))
    return result_of(turn, frame, started, cell)


class _Teller:
    """Takes the probe's events and tells of phases and of each second in them."""

    def __init__(self, emit: Emit, subject: Subject, slow: int) -> None:
        known = subject.known
        assert known is not None, "the disk was made here"
        assert known.show is not None, "the disk was made here"
        self._emit = emit
        self._path, self._show = subject.region.path, known.show
        self._slow = slow
        self._watch: DeviceWatch | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted(what=what):
                fills = what.startswith("writing")
                phase = "fill" if fills else "measure"
                self._emit(PhaseStarted(phase, what))
                # The disk's time is slow only while it is measured.
                slow = 1 if fills else self._slow
                self._watch = DeviceWatch.of(self._emit, phase, self._path, self._show, slow)
            case StepProgress(elapsed_s=elapsed_s) if self._watch is not None:
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
    told = record(cell, turn.trial.index, frame.title)
    waits = [
        LimitWait(limit=wait.limit, delayed_ios=wait.delayed_ios, delayed_ms=wait.delayed_ns / 1e6)
        for wait in (cell.telemetry.waits if cell.telemetry else ())
    ]
    bound = told["bottleneck"]
    return outcome.base(frame, turn.trial, turn.repeat).model_copy(
        update={
            "status": "invalid" if cell.invalid else "ok",
            "valid": not cell.invalid,
            "warnings": [*cell.warnings, *beyond_this_machine(cell)],
            "invalid_reasons": list(cell.invalid),
            "ops_per_s": cell.measurement.iops,
            "loop": told["loop"],
            "latency_ms": told["latency_ms"],
            "per_operation": {
                name: Operation(
                    operations=side.ios,
                    ops_per_s=side.ios / cell.measurement.runtime_s,
                    latency_ms=latency_record(side.latency),
                    service_ms=latency_record(side.latency),
                )
                for name, side in cell.measurement.sides.items()
            },
            "bottleneck": Bottleneck(**bound) if bound else None,
            "host_cache_hit_ratio": cell.telemetry.hit_ratio if cell.telemetry else None,
            "telemetry": TelemetryRecord(
                limits=waits, late_ratio=cell.telemetry.late_ratio if cell.telemetry else None
            ),
            "started": started,
            "duration_s": cell.measurement.runtime_s,
            "mb_per_s": told["mb_per_s"],
            "promise": told["promise"],
            "verdict": told["verdict"],
            "fio": told["fio"],
        }
    )


def beyond_this_machine(cell: CellResult) -> list[str]:
    """Return which limit of this machine stood in the way of the disk's promise, if one did."""
    judged = cell.verdict
    if judged is None or judged.outcome is not Outcome.BEYOND_MACHINE:
        return []
    return [f"{judged.quantity}: {judged.held_back_by}"]
