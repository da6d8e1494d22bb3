"""The host cache, and the read-ahead of open files, on real devices."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import pytest
from disklab.engine import Control, Lateness
from disklab.errors import UserError
from disklab.procedures.emulated_hosts import renew_read_ahead

from .conftest import Lab

pytestmark = pytest.mark.machine
DS14 = "azure/Standard_DS14_v2"
MIB = 1 << 20


def attach(lab: Lab, *options: str) -> str:
    """Attach a volume with 32 MiB of data in the middle of nothing; return its device."""
    small = ["--vm", DS14, "--caching", "ReadOnly", "--host-cache-size", "64MiB"]
    made = lab.attach("azure/P30", *small, "--size", "1GiB", *options)
    device = str(made["device"])
    dd("if=/dev/zero", f"of={device}", "bs=1M", "seek=256", "count=32", "oflag=direct")
    return device


def dd(*arguments: str) -> None:
    subprocess.run(["dd", *arguments], check=True, capture_output=True)


def hits_and_misses(lab: Lab, device: str, first_mib: int, count: int) -> tuple[int, int]:
    """Read some MiB; return how many bytes of it the cache served and how many it did not."""
    before = lab.json("disk", "show", device)["counters"]["cache"]
    dd(
        f"if={device}",
        "of=/dev/null",
        "bs=1M",
        "iflag=direct",
        f"skip={first_mib}",
        f"count={count}",
    )
    after = lab.json("disk", "show", device)["counters"]["cache"]
    hit, miss = (after[key] - before[key] for key in ("hit_bytes", "miss_bytes"))
    return hit, miss


def test_a_cache_is_dropped_and_warmed(lab: Lab) -> None:
    device = attach(lab)
    # Writes filled it.
    assert hits_and_misses(lab, device, 256, 8) == (8 * MIB, 0)
    assert lab.json("disk", "cache", "drop", "data")["cache"]["cached_bytes"] == 0
    assert hits_and_misses(lab, device, 256, 8) == (0, 8 * MIB)
    lab.run("disk", "cache", "drop", "data")
    ranges = ["--range", "260MiB:4MiB", "--range", "270MiB:1MiB"]
    assert lab.json("disk", "cache", "warm", "data", *ranges)["cache"]["cached_bytes"] == 5 * MIB
    assert hits_and_misses(lab, device, 258, 4) == (2 * MIB, 2 * MIB)
    lab.run("disk", "cache", "drop", device)
    # Only what was written: the rest of the disk has nothing that anybody read.
    warm = lab.json("disk", "cache", "warm", device)["cache"]["cached_bytes"]
    assert 32 * MIB <= warm <= 33 * MIB
    assert hits_and_misses(lab, device, 256, 32) == (32 * MIB, 0)
    assert "32 MiB in the host cache" in lab.run("disk", "cache", "warm", "data").stdout


def test_a_cache_holds_no_more_than_its_size(lab: Lab) -> None:
    device = attach(lab)
    warm = lab.json("disk", "cache", "warm", "data", "--range", "0:512MiB")["cache"]
    assert warm["cached_bytes"] == 64 * MIB
    # In order, like reads: the end stays.
    assert hits_and_misses(lab, device, 504, 8) == (8 * MIB, 0)
    assert hits_and_misses(lab, device, 0, 8) == (0, 8 * MIB)


def test_dirty_data_stay_in_a_dropped_cache(lab: Lab) -> None:
    device = attach(lab, "--name", "log")
    lab.run("disk", "set", "log", "--caching", "ReadWrite")
    lab.run("disk", "fail", "log", "slow", "1000x")
    dd("if=/dev/zero", f"of={device}", "bs=1M", "count=2", "oflag=direct")
    dropped = lab.json("disk", "cache", "drop", "log")["cache"]
    assert dropped["cached_bytes"] == dropped["dirty_bytes"] > 0
    lab.run("disk", "fail", "log", "recover")


def test_refusals(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB", "--vm", DS14)
    for command in ("warm", "drop"):
        message = lab.refused("disk", "cache", command, "data")
        assert "it does not use the host cache (caching None)" in message
        assert "disklab disk set data --caching ReadOnly" in message
    lab.run("disk", "set", "data", "--caching", "ReadOnly")
    message = lab.refused(
        "disk", "cache", "warm", "data", "--range", "0:1MiB", "--range", "1:64MiB"
    )
    assert "ranges[1]" in message
    assert "the volume ends at 67108864 bytes" in message
    assert "--range" in lab.refused("disk", "cache", "warm", "data", "--range", "12")
    assert "no volume of this name" in lab.refused("disk", "cache", "drop", "nosuch")


def test_lateness_between_two_views(lab: Lab) -> None:
    device = lab.attach("azure/P30", "--size", "64MiB")["device"]
    with Control(lab.host() / "control.sock") as control:
        views = [control.show("data")]
        for reads in (100, 50):
            dd(f"if={device}", "of=/dev/null", "bs=4k", f"count={reads}", "iflag=direct")
            views.append(control.show("data"))
    start, middle, end = (view.emulator.lateness_ns for view in views)
    assert start.buckets == []
    assert sum(count for _, count in middle.since(start).buckets) == 100
    assert sum(count for _, count in end.since(middle).buckets) == 50
    assert end.since(middle).p99 <= end.max * 17 // 16
    assert end.since(end) == Lateness(p50=0, p99=0, max=0)
    with Control(lab.host() / "control.sock") as control, pytest.raises(UserError):
        control.warm("data")


@pytest.mark.long
def test_three_hosts_side_by_side(lab: Lab) -> None:
    """The nodes of a cluster: each an engine of its own with two volumes, one kills none."""
    points = {}
    for number in range(3):
        host = f"node-{number}"
        point = lab.root / host
        common = ["--host", host, "--size", "512MiB", "--vm", DS14]
        options = ["--caching", "ReadOnly", "--mount", str(point), "--filesystem", "xfs"]
        lab.attach("azure/P30", "--name", "data", *common, *options)
        lab.attach("azure/P10", "--name", "log", *common)
        (point / "file").write_text(host)
        points[host] = point
    assert len(lab.processes()) >= 3
    assert len(set(lab.devices().values())) == 6
    for host in points:
        cache = lab.json("disk", "cache", "warm", "data", "--host", host)["cache"]
        assert cache["cached_bytes"] > 0
    subprocess.run(["kill", "-9", str(lab.engine("node-1"))], check=True)
    for host in ("node-0", "node-2"):
        assert (points[host] / "file").read_text() == host
        view = lab.json("disk", "show", "data", "--host", host)
        assert view["counters"]["operations"]["write"]["ios"] > 0
    lab.run("clean")
    names = {volume["host"] for volume in lab.json("disk", "list")["volumes"]}
    assert names == {"node-0", "node-2"}, "`clean` takes away what is dead, and nothing else"
    lab.run("clean", "--all")
    assert (lab.devices(), lab.mounts(), lab.processes()) == ({}, [], [])
    assert [path for path in Path(lab.run_dir / "hosts").glob("*") if path.is_dir()] == []


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
