"""What a member says of itself: Prometheus's text, as far as disklab uses it.

**Source:** etcd's documentation, "Metrics" (3.4).
"""

from __future__ import annotations

from collections.abc import Mapping

BUCKETS = {
    "etcd_disk_wal_fsync_duration_seconds": "wal_fsync",
    "etcd_disk_backend_commit_duration_seconds": "backend_commit",
}
"""Histograms, and what their counters are called: `wal_fsyncs_within_8_ms`, `wal_fsyncs`,
`wal_fsync_s`."""
COUNTERS = {
    "etcd_server_leader_changes_seen_total": "leader_changes",
    "etcd_server_proposals_failed_total": "failed_proposals",
    "etcd_server_heartbeat_send_failures_total": "late_heartbeats",
}
GAUGES = {
    "etcd_server_proposals_pending": "pending_proposals",
    "etcd_mvcc_db_total_size_in_bytes": "database_bytes",
}
EDGES_MS = tuple(1 << power for power in range(14))
"""Upper edges of both histograms. **Source:** wal/metrics.go and mvcc/backend/metrics.go:
exponential buckets from 1 ms, each twice the one before."""


def within(histogram: str, edge_ms: int) -> str:
    """Return the counter of what took at most so long, in the machine's own time."""
    return f"{histogram}s_within_{edge_ms}_ms"


def read(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return gauges and counters of a member."""
    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("etcd_"):
            continue
        told, _, number = line.rpartition(" ")
        name, _, label = told.partition("{")
        if name in GAUGES:
            gauges[GAUGES[name]] = float(number)
        elif name in COUNTERS:
            counters[COUNTERS[name]] = float(number)
        else:
            _histogram(name, label, float(number), counters)
    return gauges, counters


def _histogram(name: str, label: str, value: float, counters: dict[str, float]) -> None:
    base, _, part = name.rpartition("_")
    called = BUCKETS.get(base)
    if called is None:
        return
    if part == "count":
        counters[f"{called}s"] = value
    elif part == "sum":
        counters[f"{called}_s"] = value
    elif part == "bucket" and "+Inf" not in label:
        edge_s = float(label.removeprefix('le="').removesuffix('"}'))
        counters[within(called, round(edge_s * 1000))] = value


def added(members: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the sums over all members."""
    found: dict[str, float] = {}
    for counters in members.values():
        for name, value in counters.items():
            found[name] = found.get(name, 0.0) + value
    return found
