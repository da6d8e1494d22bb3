"""From a trial of PostgreSQL to a job of the simulator: `crates/disklab-sim/src/job/postgresql.rs`.

What a row takes of its page, and an entry of its index, follow from PostgreSQL's own formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from disklab.catalog import Catalog
from disklab.database_facts import facts_of
from disklab.database_settings import Setting
from disklab.databases import statements
from disklab.databases.calibration import Calibration
from disklab.databases.carried import carried
from disklab.databases.installed import WAL_VOLUMES
from disklab.databases.postgresql.simulated_faults import (
    BREAKING,
    DELAYS,
    EVENTS,
    REHEARSED,
    faults_job,
)
from disklab.databases.postgresql.sizing import plan_memory
from disklab.databases.simulating import (
    PPM,
    REHEARSE,
    Delays,
    Job,
    Rehearsed,
    Simulated,
    alone,
    course,
    load_of,
    outside,
    servers,
    sizes_of,
    take_place,
    with_sizes,
)
from disklab.databases.statements import Json
from disklab.errors import Problem
from disklab.spec import Trial, TrialSpec
from disklab.spec.model import Dataset

TUPLE_HEADER = 24
"""Of a row, aligned. **Source:** PostgreSQL's manual, 73.6.1: 23 bytes."""

ITEM_POINTER = 4
"""Of a row or an entry in its page. **Source:** the same."""

INDEX_HEADER = 8
"""Of an entry of a B-tree. **Source:** itup.h, `IndexTupleData`."""

ALIGNED = 8
SHORT_VALUE = 126
"""Longer values have a header of four bytes, aligned, instead of one. **Source:** varatt.h."""

LARGEST_ROW = 8168
"""Longer rows are stored beside the table (TOAST)."""

KEY_BYTES = 8

INDEXES = {"k": 8, "customer name": 40, "order of customer": 16}
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

UPPER_BOUND = (
    "take the rate of PostgreSQL's writes as an upper bound: our rehearsals, whose shared_buffers "
    "are small, did 28 to 60 % of what was predicted of them"
)
"""**Source:** our own rehearsals of 2026-11-24, in docs/predict-postgresql.md."""


def unmodelled(spec: TrialSpec, place: str) -> Iterator[Problem]:
    """Yield what of a trial the simulator does not model."""
    work, cluster, database = spec.workload, spec.the_cluster, spec.the_database
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
        if row > LARGEST_ROW:
            rule = "rows that do not fit a page of 8 KiB (TOAST) are not simulated"
            value = f"{spec.dataset.row}: a row of {row} bytes in a page"
            yield Problem(f"{place}: dataset.row", value, rule, REHEARSE)


