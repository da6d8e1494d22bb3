"""sysbench and TPC-C as the simulator takes them: tables, and transactions as lists of statements.

A statement is one round trip of the client; its accesses go to tablets at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disklab.spec import ClusterTrial
from disklab.spec.benchmarks import Sysbench, SysbenchStatements, Tpcc
from disklab.spec.model import Dataset

Json = dict[str, Any]

NS_PER_S = 1_000_000_000

STATUS = "transaction status"
"""The table in which a distributed transaction is committed."""

TEXT_BYTES, LINE_BYTES = 120, 60
"""Of the column of sysbench's row, and of TPC-C's order line, that a range answers with."""

COLUMN_BYTES = 20
"""A changed number: its value, key and time."""

LOCK_BYTES = 15
"""A row that is locked."""

MESSAGE_BYTES = 200
"""A statement and its answer without rows, with the headers of both."""

KEYING_S = {"new order": 18, "payment": 3, "order status": 2, "delivery": 2, "stock level": 2}
THINK_S = {"new order": 12, "payment": 12, "order status": 10, "delivery": 5, "stock level": 5}
"""**Source:** TPC-C 5.2.5.7."""

MIX_PPM = {
    "new order": 450_000,
    "payment": 430_000,
    "order status": 40_000,
    "delivery": 40_000,
    "stock level": 40_000,
}
"""**Source:** TPC-C 5.2.3: the least shares; new orders take the rest."""

SYSBENCH_MIX_PPM = {
    "new order": 434_783,
    "payment": 434_783,
    "order status": 43_478,
    "delivery": 43_478,
    "stock level": 43_478,
}
"""**Source:** sysbench-tpcc's tpcc.lua (12ff2ed, June 2018): 10 : 10 : 1 : 1 : 1."""

TERMINALS = 10
"""A warehouse has ten terminals. **Source:** TPC-C 4.2.2."""

ITEMS = 10
"""Lines of an order on average. **Source:** TPC-C 2.4.1.3: 5 to 15."""

ALL_ITEMS = 100_000
"""Rows of the table `item`. **Source:** TPC-C 1.2.1."""

DISTRICTS = 10
"""Of a warehouse."""

IN_A_TRANSACTION = 10
"""Statements of a sysbench transaction. **Source:** the study, and sysbench's `point_selects`."""


READING_SCRIPTS = ("oltp_read", "oltp_read_only", "oltp_point_select")
"""Those of sysbench that change no row."""


@dataclass(frozen=True)
class Shape:
    """What a workload brings: its tables and its transactions."""

    tables: list[Json]
    transactions: list[Json]
    sessions: int
    connections: int | None


@dataclass(frozen=True)
class Stored:
    """How the database stores a table."""

    tablets: int
    column_overhead_bytes: int

    def table(self, name: str, rows: int, value_bytes: int, columns: int) -> Json:
        """Return a table; `columns` beside the key, which is an entry of its own."""
        row_bytes = value_bytes + (columns + 1) * self.column_overhead_bytes
        return {"name": name, "rows": rows, "row_bytes": row_bytes, "tablets": self.tablets}

    def status(self) -> Json:
        """Return the table in which transactions are committed."""
        return {"name": STATUS, "rows": 1000, "row_bytes": 100, "tablets": self.tablets}


def access(table: str, kind: str, rows: int = 1, draw: Any = "uniform") -> Json:
    """Return an access to rows of one tablet."""
    return {"table": table, "kind": kind, "rows": rows, "draw": draw}


def update(
    table: str, written_bytes: int, rows: int = 1, draw: Any = "recent", *, locks: bool = False
) -> Json:
    """Return an update: only the columns that change are written, each with its key and time.

    `locks`: rows selected for update, which are written as locks, and replicated as rows are.
    """
    bytes_ = LOCK_BYTES if locks else written_bytes
    return {**access(table, "update", rows, draw), "written_bytes": bytes_}


