"""From a trial of MariaDB to a job of the simulator: its folder in `disklab-sim`.

What a row takes of its leaf follows from InnoDB's own format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial

from disklab.catalog import Catalog, parse_disks
from disklab.catalog.load import cite
from disklab.catalog.provisioning import find_disk
from disklab.database_facts import facts_of, in_page
from disklab.database_settings import SWITCHES, Setting, settings_of
from disklab.databases import statements
from disklab.databases.calibration import Calibration
from disklab.databases.mariadb.configuration import (
    BINLOG_VOLUME,
    CONFIRM_SECONDS,
    PERIODS,
    REDO_VOLUMES,
)
from disklab.databases.mariadb.installation import MOST_REPLICATED
from disklab.databases.mariadb.sizing import plan_memory
from disklab.databases.simulating import (
    CLIENT_TIMEOUT_S,
    JOURNAL_WRITES,
    MOST_RETRY_S,
    NS_PER_S,
    REHEARSE,
    Delays,
    Job,
    ServerJobs,
    Simulated,
    alone,
    outside,
    server_work,
    servers,
    sizes_of,
    steps_of,
)
from disklab.databases.statements import Json
from disklab.errors import Problem
from disklab.spec import ClusterTrial
from disklab.spec.model import Database, Dataset

KEY_BYTES = 8

ROWS = {
    "sbtest": (208, 8),
    "k": (0, 13),
    "accounts": (119, 4),
    "tellers": (119, 4),
    "branches": (119, 4),
    "tpcb history": (55, 6),
    "warehouse": (98, 4),
    "district": (106, 8),
    "customer": (570, 12),
    "customer name": (0, 40),
    "history": (74, 6),
    "new_order": (30, 12),
    "oorder": (55, 12),
    "order of customer": (0, 21),
    "order_line": (86, 16),
    "item": (88, 4),
    "stock": (321, 8),
    "stock of item": (0, 16),
    "order_line of stock": (0, 20),
    "history of customer": (0, 19),
    "history of district": (0, 15),
}
"""Of the tables of sysbench and TPC-C: bytes of a row in its leaf, and of an entry. **Source:** our
own server had 73.0 rows of sysbench in a leaf; `k` has a number, a key and a header. Those of TPC-C
are the sums of the columns of `workloads/tpcc/tables.rs` in InnoDB's format."""

PAGE_BYTES = 16 << 10

INDEX = "k"
"""Of sysbench: `sysbench prepare` makes it when the rows are there, so that its leaves are full."""

ESTIMATES: Mapping[str, tuple[str, int, Fraction]] = {
    "customer name": ("customer", 3000, Fraction(6, 10)),
    "order of customer": ("oorder", 3000, Fraction(1)),
    "new_order": ("new_order", 900, Fraction(1)),
}
"""By what TPC-C reads: the table whose key begins with the same district, its rows of that, and how
often they are estimated: six of ten customers are asked for by name."""
ESTIMATED_LEAVES, LEAF_BYTES = 11, (PAGE_BYTES - 128) * 15 // 16
"""Leaves that the optimizer reads for its estimate, at most.

**Source:** `btr_estimate_n_rows_in_range_on_level`, 10 and the last. A real MySQL 8.0.15 with a
pool of 6 % read 14 pages for a name of sysbench-tpcc, 12 for the orders of a customer, and 77 for
a delivery to ten districts, of which some 40 have the rows (2026-11-29).
"""

UPDATED: Mapping[str, tuple[str, int]] = {
    "customer": ("customer name", 3000),
    "oorder": ("order of customer", 3000),
    "stock": ("stock of item", 1),
}
"""By what sysbench-tpcc updates: an index whose key begins as the row's does, and its entries of
that, which the optimizer counts before each update by the whole key.

**Source:** reads by file of a real MySQL 8.0.15 (8 warehouses, a pool of 48 MiB, 2026-11-29):
14 of customer a payment, 41 a delivery, which has 20 of orders; two of stock an item of an order.
"""

BY_DISTRICT = ("new_order", "oorder", "order_line", "history of district")
"""Tables of TPC-C whose rows are added behind those of their district."""

READ = {
    "innodb_buffer_pool_size",
    "innodb_log_file_size",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_page_size",
    "innodb_doublewrite",
    "innodb_io_capacity",
    "innodb_io_capacity_max",
    "innodb_lru_scan_depth",
    "innodb_old_blocks_pct",
    "innodb_old_blocks_time",
    "log_bin",
    "sync_binlog",
    "wsrep_slave_threads",
}
"""Settings that a prediction follows."""

