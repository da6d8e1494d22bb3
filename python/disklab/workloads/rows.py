"""The rows workload: a trial becomes jobs of the load engine.

The content of the rows hangs on the run's seed alone, so that every trial and repeat finds the rows
that the fill wrote; the keys of each repeat are drawn anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from disklab.engine.load import (
    ClosedLoop,
    Generator,
    LoadJob,
    OpenLoop,
    RowsWorkload,
    Stop,
    Target,
)
from disklab.spec import TrialSpec

FILL_THREADS = 128
"""Writes in flight while filling: enough for a disk's latency not to matter, few enough for a small
heap."""


def fill_job(spec: TrialSpec, target: Mapping[str, object], rows: int, seed: int) -> LoadJob:
    """Return the job that writes every row once, in the order of the keys.

    `spec` is the trial as it is run here (`Trial.here`), `target` the database's own.
    """
    return LoadJob(
        seed=seed,
        target=_target(spec, target),
        workload=_rows(spec, rows, seed, "sequential", {"write": 1.0}),
        load=ClosedLoop(threads=FILL_THREADS),
        stop=Stop(operations=rows),
    )


def measure_job(  # noqa: PLR0913 - each is decided by somebody else
    spec: TrialSpec,
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
    if work.operations is None:
        raise ValueError(f"a workload of kind {work.kind} has no rows")
    operations = {"read": work.operations.read, "write": work.operations.write}
    load: ClosedLoop | OpenLoop
    if threads is not None:
        load = ClosedLoop(threads=threads)
    elif work.load is None:
        raise ValueError("the procedure decides the load; give threads")
    elif work.load.threads is not None:
        load = ClosedLoop(threads=work.load.threads)
    else:
        assert work.load.rate_per_s is not None  # the spec has one of both
        load = OpenLoop(rate_per_s=work.load.rate_per_s, arrivals=work.load.arrivals)
    if duration_s is not None:
        stop = Stop(duration_s=duration_s)
    else:
        assert work.stop is not None  # the spec gives a default
        stop = Stop(operations=work.stop.operations, duration_s=work.stop.duration_s)
    index, count = generator
    return LoadJob(
        # A repeat of one run has not the seed of the first repeat of the run with the next seed.
        seed=(seed * 1_000_003 + repeat) % (1 << 63),
        target=_target(spec, target),
        workload=_rows(spec, rows, seed, work.keys, operations),
        load=load,
        stop=stop,
        generator=Generator(index=index, count=count),
    )


def _target(spec: TrialSpec, target: Mapping[str, object]) -> Target:
    assert spec.database is not None  # a cluster has one
    return Target.model_validate({**target, "consistency": spec.database.consistency})


def _rows(
    spec: TrialSpec, rows: int, content_seed: int, keys: str, operations: dict[str, float]
) -> RowsWorkload:
    assert spec.dataset is not None  # rows are of a data set
    return RowsWorkload.model_validate(
        {
            "rows": rows,
            "columns": spec.dataset.columns,
            "column_bytes": spec.dataset.column_bytes,
            "keys": keys,
            "operations": {kind: share for kind, share in operations.items() if share > 0},
            "content_seed": content_seed,
        }
    )
