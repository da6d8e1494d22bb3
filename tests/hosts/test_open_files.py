"""The read-ahead of files that are open already, as a fault of a mapped page shows it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from disklab.engine import Control
from disklab.procedures.emulated_hosts import renew_read_ahead

from .conftest import Lab

pytestmark = pytest.mark.machine
KIB = 1 << 10
FILE_BYTES = 8 << 20


def set_read_ahead(block: Path, kib: int) -> None:
    (block / "queue/read_ahead_kb").write_text(str(kib))


def test_an_open_file_takes_the_new_read_ahead_of_its_device(lab: Lab, tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    # A disk of the machine's own: fast enough for a fault to be over in a millisecond.
    made = lab.attach(
        *("local", "--vm", "azure/Standard_DS14_v2", "--size", "1GiB"),
        *("--filesystem", "xfs", "--mount", str(mount)),
    )
    device = Path("/sys/block") / Path(str(made["device"])).name
    (mount / "file").write_bytes(os.urandom(FILE_BYTES))
    set_read_ahead(device, 4)
    with (mount / "file").open("rb") as file, Control(lab.host() / "control.sock") as control:
        os.fsync(file.fileno())

        def read_by_a_fault(mib: int) -> int:
            """Return how many bytes the disk is asked for when one cold page is touched."""
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            before = control.show("data").counters.operations["read"].bytes
            # A page that is in the page table stays in the page cache: each time another one.
            assert mapped[mib << 20] >= 0
            return control.show("data").counters.operations["read"].bytes - before

        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert 0 < read_by_a_fault(1) <= 8 * KIB
            set_read_ahead(device, 256)
            assert 0 < read_by_a_fault(2) <= 8 * KIB, "the kernel asks the device: not needed"
            assert renew_read_ahead([os.getpid()], mount) >= 1
            assert read_by_a_fault(3) >= 128 * KIB
            set_read_ahead(device, 4)
            assert renew_read_ahead([os.getpid()], mount) >= 1
            assert 0 < read_by_a_fault(4) <= 8 * KIB
    assert renew_read_ahead([os.getpid()], mount) == 0