def _warnings(trial: Trial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    spec = trial.spec
    if beyond := outside(trial, catalog, calibration):
        yield f"outside the calibrated range: {'; '.join(beyond)}"
    if statements.writes(spec):
        yield UPPER_BOUND
    settings = spec.database.settings if spec.database else {}
    read = READ | (READ_BY_REPLAY if spec.events else set())
    unread = [name for name in settings if name not in read]
    if unread:
        yield f"not modelled, and without effect on the prediction: {', '.join(unread)}"


def described_job(spec: TrialSpec, catalog: Catalog, calibration: Calibration) -> Job:
    """Return the job of PostgreSQL as a trial describes it, with what breaks."""
    job = postgresql_job(spec, catalog, calibration)
    job["parameters"] = carried(job["parameters"], spec, catalog, calibration)
    return job | timetable(spec, DELAYS)


def timetable(spec: TrialSpec, waits: Delays) -> Job:
    """Return what breaks in a trial, as a part of its job; empty: nothing."""
    if not spec.events:
        return {}
    return {"faults": faults_job(spec.events, spec.the_database, waits, spec.cluster)}


def postgresql_job(
    spec: TrialSpec, catalog: Catalog, calibration: Calibration, scale: Fraction = Fraction(1)
) -> Job:
    """Return the job of PostgreSQL under a load. `scale`: of memory, disks' caches and the log."""
    cluster, database = spec.the_cluster, spec.the_database
    plan = plan_memory(sizes_of(spec, catalog, scale))
    tables, work = _workload(spec, calibration)
    parts = servers(spec, catalog, calibration, scale, WAL_VOLUMES)
    parts["cluster"] |= {
        "page_cache_bytes": plan.page_cache,
        **({"zones": cluster.zones} if cluster.zones > 1 else {}),
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


def _scan_cpu(spec: TrialSpec) -> Json:
    """Return what each further row of a scan costs a backend; empty: there are no scans."""
    operations, dataset = spec.workload.operations, spec.dataset
    if operations is None or dataset is None or not operations.scan:
        return {}
    bytes_ = dataset.columns * dataset.column_bytes
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


def _workload(spec: TrialSpec, calibration: Calibration) -> tuple[list[Json], Json]:
    """Return the tables and the load of a trial."""
    work = spec.workload
    common = course(spec)
    if work.kind == "rows":
        tables, transactions = _rows(spec)
        return tables, {
            **common,
            "transactions": transactions,
            "load": load_of(spec, calibration),
            "keys": work.keys,
            "asked_rows": work.asked_of(spec.the_dataset.rows or 0),
        }
    stored = statements.Stored(1, 0)
    if work.tpcc is not None:
        shape = statements.tpcc(work.tpcc, stored)
    else:
        assert work.sysbench is not None
        shape = statements.sysbench(work.sysbench, stored, statements.IN_A_TRANSACTION)
    load: Json = {"closed": {"threads": shape.sessions}}
    if work.load is not None and work.load.rate_per_s is not None:
        load = load_of(spec, calibration)
        load["open"]["max_in_flight"] = shape.connections or shape.sessions
    return [_relation(table) for table in shape.tables if table["name"] != statements.STATUS], {
        **common,
        "transactions": [statements.logged(each) for each in shape.transactions],
        "load": load,
        "connections": shape.connections,
        "keys": "uniform",
    }


def _rows(spec: TrialSpec) -> tuple[list[Json], list[Json]]:
    """Return the table of rows, and its reads and writes as transactions of one statement."""
    dataset, operations = spec.the_dataset, spec.workload.the_operations
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
    statements_of = statements.of_rows(spec, dataset)
    return [table], [
        {
            "name": name,
            "share_ppm": round(share * PPM),
            "statements": statements_of[name],
        }
        for name, share in operations.shares.items()
    ]


def _sizes(dataset: Dataset) -> list[tuple[int, Fraction]]:
    """Return what rows of each size take of their page, with their share; empty: all are alike."""
    shape = dataset.shape
    return [(_row_bytes(shape.columns, bytes_), share) for bytes_, share in shape.sizes]


def row_bytes(dataset: Dataset) -> int:
    """Return what a row of the rows workload takes of its page; of several sizes, the mean one."""
    return _row_bytes(dataset.columns, dataset.column_bytes)


def _row_bytes(columns: int, column_bytes: int) -> int:
    """Return what a bigint and columns of bytes take of a page."""
    data = KEY_BYTES
    for _ in range(columns):
        if column_bytes > SHORT_VALUE:
            data = -(-data // 4) * 4 + 4 + column_bytes
        else:
            data += 1 + column_bytes
    return _aligned(TUPLE_HEADER + data) + ITEM_POINTER


def entry_bytes(key_bytes: int) -> int:
    """Return what an entry of an index takes of its page."""
    return _aligned(INDEX_HEADER + key_bytes) + ITEM_POINTER


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _relation(table: Json) -> Json:
    """Return a table of the statement lists as PostgreSQL stores it."""
    name, rows = table["name"], table["rows"]
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


def rehearsed_job(
    spec: TrialSpec, catalog: Catalog, calibration: Calibration, there: Rehearsed
) -> Job:
    """Return the job of what was rehearsed.

    Its rows are written with the same bytes again, which the log leaves out (`log_heap_update`)
    where a row stays in its page.
    """
    scale = Fraction(there.share.scale)
    job = postgresql_job(with_sizes(spec, there.share), catalog, calibration, scale)
    take_place(job, spec, there)
    job |= timetable(spec, REHEARSED.dilated(there.share.time_dilation))
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
    described_job,
    rehearsed=rehearsed_job,
    without=("client_cpu",),
    breaking=BREAKING,
)
