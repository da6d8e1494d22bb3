"""Servers of PostgreSQL that break, as the simulator takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from disklab.databases.simulated_steps import steps_of
from disklab.databases.simulating import CLIENT_TIMEOUT_S, INTERVAL_S, NS_PER_S, Breaking, Delays
from disklab.spec import Cluster, TimedEvent
from disklab.spec.model import Database

PROCESS_S = 0.1
"""From the start of the process until it answers, with nothing to replay.

**Source:** our own PostgreSQL 15 of 2026-11-25, load average 17: 80 and 24 ms from `starting
PostgreSQL` to `ready to accept connections`.
"""

FOLLOW_S = 5.0
"""How often a standby looks for a primary that it has lost.

**Source:** `wal_retrieve_retry_interval` of PostgreSQL's manual, 20.6.3.
"""

FIRST_RETRY_S, MOST_RETRY_S = 0.1, 1.0
"""Pauses of clients that cannot connect, which double.

**Source:** disklab's own load engine; a pool of connections with a back-off does the same.
"""

REPLAY_RECORD_CPU_NS, REPLAY_BYTE_CPU_PS = 1000, 450
"""CPU of the process that replays the log, beside what pages cost that it reads.

**Source:** our own PostgreSQL 15 of 2026-11-25, rows of 1 KB updated at random, killed after 0.8
and 1.05 GB of log with 1.08 and 1.73 million records: 1.05 and 1.65 s of user's CPU, and 0.60 s of
the system's where all pages had room in shared_buffers. Together 1.65 and 3.97 s, where these two
and 3 us for a page that is read or written make 1.7 and 4.1 s.
"""

REPLAY_DEPTH = 10
"""Pages that are read ahead of their turn. **Source:** `maintenance_io_concurrency` of the manual,
20.4.5."""

PROMOTE_S = 0.1
"""From the word to a standby that it is the primary until it takes changes, all being replayed.

**Source:** PostgreSQL 15's xlog.c: a record of the end of recovery and a sync of the log, no
checkpoint; `pg_promote` itself looks ten times a second.
"""

COPY_SEND_BYTE_CPU_PS, COPY_TAKE_BYTE_CPU_PS = 450, 1100
"""CPU of the process that sends a copy of the primary's data, and of the program that takes it.

**Source:** pg_basebackup of our own PostgreSQL 15 over loopback, 2026-11-25, 962 MB that the page
cache had, three times: 0.41 to 0.45 s of the server's processes, 1.0 to 1.3 s of pg_basebackup.
"""

EVENTS = (
    *("kill", "lose", "start", "restart", "replace", "promote"),
    *("slow", "stall", "mend", "credits"),
)
"""What the simulator does to servers."""

DELAYS = Delays(
    start_s=PROCESS_S,
    join_s=0.0,
    notice_s=CLIENT_TIMEOUT_S,
    ring_s=FOLLOW_S,
    gossip_s=MOST_RETRY_S,
)
REHEARSED = replace(DELAYS, notice_s=0.0)
"""A rehearsal's lost server is killed: its sockets close."""


def faults_job(
    events: Sequence[TimedEvent],
    database: Database,
    delays: Delays,
    cluster: Cluster | None = None,
    hosts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the timetable as `SqlFaults` of `crates/disklab-sim/src/job/faults.rs` has it.

    `cluster`: whose zones may be lost; servers move to no other hosts.
    """
    assert not hosts, "no event that the simulator knows brings a host"
    settings = database.settings
    return {
        "events": [step.job() for step in steps_of(events, cluster)],
        "interval_ns": round(INTERVAL_S * NS_PER_S),
        "start_ns": round(delays.start_s * NS_PER_S),
        "timeout_ns": round(CLIENT_TIMEOUT_S * NS_PER_S),
        "vanishes": delays.notice_s > 0,
        "first_retry_ns": round(delays.gossip_s * FIRST_RETRY_S / MOST_RETRY_S * NS_PER_S),
        "most_retry_ns": round(delays.gossip_s * NS_PER_S),
        "follow_ns": round(delays.ring_s * NS_PER_S),
        "replay_record_cpu_ns": REPLAY_RECORD_CPU_NS,
        "replay_byte_cpu_ps": REPLAY_BYTE_CPU_PS,
        "replay_depth": max(int(settings.get("maintenance_io_concurrency", REPLAY_DEPTH)), 1),
        "promote_ns": round(delays.start_s * PROMOTE_S / PROCESS_S * NS_PER_S),
        "copy_send_byte_ps": COPY_SEND_BYTE_CPU_PS,
        "copy_take_byte_ps": COPY_TAKE_BYTE_CPU_PS,
    }


LESS = "a smaller max_wal_size or checkpoint_timeout leaves less log to replay"


FASTER_COPY = {
    "reads of the copy": (
        "a longer read_ahead of the primary's data volume: one process reads a copy, one window "
        "at a time"
    ),
    "sending process": "faster cores: one process of the primary sends all of it",
    "copying program": "faster cores: one program on the new server takes all of it",
    "node network": "a VM size with more network bandwidth",
    "node CPU": "a VM size with more vCPUs, or less load meanwhile",
    "latency": "a shorter way between the zones: a copy has one connection",
}
"""What else than disks bounds a copy, and what makes it faster."""


def lever_of(resource: str, kind: str) -> str:
    """Return what makes a replay, or a copy of the primary's data, faster.

    `resource`: what bounds it in the simulator; `kind`: `replay` or `stream`.
    """
    if kind == "stream":
        if resource.startswith("vm "):
            return "a VM size with more disk IOPS and MB/s"
        return FASTER_COPY.get(resource, "larger disks, or more of them")
    if resource.startswith("vm "):
        return f"a VM size with more disk IOPS and MB/s; {LESS}"
    if "disk" in resource:
        return f"larger disks, or more of them; {LESS}"
    return LESS


BREAKING = Breaking(DELAYS, faults_job, lever_of, replaces=False)
