"""A timetable of faults as the simulator takes it, and what it answers as a recovery.

What a node needs to notice a fault and to start are Cassandra's own defaults, each with its source;
what comes back to it takes the time of the simulated disks, links and throttles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.databases.cassandra.configuration import RING_DELAY_MS
from disklab.prediction import cassandra_yaml
from disklab.results import Bottleneck, Rebuild, Recovery, StepTaken
from disklab.results.timetable import recovery_of
from disklab.spec import Cluster, TimedEvent
from disklab.spec.model import Database
from disklab.spec.timetable import in_order, nodes_of

Answer = dict[str, Any]

NS_PER_S, NS_PER_MS = 1_000_000_000, 1_000_000

INTERVAL_S = 1.0
"""Of the course, as a rehearsal's."""

GOSSIP_S = 1.0
"""From one round of gossip to the next. **Source:** Gossiper.intervalInMillis of Cassandra."""

PHI_PER_MEAN = 0.434
"""What phi grows by for each mean distance of heartbeats. **Source:** PHI_FACTOR of Cassandra's
FailureDetector, 1 / ln 10."""

USUAL_PHI = 8
"""**Source:** `phi_convict_threshold` of cassandra.yaml, all versions."""

CLIENT_TIMEOUT_S = 12.0
"""How long a client waits for a machine that has vanished without closing its connections.

**Source:** the request time-out of disklab's load engine; drivers of Cassandra have 12 s too.
"""

PROCESS_S = 4.3
"""A JVM with Cassandra until it answers, without the delays below.

**Source:** our own measurement of 2026-11-21: 5.3 s to the first row of CQL with a ring delay of
one second (Cassandra 5.0, JDK 17, two cores, nothing else running).
"""

SETTLE_S = 8.0
"""Until gossip counts as settled. **Source:** Gossiper.waitToSettle: 5 s and three polls of 1 s."""

RING_DELAY_S = 30.0
"""How long a replacement at the dead node's address listens before it streams.

**Source:** StorageService.RING_DELAY, 30 s, which prepareForBootstrap waits for; a replacement
with another address waits for 60 s (LoadBroadcaster.BROADCAST_INTERVAL).
"""

SCHEMA_S = 5.9
"""Until a replacement has the schema, before that. **Source:** the log of a replaced node in our
own rehearsal of 2026-11-24 (Cassandra 5.0.6): 5.9 s from `waiting for ring information` to `schema
complete`, and 5.0 s more, its ring delay, until it streamed."""


LEAVES = 2
"""Ring delays that a node waits for that leaves in order, beside what it streams.

**Source:** StorageService of Cassandra 2.1 to 5.0: `sleeping 30000 ms for batch processing and
pending range setup` before it streams, `Announcing that I have left the ring for 30000ms` after it.
"""


@dataclass(frozen=True)
class Delays:
    """What a node waits for without a disk."""

    start_s: float = PROCESS_S + SETTLE_S
    join_s: float = SCHEMA_S + RING_DELAY_S
    notice_s: float = CLIENT_TIMEOUT_S
    leave_s: float = LEAVES * RING_DELAY_S


REHEARSED_RING_DELAY_S = RING_DELAY_MS["several"] / 1000
REHEARSED = Delays(
    start_s=PROCESS_S,
    join_s=SCHEMA_S + REHEARSED_RING_DELAY_S,
    notice_s=0.0,
    leave_s=LEAVES * REHEARSED_RING_DELAY_S,
)
"""A rehearsal's nodes do not wait for gossip, and a lost one is killed: its sockets close."""

MOVING = ("migrate", "move")
"""Events that bring a host, such as `host` says."""


def moves_of(events: Sequence[TimedEvent]) -> list[TimedEvent]:
    """Return the events that bring a host, in the order of time."""
    return [event for _, event in in_order(events) if event.kind in MOVING]


def _steps_of(events: Sequence[TimedEvent], cluster: Cluster | None) -> list[_Step]:
    """Return what happens to which node, in the order of time: a lost zone is its nodes, lost."""
    hosts = iter(range(len(events)))
    found = []
    for _, event in in_order(events):
        what = "lose" if event.kind == "lose_zone" else event.kind
        nodes = nodes_of(event, cluster)
        host = next(hosts) if event.kind in MOVING else None
        found += [_Step(event, int(node.removeprefix("n")) - 1, what, host) for node in nodes]
    return found


@dataclass(frozen=True)
class _Step:
    """What happens to one node."""

    event: TimedEvent
    node: int
    what: str
    host: int | None

    def job(self) -> dict[str, Any]:
        """Return it as the simulator takes it."""
        host = {} if self.host is None else {"host": self.host}
        at_ns = round(self.event.at_s * NS_PER_S)
        return {"at_ns": at_ns, "node": self.node, "what": self.what, **host}


def faults_job(
    events: Sequence[TimedEvent],
    database: Database,
    delays: Delays,
    cluster: Cluster | None = None,
    hosts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the timetable as `crates/disklab-sim/src/job/faults.rs` has it.

    `cluster`: whose zones may be lost; `hosts`: what nodes move to, one for each of `moves_of`, as
    a job has its cluster.
    """
    settings = database.settings
    phi = float(str(settings.get("phi_convict_threshold", USUAL_PHI)))
    return {
        "events": [step.job() for step in _steps_of(events, cluster)],
        "interval_ns": round(INTERVAL_S * NS_PER_S),
        "detect_ns": round(phi / PHI_PER_MEAN * GOSSIP_S * NS_PER_S),
        "notice_ns": round(delays.notice_s * NS_PER_S),
        **cassandra_yaml.fault_settings(settings, database.version),
        "start_ns": round(delays.start_s * NS_PER_S),
        "join_ns": round(delays.join_s * NS_PER_S),
        "leave_ns": round(delays.leave_s * NS_PER_S),
        "gossip_ns": round(GOSSIP_S * NS_PER_S),
        **({"hosts": [*hosts]} if hosts else {}),
    }


LEVERS = {
    "stream throughput": "raise stream_throughput_outbound (nodetool setstreamthroughput)",
    "stream writer": "one thread writes what one node sends: more nodes send more at a time",
    "node network": "a VM size with more network bandwidth",
    "node CPU": "a VM size with more processors",
    "latency": "nothing is full: each piece waits for its way, and more nodes send more at a time",
}
"""By what bounds a rebuild."""


def lever_of(resource: str) -> str:
    """Return what makes a rebuild faster that is bound by a resource of the simulator."""
    if resource in LEVERS:
        return LEVERS[resource]
    if resource.startswith("vm "):
        return "a VM size with more disk IOPS and MB/s"
    return "larger disks, or more of them"


def recovery_from(
    told: Answer, events: Sequence[TimedEvent], cluster: Cluster | None, *, rows: int
) -> Recovery:
    """Return what the faults did, in the form of a rehearsed timetable.

    `told`: the answer's `faults`; `rows`: of the data, which the simulator counts and does not
    read.
    """
    taken = {
        id(asked.event): StepTaken(
            kind=asked.event.kind,
            node=asked.event.node,
            at_s=asked.event.at_s,
            begun_s=round(step["begun_s"], 3),
            ended_s=round(step["ended_s"], 3),
        )
        for step, asked in zip(told["steps"], _steps_of(events, cluster), strict=False)
    }
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
            "rebuilds": [_rebuild(one) for one in told["rebuilds"]],
            "degraded_ms": told.get("degraded_latency_ms", {}),
            "extrapolated": any(step["extrapolated"] for step in told["steps"]),
        }
    )


def _rebuild(told: Answer) -> Rebuild:
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
        lever=lever_of(bound["resource"]),
    )
