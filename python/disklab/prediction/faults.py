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
from disklab.spec.timetable import CLIENT, in_order, nodes_of

Answer = dict[str, Any]

NS_PER_S = 1_000_000_000
MILLION = 1_000_000

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


LEAVES_AFTER_TIMEOUTS = 2
"""A node that leaves in order waits for the ring delay, or for so many time-outs of a write (what
its batch log may still have to say), before it streams; and for the ring delay behind that.

**Source:** StorageService and BatchlogManager of Cassandra 2.1 to 5.0: `sleeping 30000 ms for batch
processing and pending range setup`, `Announcing that I have left the ring for 30000ms`; 8,000 and
5,000 ms in our own rehearsal of 2026-11-25, whose ring delay is 5 s and whose writes may take 4 s.
"""

VALIDATE_BYTES_PER_S = 240_000_000
"""What one thread of a repair reads, merges and hashes in a second of a core.

**Source:** our own rehearsal of 2026-11-25 (Cassandra 5.0.6, JDK 17, 248 MB of rows of 4,090 B in
six tables on each of three nodes): 0.8, 1.05 and 1.6 s of CPU, so within a factor of 1.5.
"""


@dataclass(frozen=True)
class Delays:
    """What a node waits for without a disk."""

    start_s: float = PROCESS_S + SETTLE_S
    join_s: float = SCHEMA_S + RING_DELAY_S
    notice_s: float = CLIENT_TIMEOUT_S
    ring_s: float = RING_DELAY_S
    gossip_s: float = GOSSIP_S

    def dilated(self, time_dilation: float) -> Delays:
        """Return them in seconds of a system that a rehearsal runs in slow motion.

        Its processes start, and its nodes gossip, at their own pace.
        """
        return Delays(
            start_s=self.start_s / time_dilation,
            join_s=self.join_s / time_dilation,
            notice_s=self.notice_s / time_dilation,
            ring_s=self.ring_s / time_dilation,
            gossip_s=self.gossip_s / time_dilation,
        )


REHEARSED_RING_DELAY_S = RING_DELAY_MS["several"] / 1000
REHEARSED = Delays(
    start_s=PROCESS_S,
    join_s=SCHEMA_S + REHEARSED_RING_DELAY_S,
    notice_s=0.0,
    ring_s=REHEARSED_RING_DELAY_S,
)
"""A rehearsal's nodes do not wait for gossip, and a lost one is killed: its sockets close."""

MOVING = ("migrate", "move", "add")
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
        # What happens to a way between two happens once.
        nodes = nodes_of(event, cluster)[: 1 if event.ends else None]
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
    own = cassandra_yaml.fault_settings(settings, database.version)
    batches_s = LEAVES_AFTER_TIMEOUTS * own["write_timeout_ns"] / NS_PER_S
    return {
        "events": [step.job() for step in _steps_of(events, cluster)],
        "interval_ns": round(INTERVAL_S * NS_PER_S),
        "detect_ns": round(phi / PHI_PER_MEAN * delays.gossip_s * NS_PER_S),
        "notice_ns": round(delays.notice_s * NS_PER_S),
        **own,
        "validate_thread_bytes_per_s": VALIDATE_BYTES_PER_S,
        "start_ns": round(delays.start_s * NS_PER_S),
        "join_ns": round(delays.join_s * NS_PER_S),
        "announce_ns": round(max(delays.ring_s, batches_s) * NS_PER_S),
        "leave_ns": round(delays.ring_s * NS_PER_S),
        "gossip_ns": round(delays.gossip_s * NS_PER_S),
        **({"hosts": [*hosts]} if hosts else {}),
    }


LEVERS = {
    "stream throughput": "raise stream_throughput_outbound (nodetool setstreamthroughput)",
    "stream writer": "one thread writes what one node sends: more nodes send more at a time",
    "compaction throughput": "raise compaction_throughput (nodetool setcompactionthroughput)",
    "validation": "one thread a node hashes: repair several ranges at a time (nodetool repair -st)",
    "link": "a link that is shorter or loses less: TCP sends one window each round trip",
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
    waiting = _steps_of(events, cluster)
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
