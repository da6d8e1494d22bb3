"""What `disklab probe` and its experiments refuse: value, rule, place and way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.errors import UserError
from disklab.probe.cells import KIB, Cell, Direction, Load, Profile, cell_of
from disklab.probe.known import read_experiment, trial_of
from disklab.results import reference_runs

from tests.in_process import disklab

REFERENCE = Path(__file__).parents[1] / "experiments" / "azure-local-disks.yaml"


def test_the_reference_experiment_has_six_devices_and_two_profiles() -> None:
    planned = read_experiment(REFERENCE)[1]
    assert len(planned) == 12
    devices = {trial.factors["device"]: trial_of(trial).disk for trial in planned}
    assert list(devices) == [
        "AMD temp disk",
        "Intel temp disk",
        "OS disk, cached",
        "OS disk, uncached",
        "ephemeral OS disk",
        "NVMe",
    ]
    assert devices["AMD temp disk"].vm == "azure/Standard_E8as_v4"
    assert devices["Intel temp disk"].vm == "azure/Standard_E8ds_v4"
    assert devices["OS disk, cached"].caching == "ReadWrite"
    assert devices["OS disk, uncached"].caching == "None"
    assert devices["NVMe"].disks == "nvme"
    for of_file in planned:
        trial, levels = trial_of(of_file), of_file.factors
        assert trial.cell.direction == Direction.RANDWRITE
        # The study measured its NVMe disk with 4 KiB, the others with 8.
        blocks = 4 * KIB if levels["device"] == "NVMe" else 8 * KIB
        assert trial.cell.block_bytes == blocks
        assert trial.cell.profile is Profile(levels["workload.fio.profile"])
        assert trial.duration_s == 60


def test_each_cell_of_the_reference_experiment_was_published() -> None:
    """What the probe's own run is held against, as any run of it is."""
    (study,) = (run for run in reference_runs() if run.info.id == "azure-local-disks-published")
    assert study.info.experiment.title == read_experiment(REFERENCE)[0].title
    published = {tuple(result.factors.values()): result for result in study.results()}
    assert {tuple(trial.factors.values()) for trial in read_experiment(REFERENCE)[1]} == {
        *published
    }
    assert published["NVMe", "sync"].latency_ms["p50"] == 0.043
    assert published["OS disk, uncached", "sync"].latency_ms["p50"] == 2.474


BASE = """\
title: A small one
device:
  vm: azure/Standard_E8ds_v4
  volume: {disks: local}
workload:
  fio: {profile: sync, rw: randwrite, bs: 8k}
factors:
  workload.fio.profile: [sync, async]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("volume: {", "volumes: {", ":4: device.volumes: volumes: there is no such key; did you"),
        ("bs: 8k", "bs: 500", ":6: workload.fio.bs: 500: a block has 512 bytes to 1 GiB"),
        ("rw: randwrite", "rw: randwrit", "; did you mean randwrite or randrw"),
        ("[sync, async]", "[sync, asink]", ":8: workload.fio.profile: asink: is not one of"),
        (
            "{disks: local}",
            "{disks: local, caching: ReadWrite}",
            ":4: device.volume.caching: ReadWrite: 'local' is on the host itself",
        ),
        ("device:\n", "cluster:\n", ":2: cluster."),
    ],
)
def test_a_broken_experiment(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "broken.yaml"
    assert old in BASE
    file.write_text(BASE.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_experiment(file)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{file}:")


def test_an_experiment_with_a_cluster_is_not_for_the_probe() -> None:
    with pytest.raises(UserError, match="is a cluster experiment, and the probe runs those of"):
        read_experiment(REFERENCE.with_name("cassandra-cache-cliff.yaml"))


def test_a_load_of_ones_own_is_a_cell_and_the_profiles_keep_their_names(tmp_path: Path) -> None:
    text = """title: t
device: {vm: azure/Standard_E8ds_v4, volume: {disks: local, filesystem: ext4}}
workload: {fio: {rw: randread, bs: 64k, jobs: 2}, stop: {duration: 2s}}
factors: {workload.fio.depth: [1, 4, 32]}
"""
    file = tmp_path / "t.yaml"
    file.write_text(text)
    cells = [trial_of(trial).cell for trial in read_experiment(file)[1]]
    assert [cell.title for cell in cells] == [
        "2 x 1 randread 64k", "2 x 4 randread 64k", "2 x 32 randread 64k",
    ]  # fmt: skip
    assert [cell.load.outstanding for cell in cells] == [2, 8, 64]
    assert cell_of(Load(4, 256), Direction.READ, 4096) == Cell(Profile.ASYNC, Direction.READ, 4096)
    assert cell_of(Load(1, 1), Direction.READ, 4096).title == "sync read 4k"


def refusal(*arguments: str) -> str:
    ran = disklab("probe", *arguments, code=2)
    assert ran.stdout == ""
    return ran.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--bs", "5k", "--bs: 5k: a block is a multiple of 4 KiB and at most 4 MiB; use 4k, 8k"),
        ("--bs", "many", "--bs: many: is not a size; write a number with k, M or G"),
        ("--duration", "0s", "--duration: 0s: a cell is measured for one second to one day"),
        ("--duration", "soon", "--duration: soon: "),
        ("--size", "12", "--size: 12: the region has at least 1 MiB; give 1GiB"),
        ("--rw", "trim", "--rw: trim: the probe does not know it; choose randread, randwrite"),
        (
            "--rwmixread",
            "70",
            "--rwmixread: 70: it is the share of reads in a mix, and --rw has none",
        ),
        ("--profile", "fast", "--profile: fast: the probe does not know it; choose sync, async"),
        ("--engine", "mmap", "--engine: mmap: the probe does not know it; choose libaio"),
        ("--chart", "x.pdf", "--chart: x.pdf: a chart is .html, .svg or .png; name the file so"),
        ("--chart", "no/x.svg", "--chart: no/x.svg: its folder does not exist; make no first"),
    ],
)
def test_a_wrong_option(tmp_path: Path, option: str, value: str, message: str) -> None:
    assert message in refusal(str(tmp_path), option, value)
    assert list(tmp_path.iterdir()) == []


def test_every_wrong_option_is_named_at_once(tmp_path: Path) -> None:
    said = refusal(str(tmp_path), "--bs", "5k", "--rw", "trim", "--size", "x")
    assert "--bs: 5k" in said
    assert "--rw: trim" in said
    assert "--size: x" in said


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert "does not exist; name a directory, a file" in refusal(str(tmp_path / "no"))


def test_a_target_that_is_no_disk() -> None:
    assert "/dev/null: is neither a directory, nor a file" in refusal("/dev/null")


def test_no_space_is_an_error_before_anything_happens(tmp_path: Path) -> None:
    said = refusal(str(tmp_path), "--size", "8191T")
    assert "MiB are free, the probe needs" in said
    assert "give a smaller --size" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_smaller_than_a_block(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x" * 4096)
    assert "are less than one block of 1M; choose a smaller --bs" in refusal(str(small))
