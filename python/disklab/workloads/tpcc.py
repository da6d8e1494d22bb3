"""TPC-C: a trial becomes jobs of the load engine, a stage each: load, run, check.

The data hang on the run's seed alone, so that every trial and repeat finds the same tables; what
the terminals do is drawn anew for each repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from disklab.engine.load import (
    ClosedLoop,
    EngineLoad,
    KnownVersions,
    LoadDone,
    LoadJob,
    Stop,
    TpccWorkload,
    load_target,
)
from disklab.errors import Problem, UserError
from disklab.spec import ClusterTrial, benchmarks
from disklab.workloads.protocol import Asked, Begin, Target

LOAD_CONNECTIONS = 8
"""Connections that load beside each other, a piece of a table each: a few keep a disk busy, and a
server on small machines has as many processors at most."""
CHECK_CONNECTIONS = 2
"""Each condition reads whole tables; more of them would read the disk in turns."""
WHOLE_TABLE_MS = 3_600_000
"""A condition, an index or a warehouse of a slow disk may take this long."""


def load_job(
    target: Mapping[str, object],
    warehouses: int,
    seed: int,
) -> LoadJob:
    """Return the job that makes the tables anew and fills them. It ends when all rows are there."""
    return _job(target, warehouses, "load", seed, LOAD_CONNECTIONS, Stop())


def run_job(  # noqa: PLR0913 - each is decided by somebody else
    target: Mapping[str, object],
    warehouses: int,
    seed: int,
    stop: Stop,
    *,
    connections: int,
    repeat: int = 0,
    keying_and_thinking: bool = True,
) -> LoadJob:
    """Return the job of a measurement, or of a warm-up; `stop` says how long."""
    # As with rows: the first repeat of the next seed is another run.
    drawn = (seed * 1_000_003 + repeat) % (1 << 63)
    job = _job(target, warehouses, "run", drawn, connections, stop)
    workload = job.workload.model_copy(update={"keying_and_thinking": keying_and_thinking})
    return job.model_copy(update={"workload": workload})


def check_job(target: Mapping[str, object], warehouses: int) -> LoadJob:
    """Return the job that asks the twelve consistency conditions; nothing may run beside it."""
    return _job(target, warehouses, "check", 0, CHECK_CONNECTIONS, Stop())


def _job(  # noqa: PLR0913, PLR0917 - each is decided by somebody else
    target: Mapping[str, object], warehouses: int, stage: str, seed: int, threads: int, stop: Stop
) -> LoadJob:
    asked = dict(target)
    # TPC-C's tables have names of their own.
    asked.pop("table", None)
    if stage != "run":
        asked["request_timeout_ms"] = WHOLE_TABLE_MS
    return LoadJob(
        seed=seed,
        target=load_target(asked),
        workload=TpccWorkload.model_validate({"warehouses": warehouses, "stage": stage}),
        load=ClosedLoop(threads=threads),
        stop=stop,
    )


# A warehouse in PostgreSQL with its indexes, after the load (the standard, 4.2.2, has about 65 MB
# unformatted; stock and order lines have many short columns).
WAREHOUSE_BYTES = 100_000_000
# The standard, 4.3.3.1: 3000 orders in each of ten districts.
ORDERS_OF_A_WAREHOUSE = 30_000


class Tpcc:
    """TPC-C by our own engine. See `Workload` for what is promised."""

    generators = 1
    headline = "new_order"
    makes_tables = True

    def __init__(self, spec: ClusterTrial, seed: int, time_dilation: int = 1) -> None:
        """Take the trial as it is run here, and the run's seed: the data hang on it alone."""
        work = spec.workload.the(benchmarks.Tpcc)
        if work.is_sysbench:
            rule = "transactions of sysbench-tpcc are predicted, and not run by our own TPC-C"
            way_out = "write terminals: no wait to rehearse or measure"
            raise UserError(Problem("workload.tpcc.terminals", work.terminals, rule, way_out))
        self._work = work
        self._seed = seed
        self._time_dilation = time_dilation
        self.data_bytes = work.warehouses * WAREHOUSE_BYTES

    def fill(self, target: Target) -> Sequence[Begin]:
        """Return the job that makes the tables anew and fills them."""
        job = load_job(target, self._work.warehouses, self._seed)
        return [EngineLoad(job)]

    def warm_up(self, target: Target, operations: int, stream: int) -> Sequence[Begin]:  # noqa: ARG002
        """Return nothing: there is no table beside."""
        return []

    def run(self, target: Target, asked: Asked) -> Begin:
        """Return the job of the five transactions."""
        job = run_job(
            target,
            self._work.warehouses,
            self._seed,
            asked.stop,
            connections=asked.threads or self._work.connections,
            repeat=asked.stream,
            keying_and_thinking=self._work.rests,
        )
        slowed = job.model_copy(update={"time_dilation": self._time_dilation})
        return EngineLoad(slowed)

    def check(
        self,
        target: Target,
        known: KnownVersions | None = None,
        consistency: str | None = None,
    ) -> Begin:
        """Return the job that asks the standard's consistency conditions."""
        del known, consistency  # TPC-C's rows have no versions
        job = check_job(target, self._work.warehouses)
        return EngineLoad(job)

    def wear(self, done: LoadDone) -> float:
        """Return how many orders were added, of those that were there."""
        orders = done.operations.get("new_order")
        return orders.count / (ORDERS_OF_A_WAREHOUSE * self._work.warehouses) if orders else 0.0
