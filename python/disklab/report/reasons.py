"""Why a cell is as fast as it is: the limit that bound it, the caches, credits, client. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disklab.report.cells import Cell, median
from disklab.report.wording import percent, rate, significant
from disklab.results import TrialResult

MOSTLY = 0.5
"""A cache that serves the greater part of the reads decides how fast they are."""
CREDITS_LOW = 0.2
"""Below that share of its credits a volume is about to fall to its baseline."""
CLIENT_LATE_SHARE = 0.1
"""A client that sends later than a tenth of the median latency shapes what it measures."""
LATENCY = "latency"
"""What predictions name as the bottleneck when operations waited for nothing but service.

Rehearsals, which see the disks, name the volume before it: `data latency`.
"""
BUSY = 0.9
"""Share of a resource from which on it is the limit."""

ABOVE_BASELINE = 1.05
"""Share of a baseline above which it was burst, and not the rounding of a short run."""


@dataclass(frozen=True)
class Why:
    """What is known of one cell's limits; None where nobody looked."""

    bound_by: str | None
    utilisation: float | None
    hit_ratio: float | None
    credits_left: float | None
    """Lowest of its volumes, share of the capacity."""
    client_cpu: float | None
    emulator_late: float | None
    delayed_share: float | None
    """Time that I/Os waited at the binding limit, over the time that operations took."""
    credits_gone: str = ""
    """When burst credits ran out in mid-run, and the rates before and after; else empty."""

    def bound(self) -> str:
        """Return which limit bound, and how much of it was used."""
        if self.bound_by == LATENCY:
            return "bound by latency, not by a limit"
        if self.bound_by and self.bound_by.endswith(f" {LATENCY}"):
            volume, share = self.bound_by.removesuffix(f" {LATENCY}"), self.utilisation
            took = f": {percent(share)} of an operation's time" if share else ""
            return f"bound by the latency of {volume}{took}"
        used = self.used()
        return f"bound by {(self.bound_by or '').strip()}" + (f" ({used})" if used else "")

    def used(self) -> str:
        """Return how much of the binding limit was used; empty: nobody knows.

        A share is of the baseline. What is more than all of it was burst, on credits.
        """
        if self.utilisation is None:
            return ""
        if self.utilisation > ABOVE_BASELINE:
            return f"burst, {significant(self.utilisation, 2)} x its baseline"
        return f"{percent(min(self.utilisation, 1.0))} used"

    def phrases(self) -> list[str]:
        """Return the reasons, the most telling first."""
        told = []
        if self.bound_by:
            told.append(self.bound())
        if self.hit_ratio is not None:
            told.append(f"{percent(self.hit_ratio)} of reads came from the host cache")
        if self.credits_gone:
            told.append(self.credits_gone)
        elif self.credits_left is not None and self.credits_left < CREDITS_LOW:
            told.append(f"{percent(self.credits_left)} of the burst credits were left")
        if self.client_cpu is not None and self.client_cpu >= BUSY:
            told.append(f"the client used {percent(self.client_cpu)} of the machine")
        return told


def why(cell: Cell) -> Why:
    """Return what a cell's repeats say of its limits; medians over them."""
    usable = cell.usable or cell.results
    bottlenecks = [result.bottleneck for result in usable if result.bottleneck is not None]
    names = [one.resource for one in bottlenecks]
    common = max(set(names), key=names.count) if names else None
    used = [one.utilisation for one in bottlenecks if one.resource == common]
    return Why(
        bound_by=common,
        utilisation=median([value for value in used if value is not None]),
        hit_ratio=over(usable, lambda result: result.host_cache_hit_ratio),
        credits_left=over(usable, credits_left),
        client_cpu=over(usable, lambda result: result.telemetry.cpu_ratio.get("client")),
        emulator_late=over(usable, lambda result: result.telemetry.late_ratio),
        delayed_share=over(usable, delayed_share),
        credits_gone=credits_gone(usable),
    )


def credits_gone(results: Sequence[TrialResult]) -> str:
    """Return when credits ran out, of the first repeat in which they did; empty: in none."""
    for result in results:
        for one in result.credits_gone[:1]:
            return (
                f"burst credits ran out after {one.at_s:g} s: {rate(one.ops_per_s_before)} ops/s "
                f"before, {rate(one.ops_per_s_after)} after"
            )
    return ""


def over(
    results: tuple[TrialResult, ...], of: Callable[[TrialResult], float | None]
) -> float | None:
    """Return the median of a figure over the repeats that have it."""
    return median([value for result in results if (value := of(result)) is not None])


def credits_left(result: TrialResult) -> float | None:
    """Return the lowest share of credits left at the end; None without credits."""
    shares = [
        limit.credits_left / limit.credits_capacity
        for limit in result.telemetry.limits
        if limit.credits_left is not None and limit.credits_capacity
    ]
    return min(shares, default=None)


def delayed_share(result: TrialResult) -> float | None:
    """Return the wait at all limits over the time that all operations took, up to 1."""
    waited = sum(limit.delayed_ms for limit in result.telemetry.limits)
    mean = result.latency_ms.get("mean")
    if not result.telemetry.limits or not mean or not result.ops_per_s or not result.duration_s:
        return None
    return min(1.0, waited / (result.ops_per_s * result.duration_s * mean))


def reasons_of_pair(first: Cell, second: Cell, leaning: int, names: tuple[str, str]) -> list[str]:
    """Return why two cells differ, or do not; nothing when nothing was seen that tells."""
    one, other = why(first), why(second)
    if leaning == 0:
        for side, name in ((one, names[0]), (other, names[1])):
            if side.hit_ratio is not None and side.hit_ratio >= MOSTLY:
                return [f"{percent(side.hit_ratio)} of reads came from the host cache ({name})"]
        if one.bound_by and one.bound_by == other.bound_by:
            return [f"both were {one.bound()}"]
        return []
    slow, fast = (one, other) if leaning > 0 else (other, one)
    slow_name, fast_name = names if leaning > 0 else names[::-1]
    told = []
    if slow.bound_by and slow.bound_by != fast.bound_by:
        told.append(f"{slow_name} was {slow.bound()}")
    if fast.hit_ratio is not None and fast.hit_ratio >= MOSTLY:
        told.append(f"{percent(fast.hit_ratio)} of reads came from the host cache ({fast_name})")
    if slow.credits_gone:
        told.append(f"{slow_name}: {slow.credits_gone}")
    elif slow.credits_left is not None and slow.credits_left < CREDITS_LOW:
        told.append(f"{slow_name} had {percent(slow.credits_left)} of its burst credits left")
    return told


def status_of(cell: Cell) -> str:
    """Return why a cell has no figures: `invalid: the emulator was late`."""
    result = cell.results[-1]
    return f"{result.status}: {problem_of(result)}".rstrip(": ")


def problem_of(result: TrialResult) -> str:
    """Return what was wrong with a result; the rule only, since the place is in the table."""
    if result.invalid_reasons:
        return "; ".join(result.invalid_reasons)
    return result.reason.rule if result.reason else ""


def late_clients(cell: Cell) -> list[str]:
    """Return a warning for each repeat whose client sent late."""
    told = []
    for result in cell.usable:
        late, half = result.telemetry.client_late_p99_ms, result.latency_ms.get("p50")
        if late is not None and half and late > half * CLIENT_LATE_SHARE:
            told.append(
                f"repeat {result.repeat}: the client sent late, p99 {late:.3g} ms at a median "
                f"latency of {half:.3g} ms"
            )
    return told
