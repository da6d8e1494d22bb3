"""How figures are written for people: three significant digits and a unit that fits."""

from __future__ import annotations

from collections.abc import Iterable

from disklab.probe.cells import Load


def duration(ns: float) -> str:
    """Return `43 us`, `2.84 ms` or `1.20 s`."""
    # Rounded to three digits first, so that 999.9 us becomes 1.00 ms and not 1000 us.
    for unit, factor in (("us", 1e3), ("ms", 1e6)):
        value = ns / factor
        if value < 999.5:
            return f"{three_digits(value)} {unit}"
    return f"{three_digits(ns / 1e9)} s"


def three_digits(value: float) -> str:
    """Return the number with three significant digits, never in exponent form."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def iops(value: float) -> str:
    """Return `5,012` or `261k`: thousands once the last three digits say nothing."""
    return f"{value / 1000:.0f}k" if value >= 99_950 else f"{value:,.0f}"


def mb_per_s(bytes_per_s: float) -> str:
    """Return decimal megabytes a second, as vendors count them."""
    return three_digits(bytes_per_s / 1e6)


def clock(seconds: float) -> str:
    """Return `1:05` or `0:07`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"


def loads(offered: Iterable[Load]) -> str:
    """Return how load was offered: `4 jobs, depth 256`, or each load that there is."""
    return "; ".join(
        f"{load.jobs} {'job' if load.jobs == 1 else 'jobs'}, depth {load.depth}"
        for load in dict.fromkeys(offered)
    )
