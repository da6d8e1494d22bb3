"""Whether a disk kept its promise in a cell; if not, by how much, and what held it back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from disklab.engine.messages import Envelope, LimitCounters, View
from disklab.probe.cells import Cell
from disklab.probe.fio import Measurement
from disklab.probe.promise import Promise
from disklab.results.records import SPOILABLE
from disklab.telemetry import spoiled as spoiling
from disklab.telemetry.gaps import Gaps

# Healthy hosts of the Azure Samples Cassandra study (2019) wrote 19200 to 20100 IOPS against a
# limit of 20000, and its bad ones 2979 to 14500; five per cent separates the two.
RATE_TOLERANCE_RATIO = 0.05
# Measured steady rates sit 2 to 7 % above the disk's figure (Azure, several publishers 2019-2022).
# What is higher still did not come from the disk as described: credits, a cache or no limit.
OVERSHOOT_RATIO = 0.07
# What the emulator holds itself to (p99 within 10 %, and p50 of the fastest disks too); fio's
# histogram bins of 1.6 % lie well inside.
LATENCY_TOLERANCE_RATIO = 0.10
# A percentile with fewer samples beyond it moves by more than the tolerance from run to run.
MIN_SAMPLES_BEYOND = 50
JUDGED_PERCENTILES = (50.0, 99.0)
# Beyond this share of late replies p99 tells of the emulating machine, not of the disk.
LATE_RATIO = 0.01
# Waits of less than this share of the I/Os' time in flight did not shape the result.
THROTTLED_RATIO = 0.01
# While a FLUSH is under way FUSE lets no write through (fuse_fsync holds the file's lock), and loop
# nothing of the same control group (its one worker waits); a real disk would. Where that was more
# of the time than this, it tells.
FLUSHING_RATIO = 0.05


class Outcome(str, Enum):
    """How the promise was kept."""

    MET = "met"
    SHORT = "short"
    ABOVE = "above"
    BEYOND_MACHINE = "beyond this machine"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Wait:
    """How long one limit made I/Os wait during a cell."""

    limit: str
    delayed_ios: int
    delayed_ns: int
    granted: int
    """I/Os or bytes that it let through."""
    per_s: int
    credits_left: int | None


@dataclass(frozen=True)
class Telemetry:
    """What the emulator counted during one cell."""

    waits: tuple[Wait, ...]
    """Longest first."""
    hit_ratio: float | None
    """Share of read I/Os that the host cache served; None without cache or reads."""
    pieces: float
    """Into how many I/Os the kernel split each of fio's, in the mean."""
    replies: int
    late_replies: int
    lateness_p99_ns: int
    lateness_ns: int = 0
    """Of all replies together."""
    flush_ratio: float = 0.0
    """Share of the time in which a FLUSH was under way."""
    longest_stop_s: float = 0.0
    """The longest time in which the emulator answered nothing that it should have."""
    faults: tuple[str, ...] = ()
    """Kinds of the faults that were injected and not mended."""

    @property
    def late_ratio(self) -> float:
        """Share of replies that left later than the model had decided."""
        return self.late_replies / self.replies if self.replies else 0.0

    @property
    def late(self) -> bool:
        """Whether more replies were late than the results can bear."""
        return self.late_ratio > LATE_RATIO

    @property
    def at_fault(self) -> bool:
        """Whether this machine held the emulated disk up, whatever its limits did."""
        return not self.faults and (self.late or self.flush_ratio > FLUSHING_RATIO)


def telemetry(before: View, after: View, cell: Cell, flush_ratio: float = 0.0) -> Telemetry:
    """Return what happened between two views of the volume."""
    old, new = before.counters.operations, after.counters.operations
    ios = sum(new[side].ios - old[side].ios for side in cell.direction.shares)
    bytes_ = sum(new[side].bytes - old[side].bytes for side in cell.direction.shares)
    waits = [
        Wait(
            limit=limit_name(limit),
            delayed_ios=limit.delayed_ios,
            delayed_ns=limit.delayed_ns,
            granted=limit.granted,
            per_s=limit.per_s,
            credits_left=limit.credits.left if limit.credits else None,
        )
        for limit, _ in after.counters.limits_since(before.counters)
    ]
    lateness = after.emulator.lateness_ns.since(before.emulator.lateness_ns)
    return Telemetry(
        waits=tuple(sorted(waits, key=lambda wait: -wait.delayed_ns)),
        hit_ratio=after.counters.hit_ratio(before.counters),
        pieces=cell.block_bytes / (bytes_ / ios) if ios and bytes_ else 1.0,
        replies=after.emulator.replies - before.emulator.replies,
        late_replies=after.emulator.late_replies - before.emulator.late_replies,
        lateness_p99_ns=lateness.p99,
        lateness_ns=lateness.whole_ns,
        flush_ratio=flush_ratio,
        longest_stop_s=after.emulator.longest_stop_s(before.emulator),
        faults=tuple(str(fault.get("kind", fault)) for fault in after.faults),
    )