Only = Mapping[str, tuple[tuple[int | str, ...], str]]
"""By setting: its values that are simulated, the default first, and what they stand for."""

ONLY: Only = {
    "innodb_flush_method": (
        ("O_DIRECT",),
        "only direct I/O, which bypasses the page cache, is simulated",
    ),
    "innodb_page_size": ((PAGE_BYTES,), "only pages of 16 KiB are simulated"),
}

UPPER_BOUND = (
    "take the rate of sysbench's or TPC-C's writes with many threads as an upper bound: a real "
    "MariaDB with eight threads read a third more and wrote a quarter more per transaction of "
    "sysbench than was simulated before splits of its new index were modelled"
)
"""**Source:** our own server of 2026-11-27, crates/disklab-sim/tests/mariadb.rs."""

TORN = (
    "innodb_doublewrite: off is unsafe on {disks}: nothing says that it writes 16 KiB "
    "atomically, and a page "
    "torn by a power cut cannot be repaired"
)
WHOLE = (
    "innodb_doublewrite: off is safe on {title} where each page is one aligned write of 16 KiB: "
    "O_DIRECT, a file system with clusters of 16 KiB (ext4 with bigalloc), no host cache, on AWS a "
    "Nitro instance ({source}); of 429 power cuts on a recorded one, one left a server that did "
    "not start, for an unknown reason: keep a backup or a replica"
)
KEEPS_UP = "the primary alone is simulated with its disks: the replica keeps up with it"
APPLIES = (
    "one other node of Galera stands for all: it applies changes with its own disks and pool, by "
    "wsrep_slave_threads (1 where nothing is set), without a page cleaner; no writer on another "
    "node is in the way"
)


# A server that breaks, as the simulator takes it.

PROCESS_S = 0.2
"""From the start of the process until it answers, with nothing to recover.

**Source:** our own MariaDB 10.11.19 of 2026-11-27, load average 20: 0.16 to 0.57 s, 0.18 twice.
"""

PARSE_BYTE_CPU_PS, APPLY_PAGE_CPU_NS = 500, 0
"""CPU of the thread that parses a byte of the redo log, and of a page beside that of its read.

**Source:** the same server, 180,000 updates of rows of 1 kB, killed: 367 MB of log and 8,542 pages
took 0.66 s of CPU beside a start without them, of which the pages' reads are 0.47 s.
"""

RECOVERY_DEPTH = 256
"""Pages that are read at the same time for their redo log. Assumed: more than any disk of the
catalogue takes at once; InnoDB has room for 1,024 (`innodb_read_io_threads`, 256 each)."""

DISKS = ("slow", "stall", "mend", "credits")
EVENTS = ("kill", "lose", "start", "restart", *DISKS)
"""What the simulator does to the server that takes all transactions, unless it is Galera's."""
ELSEWHERE = ("kill", "lose", *DISKS)
"""What it does to a replica, or to another node of Galera."""

ENDS = ("kill", "lose")
FIRST_OF_GALERA = (
    "the load would go on at another node, whose buffer pool has other pages; break another node"
)
COMES_BACK = "what a server has missed is not simulated, so it cannot come back"

DELAYS = Delays(
    start_s=PROCESS_S,
    join_s=0.0,
    notice_s=CLIENT_TIMEOUT_S,
    ring_s=MOST_RETRY_S,
    gossip_s=MOST_RETRY_S,
)


def own_faults(database: Database, _delays: Delays) -> Job:
    """Return what recovery costs, and how long commits wait for another server that has ended."""
    patience_s: float = CONFIRM_SECONDS
    if database.replication_factor > MOST_REPLICATED:
        # Its closed sockets are no sign. Source: check_inactive of gcomm's evs_proto.cpp.
        patience_s = PERIODS["evs.suspect_timeout"] + PERIODS["evs.inactive_check_period"] / 2
    return {
        "patience_ns": round(patience_s * NS_PER_S),
        "replay_record_cpu_ns": APPLY_PAGE_CPU_NS,
        "replay_byte_cpu_ps": PARSE_BYTE_CPU_PS,
        "replay_depth": RECOVERY_DEPTH,
    }


LESS = "a smaller innodb_log_file_size leaves less redo log and fewer pages to recover"


