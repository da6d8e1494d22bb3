"""Devices that disklab did not create: read, and never written."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.errors import UserError
from disklab.probe.cells import KIB, LOADS, MIB, Direction, Plan, Profile, cells
from disklab.probe.target import open_region

from tests.programs import ended

from .foreign import loop_device, run

pytestmark = pytest.mark.machine
DISKLAB = Path(sys.executable).with_name("disklab")


@pytest.fixture
def backing(tmp_path: Path) -> Path:
    file = tmp_path / "foreign.img"
    file.write_bytes(os.urandom(16 * MIB))
    return file


@pytest.fixture
def device(backing: Path) -> Iterator[Path]:
    """A loop device of this test's own, which disklab knows nothing about."""
    with loop_device(backing) as made:
        yield made


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def plan(*directions: Direction) -> Plan:
    return Plan(
        cells((LOADS[Profile.SYNC],), directions, (4 * KIB,)), duration_s=1.0, size_bytes=8 * MIB
    )


@pytest.mark.parametrize("flags", [[], ["--destroy-data"]])
def test_a_foreign_device_is_read_and_never_written(
    device: Path, backing: Path, flags: list[str]
) -> None:
    before = digest(backing)
    command = [str(DISKLAB), "probe", str(device), "--duration", "1s", "--bs", "4k", "--json"]
    ran = ended([*command, "--profile", "sync", *flags], code=0)
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [r["factors"]["rw"] for r in told] == ["randread"]
    assert told[0]["condition"] == "device that disklab did not create: read only, as it was found"
    assert digest(backing) == before


def test_only_writes_on_a_foreign_device_is_an_error(device: Path, backing: Path) -> None:
    before = digest(backing)
    command = [str(DISKLAB), "probe", str(device), "--rw", "randwrite", "--destroy-data"]
    ran = ended(command, code=2)
    assert f"{device}: disklab never writes to a device that it did not create" in ran.stderr
    assert digest(backing) == before


def test_a_device_of_ours_with_data_needs_the_flag(device: Path) -> None:
    # The caller vouches that the device is ours, as the ownership proof of the hosts would.
    wanted = plan(Direction.RANDWRITE)
    with open_region(device, wanted, ours=True, destroy_data=False) as region:
        assert region.writable
    run("mkfs.ext4", "-q", str(device))
    refused = pytest.raises(UserError, match="holds ext4; name its mount point, or give --destroy")
    with refused, open_region(device, wanted, ours=True, destroy_data=False):
        pass
    with open_region(device, wanted, ours=True, destroy_data=True) as region:
        assert region.writable


def test_a_mounted_device_of_ours_is_refused_with_every_flag(device: Path, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", str(device))
    mount = tmp_path / "mnt"
    mount.mkdir()
    run("mount", str(device), str(mount))
    try:
        wanted = plan(Direction.RANDWRITE)
        refused = pytest.raises(UserError, match="is mounted or in use")
        with refused, open_region(device, wanted, ours=True, destroy_data=True):
            pass
    finally:
        run("umount", str(mount))
