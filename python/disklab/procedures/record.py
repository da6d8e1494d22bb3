"""What is written down while a trial runs: phases, seconds, telemetry; and who is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from disklab.engine.load import LoadProgress
from disklab.events import Emit, PhaseStarted, Progress, Warned
from disklab.hosts.protocol import Node
from disklab.procedures.account import Account
from disklab.procedures.burst import CreditsCourse
from disklab.results import Phase, Recovery, Second, Whole
from disklab.telemetry import Sampler
from disklab.telemetry.gaps import Gaps, client_gap_s

MEASURED = "measure"
BETWEEN = "between"
"""Phases of the telemetry: what is measured, and what lies between passes."""


class SecondsSink(Protocol):
    """Takes the seconds of a trial, and the whole of it: `SecondsWriter`, or another process."""

    def second(self, told: Second) -> None:
        """Take an interval."""

    def whole(self, told: Whole | dict[str, Any]) -> None:
        """Take the whole phase."""


class TelemetrySink(Protocol):
    """Takes the telemetry of a trial: `TelemetryWriter`, or another process."""

    def add(self, phase: str, t_s: float, source: str, metric: str, value: float) -> None:
        """Take one figure."""


@dataclass
class Notes:
    """The notes of one trial or repeat, from its first phase to its last."""

    emit: Emit
    seconds: SecondsSink
    telemetry: TelemetrySink
    trial: int
    repeat: int
    sampler: Sampler | None = None
    """Watches once a second; None: nothing is there to be watched yet."""
    account: Account = field(default_factory=Account)
    credits: CreditsCourse = field(default_factory=CreditsCourse)
    phases: list[Phase] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Of a procedure that measures more than once: every step, in order."""
    threads: int | None = None
    """Of the step that is the result."""
    recovery: Recovery | None = None
    """What the faults of the trial's timetable did."""
    ends_s: list[float] = field(default_factory=list)
    """Of each measured interval, in order."""
    client: Gaps = field(default_factory=Gaps)
    """When the load stood still while it was measured."""
    _seen: dict[str, float] = field(default_factory=dict)
    """The last values of what disks and limits do; see `Progress.seen`."""
    _load_s: float = 0.0
    """Load of the earlier passes: seconds of a series are counted on."""
    _operations: int = 0

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[None]:
        """Note a phase and how long it took; phases of one name add up."""
        self.emit(PhaseStarted(name, detail))
        begun = time.monotonic()
        try:
            yield
        finally:
            self._add(name, time.monotonic() - begun, detail)

    @contextmanager
    def watching(self, nodes: Sequence[Node], slow: int = 1) -> Iterator[None]:
        """Count what disks and processes do inside the block as part of the measurement.

        `slow`: seconds of this machine for each second of the nodes inside it.
        """
        with self.account.counting(nodes) as before:
            self.credits.begin_pass(before)
            self._enter(MEASURED, slow)
            try:
                yield
            finally:
                self._enter(BETWEEN)

    def saw(self, phase: str, t_s: float, source: str, metric: str, value: float) -> None:
        """Take a row of the sampler."""
        self.telemetry.add(phase, t_s, source, metric, value)
        if phase == MEASURED:
            self.credits.saw(source, metric, value)
            if followed(source, metric):
                self._seen[f"{source}: {metric}"] = value

    def _enter(self, phase: str, slow: int = 1) -> None:
        if self.sampler is not None:
            self.sampler.enter(phase, slow)

    def describe(self, name: str, detail: str) -> None:
        """Say how a phase was done, once it is known."""
        self.phases = [
            one.model_copy(update={"detail": detail}) if one.name == name else one
            for one in self.phases
        ]

    def count(self, name: str, operations: int) -> None:
        """Say how many operations an unmeasured phase had; they add up as its time does."""
        self.phases = [
            one.model_copy(update={"operations": (one.operations or 0) + operations})
            if one.name == name
            else one
            for one in self.phases
        ]

    def warn(self, text: str) -> None:
        """Note a warning once."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.emit(Warned(text, self.trial, self.repeat))

    def watcher(self, phase: str, of: int | None) -> Callable[[LoadProgress], None]:
        """Return what takes the load engine's progress lines of a phase that is not measured."""

        def tell(line: LoadProgress) -> None:
            self.emit(progress_of(phase, line, of))

        return tell

    def course(self, of: int | None, rates: list[float]) -> Callable[[LoadProgress], None]:
        """Return what takes the progress lines of a measured pass: they are stored as well.

        Each interval's rate is added to `rates`.
        """
        before_s, before = self._load_s, self._operations
        last_s = 0.0

        def take(line: LoadProgress) -> None:
            nonlocal last_s
            self.client.add(client_gap_s(last_s, line.t_s))
            last_s = line.t_s
            t_s, operations = before_s + line.t_s, before + line.operations
            self._load_s, self._operations = t_s, operations
            rates.append(line.ops_per_s)
            self.ends_s.append(t_s)
            self.credits.interval(line.t_s, line.ops_per_s)
            self.seconds.second(
                Second(
                    t_s=t_s,
                    phase=MEASURED,
                    operations=operations,
                    errors=line.errors,
                    ops_per_s=line.ops_per_s,
                    p50_ms=line.p50_ms,
                    p99_ms=line.p99_ms,
                    histograms=line.histograms,
                )
            )
            told = progress_of(MEASURED, line, of)
            self.emit(replace(told, t_s=t_s, done=operations, seen=dict(self._seen)))

        return take

    def _add(self, name: str, duration_s: float, detail: str) -> None:
        for index, phase in enumerate(self.phases):
            if phase.name == name:
                longer = round(phase.duration_s + duration_s, 3)
                update = {"duration_s": longer, "detail": detail or phase.detail}
                self.phases[index] = phase.model_copy(update=update)
                return
        self.phases.append(Phase(name=name, duration_s=round(duration_s, 3), detail=detail))


def followed(source: str, metric: str) -> bool:
    """Return whether who follows a run is told of a metric: disks, limits, and who has the CPU."""
    if source.startswith("disk "):
        return metric.endswith(("_iops", "_bytes_per_s")) and not metric.startswith("flush")
    if source.startswith("emulator "):
        return metric == "hit_ratio" or metric.startswith(("utilisation ", "credits_ratio "))
    return metric in {"cores", "busy_cores"}


def progress_of(phase: str, line: LoadProgress, of: int | None) -> Progress:
    """Return a progress line of the load engine as an event."""
    return Progress(
        phase=phase,
        t_s=line.t_s,
        done=line.operations,
        of=of,
        ops_per_s=line.ops_per_s,
        p50_ms=line.p50_ms,
        p99_ms=line.p99_ms,
        errors=line.errors,
    )
