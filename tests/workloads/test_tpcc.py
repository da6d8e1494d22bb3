"""A TPC-C trial becomes jobs of the load engine."""

from __future__ import annotations

from disklab.engine.load import ClosedLoop, PostgresqlTarget, Stop, TpccWorkload
from disklab.workloads.tpcc import check_job, load_job, run_job

TARGET = {
    "protocol": "postgresql",
    "contact_points": ["127.0.0.1:5432"],
    "database": "d",
    "user": "u",
    "tls": True,
    "table": "rows",
}


def test_each_stage_is_a_job_on_the_same_database() -> None:
    stop = Stop(duration_s=5.0)
    load, check = load_job(TARGET, 3, seed=4), check_job(TARGET, 3)
    run = run_job(TARGET, 3, 4, stop, connections=40)
    for job, stage in ((load, "load"), (run, "run"), (check, "check")):
        assert isinstance(job.workload, TpccWorkload)
        assert (job.workload.stage, job.workload.warehouses) == (stage, 3)
        assert isinstance(job.target, PostgresqlTarget)
        assert job.target.tls
    # Stages other than the run end by themselves.
    assert load.stop == check.stop == Stop()
    assert (run.load, run.stop) == (ClosedLoop(threads=40), stop)


def test_the_data_hang_on_the_seed_and_a_repeat_on_its_number_too() -> None:
    stop = Stop(operations=9)
    seeds = {run_job(TARGET, 1, 4, stop, connections=1, repeat=n).seed for n in range(3)}
    assert len(seeds) == 3
    assert load_job(TARGET, 1, seed=4).seed == 4


def test_terminals_rest_unless_asked_not_to() -> None:
    stop = Stop(operations=9)
    resting = run_job(TARGET, 1, 4, stop, connections=1)
    restless = run_job(TARGET, 1, 4, stop, connections=1, keying_and_thinking=False)
    assert isinstance(resting.workload, TpccWorkload)
    assert isinstance(restless.workload, TpccWorkload)
    assert resting.workload.keying_and_thinking
    assert not restless.workload.keying_and_thinking
