"""What is written down while a trial runs: phases, seconds, telemetry; and who is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from disklab.engine import LimitCounters, View
from disklab.engine.load import LoadDone, LoadProgress, Stop, TpccOutcome
from disklab.events import Emit, PhaseStarted, Progress, Warned
from disklab.hosts.protocol import Node
from disklab.procedures.burst import CreditsCourse
from disklab.procedures.jobs import Effort
from disklab.results import (
    Histogram,
    LimitWait,
    Phase,
    Recovery,
    Second,
    Whole,
    decode,
    encode,
    merged,
)
from disklab.telemetry import Sampler
from disklab.telemetry.gaps import Gaps, client_gap_s

# A measurement as a series of passes, added up exactly.
#
# Why passes: a cold measurement is transient. Three million reads of 150 million rows leave the
# page cache of the full system cold to the end. At a scale of 1/500 the same measurement is a
# thousand reads and a fifth of a second; going on would warm the cache and answer another
# question. So it is done again and again, each time from the same condition, until there is enough
# of it.


@dataclass
class Series:
    """What the passes of a trial have given so far."""

    effort: Effort
    again: bool = True
    """False: one pass is all, such as a run in steady state."""
    timed: bool = False
    """Whether a pass ends after a time alone, however many operations that are."""
    headline: str | None = None
    """The operation whose rate and latency stand for the whole; None: all together."""
    passes: int = 0
    operations: int = 0
    elapsed_s: float = 0.0
    cpu_ns: int = 0
    unsent: int = 0
    wrong_rows: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """By kind of operation."""
    last_error: str | None = None
    tpcc: list[TpccOutcome] = field(default_factory=list)
    """Of each pass, where the workload is TPC-C; of its check, as the last one."""
    rates: list[float] = field(default_factory=list)
    """Operations a second of each interval, in order."""
    _begun: float = field(default_factory=time.monotonic)
    _response: dict[str, Histogram] = field(default_factory=dict)
    _service: dict[str, Histogram] = field(default_factory=dict)
    _lateness: Histogram | None = None

    def wants_more(self) -> bool:
        """Return whether another pass is to be made."""
        if self.passes == 0:
            return True
        if not self.again or self.passes >= self.effort.most_passes:
            return False
        return not self.is_enough() and not self.is_over_time()

    def is_enough(self) -> bool:
        """Return whether there are operations and seconds enough."""
        if self.timed:
            return self.elapsed_s >= self.effort.least_timed_s
        enough = self.operations >= self.effort.least_operations
        return enough and self.elapsed_s >= self.effort.least_load_s

    def is_over_time(self) -> bool:
        """Return whether the series with all that lies between its passes takes too long."""
        return time.monotonic() - self._begun >= self.effort.most_series_s

    def goal(self, stop: Stop) -> int | None:
        """Return how many operations the series will have at least; None: time decides."""
        each = stop.operations
        if not self.again or self.timed:
            return each
        if each is None:
            return self.effort.least_operations
        return -(-self.effort.least_operations // each) * each

    def add(self, done: LoadDone) -> None:
        """Add a pass."""
        if self.passes == 0:
            # What lies before the first pass (a fill) is not repeated.
            self._begun = time.monotonic()
        self.passes += 1
        self.elapsed_s += done.elapsed_s
        self.cpu_ns += done.cpu_ns
        self.unsent += done.unsent
        self.wrong_rows += done.wrong_rows
        self.last_error = done.last_error or self.last_error
        for kind, count in done.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        for mine, told in ((self._response, done.response), (self._service, done.service)):
            for operation, text in told.items():
                found = decode(text)
                mine[operation] = merged([mine[operation], found]) if operation in mine else found
        for operation, summary in done.operations.items():
            self.counts[operation] = self.counts.get(operation, 0) + summary.count
        self.operations = sum(self.counts.values())
        if done.tpcc is not None:
            self.tpcc.append(done.tpcc)
        if done.lateness is not None:
            late = decode(done.lateness)
            self._lateness = merged([self._lateness, late]) if self._lateness else late

    def check(self, done: LoadDone) -> None:
        """Add what a check of the data found after the last pass."""
        if done.tpcc is not None:
            self.tpcc.append(done.tpcc)

    @property
    def ops_per_s(self) -> float:
        """Operations that succeeded, in each second of load."""
        counted = self.operations if self.headline is None else self.counts.get(self.headline, 0)
        return counted / self.elapsed_s if self.elapsed_s else 0.0

    def response(self, operation: str | None = None) -> Histogram:
        """Return the response times in ns of one kind of operation, or those of the trial."""
        chosen = operation or self.headline
        if chosen is None:
            return merged(self._response.values())
        return merged([self._response[chosen]] if chosen in self._response else [])

    def service(self, operation: str) -> Histogram | None:
        """Return the service times in ns of one kind of operation."""
        return self._service.get(operation)

    def mean_ms(self) -> float:
        """Return the mean response time of all operations together."""
        return merged(self._response.values()).mean / 1e6 if self.operations else 0.0

    def lateness(self) -> Histogram | None:
        """Return by how much operations were sent late, in ns."""
        return self._lateness

    def whole(self) -> Whole:
        """Return the histograms of the whole series."""
        return Whole(
            elapsed_s=self.elapsed_s,
            response={name: encode(one) for name, one in self._response.items()},
            service={name: encode(one) for name, one in self._service.items()},
            lateness=encode(self._lateness) if self._lateness else None,
        )

    def in_words(self) -> str:
        """Return how the measurement was made up."""
        if self.passes == 1:
            return f"{self.operations} operations in {self.elapsed_s:.1f} s"
        return (
            f"{self.passes} passes from the same condition: {self.operations} operations, "
            f"{self.elapsed_s:.1f} s of load"
        )


# What the emulated disks did while a trial was measured: the sum over its passes.
#
# Counters are read before and after each pass, so that what happens between passes (fills, dropped
# caches, compactions) is no part of it, however short the passes are.

LimitKey = tuple[str, str, str, str]
"""Volume, place, unit and scope."""


@dataclass
class LimitSum:
    """One limit of one volume, over all nodes and passes."""

    per_s: int
    granted: int = 0
    delayed_ios: int = 0
    delayed_ns: int = 0
    credits_start: int | None = None
    credits_left: int | None = None
    credits_capacity: int | None = None


@dataclass
class Account:
    """Sums of one measurement."""

    elapsed_s: float = 0.0
    read_ios: int = 0
    read_bytes: int = 0
    write_ios: int = 0
    write_bytes: int = 0
    ios_by_host: dict[str, int] = field(default_factory=dict)
    bytes_by_host: dict[str, int] = field(default_factory=dict)
    """Reads and writes of all volumes of a host."""
    hit_ios: int = 0
    miss_ios: int = 0
    has_cache: bool = False
    replies: int = 0
    late_replies: int = 0
    limits: dict[LimitKey, LimitSum] = field(default_factory=dict)
    views: dict[tuple[str, str], tuple[View, View]] = field(default_factory=dict)
    """By host and volume: before the first pass and after the last."""

    @contextmanager
    def counting(self, nodes: Sequence[Node]) -> Iterator[dict[tuple[str, str], View]]:
        """Count what happens inside the block, unless it fails. Yields the views before it."""
        before = _views(nodes)
        yield before
        after = _views(nodes)
        for key, view in before.items():
            if key in after and not after[key].began_anew(view):
                self._add(*key, view, after[key])
            else:
                # Moved to another VM: what its disks did is not known as a whole.
                after.setdefault(key, view)
            first = self.views[key][0] if key in self.views else view
            self.views[key] = first, after[key]

    def hit_ratio(self) -> float | None:
        """Return the share of disk reads that the host cache served; None: it is not used."""
        total = self.hit_ios + self.miss_ios
        return self.hit_ios / total if self.has_cache and total else None

    def late_ratio(self) -> float | None:
        """Return the share of the emulator's replies that were late."""
        return self.late_replies / self.replies if self.replies else None

    def waits(self, elapsed_s: float) -> list[LimitWait]:
        """Return the limits by how long they made I/Os wait, longest first."""
        found = [
            LimitWait(
                limit=name_of(place, unit, scope, one.per_s),
                volume=volume,
                delayed_ios=one.delayed_ios,
                delayed_ms=one.delayed_ns / 1e6,
                utilisation=one.granted / one.per_s / elapsed_s if elapsed_s else None,
                credits_start=one.credits_start,
                credits_left=one.credits_left,
                credits_capacity=one.credits_capacity,
            )
            for (volume, place, unit, scope), one in self.limits.items()
        ]
        return sorted(found, key=lambda one: -one.delayed_ms)

    def busiest(self) -> tuple[int, int] | None:
        """Return I/Os and bytes of the host whose disks did the most; None: none was counted."""
        if not self.ios_by_host:
            return None
        host = max(self.ios_by_host, key=lambda one: self.ios_by_host[one])
        return self.ios_by_host[host], self.bytes_by_host[host]

    def _add(self, host: str, volume: str, before: View, after: View) -> None:
        old, new = before.counters, after.counters
        for kind in ("read", "write"):
            ios = new.operations[kind].ios - old.operations[kind].ios
            bytes_ = new.operations[kind].bytes - old.operations[kind].bytes
            setattr(self, f"{kind}_ios", getattr(self, f"{kind}_ios") + ios)
            setattr(self, f"{kind}_bytes", getattr(self, f"{kind}_bytes") + bytes_)
            self.ios_by_host[host] = self.ios_by_host.get(host, 0) + ios
            self.bytes_by_host[host] = self.bytes_by_host.get(host, 0) + bytes_
        if new.cache is not None and old.cache is not None and after.profile.caching != "None":
            self.has_cache = True
            self.hit_ios += new.cache.hit_ios - old.cache.hit_ios
            self.miss_ios += new.cache.miss_ios - old.cache.miss_ios
        self.replies += after.emulator.replies - before.emulator.replies
        self.late_replies += after.emulator.late_replies - before.emulator.late_replies
        for limit, was in new.limits_since(old):
            if was is not None:
                self._add_limit(_key(volume, limit), was, limit)

    def _add_limit(self, key: LimitKey, was: LimitCounters, now: LimitCounters) -> None:
        """Add what a limit did `now`, since it was `was`."""
        total = self.limits.setdefault(key, LimitSum(now.per_s))
        total.granted += now.granted
        total.delayed_ios += now.delayed_ios
        total.delayed_ns += now.delayed_ns
        if now.credits is not None and was.credits is not None:
            if total.credits_start is None:
                total.credits_start = was.credits.left
            total.credits_left = now.credits.left
            total.credits_capacity = now.credits.capacity


def name_of(place: str, unit: str, scope: str, per_s: int) -> str:
    """Return a limit as the report names it: `vm cached 512 MB/s`, `disk 0 5000 IOPS`."""
    rate = f"{per_s} IOPS" if unit == "ios" else f"{per_s / 1e6:g} MB/s"
    return f"{place} {rate}" + ("" if scope == "all" else f" {scope}")


def _views(nodes: Sequence[Node]) -> dict[tuple[str, str], View]:
    return {(node.name, volume): node.show(volume) for node in nodes for volume in node.attached}


def _key(volume: str, limit: LimitCounters) -> LimitKey:
    return volume, limit.place, limit.unit, limit.scope


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
