"""The rows workload: a trial becomes jobs of the load engine.

The content of the rows hangs on the run's seed alone, so that every trial and repeat finds the rows
that the fill wrote; the keys of each repeat are drawn anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from disklab.database_facts import RowsLoad, facts_of
from disklab.engine.load import (
    LEAST_VERSIONED_BYTES,
    READING,
    ClosedLoop,
    DatabaseTarget,
    EngineLoad,
    Generator,
    KnownVersions,
    LoadDone,
    LoadJob,
    OpenLoop,
    RowsWorkload,
    Stop,
    load_target,
)
from disklab.spec import ClusterTrial
from disklab.workloads.protocol import Asked, Begin, Target

WARM_UP_TABLE = "warm_up"
"""A table beside: what warms a compiler must not warm the caches of the measured one."""
# Small enough to be written in a second, and enough to go through every path of a read from an
# SSTable.
WARM_UP_ROWS = 4_000
WARM_UP_THREADS = 32
# Where every row is lost no read succeeds, and each must be asked for all the same.
READ_BACK_GIVE_UP_S = 3600.0
WARM_UP_SHARES = {"read": 0.5, "write": 0.5}


def warm_up_shares(work: RowsWorkload) -> dict[str, float]:
    """Return reads and writes, and what else the trial's load does; deletes would leave nothing."""
    others = {name: 1.0 for name in work.operations if name not in ("read", "write", "delete")}
    return {**WARM_UP_SHARES, **others}


class Rows:
    """Reads and writes of whole rows by our own engine. See `Workload` for what is promised."""

    generators = 1
    headline = None
    makes_tables = False

    def __init__(self, spec: ClusterTrial, seed: int, time_dilation: int = 1) -> None:
        """Take the trial as it is run here, and the run's seed: the content hangs on it alone."""
        self._time_dilation = time_dilation
        assert spec.the_dataset.rows is not None, "fill is rows by now"
        self._spec = spec
        self._seed = seed
        self._rows = spec.the_dataset.rows
        self.data_bytes = self._rows * spec.the_dataset.columns * spec.the_dataset.column_bytes

    def fill(self, target: Target) -> Sequence[Begin]:
        """Return the job that writes every row once, in the order of the keys."""
        job = fill_job(self._spec, target, self._rows, self._seed)
        return [EngineLoad(job)]

    def warm_up(self, target: Target, operations: int, stream: int) -> Sequence[Begin]:
        """Return two jobs on the table beside: its rows, then reads and writes of them."""
        beside = {**target, "table": WARM_UP_TABLE}
        rows = fill_job(self._spec, beside, WARM_UP_ROWS, self._seed)
        job = measure_job(
            self._spec, beside, WARM_UP_ROWS, self._seed, repeat=stream, threads=WARM_UP_THREADS
        )
        assert isinstance(job.workload, RowsWorkload)
        changed = {"keys": "uniform", "operations": warm_up_shares(job.workload)}
        work = job.workload.model_copy(update=changed)
        seen = job.model_copy(update={"workload": work, "stop": Stop(operations=operations)})
        return [EngineLoad(rows), EngineLoad(seen)]

    def run(self, target: Target, asked: Asked) -> Begin:
        """Return the job of the trial's own load."""
        job = measure_job(
            self._spec,
            target,
            self._rows,
            self._seed,
            repeat=asked.stream,
            threads=asked.threads,
        ).model_copy(update={"stop": asked.stop})
        assert isinstance(job.workload, RowsWorkload)
        if asked.versions and job.workload.least_column_bytes >= LEAST_VERSIONED_BYTES:
            work = job.workload.model_copy(update={"versions": KnownVersions()})
            job = job.model_copy(update={"workload": work})
        slowed = job.model_copy(update={"time_dilation": self._time_dilation})
        return EngineLoad(slowed)

    def check(
        self,
        target: Target,
        known: KnownVersions | None = None,
        consistency: str | None = None,
    ) -> Begin | None:
        """Return the job that reads every row once, where a timetable may have lost some.

        Otherwise nothing: every read compares what it gets with what was written.
        """
        if not self._spec.events:
            return None
        how = _load_of(self._spec)
        work = _rows(self._spec, self._rows, self._seed, "sequential", {"read": 1.0})
        job = LoadJob(
            seed=self._seed,
            target=_target(self._spec, target, consistency),
            workload=work.model_copy(update={"versions": known}),
            load=ClosedLoop(threads=how.fill_in_flight),
            stop=Stop(operations=self._rows, give_up_s=READ_BACK_GIVE_UP_S),
        )
        return EngineLoad(job)

    def wear(self, done: LoadDone) -> float:
        """Return the share of rows that were written anew: they lie in other files than the fill's.

        A write that failed may have arrived. Only a new fill writes deleted rows again.
        """
        if "delete" in done.operations:
            return 1.0
        written = [one for name, one in done.operations.items() if name not in READING]
        return sum(one.count + one.failed for one in written) / self._rows


