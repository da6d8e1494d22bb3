"""Whether an option may be bought: it keeps the promise with the head-room, and nothing is crowded.

One function judges a sketch, a quick cell and a finalist under the asked rate with the head-room on
top; a finalist keeps the promise under the asked rate too, there with its band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from disklab.results import TrialResult
from disklab.results.required import Kept, Outcome, Point, Required, fullest, judge, offered_per_s
from disklab.spec.require import Require

MOST_USED = 0.7
"""Of each limit in the mean, at the asked rate. **Assumed:** work that comes in bursts, such as
compaction, takes what is left, and queues up at what is fuller; `head_room: 0%` allows all."""

SLACK = 1.25
"""A quick cell may keep a latency that it misses by this factor.

**Source:** the engine's own note on quick runs: p95 and p99 up to a fifth too high.
"""


SHORT = 0.95
"""Of how full a limit may be, in a cell that is shorter than one that proves an answer: in a minute
flushes and compactions fill it by some percent more than in 20 s."""

SURE = 0.98
"""The same in a cell that proves an answer. Assumed: other random streams change it by less."""


def most_used(require: Require | Required) -> float:
    """Return how full a limit may be at the asked rate."""
    return MOST_USED if require.head_room_ratio else 1.0


def bought(required: Required, results: Sequence[TrialResult], margin: float = 1.0) -> Kept:
    """Judge an option by its results with figures, of which there is one at least.

    `margin`: share of what a limit may be full that a short cell may show.
    """
    told = judge(required, results)
    crowded = None if told.achieved_ratio is not None else _crowded(required, results, margin)
    if crowded is None:
        return told
    outcome = told.outcome if told.outcome is Outcome.CANNOT_SUSTAIN else Outcome.MISSED
    return replace(told, outcome=outcome, points=(*told.points, crowded))


def with_room(told: Kept, raised: Kept | None, room_ratio: float) -> Kept:
    """Return the judgement of an option from those at the asked rate and with the head-room.

    Latencies are those of the asked rate, so an overload that begins above it is no overload.
    """
    if raised is None or raised.outcome is Outcome.MET or told.achieved_ratio is not None:
        return told
    where = f"with {room_ratio * 100:.0f} % more load"
    more = tuple(
        replace(one, what=f"{one.what} {where}", outcome=Outcome.MISSED)
        for one in raised.points
        if one.outcome is raised.outcome or raised.achieved_ratio is not None
    )
    return replace(told, outcome=Outcome.MISSED, points=(*told.points, *more))


def _crowded(required: Required, results: Sequence[TrialResult], margin: float) -> Point | None:
    """Return the limit that is fuller than is allowed at the asked rate; None: none is."""
    most, rate = most_used(required), required.rate_per_s
    most *= margin if required.head_room_ratio else 1.0
    for result in results:
        used, offered = fullest(result), offered_per_s(result) or result.ops_per_s
        if used is None or not offered or not rate:
            continue
        at_asked = used * min(1.0, rate / offered)
        if at_asked > most:
            name = fullest_limit(result)
            shown = f"{at_asked * 100:.0f} %"
            return Point(
                name, Outcome.MISSED, f"at most {most * 100:.0f} % full", shown, at_asked / most
            )
    return None


TELLING = 0.5
"""A limit that is emptier is not why something is slow."""


def limits_of(result: TrialResult) -> dict[str, float]:
    """Return how full each limit is."""
    used = {one.limit: one.utilisation for one in result.telemetry.limits if one.utilisation}
    if result.bottleneck is not None and result.bottleneck.utilisation:
        used.setdefault(result.bottleneck.resource, result.bottleneck.utilisation)
    return used


def fullest_limit(result: TrialResult) -> str:
    """Return the name of the fullest limit."""
    used = limits_of(result)
    return max(used, key=lambda name: used[name])


LIMITS = {"node": "the nodes'", "client": "the client's", "vm": "the VM's", "data": "the data"}


def limit_is(name: str, used: str) -> str:
    """Return how full a limit is as people say it: `the nodes' CPU is 51 % busy`."""
    first, space, rest = name.partition(" ")
    whose = LIMITS.get(first, first) + space + rest
    verb = "are" if name.casefold().endswith("s") else "is"
    return f"{whose} {verb} {used} {'busy' if rest == 'CPU' else 'used'}"


def bare(required: Required) -> Required:
    """Return a promise without its head-room, for cells that are not offered it."""
    return required.model_copy(update={"head_room_ratio": 0.0})


def loosened(required: Required) -> Required:
    """Return a promise whose latencies have the slack of a quick run."""
    update: dict[str, object] = {}
    for name in ("all", "read", "write"):
        bounds = getattr(required, name)
        if bounds is not None:
            looser = {key: value * SLACK for key, value in bounds if value is not None}
            update[name] = bounds.model_copy(update=looser)
    if required.storage_p99_ms is not None:
        update["storage_p99_ms"] = required.storage_p99_ms * SLACK
    return required.model_copy(update=update)
