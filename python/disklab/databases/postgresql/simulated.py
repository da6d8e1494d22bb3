"""From a trial of PostgreSQL to a job of the simulator: its folder in `disklab-sim`.

What a row takes of its page, and an entry of its index, follow from PostgreSQL's own formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from disklab.catalog import Catalog
from disklab.database_facts import facts_of, in_page
from disklab.database_settings import Setting
from disklab.databases import statements
from disklab.databases.calibration import Calibration
from disklab.databases.installed import WAL_VOLUMES
from disklab.databases.postgresql.configuration import plan_memory
from disklab.databases.simulating import (
    CLIENT_TIMEOUT_S,
    MOST_RETRY_S,
    NS_PER_S,
    PPM,
    REHEARSE,
    Delays,
    Job,
    Rehearsed,
    ServerJobs,
    Simulated,
    alone,
    outside,
    server_work,
    servers,
    sizes_of,
)
from disklab.databases.statements import Json
from disklab.errors import Problem
from disklab.spec import ClusterTrial
from disklab.spec.model import Database, Dataset

# Servers of PostgreSQL that break, as the simulator takes it.

PROCESS_S = 0.1
"""From the start of the process until it answers, with nothing to replay.

**Source:** our own PostgreSQL 15 of 2026-11-25, load average 17: 80 and 24 ms from `starting
PostgreSQL` to `ready to accept connections`.
"""

FOLLOW_S = 5.0
"""How often a standby looks for a primary that it has lost.

**Source:** `wal_retrieve_retry_interval` of PostgreSQL's manual, 20.6.3.
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


def _own_faults(database: Database, delays: Delays) -> Job:
    """Return what a replay, a promotion and a copy of the primary's data cost."""
    depth = int(database.settings.get("maintenance_io_concurrency", REPLAY_DEPTH))
    return {
        "replay_record_cpu_ns": REPLAY_RECORD_CPU_NS,
        "replay_byte_cpu_ps": REPLAY_BYTE_CPU_PS,
        "replay_depth": max(depth, 1),
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
    "latency": "zones that are closer together: a copy uses one connection",
}
"""What else than disks bounds a copy, and what makes it faster."""


TUPLE_HEADER = 24
"""Of a row, aligned. **Source:** PostgreSQL's manual, 73.6.1: 23 bytes."""

ITEM_POINTER = 4
"""Of a row or an entry in its page. **Source:** the same."""

INDEX_HEADER = 8
"""Of an entry of a B-tree. **Source:** itup.h, `IndexTupleData`."""

ALIGNED = 8
KEY_BYTES = 8

INDEXES = {
    "k": 8,
    "customer name": 40,
    "order of customer": 16,
    "stock of item": 8,
    "order_line of stock": 8,
    "history of customer": 16,
    "history of district": 8,
}
"""Secondary indexes among the tables of a workload, with the bytes of a key."""

COMPOSITE_KEY_BYTES = 12
"""Of TPC-C's primary keys: warehouse, district and a number."""

READ = {
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "checkpoint_completion_target",
    "full_page_writes",
    "synchronous_commit",
    "bgwriter_delay",
    "bgwriter_lru_maxpages",
}
"""Settings that a prediction follows."""

READ_BY_REPLAY = {"maintenance_io_concurrency"}
"""Those that it follows when a server starts after a crash."""

