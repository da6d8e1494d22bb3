"""A minute of the crash campaign, its defects each at its own step; a disk whose data are lost."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.engine import Control, View

from campaigns.kills.clock import COMPILER
from campaigns.kills.lab import Lab
from campaigns.kills.points import Point, read_in_fork, steps_of, try_point
from campaigns.kills.scenarios import ENGINE, EXT4, RAW, SCENARIOS, Scenario
from campaigns.kills.trouble import disk_below, try_trouble
from campaigns.kills.writer import Writing
from tests.apart import apart
from tests.journal import BLOCK_BYTES, Promise, block_of, version_of
from tests.programs import ended

pytestmark = pytest.mark.machine

SEED = 1
WITHOUT_REHEARSAL = 0


@apart
def test_some_steps_of_some_commands_are_killed_and_nothing_is_lost_or_left(tmp_path: Path) -> None:
    chosen = ["attach second", "clean dead host"]
    options = [word for name in chosen for word in ("--scenario", name)]
    state = ["--state", str(tmp_path / "state.jsonl")]
    ran = ended(
        [sys.executable, "-m", "campaigns.kills", "--points", "3", *options, *state],
        most_s=400,
        cwd=Path(__file__).parents[2],
        code=0,
    )
    assert "of 3 tried" in ran.stdout


def killed_at(name: str, program: str, call: str, ending: str, among: str = "") -> None:
    """Kill a scenario's command at the last of its steps of this kind."""
    scenario = next(one for one in SCENARIOS if one.name == name)
    steps = steps_of(scenario, SEED)
    alike = [one for one in steps if (one.program, one.call) == (program, call)]
    found = [one for one in alike if one.what.endswith(ending) and among in one.what]
    assert found, alike
    outcome = try_point(scenario, Point(name, program, found[-1].number, "alone"), SEED)
    assert outcome.step
    assert not outcome.found


@apart
def test_an_engine_that_is_killed_while_it_makes_a_loop_device_ends() -> None:
    """Its last thread closes its own file on the mount; a flush there never ended."""
    killed_at("attach", ENGINE, "openat", "queue/rq_affinity")


@apart
def test_a_mount_point_goes_though_the_kill_came_before_it_was_recorded() -> None:
    """The record that has its inode is the second after the one of the device."""
    killed_at("attach ext4", "conductor", "renameat", "/mnt")


@apart
def test_a_marker_goes_though_the_kill_came_after_its_image_had_gone() -> None:
    killed_at("clean all data", "conductor", "unlinkat", "/.data.img.disklab")


@apart
def test_a_killed_look_at_the_data_is_not_taken_for_their_loss() -> None:
    """`clean` has the data of a dead host written back by a process of its own."""
    killed_at("clean dead host", "conductor child", "execve", "/sync")


@apart
def test_what_a_killed_engine_was_writing_goes_with_its_host() -> None:
    killed_at("attach", ENGINE, "write", ".new", among="/profile.json.")


@apart
def test_a_full_backing_store_and_an_engine_that_stands_still_lose_nothing() -> None:
    for name in ("backing full", "engine stands still"):
        outcome = try_trouble(name, 0, SEED)
        assert not outcome.found
        assert outcome.acknowledged > 0


@pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc) for the clock that jumps")
@apart
def test_a_clock_of_day_that_jumps_harms_no_disk() -> None:
    outcome = try_trouble("clock jumps", WITHOUT_REHEARSAL, SEED)
    assert not outcome.found
    assert outcome.acknowledged > 0


