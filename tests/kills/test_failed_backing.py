"""A disk whose data this machine's own disk has lost says so, and takes nothing more."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.engine import Control, View

from campaigns.kills.lab import Lab
from campaigns.kills.scenarios import RAW
from campaigns.kills.trouble import disk_below
from tests.apart import apart
from tests.journal import BLOCK_BYTES, block_of, version_of

pytestmark = pytest.mark.machine

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
