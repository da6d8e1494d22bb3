"""A trial becomes jobs of the load engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.engine.load import (
    ClosedLoop,
    CqlTarget,
    EngineLoad,
    LoadDone,
    LoadJob,
    OpenLoop,
    RowSize,
    RowsWorkload,
    Stop,
)
from disklab.procedures.turn import workload_of
from disklab.spec import ClusterTrial
from disklab.spec.amounts import WrongKindError, only
from disklab.spec.model import Workload
from disklab.workloads.protocol import Asked
from disklab.workloads.rows import Rows, fill_job, measure_job

TARGET = {"protocol": "cql", "contact_points": ["127.0.0.1:9042"], "keyspace": "k", "table": "t"}

EXPERIMENT = """
title: A load
cluster: {{nodes: 2, vm: azure/Standard_DS14_v2, volumes: {{data: {{disks: azure/P30}}}}}}
database: {{engine: cassandra, consistency: QUORUM}}
dataset: {{rows: 10k, row: 5 x 818B}}
workload: {{operations: {{read: 75%, write: 25%}}, keys: zipfian, load: {load}, stop: {stop}}}
rehearse: {{nodes: 1, scale: 1/10}}
"""


def trial(tmp_path: Path, load: str, stop: str = "{operations: 4k}") -> ClusterTrial:
    file = tmp_path / "load.yaml"
    file.write_text(EXPERIMENT.format(load=load, stop=stop))
    (loaded,) = spec.load(file).trials("rehearse")
    return only(ClusterTrial, loaded.here)


def rows_of(job: LoadJob) -> RowsWorkload:
    assert isinstance(job.workload, RowsWorkload)
    return job.workload


def test_the_fill_writes_each_row_once_in_order(tmp_path: Path) -> None:
    job = fill_job(trial(tmp_path, "{threads: 64}"), TARGET, 500, seed=9)
    assert rows_of(job).operations == {"write": 1.0}
    assert rows_of(job).keys == "sequential"
    assert (rows_of(job).rows, job.stop.operations) == (500, 500)
    assert (rows_of(job).columns, rows_of(job).column_bytes) == (5, 818)
    assert isinstance(job.target, CqlTarget)
    assert job.target.consistency == "QUORUM"
    assert job.target.table == "t"


def test_rows_of_several_sizes_have_them_in_fill_and_run(tmp_path: Path) -> None:
    file = tmp_path / "load.yaml"
    text = EXPERIMENT.format(load="{threads: 64}", stop="{operations: 4k}")
    file.write_text(text.replace("5 x 818B", "5 x 60% 200B + 40% 1KiB"))
    (loaded,) = spec.load(file).trials("rehearse")
    here = only(ClusterTrial, loaded.here)
    assert (here.the_dataset.columns, here.the_dataset.column_bytes) == (5, 530)
    sizes = [RowSize(column_bytes=200, share_ppm=600_000)]
    sizes += [RowSize(column_bytes=1024, share_ppm=400_000)]
    fill = fill_job(here, TARGET, 500, seed=9)
    run = measure_job(here, TARGET, 500, seed=9, repeat=1)
    for job in (fill, run):
        assert rows_of(job).sizes == sizes
        assert rows_of(job).content_seed == 9


def test_a_closed_loop_has_the_threads_of_the_share(tmp_path: Path) -> None:
    job = measure_job(trial(tmp_path, "{threads: 64}"), TARGET, 500, seed=9)
    assert job.load == ClosedLoop(threads=32)
    assert job.stop.operations == 200
    assert rows_of(job).operations == {"read": 0.75, "write": 0.25}
    assert rows_of(job).keys == "zipfian"


def test_an_open_loop_has_the_rate_of_the_share(tmp_path: Path) -> None:
    asked = trial(tmp_path, "{rate: 4000/s, arrivals: even}", "{duration: 30s}")
    job = measure_job(asked, TARGET, 500, seed=9)
    assert job.load == OpenLoop(rate_per_s=2000.0, arrivals="even")
    assert job.stop.duration_s == 30.0


def test_a_ceiling_is_that_of_the_share_as_threads_are(tmp_path: Path) -> None:
    asked = trial(tmp_path, "{threads: 64, at_most: 4000/s}")
    assert measure_job(asked, TARGET, 500, seed=9).load == ClosedLoop(
        threads=32, at_most_per_s=2000.0
    )


def test_each_repeat_draws_other_keys_of_the_same_rows(tmp_path: Path) -> None:
    asked = trial(tmp_path, "{threads: 64}")
    fill = fill_job(asked, TARGET, 500, seed=9)
    repeats = [measure_job(asked, TARGET, 500, seed=9, repeat=repeat) for repeat in range(3)]
    assert len({job.seed for job in repeats}) == 3
    assert {rows_of(job).content_seed for job in repeats} == {rows_of(fill).content_seed}


def test_a_procedure_may_raise_the_threads(tmp_path: Path) -> None:
    asked = trial(tmp_path, "{threads: 64}")
    job = measure_job(asked, TARGET, 500, seed=9, threads=7, duration_s=3.0)
    assert job.load == ClosedLoop(threads=7)
    assert (job.stop.operations, job.stop.duration_s) == (None, 3.0)


def test_a_workload_without_rows_is_a_bug(tmp_path: Path) -> None:
    asked = trial(tmp_path, "{threads: 64}")
    tpcc = Workload.model_validate({"tpcc": {"warehouses": 1, "connections": 1}})
    without = asked.model_copy(update={"workload": tpcc})
    with pytest.raises(WrongKindError, match="no Operations"):
        measure_job(without, TARGET, 500, seed=9)


def test_writes_wear_the_rows_and_reads_do_not(tmp_path: Path) -> None:
    small = trial(tmp_path, "{threads: 4}")
    assert small.dataset.rows == 500
    for operations, worn in (({"read": 500, "write": 25}, 0.05), ({"read": 500}, 0.0)):
        assert Rows(small, seed=9).wear(done(operations)) == worn


def done(operations: dict[str, int]) -> LoadDone:
    """Return the end of a run with so many operations, a fifth of them failed."""
    times = dict.fromkeys(("mean_ms", "p50_ms", "p95_ms", "p99_ms", "p99.9_ms", "max_ms"))
    of = {
        name: {"count": count * 4 // 5, "failed": count // 5, "ops_per_s": 1.0, **times}
        for name, count in operations.items()
    }
    return LoadDone.model_validate(
        {
            **{"elapsed_s": 1.0, "ops_per_s": 1.0, "operations": of, "response": {}, "service": {}},
            **{"lateness": None, "unsent": 0, "abandoned": 0, "errors": {}, "last_error": None},
            **{"wrong_rows": 0, "missing_rows": 0, "cpu_ns": 1, "started_unix_ns": 2},
            "interrupted": False,
        }
    )


@pytest.mark.parametrize(("column_bytes", "has_versions"), [(7, False), (8, True)])
def test_a_column_of_eight_bytes_has_room_for_a_version(
    tmp_path: Path, column_bytes: int, has_versions: bool
) -> None:
    file = tmp_path / "load.yaml"
    text = EXPERIMENT.format(load="{threads: 64}", stop="{operations: 4k}")
    text = text.replace("818B", f"{column_bytes}B").replace("write: 25%", "write: 25%, scan: 0%")
    file.write_text(text)
    (loaded,) = spec.load(file).trials("rehearse")
    load = workload_of(loaded.here, 1).run(TARGET, Asked(Stop(operations=9), 1, versions=True))
    assert isinstance(load, EngineLoad)
    assert (rows_of(load.job).versions is not None) == has_versions
    # What is never done is no operation.
    assert rows_of(load.job).operations == {"read": 0.75, "write": 0.25}
