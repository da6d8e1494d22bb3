"""Rehearsals of PostgreSQL under sysbench, whole: what fails in one trial, and what a kill leaves.

A server that dies in mid-trial, a disk that is small, disklab killed in mid-trial; and, since
it is there, credits that run out.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from disklab.hosts.control_group import GroupRoot, marked_processes
from disklab.results import Run, TrialResult

from tests.conftest import IN_CI
from tests.databases.servers import need
from tests.hosts.conftest import DISKLAB, Lab, groups_left
from tests.programs import ended, wait_until

pytestmark = pytest.mark.machine

# 67 MB of rows, of which a third fits buffers and page cache: reads are the disk's. Its credits
# last 3.6 s at a scale of 1/500; a pass takes 8.
EXPERIMENT = """
title: What becomes of failures?
cluster:
  nodes: 1
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P15}}
database: {engine: postgresql, tls: true}
workload:
  sysbench: {script: oltp_read, tables: 2, rows_per_table: 75M, threads: 32}
  warm_up: 100s
  stop: {duration: 4000s}
factors:
  disk:
    fits:      {}
    small:     {cluster.volumes.data: {size: 50GiB, filesystem: ext4}}
  workload:
    read:  {}
    write: {workload.sysbench: {script: oltp_insert, threads: 4}}
rehearse: {scale: 1/500, time_dilation: 1}
"""
# The same for who looks at failures and at room, and not at credits: a third of the rows, on a
# small disk that is as full.
FEWER = EXPERIMENT.replace("75M", "25M").replace("50GiB", "17GiB").replace("4000s", "2000s")
# A busy machine takes minutes for what an idle one does in half of one.
MOST_SECONDS = 400.0


@pytest.fixture(autouse=True)
def _installed() -> None:
    need("postgresql")
    if shutil.which("sysbench") is None:
        assert not IN_CI, "scripts/setup.sh installs sysbench in CI"
        pytest.skip("sysbench is not installed")


class Rehearsal:
    """A rehearsal in the background, whose progress is read as it is shown."""

    def __init__(self, lab: Lab, folder: Path, *options: str, text: str = EXPERIMENT) -> None:
        self._log = folder / "log"
        self.out = folder / "runs"
        (folder / "sql.yaml").write_text(text)
        command = [str(DISKLAB), "rehearse", str(folder / "sql.yaml"), "--quick", *options]
        with self._log.open("wb") as written:
            self.process = subprocess.Popen(
                [*command, "--out", str(self.out)],
                stdout=subprocess.DEVNULL,
                stderr=written,
                env=lab.environment(),
            )

    def wait_for(self, *words: str) -> None:
        """Return when these words have been shown, in this order."""
        deadline = time.monotonic() + MOST_SECONDS
        while True:
            said = rest = self._log.read_text()
            for word in words:
                _, found, rest = rest.partition(word)
                if not found:
                    break
            else:
                return
            assert self.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)

    def results(self) -> dict[tuple[str, str], TrialResult]:
        (folder,) = self.out.iterdir()
        return {
            (str(one.factors["disk"]), str(one.factors["workload"])): one
            for one in Run.open(folder).results()
        }


def postmaster(lab: Lab) -> int:
    """Return the server: the one of our processes that is the parent of the others."""
    return min(process.pid for process in marked_processes(lab.run_dir))


def assert_nothing_is_left(lab: Lab, pid: int) -> None:
    assert lab.devices() == {}
    assert lab.mounts() == []
    assert lab.processes() == []
    assert marked_processes(lab.run_dir) == []
    assert list(lab.data_dir.rglob("*.img")) == [], "what a rehearsal filled goes with it"
    root = GroupRoot.of_machine()
    assert [one for one in groups_left(root) if f"-{pid}-" in one.name] == []
    databases = lab.run_dir / "databases"
    assert not databases.exists() or os.listdir(databases) == []


def test_a_failed_trial_has_its_reason_and_the_next_one_goes_on(lab: Lab, tmp_path: Path) -> None:
    running = Rehearsal(lab, tmp_path, "--seed", "1", text=FEWER)
    try:
        running.wait_for("disk fits", "measure")
        os.kill(postmaster(lab), signal.SIGKILL)
        running.process.wait(MOST_SECONDS)
    finally:
        running.process.kill()
    results = running.results()
    fits = [one for (disk, _), one in results.items() if disk == "fits"]
    (killed,) = [one for one in fits if one.status == "failed"]
    assert "was killed by SIGKILL" in killed.reason.rule
    assert "output.log)" in killed.log_excerpt, "the reason comes with the server's own words"
    (other,) = [one for one in fits if one is not killed]
    assert other.status in ("ok", "invalid")
    assert other.ops_per_s
    for workload in ("read", "write"):
        # 35 MiB at this scale, and what does not shrink: log and catalogs had no room there.
        small = results["small", workload]
        assert small.status in ("ok", "invalid"), small.reason
        assert small.ops_per_s
    assert_nothing_is_left(lab, running.process.pid)


@pytest.mark.long
@pytest.mark.alone  # whether credits run out in time is measured
def test_a_killed_rehearsal_leaves_nothing_and_goes_on(lab: Lab, tmp_path: Path) -> None:
    running = Rehearsal(lab, tmp_path, "--seed", "1", "--only", "disk=fits")
    try:
        running.wait_for("trial 2 of 2", "measure")
    finally:
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
    assert marked_processes(lab.run_dir), "the database outlives what started it"
    (run,) = running.out.iterdir()
    trials = run / "trials.jsonl"
    (before,) = trials.read_text().splitlines()
    # What a kill in mid-write would leave at the end of the file.
    with trials.open("a") as torn:
        torn.write('{"trial": 1, "status": "o')
    lab.run("clean")
    assert_nothing_is_left(lab, running.process.pid)
    ran = ended(
        [str(DISKLAB), "rehearse", "--resume", str(run), "--json"],
        most_s=MOST_SECONDS,
        env=lab.environment(),
    )
    assert ran.returncode in (0, 1), ran.stderr  # 1: a busy machine made both trials invalid
    told: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(told) == 1, "the finished trial is not run again"
    assert trials.read_text().splitlines()[0] == before
    assert Run.open(run).info.versions["PostgreSQL"]
    results = running.results()
    for result in results.values():
        assert result.status in ("ok", "invalid"), result
        assert result.errors == {}
        assert result.per_operation["transaction"].operations
        assert result.latency_ms["p99"] >= result.latency_ms["p50"] > 0
        assert [one.name for one in result.phases if one.operations] == ["warm-up"]
    (spent,) = results["fits", "read"].credits_gone
    # 8640 credits of I/Os at 1/500, of which the warm-up has its part.
    assert 0 < spent.at_s < 7
    assert spent.full_at_s == pytest.approx(500 * spent.at_s, rel=0.1)
    assert spent.ops_per_s_before > spent.ops_per_s_after
    assert spent.next_size.disks == "azure/P20"
    assert spent.next_size.more_usd_per_month
    assert any("burst credits" in text for text in results["fits", "read"].warnings)
    assert (run / "report.html").exists()
    assert_nothing_is_left(lab, running.process.pid)


def initdb(lab: Lab) -> list[int]:
    """Return the processes that make a data directory of this lab."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        where = any(word.startswith(os.fsencode(lab.run_dir)) for word in words)
        if words[0].endswith(b"/initdb") and where:
            found.append(int(process.name))
    return found


