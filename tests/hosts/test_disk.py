"""`disklab disk` from attach to detach, with a real engine and real devices, and in slow motion."""

from __future__ import annotations

import mmap
import os
import statistics
import subprocess
import time
from pathlib import Path

import pytest
from disklab.engine import Control

from .conftest import DISKLAB, Lab

pytestmark = pytest.mark.machine
DS14 = "azure/Standard_DS14_v2"


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_a_volume_from_attach_to_detach(lab: Lab, filesystem: str) -> None:
    point = lab.root / "mnt"
    options = ["--mount", str(point), "--filesystem", filesystem, "--size", "1GiB"]
    made = lab.attach("azure/P30", *options, "--read-ahead", "8KiB")
    assert made["size_bytes"] == 1 << 30
    assert (made["filesystem"], made["mount_point"]) == (filesystem, str(point))
    block = Path("/sys/block") / Path(made["device"]).name
    assert int((block / "queue/read_ahead_kb").read_text()) == 8
    assert int((block / "size").read_text()) * 512 == 1 << 30
    (point / "kept").write_text("still here")
    listed = lab.json("disk", "list")["volumes"]
    assert [(one["name"], one["device"], one["state"]) for one in listed] == [
        ("data", made["device"], "attached")
    ]
    kept = lab.json("disk", "detach", "data")["data"]
    assert kept == [str(lab.data_dir / "default/data.img")]
    assert not point.exists()
    assert (lab.devices(), lab.mounts(), lab.processes()) == ({}, [], [])
    assert not lab.host().exists()

    again = lab.attach("azure/P30", "--mount", str(point), "--size", "1GiB")
    assert (again["reused"], again["filesystem"]) == (True, filesystem)
    assert (point / "kept").read_text() == "still here"
    assert lab.json("disk", "detach", "data", "--delete-data")["data"] == []
    assert list(lab.data_dir.rglob("*.img")) == []


def test_local_disks_lose_their_data(lab: Lab) -> None:
    point = lab.root / "mnt"
    options = ["--vm", "azure/Standard_E8ds_v4", "--mount", str(point), "--size", "1GiB"]
    lab.attach("local", *options)
    (point / "lost").write_text("x")
    lab.run("disk", "detach", "data")
    again = lab.attach("local", *options)
    assert again["reused"] is False
    assert list(point.iterdir()) == []
    assert all(one["done"] for one in lab.json("clean", "--all", "--data")["removed"])
    assert list(lab.data_dir.iterdir()) == []


def test_several_volumes_share_a_host(lab: Lab) -> None:
    first = lab.attach("4 x azure/P30", "--vm", DS14, "--caching", "ReadOnly", "--size", "1GiB")
    second = lab.attach("local", "--name", "log", "--memory", "--size", "64MiB")
    assert second["vm"] == DS14
    assert first["device"] != second["device"]
    assert "has 1 temp disk" in lab.refused("disk", "attach", "local", "--name", "more")
    lab.run("disk", "detach", "data")
    assert len(lab.processes()) > 0
    lab.run("disk", "detach", first["name"] if lab.devices() == {} else "log")
    assert lab.processes() == []


def test_show_counts_and_explains(lab: Lab) -> None:
    device = lab.attach("azure/P20", "--size", "64MiB")["device"]
    write = f"dd if=/dev/zero of={device} bs=64k count=64 oflag=direct"
    subprocess.run(write.split(), check=True, capture_output=True)
    view = lab.json("disk", "show", "data")
    assert view["counters"]["operations"]["write"]["bytes"] == 4 << 20
    limits = {limit["unit"]: limit for limit in view["counters"]["limits"]}
    assert (limits["ios"]["place"], limits["ios"]["per_s"]) == ("disk 0", 2300)
    assert limits["ios"]["credits"]["capacity"] == 1200 * 1800
    shown = lab.run("disk", "show", device).stdout
    for part in ("azure/P20", "disk 0 IOPS", "2300", "credits left", "waits now for"):
        assert part in shown


