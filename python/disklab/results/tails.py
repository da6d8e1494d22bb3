"""What a percentile consists of, in words: the largest stretches of an operation's way first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from disklab.results.records import STRETCHES, TrialResult

LEAST_SHARE = 0.1
"""Of a percentile: smaller stretches are not said."""
MOST_SAID = 3


STORAGE = ("limits", "disk", "slots", "held")
"""Stretches of an operation's way that disks decide: their service, queues at their limits, and
what waits behind both for a slot, the log or a memtable."""


def storage_p99_ms(tail: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return what of p99 is storage, of a cell without pauses; None: nobody tells."""
    found = tail.get("p99")
    return None if not found else sum(found.get(name, 0.0) for name in STORAGE)


def stretches(results: Sequence[TrialResult], percentile: str) -> dict[str, float]:
    """Return the mean milliseconds by stretch over the repeats that tell it, in their order."""
    told = [one.tail_ms[percentile] for one in results if percentile in one.tail_ms]
    return {
        name: sum(one.get(name, 0.0) for one in told) / len(told)
        for name in STRETCHES
        if any(name in one for one in told)
    }


def largest(found: Mapping[str, float]) -> str:
    """Return the stretches that matter: `garbage collection 61 %, disk 23 %`; empty: none."""
    whole = sum(found.values())
    if whole <= 0:
        return ""
    ordered = sorted(found.items(), key=lambda one: -one[1])
    return ", ".join(
        f"{STRETCHES[name]} {share * 100:.0f} %"
        for name, span in ordered[:MOST_SAID]
        if (share := span / whole) >= LEAST_SHARE
    )
