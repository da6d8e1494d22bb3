"""Which figures other work on this machine spoiled: the rate, the median and the tail, each alone.

By Little's law the seconds that our threads waited, in each second, over the operations under way
are the share of an operation's time that was such waiting. What a full machine does to a load that
waits for a slow disk is little by that measure, and what three writers do to one that waits for
nothing is much: how much of the processors others took says neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disklab.results.records import MEDIAN, RATE, SPOILABLE, TAIL

MOST_SHARE: Mapping[str, float] = {RATE: 0.1, MEDIAN: 0.15, TAIL: 0.3}
"""Of an operation's time. A rate that is a tenth too low is a difference that verdicts are made of;
a percentile of a short run strays by more by itself."""
REACH = 0.01
"""A wait that meets fewer than one operation in a hundred is beyond the 99th percentile."""


@dataclass(frozen=True)
class Wait:
    """One kind of waiting that the described system does not have."""

    what: str
    """`for a processor that other programs had`."""
    per_s: float
    """Seconds of it in each second, of all threads together."""
    tail_ms: float
    """What one in a hundred of these waits took."""
    blocks: float = 0.0
    """For which share of the time all operations waited behind it, where a server is one thread."""


def marks(  # noqa: PLR0913 - the figures of one measurement
    waits: Sequence[Wait],
    ops_per_s: float,
    mean_ms: float,
    p99_ms: float,
    *,
    achieved: bool,
    p50_ms: float = math.inf,
    slowed_cores: float = 0.0,
) -> dict[str, str]:
    """Return the figures that do not count, each with the reason; times are of one clock.

    `achieved`: the rate is one that was offered, and all of it was done. `slowed_cores`: seconds of
    work in each second that are there because others use this machine's caches and memory.
    """
    in_flight = ops_per_s * mean_ms / 1e3
    if not waits or in_flight <= 0 or p99_ms <= 0:
        return {}
    found: dict[str, str] = {}
    each = sum(wait.per_s for wait in waits) / in_flight
    # Of many threads each waits for its own; behind one all wait for all.
    share = max(each, sum(wait.blocks for wait in waits))
    first = max(waits, key=lambda wait: wait.per_s)
    for figure in (MEDIAN,) if achieved else (RATE, MEDIAN):
        if share > MOST_SHARE[figure]:
            found[figure] = (
                f"operations spent {min(share, 1.0):.0%} of their time waiting, most of it "
                f"{first.what}"
            )
    # Work is in each operation, so it is held against the usual one, not against a mean of waits.
    slower = slowed_cores / ops_per_s * 1e3 / p50_ms
    if slower > MOST_SHARE[MEDIAN] and MEDIAN not in found:
        found[MEDIAN] = (
            f"{slower:.0%} of an operation's time was work that takes longer beside other programs"
        )
    reaching = [wait for wait in waits if _reaches(wait, ops_per_s)]
    longest = max(reaching, key=lambda wait: wait.tail_ms, default=None)
    if longest is not None and longest.tail_ms > MOST_SHARE[TAIL] * p99_ms:
        found[TAIL] = f"one wait in a hundred {longest.what} took {longest.tail_ms:.2g} ms"
    elif MEDIAN in found:
        # What slows all operations slows the slowest too.
        found[TAIL] = found[MEDIAN]
    return found


def _reaches(wait: Wait, ops_per_s: float) -> bool:
    """Return whether waits so long meet one operation in a hundred.

    Each holds one operation up, or, where it holds a log or a lock up, all that come meanwhile.
    """
    if wait.tail_ms <= 0:
        return False
    waits_per_s = wait.per_s / (wait.tail_ms / 1e3)
    return max(waits_per_s / ops_per_s, wait.per_s) >= REACH


def in_words(found: Mapping[str, str]) -> list[str]:
    """Return a line for each reason, with the figures that it spoils."""
    by_reason: dict[str, list[str]] = {}
    for figure, words in SPOILABLE.items():
        if figure in found:
            by_reason.setdefault(found[figure], []).append(words)
    told = {why: " and the ".join(names) for why, names in by_reason.items()}
    return [f"other programs disturbed the {names}: {why}" for why, names in told.items()]
