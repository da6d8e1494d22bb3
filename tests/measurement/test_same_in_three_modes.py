"""One file, unchanged, predicted, rehearsed and measured: the last two agree.

The disks of the hosts are disklab's own emulated ones, mounted where a cloud's first boot mounts
them, so what is compared is everything beside them: that the hosts file, SSH, building, filling,
emptying of caches and the load of a client host change no figure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
from disklab.results import Mode, TrialResult

from tests.databases.servers import need

from .bench import Bench
from .emulated import Disk, served_hosts

EXPERIMENT = """
title: What does a cold database on this disk do?
cluster:
  nodes: 3
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/S10}}
database: {engine: postgresql, replication_factor: 3, tls: false, settings: {shared_buffers: 64MB}}
dataset: {rows: 100k, row: 5 x 200B}
workload:
  operations: {read: 90%, write: 10%}
  load: {threads: 16}
  stop: {duration: 20s}
before: {page_cache: cold}
rehearse: {nodes: 3, scale: 1, time_dilation: 1}
"""
DISK = Disk("azure/S10", "azure/Standard_E8ds_v4")
"""Its 500 IOPS are the limit, and a machine that tests has them to spare."""


def ended(bench: Bench, mode: Mode, *words: str) -> list[TrialResult]:
    """Run the file in a mode; return its results, which have figures."""
    with bench.start(mode, "e.yaml", *words) as process:
        out, err = process.communicate(timeout=1800)
    assert process.returncode == 0, out + err
    (run,) = [one for one in bench.runs() if one.info.mode == mode]
    found = run.results()
    for one in found:
        assert one.status in ("ok", "invalid"), one
        assert one.errors == {}
        assert one.ops_per_s
    return found


FIGURES: dict[str, Callable[[TrialResult], float]] = {
    "ops/s": lambda one: one.ops_per_s or 0.0,
    "p50 ms": lambda one: one.latency_ms["p50"],
    "p95 ms": lambda one: one.latency_ms["p95"],
}


def in_three_modes(
    bench: Bench, folder: Path, rows: str, *how: str
) -> dict[str, tuple[float, float, float]]:
    """Return each figure predicted, rehearsed and measured: the median of the repeats."""
    need("postgresql")
    bench.write("e.yaml", EXPERIMENT.replace("100k", rows))
    predicted = ended(bench, "predict")
    rehearsed = ended(bench, "rehearse", *how)
    with served_hosts(3, folder, DISK) as served:
        bench.write("h.yaml", served.text())
        measured = ended(bench, "measure", "--hosts", "h.yaml", "--yes", *how)
        served.nothing_is_left()
    bench.nothing_is_left()
    assert {len(one.model_extra["clients"]) for one in measured if one.model_extra} == {1}
    found = {}
    for name, figure in FIGURES.items():
        values = [median(map(figure, each)) for each in (predicted, rehearsed, measured)]
        found[name] = (values[0], values[1], values[2])
        sys.stdout.write(f"{name}: predicted, rehearsed, measured: {values}\n")
    return found


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_a_measurement_does_what_its_rehearsal_did(bench: Bench, tmp_path: Path) -> None:
    found = in_three_modes(bench, tmp_path, "40k", "--quick")
    for name, (_, rehearsed, measured) in found.items():
        # One repeat of a few seconds on a machine that does all of it: three servers, load, disks.
        assert measured == pytest.approx(rehearsed, rel=0.2), name


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_a_measurement_is_within_5_percent_of_its_rehearsal(bench: Bench, tmp_path: Path) -> None:
    found = in_three_modes(bench, tmp_path, "100k", "--repeat", "3")
    for name, (_, rehearsed, measured) in found.items():
        assert measured == pytest.approx(rehearsed, rel=0.05), name
