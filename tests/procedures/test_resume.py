"""A rehearsal that is killed in mid-trial: what it finished stays, what it made goes, it goes on.

One real Cassandra on emulated disks, small. CI does the same with PostgreSQL (test_sql_rehearsal),
whose server starts in a quarter of the time, and rehearses Cassandra in tests/truth.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from disklab.hosts.control_group import GroupRoot, groups_left, marked_processes
from disklab.results import Run

from tests.hosts.conftest import DISKLAB, Lab

pytestmark = [pytest.mark.machine, pytest.mark.long]

EXPERIMENT = """
title: Does a killed rehearsal go on?
cluster:
  nodes: 1
  vm: azure/Standard_DS14_v2
  volumes: {data: {disks: azure/P30, caching: None}}
database: {engine: cassandra, table: {compression: none}}
dataset: {rows: 200k, row: 5 x 818B}
workload: {operations: {read: 100%}, load: {threads: 8}, stop: {operations: 50k}}
factors:
  cluster.volumes.data.caching: [None, ReadOnly]
rehearse: {scale: 1/100}
"""
# A busy machine takes minutes for what an idle one does in half of one.
MOST_SECONDS = 400.0


def wait_for_second_trial(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Return when the second trial measures."""
    deadline = time.monotonic() + MOST_SECONDS
    while True:
        said = log.read_text()
        _, found, second = said.partition("trial 2 of 2")
        if found and "measure" in second:
            return
        assert process.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]


def test_a_killed_rehearsal_leaves_nothing_and_goes_on(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "killed.yaml").write_text(EXPERIMENT)
    log, out = tmp_path / "log", tmp_path / "runs"
    command = [str(DISKLAB), "rehearse", str(tmp_path / "killed.yaml"), "--quick", "--seed", "7"]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*command, "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=written,
            env=lab.environment(),
        )
        try:
            wait_for_second_trial(log, process)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    (run,) = out.iterdir()
    before = lines_of(run)
    assert [line["status"] in ("ok", "invalid") for line in before] == [True]
    assert marked_processes(lab.run_dir), "the database outlives what started it"

    # What a kill in mid-write would leave at the end of the file.
    with (run / "trials.jsonl").open("a") as torn:
        torn.write('{"trial": 1, "status": "o')
    lab.run("clean")
    assert lab.devices() == {}
    assert lab.mounts() == []
    assert lab.processes() == []
    assert marked_processes(lab.run_dir) == []
    assert list(lab.data_dir.rglob("*.img")) == [], "what a rehearsal filled goes with it"
    root = GroupRoot.of_machine()
    assert root is not None
    assert [one for one in groups_left(root) if f"-{process.pid}-" in one.name] == []

    ran = subprocess.run(
        [str(DISKLAB), "rehearse", "--resume", str(run), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=MOST_SECONDS,
        env=lab.environment(),
    )
    assert ran.returncode in (0, 1), ran.stderr  # 1: a busy machine made both trials invalid
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(told) == 1, "the finished trial is not run again"
    finished = Run.open(run)
    assert finished.finished() == {(0, 0), (1, 0)}
    assert finished.info.versions["Apache Cassandra"].startswith("5.0")
    assert finished.results()[before[0]["trial"]].model_dump(mode="json") == before[0]
    for result in finished.results():
        assert result.status in ("ok", "invalid"), result
        assert result.ops_per_s
        assert result.errors == {}
    uncached, cached = finished.results()
    assert uncached.host_cache_hit_ratio is None
    assert cached.host_cache_hit_ratio is not None
    assert cached.host_cache_hit_ratio > 0.9, "the condition is a host cache that holds the data"
    assert (run / "report.html").exists()
    assert lab.devices() == {}
    assert lab.mounts() == []
    assert marked_processes(lab.run_dir) == []
    assert os.listdir(lab.data_dir) == []
    assert os.listdir(lab.run_dir / "databases") == []
