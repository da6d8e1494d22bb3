"""Disks in use, in every way that we could think of: none is written, and an empty one is."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from disklab.machines.binary import find_engine
from disklab.measurement.formatting import new_uuid

from tests.foreign import loop_device, run
from tests.programs import wait_until

pytestmark = pytest.mark.machine

SIZE = 320 << 20
"""xfs takes at least 300 MiB."""
SAMPLED = (SIZE - 65536) // 64 * 8 // 65536 * 65536
"""One of the 64 places that are looked at between both ends."""
BLOCK = 1 << 16
BY_ID = Path("/dev/disk/by-id")


class Bed:
    """A prepared disk: its file, its device and a name below /dev/disk/by-id."""

    def __init__(self, file: Path, device: Path, name: str) -> None:
        self.file, self.device, self.name = file, device, name

    @property
    def content(self) -> str:
        """A digest of what is not zero, with its place: most of the file is holes."""
        run("blockdev", "--flushbufs", str(self.device))
        digest, at = hashlib.sha256(), 0
        with self.file.open("rb", buffering=0) as file:
            while (at := data_from(file.fileno(), at)) < SIZE:
                block = os.pread(file.fileno(), BLOCK, at)
                if block.strip(b"\0"):
                    digest.update(b"%d:" % at + block)
                at += BLOCK
        return digest.hexdigest()


def data_from(handle: int, at: int) -> int:
    """Return the offset of the next data in a file behind a hole, or its size if there is none."""
    try:
        return os.lseek(handle, at, os.SEEK_DATA) // BLOCK * BLOCK
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return SIZE


@contextlib.contextmanager
def prepared(folder: Path, label: str = "disk") -> Iterator[Bed]:
    file = folder / f"{label}.img"
    with file.open("wb") as made:
        made.truncate(SIZE)
    name = f"measure-{os.getpid()}-{label}"
    with loop_device(file) as device:
        made_folder = not BY_ID.exists()
        BY_ID.mkdir(parents=True, exist_ok=True)
        link = BY_ID / name
        link.symlink_to(device)
        try:
            yield Bed(file, device, name)
        finally:
            link.unlink()
            if made_folder:
                with contextlib.suppress(OSError):
                    BY_ID.rmdir()


def asked(name: str, *, make: dict[str, Any] | None = None, **other: Any) -> dict[str, Any]:
    job = {"by_id": name, "lun": None, "size_bytes": SIZE, "kind": "loop", "make": make, **other}
    ended = subprocess.run(
        [find_engine(), "format"], input=json.dumps(job).encode(), capture_output=True, check=False
    )
    answer: dict[str, Any] = json.loads(ended.stdout)
    assert ended.returncode == (0 if answer["ok"] else 2)
    return answer


def make_in(folder: Path, filesystem: str = "xfs") -> dict[str, Any]:
    point = folder / "mounted"
    point.mkdir(exist_ok=True)
    return {"filesystem": filesystem, "uuid": new_uuid(), "mount_point": str(point)}


def mkfs(kind: str) -> Callable[[Bed], contextlib.AbstractContextManager[None]]:
    words = {
        "ext4": ["mkfs.ext4", "-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        "xfs": ["mkfs.xfs", "-qf"],
        "swap": ["mkswap"],
    }

    @contextlib.contextmanager
    def done(bed: Bed) -> Iterator[None]:
        run(*words[kind], str(bed.device))
        yield

    return done


def written(at: int, data: bytes) -> Callable[[Bed], contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def done(bed: Bed) -> Iterator[None]:
        with bed.device.open("r+b", buffering=0) as device:
            device.seek(at)
            block = bytearray(os.pread(device.fileno(), 4096, at // 4096 * 4096))
            block[at % 4096 : at % 4096 + len(data)] = data
            os.pwrite(device.fileno(), block, at // 4096 * 4096)
        yield

    return done


@contextlib.contextmanager
def partition_in_use(bed: Bed) -> Iterator[None]:
    """A partition that the kernel knows and somebody has mounted, without a table on the disk."""
    start, length, number = 1 << 20, 200 << 20, 1
    # struct blkpg_partition and struct blkpg_ioctl_arg of <linux/blkpg.h>; BLKPG is 0x1269.
    data = ctypes.create_string_buffer(struct.pack("qqi64s64s", start, length, number, b"", b""))
    handle = os.open(bed.device, os.O_RDONLY)
    point = bed.file.with_name("used")
    point.mkdir()
    part = Path(f"{bed.device}p{number}")
    try:
        fcntl.ioctl(handle, 0x1269, struct.pack("iiiP", 1, 0, len(data), ctypes.addressof(data)))
        run("mkfs.ext4", "-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(part))
        run("mount", str(part), str(point))
        run("sync", "-f", str(point))
        try:
            yield
        finally:
            run("umount", str(point))
            delete = struct.pack("iiiP", 2, 0, len(data), ctypes.addressof(data))
            fcntl.ioctl(handle, 0x1269, delete)
    finally:
        os.close(handle)


@contextlib.contextmanager
def mounted(bed: Bed) -> Iterator[None]:
    run("mkfs.ext4", "-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(bed.device))
    point = bed.file.with_name("used")
    point.mkdir()
    run("mount", str(bed.device), str(point))
    run("sync", "-f", str(point))
    try:
        yield
    finally:
        run("umount", str(point))


@contextlib.contextmanager
def mounted_elsewhere(bed: Bed) -> Iterator[None]:
    run("mkfs.ext4", "-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(bed.device))
    point = bed.file.with_name("used")
    point.mkdir()
    script = f"mount {bed.device} {point} && sync -f {point} && echo ready && exec sleep 1000"
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"ready\n"
        assert str(point) not in Path("/proc/self/mounts").read_text(encoding="utf-8")
        try:
            yield
        finally:
            other.kill()
            other.wait()
    wait_until_free(bed.device)


def wait_until_free(device: Path) -> None:
    wait_until(lambda: is_free(device))


def is_free(device: Path) -> bool:
    with contextlib.suppress(OSError):
        os.close(os.open(device, os.O_RDWR | os.O_EXCL))
        return True
    return False


@contextlib.contextmanager
def claimed(bed: Bed) -> Iterator[None]:
    handle = os.open(bed.device, os.O_RDWR | os.O_EXCL)
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def opened(bed: Bed) -> Iterator[None]:
    handle = os.open(bed.device, os.O_RDWR)
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(bed: Bed) -> Iterator[None]:
    """A loop device over it, in which something may be mounted: it makes no claim."""
    with loop_device(bed.device):
        yield


USES = {
    "ext4": (mkfs("ext4"), "ext2, ext3 or ext4"),
    "xfs": (mkfs("xfs"), "xfs"),
    "swap": (mkfs("swap"), "swap space"),
    "GPT": (written(510, b"\x55\xaaEFI PART"), "a partition table (GPT)"),
    "MBR": (written(510, b"\x55\xaa"), "a partition table (MBR)"),
    "LVM": (written(512, b"LABELONE\1\0\0\0\0\0\0\0"), "a physical volume of LVM"),
    "md": (written(4096, b"\xfc\x4e\x2b\xa9"), "a member of an md array"),
    "md at the end": (written(SIZE - 8192, b"\xfc\x4e\x2b\xa9"), "there are data at byte"),
    "data without a label": (
        written((SIZE - 65536) // 64 * 8 // 65536 * 65536, b"row"),
        "are data",
    ),
    "mounted": (mounted, "the disk is in use"),
    "mounted in another namespace": (mounted_elsewhere, "the disk is in use"),
    "a partition in use": (partition_in_use, "the disk is in use"),
    "held": (held, "which has no claim on it"),
    "claimed": (claimed, "the disk is in use"),
    "open": (opened, "is open in process"),
}


@pytest.mark.parametrize("use", USES)
def test_a_disk_in_use_is_not_written(use: str, tmp_path: Path) -> None:
    prepare, says = USES[use]
    with prepared(tmp_path) as bed, prepare(bed):
        before = bed.content
        answer = asked(bed.name, make=make_in(tmp_path))
        if answer["ok"]:
            run("umount", str(tmp_path / "mounted"))
        assert not answer["ok"]
        assert says in answer["refused"]["rule"]
        assert answer["refused"]["way_out"]
        assert bed.content == before


def test_another_disk_than_the_expected_one_is_not_written(tmp_path: Path) -> None:
    with prepared(tmp_path) as bed:
        before, make = bed.content, make_in(tmp_path)
        wrong = asked(bed.name, make=make, size_bytes=SIZE + 512)
        assert f"has {SIZE} bytes, and {SIZE + 512} were expected" in wrong["refused"]["rule"]
        wrong = asked(bed.name, make=make, kind="nvme")
        assert "no disk of kind Nvme" in wrong["refused"]["rule"]
        wrong = asked("measure-absent", make=make)
        assert "the host has no such disk" in wrong["refused"]["rule"]
        wrong = asked(bed.name, make={**make, "uuid": "0b8ff0a4-2f43-4b3c-8d3c-6d4e5e0f9a11"})
        assert "a UUID of its own" in wrong["refused"]["rule"]
        assert not asked("../../loop0", make=make)["ok"]
        assert bed.content == before


def test_a_link_that_is_swapped_all_the_time_leads_to_no_disk_in_use(tmp_path: Path) -> None:
    with prepared(tmp_path, "empty") as empty, prepared(tmp_path, "full") as full:
        run("mkfs.ext4", "-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(full.device))
        before = full.content
        link, over = BY_ID / empty.name, threading.Event()

        def swap() -> None:
            targets = [full.device, empty.device]
            while not over.is_set():
                targets.reverse()
                beside = link.with_name(f"{link.name}.new")
                beside.symlink_to(targets[0])
                beside.replace(link)

        swapper = threading.Thread(target=swap)
        swapper.start()
        ends = set()
        try:
            for _ in range(8):
                answer = asked(empty.name, make=make_in(tmp_path))
                ends.add(answer["ok"])
                if answer["ok"]:
                    run("umount", str(tmp_path / "mounted"))
        finally:
            over.set()
            swapper.join()
        assert full.content == before


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_an_empty_disk_is_formatted_mounted_and_may_be_again(
    filesystem: str, tmp_path: Path
) -> None:
    with prepared(tmp_path) as bed:
        before = bed.content
        assert asked(bed.name)["ok"], "a look alone"
        assert bed.content == before
        for _ in range(2):
            make = make_in(tmp_path, filesystem)
            answer = asked(bed.name, make=make)
            assert answer["ok"], answer
            point = make["mount_point"]
            try:
                (line,) = (
                    one
                    for one in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
                    if f" {point} " in one
                )
                assert line.split()[2] == filesystem
                assert run("blkid", "-o", "value", "-s", "UUID", str(bed.device)) == make["uuid"]
                busy = asked(bed.name, make=make)
                assert "the disk is in use" in busy["refused"]["rule"]
            finally:
                run("umount", point)
            # A mount namespace that somebody made meanwhile has a copy of the mount.
            wait_until_free(bed.device)
        # The next one finds a file system of ours: what disklab made, it may make again.
    loops = run("losetup", "-a")
    assert str(tmp_path) not in loops
    assert f"/proc/{os.getpid()}" not in loops
