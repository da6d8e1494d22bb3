"""A timetable of what breaks, as the simulator takes it: which node it happens to, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disklab.databases.simulating import NS_PER_S
from disklab.spec import Cluster, TimedEvent
from disklab.spec.timetable import CLIENT, in_order, nodes_of

MILLION = 1_000_000

MOVING = ("migrate", "move", "add")
"""Events that bring a host, such as `host` says."""


def moves_of(events: Sequence[TimedEvent]) -> list[TimedEvent]:
    """Return the events that bring a host, in the order of time."""
    return [event for _, event in in_order(events) if event.kind in MOVING]


@dataclass(frozen=True)
class Step:
    """What happens to one node."""

    event: TimedEvent
    node: int
    what: str
    host: int | None

    def job(self) -> dict[str, Any]:
        """Return it as the simulator takes it."""
        event = self.event
        job: dict[str, Any] = {
            "at_ns": round(event.at_s * NS_PER_S),
            "node": self.node,
            "what": self.what,
        }
        if self.host is not None:
            job["host"] = self.host
        if event.ends:
            job["link"] = {
                "extra_ns": round((event.round_trip_s or 0.0) / 2 * NS_PER_S),
                "loss_ppm": round((event.loss_ratio or 0.0) * MILLION),
                "cut": event.kind == "cut",
            }
            if event.bandwidth_bytes_per_s is not None:
                job["link"]["bytes_per_s"] = event.bandwidth_bytes_per_s
        if len(event.ends) > 1:
            (peer,) = set(event.ends) - {f"n{self.node + 1}"}
            job["peer"] = peer if peer == CLIENT else {"node": int(peer.removeprefix("n")) - 1}
        return job


def steps_of(events: Sequence[TimedEvent], cluster: Cluster | None) -> list[Step]:
    """Return what happens to which node, in the order of time: a lost zone is its nodes, lost."""
    hosts = iter(range(len(events)))
    found = []
    for _, event in in_order(events):
        what = "lose" if event.kind == "lose_zone" else event.kind
        # What happens to a way between two happens once.
        nodes = nodes_of(event, cluster)[: 1 if event.ends else None]
        host = next(hosts) if event.kind in MOVING else None
        found += [Step(event, int(node.removeprefix("n")) - 1, what, host) for node in nodes]
    return found