UNITS = {
    **{"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40},
    **{"us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9},
    "d": 86_400 * 10**9,
}
"""In bytes and nanoseconds. **Source:** PostgreSQL's manual, 20.1.1."""

OFF = ("off", "false", "no", "0", "local")
"""Of `synchronous_commit` and switches; `local` waits for no standby, which is told apart."""


SCAN_ROW_CPU_NS, SCAN_BYTE_CPU_PS = 270, 590
"""CPU of a backend for each further row of a scan, and for each of its bytes.

**Source:** our own PostgreSQL 15, 2026-11-25, all in shared_buffers: a scan of 1 row took 29 us of
its backend, of 100.5 rows 298 us with rows of 4,090 B (two runs, 296 and 301) and 70 us with rows
of 200 B (67 and 74).
"""

WRITES = (
    "PostgreSQL's writes: rates of rows were within a third of our rehearsals', p99 with one "
    "exception "
    "within a factor of three; sysbench's and TPC-C's have not been compared on a quiet machine"
)
"""**Source:** our own rehearsals of 2026-11-27, in docs/predict-postgresql.md."""


def unmodelled(spec: ClusterTrial, place: str) -> Iterator[Problem]:
    """Yield what of a trial the simulator does not model."""
    work, cluster, database = spec.workload, spec.cluster, spec.database
    yield from alone(spec, place, "PostgreSQL")
    for event in spec.events:
        if event.kind not in (*EVENTS, "lose_zone"):
            rule = f"of PostgreSQL's events the simulator knows {', '.join(EVENTS)}"
            yield Problem(f"{place}: events", event.kind, rule, REHEARSE)
    if database.replication_factor != cluster.nodes:
        value = f"{cluster.nodes} nodes, replication factor {database.replication_factor}"
        rule = "each PostgreSQL server holds all rows: there are as many copies as nodes"
        way_out = f"write replication_factor: {cluster.nodes}"
        yield Problem(f"{place}: cluster.nodes", value, rule, way_out)
    if work.kind == "rows" and spec.dataset is not None:
        row = max(row_bytes(spec.dataset), *(bytes_ for bytes_, _ in _sizes(spec.dataset)), 0)
        if row > in_page("postgresql").most_bytes:
            rule = "rows that do not fit a page of 8 KiB (TOAST) are not simulated"
            value = f"{spec.dataset.row}: a row of {row} bytes in a page"
            yield Problem(f"{place}: dataset.row", value, rule, REHEARSE)


def _warnings(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    if beyond := outside(spec, catalog, calibration):
        yield f"outside the calibrated range: {'; '.join(beyond)}"
    if statements.writes(spec):
        yield WRITES
    settings = spec.database.settings
    read = READ | (READ_BY_REPLAY if spec.events else set())
    unread = [name for name in settings if name not in read]
    if unread:
        yield f"not modelled, and without effect on the prediction: {', '.join(unread)}"


def _loaded(spec: ClusterTrial, catalog: Catalog, calibration: Calibration, scale: Fraction) -> Job:
    """Return the job of PostgreSQL under a load. `scale`: of memory, disks' caches and the log."""
    cluster, database = spec.cluster, spec.database
    plan = plan_memory(sizes_of(spec, catalog, scale))
    tables, work = server_work(spec, calibration, _table_of_rows, _relation)
    parts = servers(spec, catalog, calibration, scale, WAL_VOLUMES)
    parts["cluster"] |= {
        "page_cache_bytes": plan.page_cache,
        "locks_files": cluster.volumes["data"].filesystem == "xfs",
    }
    return {
        **parts,
        "database": {
            # With the primary they are a majority, as the provider has it.
            "synchronous_standbys": 0 if _is_local(database.settings) else cluster.nodes // 2,
            "tls": database.tls,
            **_settings({**plan.settings, **database.settings}),
        },
        "tables": tables,
        "workload": work,
        "parameters": {**calibration.values(), **_scan_cpu(spec)},
    }


def _scan_cpu(spec: ClusterTrial) -> Json:
    """Return what each further row of a scan costs a backend; empty: there are no scans."""
    work, dataset = spec.workload, spec.dataset
    if work.sysbench is not None:
        bytes_ = statements.TEXT_BYTES
    elif work.tpcc is not None:
        bytes_ = statements.LINE_BYTES
    elif work.operations is not None and dataset is not None and work.operations.scan:
        bytes_ = dataset.columns * dataset.column_bytes
    else:
        return {}
    return {"scan_row_cpu_ns": SCAN_ROW_CPU_NS + bytes_ * SCAN_BYTE_CPU_PS // 1000}


def _is_local(given: Mapping[str, Setting]) -> bool:
    """Return whether commits wait for the primary's own disk alone."""
    return str(given.get("synchronous_commit", "on")).lower() == "local"


def _settings(given: Mapping[str, Setting]) -> Json:
    """Return settings as the engine takes them; those that nobody set are PostgreSQL 15's."""

    def amount(name: str, usual: Setting, unit: str) -> int:
        return quantity(given.get(name, usual), unit)

    commit = str(given.get("synchronous_commit", "on")).lower()
    images = str(given.get("full_page_writes", "on")).lower()
    target = float(given.get("checkpoint_completion_target", 0.9))
    return {
        "shared_buffers_bytes": amount("shared_buffers", "128MB", "8kB"),
        "max_wal_bytes": amount("max_wal_size", "1GB", "MB"),
        "checkpoint_timeout_ns": amount("checkpoint_timeout", "5min", "s"),
        "checkpoint_completion_permille": round(target * 1000),
        "full_page_writes": images not in OFF,
        "synchronous_commit": commit not in OFF or commit == "local",
        "bgwriter_delay_ns": amount("bgwriter_delay", "200ms", "ms"),
        "bgwriter_most_pages": int(given.get("bgwriter_lru_maxpages", 100)),
    }


def quantity(value: Setting, unit: str) -> int:
    """Return an amount of postgresql.conf in bytes or nanoseconds; `unit`: of one without any."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", str(value))
    if found is None:
        return 0
    times, name = (8, unit[1:]) if unit[0].isdigit() else (1, unit)
    if found[2]:
        times, name = 1, found[2]
    return int(float(found[1]) * times * UNITS.get(name, 1))


def _table_of_rows(dataset: Dataset) -> Json:
    sizes = _sizes(dataset)
    table: Json = {
        "name": "rows",
        "rows": dataset.rows,
        "row_bytes": (
            round(sum(bytes_ * share for bytes_, share in sizes)) if sizes else row_bytes(dataset)
        ),
        "entry_bytes": entry_bytes(KEY_BYTES),
        "fill_sessions": facts_of("postgresql").rows.fill_in_flight,
    }
    if sizes:
        table["sizes"] = [
            {"row_bytes": bytes_, "share_ppm": round(share * PPM)} for bytes_, share in sizes
        ]
    return table


def _sizes(dataset: Dataset) -> list[tuple[int, Fraction]]:
    """Return what rows of each size take of their page, with their share; empty: all are alike."""
    shape = dataset.shape
    layout = in_page("postgresql")
    return [(layout.of(shape.columns, bytes_), share) for bytes_, share in shape.sizes]


def row_bytes(dataset: Dataset) -> int:
    """Return what a row of the rows workload takes of its page; of several sizes, the mean one."""
    return in_page("postgresql").of(dataset.columns, dataset.column_bytes)


def entry_bytes(key_bytes: int) -> int:
    """Return what an entry of an index takes of its page."""
    return _aligned(INDEX_HEADER + key_bytes) + ITEM_POINTER


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _relation(table: Json) -> Json | None:
    """Return a table of the statement lists as PostgreSQL stores it; None: it has none of it."""
    name, rows = table["name"], table["rows"]
    if name == statements.STATUS:
        return None
    if name in INDEXES:
        return {
            "name": name,
            "rows": rows,
            "row_bytes": 0,
            "entry_bytes": entry_bytes(INDEXES[name]),
        }
    is_sysbench = name == "sbtest"
    # Text has a header of a byte for each value; sysbench's two numbers are in its bytes.
    data = table["row_bytes"] + (2 if is_sysbench else COMPOSITE_KEY_BYTES)
    key = 4 if is_sysbench else COMPOSITE_KEY_BYTES
    return {
        "name": name,
        "rows": rows,
        "row_bytes": _aligned(TUPLE_HEADER + data) + ITEM_POINTER,
        "entry_bytes": entry_bytes(key),
    }


JOBS = ServerJobs(_loaded, _own_faults, DELAYS)


def _rehearsed(
    spec: ClusterTrial, catalog: Catalog, calibration: Calibration, there: Rehearsed
) -> Job:
    """Return the job of what was rehearsed.

    Its rows are written with the same bytes again, which the log leaves out (`log_heap_update`)
    where a row stays in its page.
    """
    job = JOBS.rehearsed(spec, catalog, calibration, there)
    if spec.workload.kind == "rows":
        for kind in job["workload"]["transactions"]:
            for access in kind["statements"][0]["accesses"]:
                if access["kind"] == "update":
                    access["written_bytes"] = 0
    return job


SIMULATED = Simulated(
    "postgresql",
    unmodelled,
    _warnings,
    JOBS.described,
    rehearsed=_rehearsed,
    without=("client_cpu",),
    breaking=JOBS.breaking(LESS, {"stream": FASTER_COPY}, "primary"),
)
