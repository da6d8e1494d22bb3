"""Results of yugabyte/tpcc, the Java program that made the published TPC-C figures, as a run.

Its `results/json/output.json` has one object a kind of transaction: count, mean and 99th percentile
of the successful attempts alone, without the wait for a connection and without earlier attempts.
**Source:** yugabyte/tpcc, docs/METRICS_AND_RESULTS.md and its class TpccRunResults (2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from disklab import reading
from disklab.errors import Problem, UserError, refuse
from disklab.results.figures import Amount, Count, Level
from disklab.results.records import Operation, TrialResult

NAMES = {
    "NewOrder": "new_order",
    "Payment": "payment",
    "OrderStatus": "order_status",
    "Delivery": "delivery",
    "StockLevel": "stock_level",
}
"""Its names of the transactions, and ours."""
SECONDS_IN_MINUTE = 60
TPMC_OF_A_WAREHOUSE = 12.86
"""**Source:** TPC-C, clause 4.2."""
ROUNDING = 0.02
"""It rounds, and its measuring phase ends a think time earlier or later."""
WARNINGS = (
    "imported from yugabyte/tpcc: latencies are those of the successful attempt, without earlier "
    "attempts and without the wait for a connection",
)


class _Part(BaseModel):
    """A part of the file; keys that are not needed are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Latency(_Part):
    """What it says of one kind of transaction; milliseconds."""

    count: Count = Field(alias="Count")
    mean: Amount | None = Field(default=None, alias="avgLatency")
    p99: Amount | None = Field(default=None, alias="P99Latency")
    connection: float | None = Field(default=None, alias="connectionAcqLatency")


class Retries(_Part):
    """How often an attempt failed."""

    failed: list[Any] = Field(default_factory=list, alias="retriesFailureCount")

    def total(self) -> int:
        """Return the failures of all attempts; some releases nest the list."""
        pending, found = list(self.failed), 0
        while pending:
            one = pending.pop()
            if isinstance(one, list):
                pending += one
            else:
                found += int(one)
        return found


class Configuration(_Part):
    """How it was run."""

    nodes: int | None = Field(default=None, alias="numNodes")
    warehouses: int = Field(alias="numWarehouses", gt=0)
    all_warehouses: int | None = Field(default=None, alias="totalWarehouses")
    connections: int = Field(alias="numDBConnections", gt=0)
    warm_up_s: float = Field(default=0, alias="warmupTimeInSecs")
    run_s: float = Field(alias="runTimeInSecs", gt=0)
    started: str = Field(default="", alias="testStartTime")


class Figures(_Part):
    """Its figures of the whole."""

    tpmc: float = Field(ge=0)
    efficiency_percent: float | None = Field(default=None, alias="efficiency")
    throughput_per_s: float | None = Field(default=None, alias="throughput")


class YugabyteTpcc(_Part):
    """One output.json."""

    configuration: Configuration = Field(alias="TestConfiguration")
    figures: Figures = Field(alias="Results")
    latencies: dict[str, Latency] = Field(alias="Latencies")
    retries: dict[str, Retries] = Field(default_factory=dict, alias="RetryAttempts")

    @field_validator("latencies", mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        """Make a list of transactions, as some releases write it, a table by name."""
        if isinstance(given, list):
            return {str(one.get("Transaction")): one for one in given if isinstance(one, Mapping)}
        return given


def read(text: str, place: str) -> YugabyteTpcc:
    """Return a file's content. Raises UserError with every problem; `place` names the file."""
    try:
        found = reading.parse(YugabyteTpcc, text.encode())
    except reading.NotAsExpectedError as error:
        way_out = "give the results/json/output.json of yugabyte/tpcc"
        raise UserError(*error.problems(place, way_out)) from None
    refuse(list(_disagreements(found, place)))
    return found


def _disagreements(found: YugabyteTpcc, place: str) -> list[Problem]:
    """Return where the file does not agree with itself: it was edited, or means something else."""
    missing = sorted(set(NAMES) - set(found.latencies))
    if missing:
        rule = "every kind of transaction has its latencies"
        return [Problem(f"{place}: Latencies", ", ".join(missing), rule, "run the whole mix")]
    seconds, tpmc = found.configuration.run_s, found.figures.tpmc
    counted = found.latencies["NewOrder"].count * SECONDS_IN_MINUTE / seconds
    if abs(counted - tpmc) > ROUNDING * max(counted, tpmc):
        rule = f"NewOrder's count over {seconds:g} s makes {counted:.2f} new orders a minute"
        return [Problem(f"{place}: Results.tpmc", str(tpmc), rule, "import an unchanged file")]
    return []


def trial_of(
    found: YugabyteTpcc, experiment: str, trial: int, repeat: int, factors: Mapping[str, Level]
) -> TrialResult:
    """Return it as a result of an experiment's cell.

    As with our own TPC-C the rate is new orders a second.
    """
    configuration, figures = found.configuration, found.figures
    latencies = {NAMES[name]: one for name, one in found.latencies.items() if name in NAMES}
    done = max(1, sum(one.count for one in latencies.values()))
    failed = {NAMES[name]: one.total() for name, one in found.retries.items() if name in NAMES}
    warehouses = configuration.all_warehouses or configuration.warehouses
    attempts = sum(failed.values())
    return TrialResult.model_validate(
        {
            "experiment": experiment,
            "mode": "measure",
            "trial": trial,
            "repeat": repeat,
            "factors": dict(factors),
            "warnings": list(WARNINGS),
            "ops_per_s": figures.tpmc / SECONDS_IN_MINUTE,
            "nodes": configuration.nodes or None,
            "loop": {"kind": "closed", "threads": configuration.connections},
            "latency_ms": _latency(latencies["new_order"]),
            "per_operation": {
                name: Operation(
                    operations=one.count,
                    ops_per_s=one.count / configuration.run_s,
                    latency_ms=_latency(one),
                    errors=failed.get(name, 0),
                )
                for name, one in latencies.items()
            },
            "errors": {"failed attempts": attempts} if attempts else {},
            "duration_s": configuration.run_s,
            "tpmc": figures.tpmc,
            "efficiency_ratio": figures.tpmc / (TPMC_OF_A_WAREHOUSE * warehouses),
            "warehouses": warehouses,
            "mix_ratio": {name: one.count / done for name, one in latencies.items()},
            "test_start_time": configuration.started,
        }
    )


def _latency(of: Latency) -> dict[str, float]:
    told = {"mean": of.mean, "p99": of.p99}
    return {name: ms for name, ms in told.items() if ms is not None}
