"""What the simulator answers of a timetable of faults, as the recovery of a rehearsal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from disklab.databases.simulated_steps import steps_of
from disklab.results import Bottleneck, Rebuild, Recovery, StepTaken
from disklab.results.timetable import recovery_of
from disklab.spec import Cluster, TimedEvent

Answer = dict[str, Any]

Lever = Callable[[str, str], str]
"""Returns what makes a rebuild faster, by the resource that bounds it and its kind."""


def recovery_from(
    told: Answer,
    events: Sequence[TimedEvent],
    cluster: Cluster | None,
    *,
    rows: int,
    lever_of: Lever,
) -> Recovery:
    """Return what the faults did, in the form of a rehearsed timetable.

    `told`: the answer's `faults`; `rows`: of the data, which the simulator counts and does not
    read.
    """
    waiting = steps_of(events, cluster)
    taken = {}
    for step in told["steps"]:
        # A change of the ring that waited for another one comes behind later events.
        asked = next(one for one in waiting if (one.what, one.node) == (step["what"], step["node"]))
        waiting.remove(asked)
        taken[id(asked.event)] = StepTaken(
            kind=asked.event.kind,
            node=asked.event.node,
            at_s=asked.event.at_s,
            begun_s=round(step["begun_s"], 3),
            ended_s=round(step["ended_s"], 3),
        )
    steps = [*taken.values()]
    course = told["course"]
    length_s = course["interval_s"]
    ends_s = [length_s * (at + 1) for at in range(len(course["completed"]))]
    rates = [count / length_s for count in course["completed"]]
    found = recovery_of(steps, ends_s, rates, told["failed_operations"])
    return found.model_copy(
        update={
            "rows_checked": rows,
            "rows_lost": told["lost_rows"],
            "updates_lost": told.get("lost_updates"),
            "rebuilds": [_rebuild(one, lever_of) for one in told["rebuilds"]],
            "degraded_ms": told.get("degraded_latency_ms", {}),
            "extrapolated": any(step["extrapolated"] for step in told["steps"]),
        }
    )


def _rebuild(told: Answer, lever_of: Lever) -> Rebuild:
    bound = told["bound"]
    return Rebuild(
        kind=told["kind"],
        node=f"n{told['node'] + 1}",
        size_bytes=told["bytes"],
        seen_bytes=told["done_bytes"],
        bytes_per_s=told["bytes_per_s"],
        seconds=told["seconds"],
        sources=told["sources"],
        bound=Bottleneck(resource=bound["resource"], utilisation=bound["utilisation"]),
        lever=lever_of(bound["resource"], told["kind"]),
    )