def load_seed(seed: int, repeat: int) -> int:
    """Return the seed of a load by the run's seed and its own number, or stream.

    A repeat of one run has not the seed of the first repeat of the run with the next seed.
    """
    return (seed * 1_000_003 + repeat) % (1 << 63)


def fill_job(spec: ClusterTrial, target: Mapping[str, object], rows: int, seed: int) -> LoadJob:
    """Return the job that writes every row once, in the order of the keys.

    `spec` is the trial as it is run here (`Trial.here`), `target` the database's own.
    """
    how = _load_of(spec)
    own = target.get("settings")
    given = own if isinstance(own, Mapping) else {}
    settings = {"settings": {**given, **how.fill_settings}} if how.fill_settings else {}
    return LoadJob(
        seed=seed,
        target=_target(spec, {**target, **settings}),
        workload=_rows(spec, rows, seed, "sequential", {"write": 1.0}),
        load=ClosedLoop(threads=how.fill_in_flight),
        stop=Stop(operations=rows),
    )


def measure_job(  # noqa: PLR0913 - each is decided by somebody else
    spec: ClusterTrial,
    target: Mapping[str, object],
    rows: int,
    seed: int,
    *,
    repeat: int = 0,
    threads: int | None = None,
    duration_s: float | None = None,
    generator: tuple[int, int] = (0, 1),
) -> LoadJob:
    """Return the job of a measurement, or of a warm-up of `duration_s`.

    `rows` is what the fill has written. `threads` overrides the trial's load, as `variable` does.
    """
    work = spec.workload
    operations = work.the_operations.shares
    load: ClosedLoop | OpenLoop
    if threads is not None:
        load = ClosedLoop(threads=threads)
    elif work.load is not None and work.load.threads is not None:
        load = ClosedLoop(threads=work.load.threads, at_most_per_s=work.load.at_most_per_s)
    elif work.load is None or work.load.rate_per_s is None:
        raise ValueError("the procedure decides the load; give threads")
    else:
        load = OpenLoop(rate_per_s=work.load.rate_per_s, arrivals=work.load.arrivals)
        most = _load_of(spec).most_in_flight
        if most is not None:
            load = load.model_copy(update={"max_in_flight": most})
    if duration_s is not None:
        stop = Stop(duration_s=duration_s)
    else:
        stop = Stop(operations=work.the_stop.operations, duration_s=work.the_stop.duration_s)
    index, count = generator
    return LoadJob(
        seed=load_seed(seed, repeat),
        target=_target(spec, target),
        workload=_rows(spec, rows, seed, work.keys, operations, work.asked_of(rows)),
        load=load,
        stop=stop,
        generator=Generator(index=index, count=count),
    )


def _load_of(spec: ClusterTrial) -> RowsLoad:
    return facts_of(spec.database.engine).rows


def _target(
    spec: ClusterTrial, target: Mapping[str, object], consistency: str | None = None
) -> DatabaseTarget:
    return load_target(target, consistency=consistency or spec.database.consistency)


def _rows(  # noqa: PLR0913, PLR0917 - each is decided by somebody else
    spec: ClusterTrial,
    rows: int,
    content_seed: int,
    keys: str,
    operations: dict[str, float],
    asked_rows: int | None = None,
) -> RowsWorkload:
    return RowsWorkload.model_validate(
        {
            "rows": rows,
            "columns": spec.the_dataset.columns,
            "column_bytes": spec.the_dataset.column_bytes,
            "sizes": spec.the_dataset.shape.of_a_million() or None,
            "keys": keys,
            "asked_rows": asked_rows,
            "operations": operations,
            "scan_rows": spec.workload.scan_rows,
            "content_seed": content_seed,
        }
    )