@apart
def test_a_lab_that_is_cleaned_disturbs_no_other_one() -> None:
    """Campaigns run laboratories side by side: `clean --all --data` of one leaves the other's."""
    one, other = Lab.make(), Lab.make()
    writing = None
    try:
        for lab in (one, other):
            lab.must(*EXT4, "--name", "second")
        one.must(*RAW)
        record, engine = one.volume("data"), one.engine()
        writing = Writing.begin(record.device, SEED)
        before = (one.mounts(), one.devices(), one.processes())
        other.must("clean", "--all", "--data")
        other.check_empty()
        assert (one.mounts(), one.devices(), one.processes()) == before
        assert one.engine() == engine
        one.check_half_made()
        for lab in (one, other):
            lab.check_decoys()
        journal = writing.end()
        assert writing.failures == ()
        promise = Scenario("", RAW, promise=Promise.ACKNOWLEDGED)
        assert read_in_fork(record.device, journal, promise) == []
        assert str(one.root) not in other.said()
        one.must("clean", "--all", "--data")
        one.check_empty()
    finally:
        if writing is not None:
            writing.kill()
        one.take_away()
        other.take_away()


# The engine looks once a second.
LOOK_SECONDS = 20.0


@pytest.fixture
def labs() -> Iterator[tuple[Lab, Lab]]:
    below, lab = Lab.make(), Lab.make()
    try:
        yield below, lab
    finally:
        lab.take_away()
        below.take_away()


def view(lab: Lab) -> View:
    with Control(lab.places.host(lab.name).socket) as control:
        return control.show("data")


def write(device: str, version: int) -> None:
    """Write and flush the first block past every cache."""
    with mmap.mmap(-1, BLOCK_BYTES) as block:
        block[:] = block_of(0, version)
        file = os.open(device, os.O_WRONLY | os.O_DIRECT)
        try:
            os.pwritev(file, [block], 0)
            os.fdatasync(file)
        finally:
            os.close(file)


def read(device: str) -> int | None:
    with mmap.mmap(-1, BLOCK_BYTES) as block:
        file = os.open(device, os.O_RDONLY | os.O_DIRECT)
        try:
            os.preadv(file, [block], 0)
        finally:
            os.close(file)
        return version_of(0, block[:])


def write_back(image: Path) -> bool:
    """Have the kernel write a file back, as it does by itself half a minute later."""
    return subprocess.run(["sync", "--data", image], check=False).returncode == 0


@apart
def test_a_disk_that_lost_what_was_flushed_says_so_for_ever(labs: tuple[Lab, Lab]) -> None:
    below, lab = labs
    image = lab.root / "data/default/data.img"
    with disk_below(below, lab):
        lab.must(*RAW)
        device = lab.volume("data").device
        write(device, 1)
        assert write_back(image)
        write(device, 2)
        below.must("disk", "fail", "data", "error-rate", "100%")
        assert not write_back(image)
        deadline = time.monotonic() + LOOK_SECONDS
        while view(lab).failure is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "failed to write the volume's data back" in (view(lab).failure or "")
        below.must("disk", "fail", "data", "recover")
        # That disk is well again; what it lost does not come back by that.
        failed = view(lab).counters.operations["write"].failed
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            write(device, 3)
        assert view(lab).counters.operations["write"].failed > failed
        assert read(device) in (1, 2)
        assert lab.run("disk", "list") == 0
        assert "failed:" in lab.said()
        assert lab.run("disk", "detach", "data") != 0
        assert "data is detached, but" in " ".join(lab.said().split())
        assert lab.run(*RAW) != 0
        assert "not whole" in " ".join(lab.said().split())
        lab.must("clean", "--all", "--data")
        lab.must(*RAW)
        assert view(lab).failure is None
        lab.must("clean", "--all", "--data")
    lab.check_empty()


@apart
def test_data_that_a_dead_engine_left_unwritten_are_not_taken_for_whole(
    labs: tuple[Lab, Lab],
) -> None:
    below, lab = labs
    with disk_below(below, lab):
        lab.must(*RAW)
        write(lab.volume("data").device, 1)
        below.must("disk", "fail", "data", "error-rate", "100%")
        assert lab.engine().end()
        lab.must("clean")
        assert "failed to write its data back" in " ".join(lab.said().split())
        below.must("disk", "fail", "data", "recover")
        assert lab.run(*RAW) != 0
        assert "not whole" in " ".join(lab.said().split())
        lab.must("clean", "--all", "--data")
    lab.check_empty()