def unmodelled(
    spec: ClusterTrial, place: str, only: Only = ONLY, events: tuple[str, ...] = EVENTS
) -> Iterator[Problem]:
    """Yield what of a trial the simulator does not model.

    `only`: values of settings that are simulated; `events`: those of the server with the load.
    """
    cluster, database = spec.cluster, spec.database
    yield from alone(spec, place, facts_of(database.engine).title)
    yield from _unmodelled_events(spec, place, events)
    if cluster.nodes > MOST_REPLICATED and cluster.nodes % 2 == 0:
        rule = "a Galera cluster has an odd number of nodes"
        way_out = f"write nodes: {cluster.nodes - 1}"
        yield Problem(f"{place}: cluster.nodes", str(cluster.nodes), rule, way_out)
    if database.replication_factor != cluster.nodes:
        title = facts_of(database.engine).title
        value, rule = str(database.replication_factor), f"each {title} server holds all rows"
        way_out = f"write replication_factor: {cluster.nodes}"
        yield Problem(f"{place}: database.replication_factor", value, rule, way_out)
    yield from _unmodelled_settings(database.settings, place, only)
    if spec.workload.kind == "rows" and spec.dataset is not None:
        yield from _unmodelled_rows(spec, spec.dataset, place)


def _unmodelled_events(
    spec: ClusterTrial, place: str, events: tuple[str, ...]
) -> Iterator[Problem]:
    """Yield the steps of a timetable that the simulator cannot follow, each once."""
    is_galera = spec.cluster.nodes > MOST_REPLICATED
    away: set[int] = set()
    taken: tuple[str, ...]
    for step in steps_of(spec.events, spec.cluster):
        what = f"{step.what} n{step.node + 1}"
        if step.node == 0:
            taken, of = (DISKS, FIRST_OF_GALERA) if is_galera else (events, "")
        else:
            taken, of = ELSEWHERE, COMES_BACK
        if step.what not in taken:
            why = f": {of}" if of else ""
            title = facts_of(spec.database.engine).title
            rule = f"of {title}'s events the simulator knows {', '.join(taken)} here{why}"
            yield Problem(f"{place}: events", what, rule, REHEARSE)
        elif step.what in ENDS and step.node:
            away.add(step.node)
    if len(away) > 1:
        value = ", ".join(f"n{node + 1}" for node in sorted(away))
        rule = "the simulator supports at most one missing node, which stands for all of them"
        yield Problem(f"{place}: events", value, rule, REHEARSE)


def _unmodelled_settings(given: Mapping[str, Setting], place: str, only: Only) -> Iterator[Problem]:
    for name, (values, rule) in only.items():
        value = given.get(name, values[0])
        read = amount(name, value) if isinstance(values[0], int) else value
        if read not in values:
            way_out = f"write {name}: {' or '.join(map(str, values))}, or rehearse it"
            yield Problem(
                f"{place}: database.settings.{name}", str(value), f"{rule} are simulated", way_out
            )


def _unmodelled_rows(spec: ClusterTrial, dataset: Dataset, place: str) -> Iterator[Problem]:
    if dataset.shape.sizes:
        title = facts_of(spec.database.engine).title
        rule = f"{title}'s rows are simulated with one size for all"
        yield Problem(f"{place}: dataset.row", str(dataset.row), rule, REHEARSE)
    elif (bytes_ := row_bytes(dataset)) > in_page("mariadb").most_bytes:
        rule = "rows are simulated only if two of them fit into a page of 16 KiB"
        value = f"{dataset.row}: a row of {bytes_} bytes in a page"
        yield Problem(f"{place}: dataset.row", value, rule, REHEARSE)


def warnings(
    read: set[str], spec: ClusterTrial, catalog: Catalog, calibration: Calibration
) -> Iterator[str]:
    """Yield what to keep in mind of a prediction that follows the settings `read`."""
    if beyond := outside(spec, catalog, calibration):
        yield f"outside the calibrated range: {'; '.join(beyond)}"
    given = spec.database.settings
    if statements.writes(spec) and spec.workload.kind != "rows":
        yield UPPER_BOUND
    if spec.cluster.nodes > 1:
        yield KEEPS_UP if spec.cluster.nodes == MOST_REPLICATED else APPLIES
    if str(given.get("innodb_doublewrite", "on")).lower() in SWITCHES[False]:
        yield _torn(spec, catalog)
    if unread := [name for name in given if name not in read]:
        yield f"not modelled, and without effect on the prediction: {', '.join(unread)}"


