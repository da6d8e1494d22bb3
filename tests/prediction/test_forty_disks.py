"""Simulator, probe and emulator give one figure for one disk: while it bursts, and all day.

The simulator and the emulator drive the same disk model; the probe's promise is computed from the
profile alone, by closed forms.
"""

from __future__ import annotations

import os
import time
from itertools import product, takewhile
from math import ceil
from pathlib import Path

import pytest
from disklab import spec
from disklab.probe import fio
from disklab.probe.cells import Cell, Direction, Load, Plan, cell_of
from disklab.probe.emulated import made_for_probe
from disklab.probe.known import Disk, disk_of, placed
from disklab.probe.promise import SPENT, State, promise
from disklab.probe.run import Subject, probe_cell

from tests.prediction.test_steady import predicted
from tests.procedures.rehearsed import only_result

AZURE = "azure/Standard_D8s_v3"
DISKS = {
    AZURE: [
        *(f"azure/P{size}" for size in (1, 2, 3, 4, 6, 10, 15, 20, 30, 40, 50)),
        *(f"azure/E{size}" for size in (1, 4, 6, 10, 15, 20, 30)),
        *(f"azure/S{size}" for size in (4, 10, 20, 30)),
        "azure/PremiumV2(128GiB)",
        "azure/PremiumV2(512GiB, 8000 IOPS, 300 MB/s)",
        "azure/Ultra(512GiB, 8000 IOPS, 300 MB/s)",
        "4 x azure/P10",
        "2 x azure/E20",
    ],
    "aws/m5.xlarge": [
        *(f"aws/gp2({size}GiB)" for size in (4, 33, 100, 334, 1000, 5334)),
        "aws/gp3(100GiB)",
        "aws/gp3(500GiB, 6000 IOPS, 250 MiB/s)",
        "aws/gp3(500GiB, 16000 IOPS, 1000 MiB/s)",
        "aws/io2(100GiB, 5000 IOPS)",
        "2 x aws/gp3(100GiB)",
    ],
    "gcp/n2-standard-8": ["gcp/pd-ssd(100GiB)", "gcp/pd-balanced(500GiB)"],
}
WORKS = {"read": (Direction.RANDREAD, 4096), "large write": (Direction.WRITE, 256 << 10)}
LOAD = Load(jobs=2, depth=256)
SECONDS = 4
ALIKE = 0.04
"""A refill window more or less of these seconds, which the promise leaves out."""

EXPERIMENT = """
title: The same figure everywhere
device: {{vm: {vm}, volume: {{disks: "{first}"}}}}
workload:
  fio: {{profile: async, jobs: 2, depth: 256, rw: randread, bs: 4k}}
  stop: {{duration: {seconds}s}}
before: {{credits: 100%}}
factors:
  device.volume.disks: {disks}
  work: {{read: {{}}, large write: {{workload.fio: {{rw: write, bs: 256k}}}}}}
  before.credits: [100%, 0%]
"""


def test_forty_disks_are_tried() -> None:
    assert sum(map(len, DISKS.values())) >= 40


@pytest.mark.parametrize("vm", DISKS)
def test_the_simulator_does_what_the_probe_promises(tmp_path: Path, vm: str) -> None:
    text = EXPERIMENT.format(vm=vm, first=DISKS[vm][0], disks=DISKS[vm], seconds=SECONDS)
    trials = spec.parse(text).trials("predict")
    results, _ = predicted(tmp_path, text, "--no-bands")
    differ = []
    for trial, result in zip(trials, results, strict=True):
        direction, block = WORKS[str(trial.factors["work"])]
        cell = cell_of(LOAD, direction, block)
        spent = trial.spec.before.credits_ratio == 0
        plan = Plan((cell,), SECONDS, 1 << 30)
        owed = promise(placed(disk_of(trial)), cell, plan, SPENT if spent else State())
        if abs(result["ops_per_s"] / owed.iops - 1) > ALIKE:
            told = f"{result['ops_per_s']:.0f} simulated, {owed.iops:.0f} by the probe"
            differ.append(f"{trial.factors}: {told} ({owed.bound_by})")
    assert not differ, "\n".join(differ)


SIZE_BYTES = 64 << 20
CALM_IOPS, CALM_BYTES_PER_S = 2000, 100e6
"""What any machine emulates and fio fills: faster disks run in slow motion."""
EMULATED_ALIKE, ATTEMPTS = 0.07, 3
SHOWN = ("2 x azure/E20", AZURE)
"""The one that CI emulates; `make test-long` has them all."""


@pytest.fixture
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse")
    monkeypatch.setenv("DISKLAB_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DISKLAB_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.parametrize(
    ("disks", "vm"),
    [
        pytest.param(disks, vm, marks=() if (disks, vm) == SHOWN else pytest.mark.long)
        for vm, several in DISKS.items()
        for disks in several
    ],
)
@pytest.mark.usefixtures("own_places")
def test_the_emulator_does_what_the_probe_promises(disks: str, vm: str) -> None:
    """While it bursts, and without credits: reads and large writes, a second of the disk's each.

    The promise is what the simulator does (above). Credits that fio's start earns come on top.
    """
    disk, program = Disk(disks, vm), fio.find_fio("libaio")
    cells = [cell_of(Load(jobs=1, depth=64), *work) for work in WORKS.values()]
    with made_for_probe(disk, disks, Plan((*cells,), 1.0, SIZE_BYTES)) as subject:
        for cell, left in product(cells, (1.0, 0.0)):
            block = cell.block_bytes
            slow = ceil(owed_in(disk, cell, left) / min(CALM_IOPS, CALM_BYTES_PER_S / block))
            plan = Plan((cell,), 1.0, SIZE_BYTES, time_dilation=slow, credits_ratio=left)
            job = fio.Job(program, subject.region.path, subject.region.writable, plan)
            # A machine that is busy for a moment is late.
            tries = (differs(job, subject, owed_in(disk, cell, left)) for _ in range(ATTEMPTS))
            differ = [*takewhile(bool, tries)]
            assert len(differ) < ATTEMPTS, f"{cell.title}, credits {left:.0%}: {differ}"


def owed_in(disk: Disk, cell: Cell, left: float) -> float:
    """Return the I/Os a second of a cell: of buckets that are full, or empty."""
    plan = Plan((cell,), 1.0, SIZE_BYTES)
    return promise(placed(disk), cell, plan, State() if left else SPENT).iops


def differs(job: fio.Job, subject: Subject, owed_iops: float) -> str | None:
    """Measure a cell; return how far it is from what is owed, or None where it is that."""
    began = time.monotonic()
    (cell,) = job.plan.cells
    measured = probe_cell(job, subject, cell, lambda _: None).measurement
    measuring_s = measured.runtime_s * job.plan.time_dilation
    earning = (time.monotonic() - began) / measuring_s if job.plan.credits_ratio == 0 else 1.0
    if 1 - EMULATED_ALIKE <= measured.iops / owed_iops <= earning * (1 + EMULATED_ALIKE):
        return None
    return f"{measured.iops:.0f} of {owed_iops:.0f}"


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_a_rehearsal_without_credits_does_what_its_prediction_says(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    text = EXPERIMENT[: EXPERIMENT.index("factors:")]
    text = text.format(vm=AZURE, first="azure/P10", seconds=3)
    text = text.replace("credits: 100%", "credits: 0%")
    file.write_text(text.replace("depth: 256", "depth: 32"))
    simulated, emulated = (only_result(file, mode)["ops_per_s"] for mode in ("predict", "rehearse"))
    assert simulated == pytest.approx(500, rel=0.02)
    assert emulated == pytest.approx(simulated, rel=0.07)
