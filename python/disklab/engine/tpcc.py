"""TPC-C as the load engine does it: its part of a job, and what it says at the end.

**Source:** TPC Benchmark C, Standard Specification, revision 5.11 ("the standard").
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from disklab.engine.messages import Message

TRANSACTIONS = ("new_order", "payment", "order_status", "delivery", "stock_level")
"""The kinds of operations of a run: keys of `operations`, `response` and `service`."""
TPMC_OF_A_WAREHOUSE = 12.86
"""The most new orders a minute that ten terminals with keying and think times can make.
**Source:** the standard, 4.2."""


class JobPart(BaseModel):
    """A part of a job. The engine checks the values; this side knows their names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TpccWorkload(JobPart):
    """TPC-C over PostgreSQL's or MySQL's wire, in stages that are a job each.

    `load` makes the tables anew and fills them (`load.threads` connections; it ends by itself when
    all rows are there), `run` puts the mix of five transactions on them until `stop`, `check` asks
    the twelve consistency conditions. A run or check of tables that were not loaded to the end, or
    for another number of warehouses, is refused. `load.threads` is the number of connections.
    """

    kind: Literal["tpcc"] = "tpcc"
    warehouses: int
    stage: Literal["load", "run", "check"]
    keying_and_thinking: bool = True
    """Run: ten terminals a warehouse that key in, wait for the answer, think, and share the
    connections; response times count from the end of keying in. False: one terminal a connection
    that never rests, which is not TPC-C, and is said so."""
    terminals_per_warehouse: int = 10
    """With keying and thinking. The standard's is 10."""

    @property
    def writes(self) -> bool:
        """Whether the data are other ones afterwards."""
        return self.stage != "check"


class TpccCondition(Message):
    """A consistency condition of the standard (3.3.2), and whether the tables meet it."""

    number: int
    rule: str
    violations: int
    """Districts, orders or customers that break it."""
    passed: bool
    example: str | None
    """One that breaks it."""


class TpccOutcome(Message):
    """What TPC-C says beyond the histograms. What a stage does not have is None or empty."""

    stage: Literal["load", "run", "check"]
    warehouses: int
    rows: dict[str, int]
    """Load: rows written, by table."""
    terminals: int
    keying_and_thinking: bool
    tpmc: float | None
    """Run: new orders a minute, the rolled-back ones included, failed ones not."""
    efficiency_ratio: float | None
    """`tpmc` / (12.86 x warehouses). Above 1 only where terminals do not rest."""
    mix_ratio: dict[str, float]
    """Shares of the transactions done."""
    rolled_back: int
    """New orders with an unused item: undone as the standard asks, and counted as done."""
    skipped_deliveries: int
    """Districts without an order to deliver."""
    remote_payments: int
    remote_lines: int
    """Order lines from another warehouse, of `lines`."""
    lines: int
    by_last_name: int
    """Payments and order status by last name, of all done."""
    retries: dict[str, int] = Field(default_factory=dict)
    """Run: attempts that another transaction undid and that were made again, by SQLSTATE (40001,
    40P01). Response times hold all attempts; what never came through is a failure."""
    remarks: tuple[str, ...]
    """Where the run is not what the standard asks: each begins with `not compliant: `."""
    conditions: tuple[TpccCondition, ...]
    """Check: all twelve, in order."""
