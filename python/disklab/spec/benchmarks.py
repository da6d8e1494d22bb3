"""Loads that are no rows of ours: sysbench, TPC-C, and the load tools of kits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from disklab.spec.amounts import Count, Part, Threads, Unreadable

Times = Annotated[int, Field(ge=0, le=10_000)]


class SysbenchStatements(Part):
    """Statements of a transaction, as sysbench's options of these names; defaults are its own."""

    point_selects: Times = Field(default=10, examples=[5])
    """Selects of one row by its key."""
    simple_ranges: Times = Field(default=1, examples=[0])
    """Selects of `range_rows` rows."""
    sum_ranges: Times = Field(default=1, examples=[0])
    """Selects of the sum of such rows."""
    order_ranges: Times = Field(default=1, examples=[0])
    """Selects of such rows in order."""
    distinct_ranges: Times = Field(default=1, examples=[0])
    """Selects of such rows in order, each value once."""
    index_updates: Times = Field(default=1, examples=[10])
    """Updates of the column k, which is in the secondary index."""
    non_index_updates: Times = Field(default=1, examples=[0])
    """Updates of the column c, which has no index."""
    delete_inserts: Times = Field(default=1, examples=[0])
    """Deletes of a row, each followed by an insert of one with the same key."""

    @property
    def ranges(self) -> int:
        """Statements that read a range."""
        return self.simple_ranges + self.sum_ranges + self.order_ranges + self.distinct_ranges

    @property
    def changes(self) -> int:
        """Statements that change rows."""
        return self.index_updates + self.non_index_updates + self.delete_inserts


WITH_STATEMENTS = ("oltp_read_only", "oltp_read_write", "oltp_write_only")
"""Scripts of sysbench whose transactions have as many statements as its options say."""


class Sysbench(Part):
    """sysbench's OLTP tables and scripts."""

    script: Literal[
        "oltp_read",
        "oltp_insert",
        "oltp_read_only",
        "oltp_read_write",
        "oltp_write_only",
        "oltp_point_select",
        "oltp_update_index",
        "oltp_update_non_index",
        "tpcb",
    ] = Field(examples=["oltp_read"])
    """Which statements a transaction has; oltp_read is ten point selects, oltp_insert ten inserts
    of one row, tpcb pgbench's TPC-B on tables like its own, whose accounts are the rows; the
    others are sysbench's own."""
    tables: Count = Field(examples=[20])
    """Tables."""
    rows_per_table: Count = Field(examples=["15M"])
    """Rows of each table."""
    secondary_index: bool = Field(default=True, examples=[True])
    """Whether column k has an index."""
    rand_type: Literal["uniform", "special", "gaussian", "pareto", "zipfian"] = Field(
        default="uniform", examples=["special"]
    )
    """Which rows are preferred, like sysbench's --rand-type, whose own default is special: three
    draws in four come from a hundredth of each table."""
    range_rows: Count = Field(default=100, examples=["12k"])
    """Rows in each range of the scripts that have ranges, like sysbench's --range-size."""
    statements: SysbenchStatements | None = Field(default=None, examples=[{"delete_inserts": 0}])
    """How many statements of each kind a transaction has, for oltp_read_only, oltp_read_write and
    oltp_write_only."""
    threads: Threads = Field(examples=[60])
    """Connections that each run one transaction after another. With `workload.load.rate` they take
    the transactions of an open loop as they are due."""

    @model_validator(mode="after")
    def _has_statements(self) -> Sysbench:
        if self.statements is None:
            return self
        if self.script not in WITH_STATEMENTS:
            rule = f"{self.script} has the same statements always"
            raise Unreadable(
                rule, f"use the script {', '.join(WITH_STATEMENTS)}, or leave them out"
            )
        reads, changes = "write_only" not in self.script, "read_only" not in self.script
        reading = self.statements.point_selects + self.statements.ranges
        if not (reads * reading + changes * self.statements.changes):
            raise Unreadable(f"no statement of {self.script} is left", "leave some of them")
        return self


class Tpcc(Part):
    """TPC-C."""

    warehouses: Count = Field(examples=[2000])
    """Warehouses."""
    connections: Threads = Field(examples=[600])
    """Connections to the database."""
    terminals: Literal["standard", "no wait", "sysbench-tpcc"] = Field(
        default="standard", examples=["no wait"]
    )
    """Who begins transactions: ten terminals a warehouse, which key in and think as the standard
    has it, or one a connection that begins the next at once, as HammerDB's users. `sysbench-tpcc`:
    the same with that script's mix, its even choice of rows and its four further indexes."""

    @property
    def rests(self) -> bool:
        """Whether terminals key in and think."""
        return self.terminals == "standard"

    @property
    def is_sysbench(self) -> bool:
        """Whether transactions and tables are sysbench-tpcc's."""
        return self.terminals == "sysbench-tpcc"


class Tool(Part):
    """A load tool of the database's kit."""

    load: str = Field(examples=["publish"])
    """Which of the kit's loads."""
    threads: Threads = Field(default=1, examples=[4])
    """Number of simultaneous clients of the tool."""
    fill: Count | None = Field(default=None, examples=["20k"])
    """Records that exist before the measurement. Without it: none."""
    parameters: dict[str, Annotated[str | int, Field(max_length=64)]] = Field(
        default={}, examples=[{"bytes": 512}]
    )
    """What the kit lets an experiment choose about the load, under the kit's own names."""


OTHER_TOOLS = {
    "hammerdb": (
        "HammerDB's TPROC-C is TPC-C without keying and think times; its TPROC-H has no model",
        "write tpcc: {warehouses: ..., connections: <its virtual users>, terminals: no wait}",
    ),
    "pgbench": (
        "pgbench has 100,000 accounts a unit of scale",
        "write sysbench: {script: tpcb, tables: 1, rows_per_table: <scale times 100,000>, threads: "
        "<its clients>}; for -S operations: {read: 100%}, with ranges {scan: 100%} and scan_rows, "
        "and load: {threads: <its clients>}, dataset: {rows: <scale times 100,000>, row: 1 x 84B}",
    ),
}
"""Load tools whose names stand where ours are expected: what they do, and what to write instead."""


def of_other_tool(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a workload as it is given. Raises Unreadable where another tool's name is a key."""
    for name in workload.keys() & OTHER_TOOLS.keys():
        raise Unreadable(*OTHER_TOOLS[name])
    return workload
