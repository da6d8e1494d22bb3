"""Nodes of Cassandra that break, as the simulator takes it.

What a node needs to notice a fault and to start are Cassandra's own defaults, each with its source;
what comes back to it takes the time of the simulated disks, links and throttles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from disklab.databases.cassandra import simulated_settings
from disklab.databases.cassandra.configuration import RING_DELAY_MS
from disklab.databases.simulating import (
    CLIENT_TIMEOUT_S,
    INTERVAL_S,
    NS_PER_S,
    Breaking,
    Delays,
    steps_of,
)
from disklab.spec import Cluster, ClusterTrial, TimedEvent
from disklab.spec.model import Database

GOSSIP_S = 1.0
"""From one round of gossip to the next. **Source:** Gossiper.intervalInMillis of Cassandra."""

PHI_PER_MEAN = 0.434
"""What phi grows by for each mean distance of heartbeats. **Source:** PHI_FACTOR of Cassandra's
FailureDetector, 1 / ln 10."""

USUAL_PHI = 8
"""**Source:** `phi_convict_threshold` of cassandra.yaml, all versions."""

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

DELAYS = Delays(
    start_s=PROCESS_S + SETTLE_S,
    join_s=SCHEMA_S + RING_DELAY_S,
    notice_s=CLIENT_TIMEOUT_S,
    ring_s=RING_DELAY_S,
    gossip_s=GOSSIP_S,
)

REHEARSED_RING_DELAY_S = RING_DELAY_MS["several"] / 1000
REHEARSED = Delays(
    start_s=PROCESS_S,
    join_s=SCHEMA_S + REHEARSED_RING_DELAY_S,
    notice_s=0.0,
    ring_s=REHEARSED_RING_DELAY_S,
    gossip_s=GOSSIP_S,
)
"""A rehearsal's nodes do not wait for gossip, and a lost one is killed: its sockets close."""


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
    own = simulated_settings.fault_settings(settings, database.version)
    batches_s = LEAVES_AFTER_TIMEOUTS * own["write_timeout_ns"] / NS_PER_S
    return {
        "events": [step.job() for step in steps_of(events, cluster)],
        "interval_ns": round(INTERVAL_S * NS_PER_S),
        "detect_ns": round(phi / PHI_PER_MEAN * delays.gossip_s * NS_PER_S),
        "notice_ns": round(delays.notice_s * NS_PER_S),
        "timeout_ns": round(CLIENT_TIMEOUT_S * NS_PER_S),
        **own,
        "validate_thread_bytes_per_s": VALIDATE_BYTES_PER_S,
        "start_ns": round(delays.start_s * NS_PER_S),
        "join_ns": round(delays.join_s * NS_PER_S),
        "announce_ns": round(max(delays.ring_s, batches_s) * NS_PER_S),
        "leave_ns": round(delays.ring_s * NS_PER_S),
        "gossip_ns": round(delays.gossip_s * NS_PER_S),
        **({"hosts": [*hosts]} if hosts else {}),
    }


STREAM_SEEN_S = 15.0
"""How long a stream is simulated at least, so that its rate is known when it goes on beyond the
load. **Reason:** 1,400 pieces of 256 KiB at the usual throttle of 24 MiB/s, and collections of the
load beside them."""

BEFORE_IT_STREAMS = {
    "replace": DELAYS.start_s + DELAYS.join_s,
    "add": DELAYS.start_s + DELAYS.join_s,
    "migrate": DELAYS.start_s + DELAYS.join_s,
    "decommission": DELAYS.ring_s,
}
"""Seconds from an event to its stream, by kind."""


def load_kept_s(spec: ClusterTrial) -> float | None:
    """Return for how long a prediction keeps the load up, in seconds from where it counts.

    At least as long as the experiment says, and until every stream of its timetable has been seen,
    or the rows are known to be lost with the only copy; None: the experiment gives no time. Changes
    of the ring that wait for one another may begin later.
    """
    stop = spec.workload.stop
    asked_s = stop.duration_s if stop is not None else None
    if asked_s is None:
        return None
    streams = (
        event.at_s + BEFORE_IT_STREAMS[event.kind] + STREAM_SEEN_S
        for event in spec.events
        if event.kind in BEFORE_IT_STREAMS
    )
    return max((asked_s, *streams))


LEVERS = {
    "stream throughput": "raise stream_throughput_outbound (nodetool setstreamthroughput)",
    "stream writer": "one thread writes what one node sends: more nodes send more at a time",
    "compaction throughput": "raise compaction_throughput (nodetool setcompactionthroughput)",
    "validation": "one thread a node hashes: repair several ranges at a time (nodetool repair -st)",
    "link": "a link that is shorter or loses less: TCP sends one window each round trip",
    "node network": "a VM size with more network bandwidth",
    "node CPU": "a VM size with more processors",
    "latency": "no limit is reached: each piece waits for the network, and more nodes send more "
    "at a time",
}
"""By what bounds a rebuild."""


def lever_of(resource: str, kind: str) -> str:
    """Return what makes a rebuild of any kind faster that a resource of the simulator bounds."""
    del kind
    if resource in LEVERS:
        return LEVERS[resource]
    if resource.startswith("vm "):
        return "a VM size with more disk IOPS and MB/s"
    return "larger disks, or more of them"


BREAKING = Breaking(DELAYS, faults_job, lever_of)