def _torn(spec: ClusterTrial, catalog: Catalog) -> str:
    """Return whether the disk of the tables lets the doublewrite buffer be off."""
    volume = spec.cluster.volumes["data"]
    disks = parse_disks(volume.disks)
    entry = None if disks.is_local else find_disk(catalog, disks, volume.size_bytes, volume.disks)
    if entry is None or (entry.family.whole_write_bytes or 0) < PAGE_BYTES:
        return TORN.format(disks=disks.name)
    source = cite(catalog, entry.family.provenance, "whole_write_bytes")
    return WHOLE.format(title=entry.family.title, source=source)


def loaded(spec: ClusterTrial, catalog: Catalog, calibration: Calibration, scale: Fraction) -> Job:
    """Return the job of MariaDB under a load. `scale`: of memory, disks' caches and the log."""
    cluster, database = spec.cluster, spec.database
    plan = plan_memory(sizes_of(spec, catalog, scale))
    parts = servers(spec, catalog, calibration, scale, REDO_VOLUMES)
    parts["cluster"]["page_cache_bytes"] = plan.page_cache
    binlog = BINLOG_VOLUME if BINLOG_VOLUME in cluster.volumes else "data"
    tables, work = _workload(spec, calibration)
    return {
        **parts,
        "database": {
            "tls": database.tls,
            "writes_binlog": _has_binlog(spec),
            "sync_binlog": _sync_binlog(spec),
            # TPC-C's sessions are at READ COMMITTED, which MIXED, the default, logs by rows.
            "binlog_rows": spec.workload.tpcc is not None,
            "replication": _replication(cluster.nodes),
            "binlog_volume": cluster.device_of(binlog),
            "binlog_journal_writes": JOURNAL_WRITES[cluster.volumes[binlog].filesystem],
            **_settings({**plan.settings, **database.settings}),
        },
        "tables": tables,
        "workload": work,
        "parameters": calibration.values(),
    }


def _has_binlog(spec: ClusterTrial) -> bool:
    """Return whether there is a binary log, as `configuration.server_settings` has it."""
    if spec.cluster.nodes == MOST_REPLICATED:
        # The replica gets its changes from there.
        return True
    given = spec.database.settings.get("log_bin", BINLOG_VOLUME in spec.cluster.volumes)
    return str(given).lower() in SWITCHES[True]


def _replication(nodes: int) -> str:
    """Return what a commit waits for at other servers, in the simulator's words."""
    if nodes == 1:
        return "alone"
    return "semi_sync" if nodes == MOST_REPLICATED else "galera"


def _sync_binlog(spec: ClusterTrial) -> int:
    """Return with each how many groups of commits the binary log is synced; 0: with none."""
    if not _has_binlog(spec):
        return 0
    return amount("sync_binlog", spec.database.settings.get("sync_binlog", 0))


def _settings(given: Mapping[str, Setting]) -> Json:
    """Return settings as the engine takes them; those that nobody set are MariaDB 10.11's."""

    def value(name: str, usual: int = 0) -> int:
        return amount(name, given.get(name, usual))

    capacity = value("innodb_io_capacity", 200)
    return {
        "buffer_pool_bytes": value("innodb_buffer_pool_size"),
        "log_file_bytes": value("innodb_log_file_size"),
        # What 3 syncs beside is the binary log's own part, as of 1.
        "syncs_redo": value("innodb_flush_log_at_trx_commit", 1) in {1, 3},
        "doublewrite": str(given.get("innodb_doublewrite", "on")).lower() in SWITCHES[True],
        "io_capacity": capacity,
        # Source: innodb_init_params of ha_innodb.cc.
        "io_capacity_max": value("innodb_io_capacity_max", max(2 * capacity, 2000)),
        "lru_scan_depth": value("innodb_lru_scan_depth", 1536),
        "old_blocks_pct": value("innodb_old_blocks_pct", 37),
        "applier_threads": value("wsrep_slave_threads", 1),
        "old_blocks_time_ns": value("innodb_old_blocks_time", 1000) * 10**6,
    }


def amount(name: str, value: Setting) -> int:
    """Return the number of a setting in its own unit: `1G` is 1 << 30."""
    text, units = str(value), settings_of("mariadb").units["bytes"]
    if text[-1:].isalpha() and name.startswith("innodb"):
        return int(text[:-1]) * units[text[-1]]
    return int(text)


