"""Simulator, probe and emulator give one figure for one disk: while it bursts, and all day.

The simulator and the emulator drive the same disk model; the probe's promise is computed from the
profile alone, by closed forms.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.probe.cells import Direction, Load, Plan, cell_of
from disklab.probe.experiment import disk_of
from disklab.probe.known import placed
from disklab.probe.promise import SPENT, State, promise

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


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.parametrize("left", ["100%", "0%"])
def test_the_emulator_does_what_the_simulator_does(tmp_path: Path, left: str) -> None:
    """Some seconds each: the disk is made and filled before fio measures it.

    One disk stands for all: the emulator asks the disk model that the simulator asks.
    """
    file = tmp_path / "e.yaml"
    text = EXPERIMENT[: EXPERIMENT.index("factors:")]
    text = text.format(vm=AZURE, first="azure/P10", seconds=3)
    text = text.replace("credits: 100%", f"credits: {left}")
    file.write_text(text.replace("depth: 256", "depth: 32"))
    simulated, emulated = (only_result(file, mode)["ops_per_s"] for mode in ("predict", "rehearse"))
    assert simulated == pytest.approx(3500 if left == "100%" else 500, rel=0.02)
    assert emulated == pytest.approx(simulated, rel=0.07)
