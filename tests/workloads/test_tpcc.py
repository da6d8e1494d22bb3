"""TPC-C and a kit's tool: what becomes of a trial, and of what a tool has written."""

from __future__ import annotations

from typing import Literal

import pytest
from disklab import spec
from disklab.engine.load import (
    ClosedLoop,
    EngineLoad,
    LoadDone,
    LoadReady,
    PostgresqlTarget,
    Stop,
    TpccWorkload,
)
from disklab.kits.results import Reader
from disklab.kits.schema import Result, Tool
from disklab.procedures.turn import workload_of
from disklab.results import decode
from disklab.results.histogram import encode
from disklab.workloads.program import histogram_of
from disklab.workloads.protocol import Asked
from disklab.workloads.tool import ToolRun, _paced, read_histogram
from disklab.workloads.tpcc import WHOLE_TABLE_MS, check_job, load_job, run_job

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
        # A statement of theirs goes over a whole table.
        assert (job.target.request_timeout_ms == WHOLE_TABLE_MS) is (stage != "run")
    # Stages other than the run end by themselves.
    assert load.stop == check.stop == Stop()
    assert (run.load, run.stop) == (ClosedLoop(threads=40), stop)


def test_the_data_hang_on_the_seed_and_a_repeat_on_its_number_too() -> None:
    stop = Stop(operations=9)
    seeds = {run_job(TARGET, 1, 4, stop, connections=1, repeat=n).seed for n in range(3)}
    assert len(seeds) == 3
    assert load_job(TARGET, 1, seed=4).seed == 4


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


RESULT = Result(
    line=r"^(\d+) done, (\S+) ms, (\S+) ms, (\S+) ms$", figures=("count", "p50", "p95", "p99")
)


@pytest.mark.parametrize(("loop", "has_service"), [("closed", True), ("open", False)])
def test_only_a_closed_loop_has_times_of_service(
    loop: Literal["closed", "open"], has_service: bool
) -> None:
    tool = Tool(run=("bench",), loop=loop, results=(RESULT,))
    words = ["sh", "-c", "echo 1000 done, 1 ms, 2 ms, 3 ms"]
    with ToolRun("bench", tool, words, 20.0, []) as run:
        ready, *_, done = run
    assert isinstance(ready, LoadReady)
    assert ready.loop == loop
    assert isinstance(done, LoadDone)
    assert decode(done.response["operation"]).total == 1000
    assert ("operation" in done.service) == has_service


def test_a_histogram_of_all_latencies_is_taken_as_it_is_but_in_slow_motion() -> None:
    """There its steps would be of the tool's time: the percentiles are divided instead."""
    known = histogram_of([(2.0, 90), (60.0, 10)])
    told = Reader((), "", {"p50": 2.0, "p95": 9.0, "p99": 20.0}, hdr=encode(known))
    here, slowed = read_histogram(told, 1, 100), read_histogram(told, 10, 100)
    assert here.summary_ms()["p95"] == pytest.approx(60.0, rel=0.02)
    assert slowed.summary_ms()["p95"] == pytest.approx(0.9, rel=0.02)


def test_a_tool_is_given_the_words_of_its_pace() -> None:
    tool = Tool(run=("bench", "{pace}", "x"), at_rate=("-r", "{rate}"), unlimited=("-max",))
    assert _paced(tool, 5) == ["bench", "-r", "{rate}", "x"]
    assert _paced(tool, None) == ["bench", "-max", "x"]