def test_set_changes_a_running_disk(lab: Lab) -> None:
    lab.attach("azure/P20", "--size", "64MiB", "--vm", DS14)
    run = ["disk", "set", "data"]
    profile = lab.json(*run, "--iops", "77", "--throughput", "3MB", "--latency", "5ms")["profile"]
    limits = profile["disks"][0]["limits"]
    assert [limit["per_s"] for limit in limits] == [77, 3_000_000]
    assert profile["disks"][0]["latency"]["read"]["quantiles_ppm_ns"] == [[1_000_000, 5_000_000]]
    assert lab.json(*run, "--caching", "ReadOnly")["profile"]["caching"] == "ReadOnly"
    lab.run(*run, "--credits", "25%")
    limits = lab.json("disk", "show", "data")["counters"]["limits"]
    bucket = next(limit["credits"] for limit in limits if limit["credits"])
    # An idle disk earns credits from then on.
    assert 0.25 <= bucket["left"] / bucket["capacity"] < 0.26
    lab.run(*run, "--latency", "premium-ssd-2022", "--read-ahead", "64KiB")


def test_credits_of_disks_and_vm_are_set_together(lab: Lab) -> None:
    lab.attach("azure/P20", "--size", "64MiB", "--vm", "azure/Standard_D8s_v5")
    with Control(lab.host() / "control.sock") as control:
        control.set_credits(0.25)
        limits = control.show("data").counters.limits
    buckets = {one.place: one.credits for one in limits if one.credits is not None}
    assert set(buckets) == {"disk 0", "vm uncached"}
    for bucket in buckets.values():
        assert 0.25 <= bucket.left / bucket.capacity < 0.26


