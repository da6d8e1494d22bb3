"""What goes wrong on purpose: a conductor killed anywhere, a host that is silent for good."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disklab.measurement.journal import Journal
from disklab.results import Run

from tests.databases.servers import need

from .bench import Bench
from .emulated import Served, served_hosts

DATABASE = """
title: What does a killed conductor leave?
cluster:
  nodes: 1
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P30}}
database: {engine: postgresql, tls: false, settings: {shared_buffers: 64MB}}
dataset: {rows: 2k, row: 5 x 100B}
workload:
  operations: {read: 100%}
  load: {threads: 4}
  stop: {duration: 2s}
before: {page_cache: as-left}
factors:
  workload.load.threads: [2, 4]
"""
DEVICE = """
title: What does a silent host cost the others?
device: {vm: azure/Standard_E8ds_v4, volume: {disks: azure/P30}}
workload: {fio: {profile: sync, rw: randread, bs: 4k}, stop: {duration: 4s}}
factors:
  device.volume.disks: [azure/P30, azure/P40]
"""
KILLS = 20
SEED = 20
"""Of the moments: another one finds other places."""
NAMED_S = 30.0
"""The longest that a silent host may go unnamed."""


def start(bench: Bench, *words: str) -> subprocess.Popen[str]:
    return bench.start("measure", *words, "--yes", "--out", "runs")


def fills(run: Run) -> list[tuple[tuple[int, int], str]]:
    """Return the results in which data were filled."""
    return [
        (result.key, phase.name)
        for result in run.results()
        for phase in result.phases
        if phase.name == "fill"
    ]


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_a_conductor_killed_at_20_random_points_goes_on(bench: Bench, tmp_path: Path) -> None:
    need("postgresql")
    bench.write("e.yaml", DATABASE)
    with served_hosts(1, tmp_path) as served:
        bench.write("h.yaml", served.text())
        began = time.monotonic()
        with start(bench, "e.yaml", "--hosts", "h.yaml", "--repeat", "1") as process:
            _, err = process.communicate(timeout=600)
        whole_s = time.monotonic() - began
        assert process.returncode == 0, err
        served.nothing_is_left()
        moments = random.Random(SEED)
        for number in range(KILLS):
            folder = bench.folder / f"out{number}"
            after_s = moments.uniform(0.0, whole_s)
            _killed_and_resumed(bench, served, folder, after_s)


def _killed_and_resumed(bench: Bench, served: Served, out: Path, after_s: float) -> None:
    told = f"seed {SEED}, killed after {after_s:.2f} s ({out.name})"
    words = ("measure", "e.yaml", "--hosts", "h.yaml", "--repeat", "1", "--yes", "--out", str(out))
    with bench.start(*words) as process:
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate(timeout=60)
    sys.stdout.write(f"{told}: {process.returncode}\n")
    sys.stdout.flush()
    runs = [Run.open(path.parent) for path in out.glob("*/run.json")]
    if runs:
        # A database that was full stays full: whatever is left of it is on the host and known.
        (run,) = runs
        full = _is_full(served) and bool(Journal.of(run.folder).left())
        before = fills(run)
        again = ("measure", "--resume", run.folder.name, "--yes", "--out", str(out))
        with bench.start(*again) as process:
            _, err = process.communicate(timeout=600)
        done = [result.key for result in Run.open(run.folder).results()]
        assert sorted(done) == [(0, 0), (1, 0)], (told, err)
        assert all(one.status in ("ok", "invalid") for one in run.results()), told
        after = fills(Run.open(run.folder))
        assert len(after) <= 1, told
        # Once full, never filled again.
        assert not full or after == before, told
    served.nothing_is_left()
    bench.nothing_is_left()


def _is_full(served: Served) -> bool:
    (volume,) = served.volumes.values()
    return any('"filled"' in file.read_text() for file in volume.glob("*/.disklab-filled"))


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_a_host_that_is_silent_for_good_fails_its_trial_alone(bench: Bench, tmp_path: Path) -> None:
    bench.write("e.yaml", DEVICE)
    with served_hosts(2, tmp_path) as served:
        groups = "{disks: {azure/P30: [n1], azure/P40: [n2]}}"
        bench.write("h.yaml", f"{served.text()[:-1]}, groups: {groups}}}")
        words = ("measure", "e.yaml", "--hosts", "h.yaml", "--repeat", "3", "--quick", "--yes")
        with bench.start(*words) as process:
            cut_at, named_at, said = None, None, ""
            for line in process.stderr:
                said += line
                if cut_at is None and "n1/data: writing" in line:
                    served.hosts.cut("n1")
                    cut_at = time.monotonic()
                if cut_at is not None and named_at is None and "n1 (" in line:
                    named_at = time.monotonic()
            process.wait(600)
        assert cut_at is not None, said
        assert named_at is not None, said
        assert named_at - cut_at <= NAMED_S, said
        served.hosts.join("n1")
        (run,) = bench.runs()
        status = {
            (str(one.factors["device.volume.disks"]), one.repeat): one.status
            for one in run.results()
        }
        assert {one for (disk, _), one in status.items() if disk == "azure/P30"} == {"failed"}
        assert all(one in {"ok", "invalid"} for (disk, _), one in status.items() if "40" in disk)
        # What could not be changed back there is written down; with the link back it is.
        code, out, err = bench.told("clean")
        assert code == 0, out + err
        served.nothing_is_left()
    bench.nothing_is_left()
