"""From a trial of etcd to a job of the simulator: `crates/disklab-sim/src/database/etcd/job.rs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from disklab.catalog import Catalog
from disklab.database_settings import Setting, settings_of
from disklab.databases.calibration import Calibration
from disklab.databases.etcd.configuration import BATCH_MS, USUAL_MS, plan_memory
from disklab.databases.etcd.gateway import BELOW_MS, FAQ, LEAST_COUNT, WHAT
from disklab.databases.installed import WAL_VOLUMES
from disklab.databases.simulating import (
    AS_LEFT,
    CLIENT_TIMEOUT_S,
    JOURNAL_WRITES,
    MOST_RETRY_S,
    NS_PER_S,
    REHEARSE,
    Delays,
    Job,
    ServerJobs,
    Simulated,
    outside,
    server_work,
    servers,
    sizes_of,
)
from disklab.errors import Problem
from disklab.results import RuleFinding
from disklab.spec import ClusterTrial
from disklab.spec.model import Database, Dataset
from disklab.spec.timetable import DISK_KINDS

MOST_MEMBERS = 7
"""**Source:** etcd's FAQ, "What is maximum cluster size?"."""

BATCH_PUTS = 10_000
"""**Source:** mvcc/backend/backend.go of 3.4, defaultBatchLimit."""

SIMULATED_EVENTS = ("kill", "lose", "start", "restart", "replace", *DISK_KINDS)

LESS_LOG = "a lower --snapshot-count leaves less log to read"
READ = (
    "heartbeat-interval",
    "election-timeout",
    "backend-batch-interval",
    "backend-batch-limit",
    "snapshot-count",
)
"""Settings that a prediction follows."""


def _unmodelled(spec: ClusterTrial, place: str) -> Iterator[Problem]:
    nodes = spec.cluster.nodes
    if unknown := sorted({event.kind for event in spec.events} - {*SIMULATED_EVENTS}):
        rule = f"of a timetable {', '.join(SIMULATED_EVENTS)} are simulated for etcd"
        yield Problem(f"{place}: events", ", ".join(unknown), rule, REHEARSE)
    if spec.procedure.searches:
        rule = "the search for a rate simulates Cassandra so far"
        yield Problem(f"{place}: procedure", spec.procedure.kind, rule, REHEARSE)
    if nodes % 2 == 0 or nodes > MOST_MEMBERS:
        rule = f"an odd number of members is simulated, at most {MOST_MEMBERS}"
        yield Problem(f"{place}: cluster.nodes", str(nodes), rule, "write nodes: 1, 3 or 5")
    if spec.database.replication_factor != nodes:
        value, rule = str(spec.database.replication_factor), "each member of etcd holds all keys"
        way_out = f"write replication_factor: {nodes}"
        yield Problem(f"{place}: database.replication_factor", value, rule, way_out)
    if spec.dataset is not None and spec.dataset.shape.sizes:
        rule = "etcd's values are simulated with one size for all"
        yield Problem(f"{place}: dataset.row", str(spec.dataset.row), rule, REHEARSE)
    if spec.before.host_cache == AS_LEFT and spec.cluster.volumes["data"].caching != "None":
        rule = (
            "a simulated trial of etcd is independent of others: no earlier trial has "
            "left it a cache"
        )
        way_out = "say empty, written or warm"
        yield Problem(f"{place}: before.host_cache", AS_LEFT, rule, way_out)


def _warnings(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    if beyond := outside(spec, catalog, calibration):
        yield f"outside the calibrated range: {'; '.join(beyond)}"
    if unread := [name for name in spec.database.settings if name not in READ]:
        yield f"not modelled, and without effect on the prediction: {', '.join(unread)}"


def _ns(name: str, given: Mapping[str, Setting], usual_ms: int) -> int:
    """Return a time in nanoseconds; a number without a unit is one of milliseconds."""
    text = str(given.get(name, usual_ms))
    unit = text.lstrip("0123456789")
    units = settings_of("etcd").units["time"]
    # etcd takes its default for zero.
    return int(text.removesuffix(unit)) * units[unit or "ms"] or usual_ms * units["ms"]


def loaded(spec: ClusterTrial, catalog: Catalog, calibration: Calibration, scale: Fraction) -> Job:
    """Return the job of etcd under a load. `scale`: of memory, disks' caches and the log."""
    cluster, given = spec.cluster, spec.database.settings
    plan = plan_memory(sizes_of(spec, catalog, scale))
    parts = servers(spec, catalog, calibration, scale, WAL_VOLUMES)
    parts["cluster"]["page_cache_bytes"] = plan.page_cache
    tables, work = server_work(spec, calibration, _keys, lambda _: None)
    log = next((name for name in WAL_VOLUMES if name in cluster.volumes), "data")

    return {
        **parts,
        "database": {
            "tls": True,
            **{
                f"{name.partition('-')[0]}_ns": _ns(name, given, usual)
                for name, usual in USUAL_MS.items()
            },
            "batch_interval_ns": _ns("backend-batch-interval", given, BATCH_MS),
            "batch_puts": int(given.get("backend-batch-limit", BATCH_PUTS)) or BATCH_PUTS,
            "snapshot_entries": int(given.get("snapshot-count", plan.entries)),
            "journal_writes": JOURNAL_WRITES[cluster.volumes[log].filesystem],
        },
        "tables": tables,
        "workload": work,
        "parameters": calibration.values(),
    }


def _keys(dataset: Dataset) -> Job:
    return {
        "name": "rows",
        "rows": dataset.rows,
        "row_bytes": dataset.columns * dataset.column_bytes,
        "entry_bytes": 0,
    }


def _own_faults(database: Database, delays: Delays) -> Job:
    """Return how long a request waits for a commit: 5 s, and as long as two elections.

    **Source:** `ReqTimeout` of etcdserver/config.go of 3.4.
    """
    elections_ns = 2 * _ns("election-timeout", database.settings, USUAL_MS["election-timeout"])
    return {"timeout_ns": round(delays.ring_s * NS_PER_S) + elections_ns}


def rules(answer: Job) -> Iterator[RuleFinding]:
    """Yield whether a simulated cluster's disks keep etcd's own rules."""
    log = answer["log"]
    spans = {"wal_fsync": log["sync_ms"], "backend_commit": log["commit_ms"]}
    for name, below_ms in BELOW_MS.items():
        if log[f"{name}s"] >= LEAST_COUNT:
            found_ms = spans[name]["p99"]
            yield RuleFinding(
                subject="etcd",
                what=WHAT[name],
                found_ms=found_ms,
                below_ms=below_ms,
                kept=found_ms < below_ms,
                source=FAQ,
            )


DELAYS = Delays(
    # As of a member on an idle machine, see `cluster.py`.
    start_s=0.3,
    join_s=0.0,
    notice_s=CLIENT_TIMEOUT_S,
    ring_s=5.0,
    gossip_s=MOST_RETRY_S,
)
JOBS = ServerJobs(loaded, _own_faults, DELAYS)

SIMULATED = Simulated(
    "etcd",
    _unmodelled,
    _warnings,
    JOBS.described,
    rehearsed=JOBS.rehearsed,
    without=("client_cpu",),
    # An even number of members bears no more losses than the odd one below.
    breaking=replace(JOBS.breaking(LESS_LOG, {}, "leader"), more_copies=2),
    rules=rules,
)