def limit_name(limit: LimitCounters) -> str:
    """Return `vm cached 512 MB/s` or `disk 0 5000 IOPS`."""
    rate = f"{limit.per_s} IOPS" if limit.unit == "ios" else f"{limit.per_s / 1e6:g} MB/s"
    scope = "" if limit.scope == "all" else f" ({limit.scope}s)"
    return f"{limit.place} {rate}{scope}"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one cell."""

    outcome: Outcome
    quantity: str
    """What decided: `IOPS`, `MB/s`, `p50` or `p99`; of a mix, `p99 of reads`."""
    measured: float
    promised: float
    """IOPS, bytes per second or nanoseconds, as the quantity says."""
    held_back_by: str | None
    """The limit that delayed the I/Os, or what else explains a shortfall; None when nothing did."""

    @property
    def deviation_ratio(self) -> float:
        """Measured over promised, minus one; a latency above the promise is positive too."""
        return self.measured / self.promised - 1 if self.promised else 0.0

    @property
    def short(self) -> str:
        """The verdict in two or three words, without the reason."""
        if self.outcome in (Outcome.NOT_JUDGED, Outcome.BEYOND_MACHINE):
            return str(self.outcome.value)
        if self.outcome is Outcome.MET and self.deviation_ratio > OVERSHOOT_RATIO:
            return "met, above its base rate"
        if self.outcome is Outcome.MET:
            return f"met ({self.deviation_ratio:+.0%})"
        # Beyond twice the promise a factor reads better than a percentage.
        factor = self.measured / self.promised if self.promised else float("inf")
        off = f"{abs(self.deviation_ratio):.0%}"
        if self.outcome is Outcome.ABOVE:
            return f"above by {off}" if factor < 2 else f"above: {factor:.0f} times"
        if self.quantity.startswith("p"):
            return (
                f"{self.quantity} +{off}" if factor < 2 else f"{self.quantity} {factor:.1f} times"
            )
        return f"short by {off}"

    def __str__(self) -> str:
        """Return the verdict with its reason."""
        return f"{self.short}; {self.held_back_by}" if self.held_back_by else self.short


def judge(
    measured: Measurement,
    owed: Promise,
    seen: Telemetry | None,
    envelope: Envelope | None,
) -> Verdict:
    """Hold one measurement against the promise; the first thing that fell short decides."""
    rate = rate_verdict(measured, owed)
    if owed.split_pieces is not None:
        split = f"the kernel split each I/O into {owed.split_pieces:.1f} on its way to the disk"
        return replace(rate, outcome=Outcome.NOT_JUDGED, held_back_by=split)
    slow = slow_percentile(measured, owed)
    verdict = slow if slow is not None and rate.outcome is not Outcome.ABOVE else rate
    outcome = verdict.outcome
    reason = throttled_by(measured, seen)
    if outcome is Outcome.SHORT:
        wall = envelope_wall(measured.cell, owed, envelope)
        if wall is not None:
            outcome, reason = Outcome.BEYOND_MACHINE, wall
        elif seen is not None and (reason is None or seen.at_fault):
            # An emulated disk cannot be slower than its model unless this machine is.
            outcome, reason = Outcome.BEYOND_MACHINE, own_overhead(verdict, seen)
        elif reason is None and owed.burst is not None:
            reason = f"below even its base rate, {owed.bound_by}: the host itself is slow"
        elif reason is None:
            reason = "no limit explains it: the host itself is slow"
    elif outcome is Outcome.MET and owed.burst is not None:
        reason = credits_spent(verdict, owed.bound_by, owed.burst.bound_by)
    return Verdict(outcome, verdict.quantity, verdict.measured, verdict.promised, reason)


def credits_spent(verdict: Verdict, base: str, burst: str) -> str:
    """Return what is to be said of a disk that keeps its base rate, below its burst.

    `base`, `burst`: what bounds them.
    """
    if verdict.deviation_ratio > OVERSHOOT_RATIO:
        return (
            f"between its base rate, {base}, and its burst: credits ran out "
            f"({burst} while they last)"
        )
    return f"its base rate, {base}: the burst credits are spent ({burst} while they last)"


def rate_verdict(measured: Measurement, owed: Promise) -> Verdict:
    """Judge IOPS, or MB/s where a byte cap binds."""
    quantity = "MB/s" if "MB/s" in owed.bound_by else "IOPS"
    got, due = (
        (measured.bytes_per_s, owed.bytes_per_s)
        if quantity == "MB/s"
        else (measured.iops, owed.iops)
    )
    # A latency-bound loop is as fast as its latencies, which have their own tolerance.
    tolerance = LATENCY_TOLERANCE_RATIO if owed.percentiles_ns else RATE_TOLERANCE_RATIO
    outcome = Outcome.MET
    if got < due * (1 - tolerance):
        outcome = Outcome.SHORT
    elif owed.burst is None and got > due * (1 + max(tolerance, OVERSHOOT_RATIO)):
        outcome = Outcome.ABOVE
    return Verdict(outcome, quantity, got, due, None)


def slow_percentile(measured: Measurement, owed: Promise) -> Verdict | None:
    """Return the first judged percentile that lies above its promise; None when all keep it."""
    promised = owed.percentiles_ns or {}
    for percentile in JUDGED_PERCENTILES:
        for name, side in measured.sides.items():
            if name not in promised:
                continue
            beyond = side.ios * (1 - percentile / 100)
            got, due = side.latency.percentiles_ns[percentile], promised[name][percentile]
            if beyond >= MIN_SAMPLES_BEYOND and got > due * (1 + LATENCY_TOLERANCE_RATIO):
                whose = f" of {name}s" if len(promised) > 1 else ""
                return Verdict(Outcome.SHORT, f"p{percentile:g}{whose}", got, due, None)
    return None


def throttled_by(measured: Measurement, seen: Telemetry | None) -> str | None:
    """Return which fault or limit delayed the I/Os; None when hardly anything did."""
    if seen is not None and seen.faults:
        return f"a fault is injected: {', '.join(seen.faults)}"
    wait = throttling(measured, seen)
    return f"throttled by {wait.limit}" if wait else None


def throttling(measured: Measurement, seen: Telemetry | None) -> Wait | None:
    """Return the limit that fio's own I/Os waited for longest; None: they hardly waited.

    What waited for longer than all of fio's I/Os took was behind them: a write cache's destage.
    """
    if seen is None:
        return None
    in_flight_ns = measured.ios * measured.latency.mean_ns
    most_ns = in_flight_ns * seen.pieces * (1 + THROTTLED_RATIO)
    waits = [wait for wait in seen.waits if wait.delayed_ns <= most_ns]
    if sum(wait.delayed_ns for wait in waits) < in_flight_ns * THROTTLED_RATIO:
        return None
    return waits[0]


def own_overhead(short: Verdict, seen: Telemetry) -> str:
    """Return what this machine added to an emulated disk that no limit delayed."""
    if seen.flush_ratio > FLUSHING_RATIO:
        return (
            f"{short.short}, and this machine is why: a FLUSH was under way {seen.flush_ratio:.0%} "
            "of the time, and no write gets through to an emulated disk meanwhile"
        )
    return (
        f"{short.short}, and this machine is why: {seen.late_ratio:.1%} of the replies were late, "
        "the rest is the way through kernel and emulator"
    )


def envelope_wall(cell: Cell, owed: Promise, envelope: Envelope | None) -> str | None:
    """Return which limit of the emulating machine stands below the promise; None when none does."""
    if envelope is None:
        return None
    medians = [of[50.0] for of in (owed.percentiles_ns or {}).values()]
    if medians and min(medians) < envelope.p50_ns:
        least_us, due_us = envelope.p50_ns / 1e3, min(medians) / 1e3
        return f"the emulator's lowest p50 here is {least_us:.0f} us, {due_us:.0f} us is promised"
    if cell.load.outstanding > 1 and owed.iops > envelope.iops:
        return f"the emulator reaches {envelope.iops:.0f} IOPS here, {owed.iops:.0f} are promised"
    if owed.bytes_per_s > envelope.bytes_per_s:
        most, due = envelope.bytes_per_s / 1e6, owed.bytes_per_s / 1e6
        return f"the emulator reaches {most:.0f} MB/s here, {due:.0f} are promised"
    return None


def spoiled(measured: Measurement, seen: Telemetry | None) -> dict[str, str]:
    """Return which figures of a cell late replies spoiled: the rate, the median, the tail.

    Lateness that is small against what was measured spoils nothing: a reply that leaves 100 us
    late does not change a cell whose I/Os wait for 100 ms.
    """
    if seen is None or not measured.ios:
        return {}
    wait = spoiling.Wait(
        "for replies that this machine made late",
        seen.lateness_ns / 1e9 / measured.runtime_s,
        seen.lateness_p99_ns / 1e6,
    )
    tail_ns = min(side.latency.percentiles_ns[99.0] for side in measured.sides.values())
    mean_ms = measured.latency.mean_ns / 1e6
    return spoiling.marks([wait], measured.iops, mean_ms, tail_ns / 1e6, achieved=False)


def invalid_reasons(measured: Measurement, seen: Telemetry | None) -> tuple[str, ...]:
    """Return why a cell says nothing about the disk; empty when it does.

    An emulator that stood still is late by that time, however few its late replies are.
    """
    if seen is None:
        return ()
    stop = Gaps.of([seen.longest_stop_s]).reason("the emulator", measured.runtime_s)
    if stop is not None:
        return (stop,)
    marks = spoiled(measured, seen)
    return tuple(spoiling.in_words(marks)) if len(marks) == len(SPOILABLE) else ()