AGAIN = [pytest.param(time, marks=pytest.mark.long) for time in (2, 3)]


@pytest.mark.parametrize("_time", [1, *AGAIN])
def test_a_rehearsal_that_is_killed_in_initdb_leaves_nothing(
    lab: Lab, tmp_path: Path, _time: int
) -> None:
    running = Rehearsal(lab, tmp_path, "--seed", "1", "--only", "disk=fits")
    try:
        running.wait_for("starting the database")
        wait_until(lambda: initdb(lab), running.process, most_s=MOST_SECONDS)
    finally:
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
    lab.run("clean")
    assert initdb(lab) == []
    assert_nothing_is_left(lab, running.process.pid)


def test_a_run_directory_that_servers_cannot_reach_is_refused_at_once(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "sql.yaml").write_text(EXPERIMENT)
    lab.root.chmod(0o700)
    said = lab.refused(
        *("rehearse", str(tmp_path / "sql.yaml"), "--quick", "--out", str(tmp_path / "runs"))
    )
    assert f"may not pass through {lab.root}" in said
    assert f"chmod o+x {lab.root}" in said
    assert not (tmp_path / "runs").exists()


DEATH_SECONDS = 10.0
"""For a look once a second, the end of the load, and a machine that is busy with something else."""


# In CI tests/telemetry/test_sampler.py: what is noticed is told in this machine's time.
@pytest.mark.alone
@pytest.mark.long
def test_a_death_in_slow_motion_is_noticed_in_this_machines_time(lab: Lab, tmp_path: Path) -> None:
    only = ("--only", "disk=fits", "--only", "workload=read")
    running = Rehearsal(lab, tmp_path, *only, "--time-dilation", "12")
    try:
        running.wait_for("disk fits", "measure")
        # Into the pass, which lasts 12 times as long as it says.
        time.sleep(3)
        began = time.monotonic()
        os.kill(postmaster(lab), signal.SIGKILL)
        running.wait_for("measure", "failed")
        took_s = time.monotonic() - began
        running.process.wait(MOST_SECONDS)
    finally:
        running.process.kill()
    ((_, killed),) = running.results().items()
    assert killed.status == "failed"
    assert "was killed by SIGKILL" in killed.reason.rule
    assert took_s < DEATH_SECONDS, f"{took_s:.1f} s until the death was noticed"
    assert_nothing_is_left(lab, running.process.pid)
