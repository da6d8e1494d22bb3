"""A rehearsal on hosts in namespaces: the network is in its answer; a kill leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.databases.servers import need
from tests.hosts.conftest import DISKLAB, Lab
from tests.programs import ended, wait_until

# In CI test_broken_links rehearses on emulated hosts, and tests/hosts/test_delays.py measures their
# network.
pytestmark = [pytest.mark.machine, pytest.mark.alone, pytest.mark.long]

# Rows of the page cache: on loopback a read takes a fifth of the shortest round trip, 0.65 ms.
SHORTEST_MS = 0.65
EXPERIMENT = """
title: One node on an emulated host
cluster:
  nodes: 1
  vm: azure/Standard_D4s_v5
  network: azure/standard
  volumes: {data: {disks: azure/P15, caching: None, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_D4s_v5}
database: {engine: postgresql, replication_factor: 1, tls: false}
dataset: {rows: 5M, row: 10 x 100B}
workload:
  operations: {read: 100%}
  keys: uniform
  load: {threads: 4}
  stop: {operations: 400k}
before: {page_cache: warm}
rehearse: {scale: 1/250, time_dilation: 1}
"""
MOST_SECONDS = 300.0


def command(folder: Path) -> list[str]:
    need("postgresql")
    file = folder / "hosts.yaml"
    file.write_text(EXPERIMENT)
    return [str(DISKLAB), "rehearse", str(file), "--quick", "--out", str(folder / "runs")]


def test_the_network_is_in_the_answer(lab: Lab, tmp_path: Path) -> None:
    ended(command(tmp_path), most_s=MOST_SECONDS, env=lab.environment(), code=0)
    (trials,) = tmp_path.glob("runs/*/trials.jsonl")
    (trial,) = map(json.loads, trials.read_text().splitlines())
    assert trial["status"] in ("ok", "invalid"), trial["reason"]
    assert trial["latency_ms"]["p50"] > SHORTEST_MS
    assert os.listdir(lab.run_dir / "networks") == []


def test_a_killed_rehearsal_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(tmp_path), env=lab.environment(), stdout=out, stderr=subprocess.STDOUT
        )
    wait_until(lambda: "measure\n" in log.read_text(), process, most_s=MOST_SECONDS)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lab.run("clean", "--data")
    assert os.listdir(lab.run_dir / "networks") == []
    assert os.listdir(lab.run_dir / "databases") == []
    assert lab.devices() == {}