def test_fail_and_recover(lab: Lab) -> None:
    device = lab.attach("azure/P30", "--size", "64MiB")["device"]
    read = ["dd", f"if={device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
    assert subprocess.run(read, capture_output=True, check=False).returncode == 0
    lab.run("disk", "fail", "data", "error-rate", "100%")
    assert subprocess.run(read, capture_output=True, check=False).returncode != 0
    assert lab.json("disk", "show", "data")["faults"]
    lab.run("disk", "fail", "data", "recover")
    assert subprocess.run(read, capture_output=True, check=False).returncode == 0
    # The stall begins somewhere inside the command: a busy machine takes a second to end it.
    started = time.monotonic()
    lab.run("disk", "fail", "data", "stall", "4s")
    assert subprocess.run(read, capture_output=True, check=False).returncode == 0
    assert time.monotonic() - started >= 4
    lab.run("disk", "fail", "data", "slow", "10x", "--disk", "0")
    lab.run("disk", "fail", "data", "host-failure")
    assert subprocess.run(read, capture_output=True, check=False).returncode != 0
    lab.run("disk", "fail", "data", "recover")


def test_a_second_attach_of_the_same_name(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB")
    message = lab.refused("disk", "attach", "azure/P30", "--size", "64MiB")
    assert "a volume of this name is attached to host 'default' already" in message


def test_a_running_host_keeps_its_vm(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB", "--vm", DS14)
    options = ["--name", "b", "--size", "64MiB"]
    message = lab.refused("disk", "attach", "azure/P30", *options, "--vm", "azure/Standard_L8s_v2")
    assert f"host 'default' is already running, with --vm {DS14}" in message
    assert lab.attach("azure/P30", *options)["vm"] == DS14


def test_data_of_an_earlier_attach_are_not_lost_by_accident(lab: Lab) -> None:
    point = lab.root / "mnt"
    lab.attach("azure/P30", "--size", "1GiB", "--mount", str(point), "--filesystem", "ext4")
    (point / "kept").write_text("x")
    lab.run("disk", "detach", "data")
    wanted = ["disk", "attach", "azure/P30", "--mount", str(point), "--no-calibrate"]
    message = lab.refused(*wanted, "--size", "1GiB", "--filesystem", "xfs")
    assert "holds ext4 from an earlier attach; add --reformat" in message
    assert "a disk cannot shrink" in lab.refused(*wanted, "--size", "512MiB")
    lab.run(*wanted, "--size", "1GiB", "--filesystem", "xfs", "--reformat")
    assert list(point.iterdir()) == []


def test_a_device_that_is_not_ours(lab: Lab, foreign: Path) -> None:
    lab.attach("azure/P30", "--size", "64MiB")
    before = (lab.root / "foreign.img").read_bytes()
    for command in (
        ["detach", str(foreign)],
        ["detach", str(foreign), "--delete-data"],
        ["show", str(foreign)],
        ["set", str(foreign), "--iops", "1"],
        ["fail", str(foreign), "host-failure"],
        ["detach", "/dev/null"],
        ["detach", "/dev/nosuch"],
        ["detach", "nosuch"],
    ):
        message = lab.refused("disk", *command)
        assert "error: VOLUME: " in message
    assert (lab.root / "foreign.img").read_bytes() == before
    assert Path(f"/sys/block/{foreign.name}/loop/backing_file").exists()


def test_a_device_that_somebody_else_mounted(lab: Lab) -> None:
    device = lab.attach("azure/P30", "--size", "64MiB", "--filesystem", "ext4")["device"]
    point = lab.root / "theirs"
    point.mkdir()
    subprocess.run(["mount", device, str(point)], check=True)
    try:
        message = lab.refused("disk", "detach", "data")
        assert f"is mounted on {point}, and not by disklab" in message
    finally:
        subprocess.run(["umount", str(point)], check=True)
    lab.run("disk", "detach", "data")


def test_a_mount_in_use(lab: Lab) -> None:
    point = lab.root / "mnt"
    lab.attach("azure/P30", "--size", "64MiB", "--filesystem", "ext4", "--mount", str(point))
    with (point / "open").open("w"):
        message = lab.refused("disk", "detach", "data")
        assert f"it is in use by process {os.getpid()}" in message
    lab.run("disk", "detach", "data")


def test_an_open_device_is_mounted_again(lab: Lab) -> None:
    point = lab.root / "mnt"
    made = lab.attach("azure/P30", "--size", "64MiB", "--filesystem", "ext4", "--mount", str(point))
    with Path(made["device"]).open("rb"):
        mounts = len(lab.mounts())
        message = lab.run("disk", "detach", "data", code=2).stderr
        assert "is open in process" in message
        assert len(lab.mounts()) == mounts
    lab.run("disk", "detach", "data")


def test_without_root(lab: Lab) -> None:
    # A user namespace where this process is an ordinary user.
    before = ("unshare", "--user", "--map-user=1000")
    for command in (["disk", "attach", "azure/P30"], ["clean"], ["clean", "--data"]):
        message = lab.refused(*command, before=before)
        assert "this user: uid 1000: making block devices needs root; run it with sudo" in message
    assert "5000" in lab.run("catalog", "azure/P30", before=before).stdout
    checks = lab.run("doctor", code=1, before=before).stdout
    assert "run it with sudo" in checks


@pytest.mark.alone  # a new mount namespace holds, for a moment, the disks of tests beside it
def test_without_fuse(lab: Lab, tmp_path: Path) -> None:
    # A mount namespace whose /dev has only what Python itself needs.
    script = tmp_path / "bare"
    script.write_text('#!/bin/sh\nmount -t tmpfs none /dev && mknod /dev/null c 1 3 && exec "$@"\n')
    script.chmod(0o755)
    message = lab.refused("disk", "attach", "azure/P30", before=("unshare", "-m", str(script)))
    assert "/dev/fuse: no such device: emulated disks are served through FUSE" in message
    assert "/dev/loop-control: no such device" in message


def test_two_attaches_at_once(lab: Lab) -> None:
    """The lock lets one make the host and the other join it."""
    command = ["disk", "attach", "azure/P30", "--size", "64MiB", "--no-calibrate", "--json"]
    both = [
        subprocess.Popen(
            [str(DISKLAB), *command, "--name", name],
            env=lab.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name in ("one", "two")
    ]
    for one in both:
        _, said = one.communicate(timeout=60)
        assert one.returncode == 0, said
    names = {volume["name"] for volume in lab.json("disk", "list")["volumes"]}
    assert names == {"one", "two"}
    assert len(lab.devices()) == 2


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


@pytest.mark.alone
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