def _workload(spec: ClusterTrial, calibration: Calibration) -> tuple[list[Json], Json]:
    """Return the tables and the load of a trial."""
    tables, work = server_work(spec, calibration, _table_of_rows, _relation)
    if spec.workload.sysbench is not None:
        work["transactions"] = [_in_place(each) for each in work["transactions"]]
    if spec.workload.tpcc is not None:
        counted = UPDATED if spec.workload.tpcc.is_sysbench else {}
        work["transactions"] = [_in_texts(each, counted) for each in work["transactions"]]
        for table in tables:
            if table["name"] in BY_DISTRICT:
                table["ends"] = spec.workload.tpcc.warehouses * statements.DISTRICTS
    return tables, work


def _table_of_rows(dataset: Dataset) -> Json:
    return {
        "name": "rows",
        "rows": dataset.rows,
        "row_bytes": row_bytes(dataset),
        "entry_bytes": KEY_BYTES,
        "fill_sessions": facts_of("mariadb").rows.fill_in_flight,
    }


def row_bytes(dataset: Dataset) -> int:
    """Return what a row of the rows workload takes of its leaf: a bigint, columns of bytes."""
    return in_page("mariadb").of(dataset.columns, dataset.column_bytes)


def _in_place(transaction: Json) -> Json:
    """Return a transaction of sysbench whose entries of `k` change as InnoDB changes them.

    A deleted row's entry is marked; an update adds one behind it (`k=k+1`) and marks it.
    """

    def changed(each: Json) -> Json:
        reported_as = each.get("reported_as")
        kind = reported_as if reported_as in ("delete", "update") else "insert"
        accesses = [
            {**item, "kind": kind} if item["table"] == INDEX else item for item in each["accesses"]
        ]
        return {**each, "accesses": accesses}

    return {**transaction, "statements": [changed(each) for each in transaction["statements"]]}


def _in_texts(transaction: Json, counted: Mapping[str, tuple[str, int]]) -> Json:
    """Return a transaction of TPC-C as disklab sends it: texts of several statements, one commit.

    A text ends where its answers are needed: the number of the order before its rows are added, the
    customer before the last order is looked up, the oldest orders before they are delivered.
    """
    texts = 1 if transaction["name"] == "payment" else 2
    accesses = [item for each in transaction["statements"] for item in each["accesses"]]
    for item in accesses:
        if item["table"] == "item":
            # A cold pool has no page of them.
            item["draw"] = next(each["draw"] for each in accesses if each["table"] == "stock")
    *before, commit = transaction["statements"]
    second = 1 if transaction["name"] == "delivery" else len(before) - 1
    whole = []
    for number, each in enumerate(before):
        estimates = _estimates(each["accesses"], counted)
        read = {**each, "accesses": [*each["accesses"], *estimates]}
        begins = number == 0 or (texts == 2 and number == second)
        rest = each["times"] - begins
        if begins:
            whole.append({**read, "times": 1, "inside": False})
        if rest:
            whole.append({**read, "times": rest, "inside": True})
    end = {**commit, "times": 1, "inside": True, "commits": True}
    return {**transaction, "statements": [*whole, end]}


def _estimates(accesses: list[Json], counted: Mapping[str, tuple[str, int]]) -> Iterator[Json]:
    """Yield what the optimizer reads before it takes an index; `counted`: before an update."""
    for item in accesses:
        if item["kind"] == "read" and item["table"] in ESTIMATES:
            table, most, share = ESTIMATES[item["table"]]
            rows = min(ESTIMATED_LEAVES * (LEAF_BYTES // ROWS[table][0]), most)
            yield statements.access(table, "read", int(rows * share), "run")
        is_counted = item["kind"] == "update" and item["table"] in counted
        if is_counted and item["written_bytes"] != statements.LOCK_BYTES:
            table, most = counted[item["table"]]
            rows = min(ESTIMATED_LEAVES * (LEAF_BYTES // ROWS[table][1]), most)
            yield statements.access(table, "read", rows, "run")


def _relation(table: Json) -> Json | None:
    """Return a table of sysbench or TPC-C as InnoDB stores it; None: it is another database's."""
    if table["name"] not in ROWS:
        return None
    size, entry = ROWS[table["name"]]
    return {
        "name": table["name"],
        "rows": table["rows"],
        "row_bytes": size,
        "entry_bytes": entry,
        **({"built_full": True} if table["name"] == INDEX else {}),
    }


JOBS = ServerJobs(loaded, own_faults, DELAYS)
SIMULATED = Simulated(
    "mariadb",
    unmodelled,
    partial(warnings, READ),
    JOBS.described,
    rehearsed=JOBS.rehearsed,
    without=("client_cpu",),
    breaking=JOBS.breaking(LESS, {}, "first server"),
)
