"""A mix of reads and writes: predicted, and by real fio on an emulated disk."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.probe.cells import KIB, LOADS, PERCENTILES, Cell, Direction, Profile, cells
from disklab.probe.charts import apart
from disklab.probe.fio import Ran, parse
from disklab.probe.known import read_experiment, trial_of
from disklab.probe.report import results_table
from disklab.probe.run import CellResult, directions_of
from rich.console import Console

from tests.procedures.rehearsed import only_result

MIX = Direction(random=True, read_percent=70)
EXPERIMENT = """
title: A mix on a disk whose reads come from the host cache
device:
  vm: azure/Standard_DS14_v2
  volume: {disks: azure/P30, caching: ReadOnly}
workload:
  fio: {rw: randrw, rwmixread: 70, bs: 4k}
  stop: {duration: 2s}
rehearse: {time_dilation: 8}
"""


def test_a_direction_is_a_share_of_reads() -> None:
    assert directions_of("read,randrw,write", 70) == (Direction.READ, MIX, Direction.WRITE)
    assert directions_of("rw") == (Direction(random=False, read_percent=50),)
    assert (MIX.rw, MIX.title, MIX.writes) == ("randrw", "randrw 70/30", True)
    assert (Direction.READ.rw, Direction.READ.writes) == ("read", False)
    with pytest.raises(UserError, match="--rw has none"):
        directions_of("randread", 70)
    ordered = cells(
        (LOADS[Profile.SYNC],), (Direction.RANDWRITE, MIX, Direction.RANDREAD), (4 * KIB,)
    )
    assert [cell.direction.read_percent for cell in ordered] == [100, 70, 0]


def test_an_experiment_says_the_share_and_only_of_a_mix(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(EXPERIMENT)
    (trial,) = read_experiment(file)[1]
    assert trial_of(trial).cell == Cell(Profile.SYNC, MIX, 4 * KIB)
    with pytest.raises(UserError) as refused:
        spec.parse(EXPERIMENT.replace("randrw", "randread"), "e.yaml")
    assert "rwmixread is the share of reads in a mix" in str(refused.value)


def test_reads_and_writes_of_a_job_stand_apart() -> None:
    def side(ios: int, ns: int) -> dict[str, Any]:
        clat: dict[str, Any] = {"mean": ns, "min": ns, "max": ns}
        if ios:
            clat["percentile"] = {f"{p:f}": ns for p in PERCENTILES}
        return {"total_ios": ios, "io_bytes": ios * 4096, "runtime": 1000, "clat_ns": clat}

    both = {"read": side(700, 100_000), "write": side(300, 2_000_000), "mixed": side(1000, 670_000)}
    measured = parse(Ran({"jobs": [both], "fio version": "fio-3.33"}, 0.0), cell(), ())
    assert (measured.ios, measured.iops, measured.bytes_per_s) == (1000, 1000.0, 4_096_000.0)
    assert measured.latency.percentiles_ns[50] == 670_000
    reads, writes = apart([CellResult("disk", "", measured)])
    assert (reads.title, reads.iops) == ("sync randrw 70/30 4k, reads", 700.0)
    assert (writes.percentiles_ns[99], writes.iops) == (2_000_000, 300.0)
    shown = StringIO()
    Console(file=shown, width=120).print(results_table([CellResult("disk", "", measured)]))
    assert [line.split()[0] for line in shown.getvalue().splitlines()] == [
        "cell",
        "sync",
        "reads",
        "writes",
    ]
    # One direction that did nothing is no failure: a share of 1 % has none in a short cell.
    alone = {**both, "write": side(0, 0)}
    assert list(parse(Ran({"jobs": [alone], "fio version": ""}, 0.0), cell(), ()).sides) == ["read"]


def cell() -> Cell:
    return Cell(Profile.SYNC, MIX, 4 * KIB)


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_a_predicted_mix_is_what_fio_finds_on_an_emulated_disk(tmp_path: Path) -> None:
    predicted, rehearsed = (told(tmp_path, mode) for mode in ("predict", "rehearse"))
    for seen in (predicted, rehearsed):
        parts = {side: one["ops_per_s"] for side, one in seen["per_operation"].items()}
        assert parts["read"] / sum(parts.values()) == pytest.approx(0.7, abs=0.03)
        assert sum(parts.values()) == pytest.approx(seen["ops_per_s"], rel=0.01)
    # Eight times slower, what a busy machine adds is an eighth, and fio's bins are 1.6 % wide.
    for side, promised_ms in (("read", 0.144), ("write", 1.27)):
        ours = predicted["per_operation"][side]["latency_ms"]["p50"]
        assert ours == pytest.approx(promised_ms, rel=0.02)
        assert rehearsed["per_operation"][side]["latency_ms"]["p50"] == pytest.approx(ours, rel=0.1)
    assert rehearsed["ops_per_s"] == pytest.approx(predicted["ops_per_s"], rel=0.1)


def told(folder: Path, mode: str) -> dict[str, Any]:
    """Return the only result of the experiment, predicted or rehearsed."""
    file = folder / "e.yaml"
    file.write_text(EXPERIMENT)
    return only_result(file, mode)