def statement(
    *accesses: Json,
    times: int = 1,
    reported_as: str | None = None,
    row_bytes: int = 0,
    inside: bool = False,
) -> Json:
    """Return a statement; `row_bytes` travel beside its text; `inside`: it comes in a batch."""
    return {
        "times": times,
        "inside": inside,
        "reported_as": reported_as,
        "bytes": MESSAGE_BYTES + row_bytes,
        "accesses": list(accesses),
    }


BEGIN = statement()
COMMIT = statement(access(STATUS, "insert"))
COMMIT_READS = statement()
"""A transaction that wrote nothing ends in the SQL layer."""


def of_rows(spec: ClusterTrial, dataset: Dataset) -> dict[str, list[Json]]:
    """Return the statements of each kind of operation of rows; each commits by itself.

    But for writes that are committed together, of which the last commits.
    """
    values = dataset.columns * dataset.column_bytes
    most, together = spec.workload.scan_rows, spec.workload.writes_per_commit or 1
    adds = spec.before.dataset == "empty" or spec.workload.keys == "latest"

    def one(access: Json, sent: int, *, commits: bool = True) -> Json:
        return {**statement(access, row_bytes=sent), "commits": commits}

    read = one(access("rows", "read", draw="keys"), values, commits=False)
    write = access("rows", "insert", draw="keys") if adds else update("rows", values, draw="keys")
    # Behind all others; by `latest` that is where its keys are.
    end = "keys" if spec.workload.keys == "latest" else "uniform"
    insert = access("rows", "insert", draw=end)
    column = update("rows", dataset.column_bytes, draw="keys")
    scan = access("rows", "read", draw={"key_run": {"most": most}})
    return {
        "read": [read],
        "write": [*_often(one(write, values, commits=False), together - 1), one(write, values)],
        "insert": [one(insert, values)],
        "update": [one(column, dataset.column_bytes)],
        "delete": [one(access("rows", "delete", draw="keys"), 0)],
        # Half of the longest and half a row, on average.
        "scan": [one(scan, values * (most + 1) // 2, commits=False)],
        "read_modify_write": [read, one(update("rows", values), values)],
    }


def logged(transaction: Json) -> Json:
    """Return a transaction that one server commits by its log, instead of by a table."""
    found: list[Json] = []
    for each in transaction["statements"]:
        commits = any(access["table"] == STATUS for access in each["accesses"])
        accesses = [_locked(access) for access in each["accesses"] if access["table"] != STATUS]
        found.append({**each, "accesses": accesses, "commits": commits})
    # A statement without a transaction around it commits by itself.
    if not any(each["commits"] for each in found) and len(found) == 1:
        found[0]["commits"] = True
    return {**transaction, "statements": found}


def _locked(access: Json) -> Json:
    return {**access, "kind": "lock"} if access.get("written_bytes") == LOCK_BYTES else access


def shape_of(spec: ClusterTrial, stored: Stored) -> Shape:
    """Return the tables and transactions of a trial of sysbench or TPC-C."""
    if spec.workload.tpcc is not None:
        return tpcc(spec.workload.tpcc, stored)
    return sysbench(spec.workload.the(Sysbench), stored, IN_A_TRANSACTION)


def writes(spec: ClusterTrial) -> bool:
    """Return whether a trial changes rows."""
    work = spec.workload
    if work.operations is not None:
        return work.operations.changes > 0
    return work.sysbench is None or work.sysbench.script not in READING_SCRIPTS


def sysbench(work: Sysbench, stored: Stored, statements: int) -> Shape:
    """Return sysbench's tables and one of its scripts.

    All tables are alike, so they are one with as many rows and tablets as all. **Source:** sysbench
    1.0: id, k, c char(120), pad char(60), and an index on k.
    """
    rows = work.tables * work.rows_per_table
    if work.script == "tpcb":
        return Shape(_accounts(rows, stored), [_tpcb()], work.threads, None)
    many = Stored(stored.tablets * work.tables, stored.column_overhead_bytes)
    tables = [many.table("sbtest", rows, 4 + 4 + TEXT_BYTES + 60, 3), stored.status()]
    index = []
    if work.secondary_index:
        tables.append(many.table("k", rows, 4 + 4, 0))
        index = [access("k", "insert")]
    row: Any = "uniform" if work.rand_type == "uniform" else {"preferred": {"how": work.rand_type}}
    run: Any = "run" if work.rand_type == "uniform" else {"preferred_run": {"how": work.rand_type}}
    select = statement(
        access("sbtest", "read", draw=row),
        times=statements,
        reported_as="select",
        row_bytes=TEXT_BYTES,
    )
    insert = statement(
        access("sbtest", "insert"), *index, times=statements, reported_as="insert", row_bytes=190
    )
    text = update("sbtest", TEXT_BYTES + COLUMN_BYTES, draw=row)
    number = update("sbtest", COLUMN_BYTES, draw=row)
    update_non_index = statement(text, reported_as="update", row_bytes=TEXT_BYTES)
    update_index = statement(number, *index, reported_as="update")
    delete = statement(number, *index, reported_as="delete")
    count, counts = work.range_rows, work.statements or SysbenchStatements()
    scan = statement(
        access("sbtest", "read", count, run), reported_as="range", row_bytes=count * TEXT_BYTES
    )
    reads = [*_often(select, counts.point_selects), *_often(scan, counts.ranges)]
    writes = [
        *_often(update_index, counts.index_updates),
        *_often(update_non_index, counts.non_index_updates),
        *_often(delete, counts.delete_inserts),
        *_often(insert, counts.delete_inserts),
    ]
    scripts = {
        "oltp_read": [BEGIN, select, COMMIT_READS],
        "oltp_insert": [BEGIN, insert, COMMIT],
        "oltp_read_only": [BEGIN, *reads, COMMIT_READS],
        "oltp_read_write": [BEGIN, *reads, *writes, COMMIT],
        "oltp_write_only": [BEGIN, *writes, COMMIT],
        "oltp_point_select": [{**select, "times": 1}],
        "oltp_update_index": [update_index],
        "oltp_update_non_index": [update_non_index],
    }
    one = {"name": "transaction", "share_ppm": 1_000_000, "statements": scripts[work.script]}
    return Shape(tables, [one], work.threads, None)


BRANCH_ACCOUNTS, LEAST_BRANCHES, HISTORY_ROWS = 100_000, 256, 1
"""Of TPC-B. **Source:** pgbench's `naccounts`; the least of ours, of workloads/sysbench/tpcb.lua,
whose history is empty: a table of the simulator has a row."""


def _accounts(rows: int, stored: Stored) -> list[Json]:
    """Return the tables of pgbench's TPC-B, a script of ours for sysbench."""
    branches = max(rows // BRANCH_ACCOUNTS, LEAST_BRANCHES)
    sizes = {
        "accounts": (rows, 8 + 84, 3),
        "tellers": (10 * branches, 8 + 84, 3),
        "branches": (branches, 4 + 88, 2),
        "tpcb history": (HISTORY_ROWS, 16 + 8, 5),
    }
    return [stored.table(name, *size) for name, size in sizes.items()] + [stored.status()]


def _tpcb() -> Json:
    """Return a transaction. **Divergence:** no two wait for each other at a branch."""
    statements = [
        BEGIN,
        statement(update("accounts", COLUMN_BYTES, draw="uniform")),
        statement(access("accounts", "read", draw="recent")),
        statement(update("tellers", COLUMN_BYTES, draw="uniform")),
        statement(update("branches", COLUMN_BYTES, draw="uniform")),
        statement(access("tpcb history", "insert")),
        COMMIT,
    ]
    return {"name": "transaction", "share_ppm": 1_000_000, "statements": statements}


def _often(each: Json, times: int) -> list[Json]:
    """Return a statement so many times in a row."""
    return [{**each, "times": times}] if times else []


def tpcc(work: Tpcc, stored: Stored) -> Shape:
    """Return TPC-C's tables and its five transactions.

    **Source:** the statements of yugabyte/tpcc (`procedures/NewOrder.java` and so on), which the
    study ran.
    """
    mix = SYSBENCH_MIX_PPM if work.is_sysbench else MIX_PPM
    transactions = [
        {
            "name": name,
            "share_ppm": mix[name],
            "counted": name == "new order",
            "keying_ns": KEYING_S[name] * NS_PER_S * work.rests,
            "think_ns": THINK_S[name] * NS_PER_S * work.rests,
            "statements": [_of_sysbench(each) for each in statements]
            if work.is_sysbench
            else statements,
        }
        for name, statements in {
            "new order": _new_order(),
            "payment": _payment(),
            "order status": _order_status(),
            "delivery": _delivery(),
            "stock level": _stock_level(),
        }.items()
    ]
    terminals = work.warehouses * TERMINALS if work.rests else work.connections
    tables = _tables(work.warehouses, stored, sysbench=work.is_sysbench)
    return Shape(tables, transactions, terminals, work.connections)


def _tables(warehouses: int, stored: Stored, *, sysbench: bool) -> list[Json]:
    """Return the nine tables and two indexes, or six. **Source:** TPC-C 1.2.1 and 1.3.1."""
    sizes = {
        # Rows of a warehouse (all of them for items), bytes of the values, columns beside the key.
        "warehouse": (warehouses, 89, 8),
        "district": (warehouses * DISTRICTS, 95, 9),
        "customer": (warehouses * 30_000, 655, 18),
        "customer name": (warehouses * 30_000, 50, 0),
        "history": (warehouses * 30_000, 46, 8),
        "new_order": (warehouses * 9_000, 8, 0),
        "oorder": (warehouses * 30_000, 24, 5),
        "order of customer": (warehouses * 30_000, 20, 0),
        "order_line": (warehouses * 300_000, 54, 6),
        "item": (ALL_ITEMS, 82, 4),
        "stock": (warehouses * 100_000, 306, 15),
    }
    if sysbench:
        sizes |= {
            "stock of item": (warehouses * 100_000, 10, 0),
            "order_line of stock": (warehouses * 300_000, 14, 0),
            "history of customer": (warehouses * 30_000, 13, 0),
            "history of district": (warehouses * 30_000, 9, 0),
        }
    return [stored.table(name, *size) for name, size in sizes.items()] + [stored.status()]


# Warehouses, districts and items are few and used all the time.
_WAREHOUSE = access("warehouse", "read", draw="recent")
_DISTRICT = access("district", "read", draw="recent")
_CUSTOMER_DRAW = {"nurand": {"a": 1023, "group": 3000}}
_STOCK_DRAW = {"nurand": {"a": 8191, "group": 100_000}}


_SYSBENCH_INDEXES: dict[str, Json] = {
    "order_line": {"order_line of stock": _STOCK_DRAW},
    "history": {"history of customer": _CUSTOMER_DRAW, "history of district": "uniform"},
}
"""Of sysbench-tpcc, beside those of the standard: which entries a new row adds, and where.

**Source:** `create_tables` of its tpcc_common.lua."""


def _of_sysbench(statement: Json) -> Json:
    """Return a statement with sysbench-tpcc's indexes and its choice of rows.

    **Source:** `NURand` of its tpcc_common.lua draws C again each time (0 is true in Lua), which
    leaves no row preferred.
    """
    accesses: list[Json] = []
    for item in statement["accesses"]:
        accesses.append(item)
        if item["kind"] == "insert":
            for name, draw in _SYSBENCH_INDEXES.get(item["table"], {}).items():
                accesses.append(access(name, "insert", item["rows"], draw))
    return {**statement, "accesses": [_even(item) for item in accesses]}


def _even(item: Json) -> Json:
    draw = item["draw"]
    if isinstance(draw, dict) and "nurand" in draw:
        return {**item, "draw": {"nurand": {**draw["nurand"], "a": 0}}}
    return item


def _customer(rows: int = 1) -> Json:
    return access("customer", "read", rows, _CUSTOMER_DRAW)


# Six of ten customers are named, three rows have that name; the others are numbered.
# **Source:** TPC-C 2.5.1.2.
_CUSTOMER_BY_NAME = [
    statement(access("customer name", "read", 1, _CUSTOMER_DRAW)),
    statement(_customer(2), row_bytes=1000),
]


def _new_order() -> list[Json]:
    """Return a new order: rows selected for update are written too, as locks that are replicated.

    Items and stock are one statement each. The rows of stock are updated in one batch of the
    driver, but each by a statement of its own, whose write is replicated before the next: it has to
    tell whether there was such a row. The lines are inserted by one statement.

    **Source:** `YBCExecuteUpdate` of YugabyteDB 2.x (ybcModifyTable.c, `can_batch_update`): updates
    of a single row are batched in procedures alone; those that read their row first are flushed by
    the read of the next (yugabyte-db issue 29361).
    """
    stock = update("stock", 0, ITEMS, _STOCK_DRAW, locks=True)
    new_stock = update("stock", 4 * COLUMN_BYTES)
    return [
        statement(_customer()),
        statement(_WAREHOUSE),
        statement(update("district", 0, locks=True)),
        statement(update("district", COLUMN_BYTES)),
        statement(access("oorder", "insert"), access("order of customer", "insert")),
        statement(access("new_order", "insert")),
        statement(access("item", "read", ITEMS, "recent"), row_bytes=ITEMS * 80),
        statement(stock, row_bytes=ITEMS * 100),
        statement(new_stock, row_bytes=ITEMS * 40),
        statement(new_stock, times=ITEMS - 1, inside=True),
        statement(access("order_line", "insert", ITEMS), row_bytes=ITEMS * LINE_BYTES),
        COMMIT,
    ]


def _payment() -> list[Json]:
    return [
        statement(update("warehouse", COLUMN_BYTES)),
        statement(_WAREHOUSE),
        statement(update("district", COLUMN_BYTES)),
        statement(_DISTRICT),
        *_CUSTOMER_BY_NAME,
        statement(update("customer", 3 * COLUMN_BYTES)),
        statement(access("history", "insert")),
        COMMIT,
    ]


def _order_status() -> list[Json]:
    return [
        *_CUSTOMER_BY_NAME,
        statement(access("order of customer", "read"), access("oorder", "read")),
        statement(access("order_line", "read", ITEMS, "run"), row_bytes=ITEMS * LINE_BYTES),
        COMMIT_READS,
    ]


def _delivery() -> list[Json]:
    """Deliver the oldest order of each district, which was placed hours ago.

    Each district is committed by itself.
    """
    lines = update("order_line", COLUMN_BYTES, ITEMS, "run")
    return [
        statement(access("new_order", "read"), times=DISTRICTS),
        statement(update("new_order", COLUMN_BYTES), times=DISTRICTS),
        statement(access("oorder", "read"), times=DISTRICTS),
        statement(update("oorder", COLUMN_BYTES), times=DISTRICTS),
        statement(lines, times=DISTRICTS),
        statement(access("order_line", "read", ITEMS, "recent"), times=DISTRICTS),
        statement(update("customer", 2 * COLUMN_BYTES, draw="uniform"), times=DISTRICTS),
        {**COMMIT, "times": DISTRICTS},
    ]


def _stock_level() -> list[Json]:
    """Look at the stock of the last twenty orders' items."""
    lines = 20 * ITEMS
    return [
        statement(_DISTRICT),
        statement(
            access("order_line", "read", lines, "run"),
            access("stock", "read", lines, _STOCK_DRAW),
        ),
        COMMIT_READS,
    ]
