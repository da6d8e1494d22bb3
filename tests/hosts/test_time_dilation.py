"""A host whose time runs slower: its disks are slower, and what it says is in its own time."""

from __future__ import annotations

import mmap
import os
import statistics
import time

import pytest
from disklab.engine import Control

from .conftest import Lab

pytestmark = [pytest.mark.machine, pytest.mark.alone]
READS = 40
BLOCK = 4096


def median_read_s(device: str) -> float:
    """Return the median time of a direct read of 4 KiB, by this machine's clock."""
    handle = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, BLOCK)
        found = []
        for number in range(READS):
            begun = time.perf_counter()
            os.preadv(handle, [buffer], number * BLOCK)
            found.append(time.perf_counter() - begun)
        return statistics.median(found)
    finally:
        os.close(handle)


def test_a_dilated_disk_is_slower_and_says_the_same_of_itself(lab: Lab) -> None:
    disk = ("azure/P30", "--vm", "azure/Standard_DS14_v2", "--size", "1GiB")
    device = str(lab.attach(*disk)["device"])
    seconds, limits = [], []
    with Control(lab.host() / "control.sock") as control:
        for factor in (1, 4, 1):
            control.dilate(factor)
            assert control.hello().time_dilation == factor
            seconds.append(median_read_s(device))
            counters = control.show("data").counters
            limits.append([(one.place, one.per_s) for one in counters.limits])
    assert limits[0] == limits[1] == limits[2]
    usual, slow, again = seconds
    # The catalogue's uncached read takes 2.2 ms; a busy machine adds to all.
    assert slow > 4 * 0.0019
    assert slow > 2 * max(usual, again)
