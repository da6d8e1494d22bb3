"""The fixture `cloud_disk`, as a project of somebody else's would use it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack
from pathlib import Path

import pytest
from disklab.pytest_plugin import MakeDisk, _made, cloud_disk

from tests.hosts.conftest import Lab

pytestmark = pytest.mark.machine

__all__ = ["cloud_disk"]


@pytest.fixture
def places(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Run and data directories of this test's own, for disks that this process makes."""
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    return lab


def write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())


def test_a_disk_counts_breaks_and_goes(places: Lab, request: pytest.FixtureRequest) -> None:
    make: MakeDisk = request.getfixturevalue("cloud_disk")
    disk = make("azure/P10", size_bytes=256 << 20, calibrate=False)
    before = disk.counts()
    write(disk.path / "file", 1 << 20)
    since = disk.counts() - before
    assert since.flushes >= 1
    assert since.bytes_written >= 1 << 20
    disk.fail("error-rate 100%")
    with pytest.raises(OSError, match="error"):
        write(disk.path / "other", 1 << 20)
    disk.fail("recover")
    assert len(places.devices()) == 1


def test_a_connection_that_is_left_open_keeps_no_disk(places: Lab) -> None:
    with ExitStack() as stack:
        disk = _made(stack, "azure/P10", size_bytes=256 << 20, calibrate=False)
        left = sqlite3.connect(disk.path / "db.sqlite")
        left.execute("create table t (x)")
        left.commit()
    assert places.devices() == {}
    left.close()
