"""A TPC-C trial becomes jobs of the load engine."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.engine.load import ClosedLoop, EngineLoad, PostgresqlTarget, Stop, TpccWorkload
from disklab.procedures.turn import workload_of
from disklab.workloads.protocol import Asked
from disklab.workloads.tpcc import check_job, load_job, run_job

TARGET = {
    "protocol": "postgresql",
    "contact_points": ["127.0.0.1:5432"],
    "database": "d",
    "user": "u",
    "tls": True,
    "table": "rows",
}

FILE = """\
title: small
cluster: {{nodes: 1, vm: azure/Standard_D4s_v5, volumes: {{data: {{disks: azure/P20}}}}}}
database: {{engine: mariadb, replication_factor: 1}}
workload:
  tpcc: {{warehouses: 20, connections: 32{more}}}
  stop: {{duration: 60s}}
rehearse: {{nodes: 1, scale: 1/10}}
"""


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


@pytest.mark.parametrize(("more", "rests"), [("", True), (", terminals: no wait", False)])
def test_a_file_says_whether_terminals_wait(more: str, rests: bool) -> None:
    text = FILE.format(more=more)
    (trial,) = spec.parse(text, "x.yaml").trials("rehearse")
    load = workload_of(trial.here, 1).run(TARGET, Asked(Stop(duration_s=5.0), 1))
    assert isinstance(load, EngineLoad)
    assert isinstance(load.job.workload, TpccWorkload)
    assert load.job.workload.keying_and_thinking is rests
    # Of ten terminals a warehouse no more than those need a connection.
    assert load.job.load == ClosedLoop(threads=20 if rests else 32)
