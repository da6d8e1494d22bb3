"""Emulated disks under memory pressure: a writer in a full memory group, an engine started in one.

A FUSE daemon whose own memory is charged to a full group would wait for its own disk, for ever. So
these tests run with a watchdog that aborts the mount, which ends every waiting I/O.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disklab.hosts.control_group import ControlGroup, GroupRoot

from tests.programs import ended

from .conftest import DISKLAB, Lab

pytestmark = [pytest.mark.machine, pytest.mark.alone]
MIB = 1 << 20
# Four times the group's limit: writing back must make room again and again.
DATA_BYTES = 128 * MIB  # STEPS of 4 MiB
WRITER_LIMIT = 32 * MIB
# Each step is flushed before the next, so that the kernel can always make room.
STEPS = 32
IN_STEPS = """
set -e
for step in $(seq 0 $(($3 - 1))); do
    dd if="$1" of="$2" bs=1M count=4 skip=$((step * 4)) seek=$((step * 4)) conv=fsync,notrunc
done
"""
# The disk writes 200 MB/s, so a second or two are due; a busy machine takes its time.
HANG_SECONDS = 60


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    root = GroupRoot.of_machine()
    assert root is not None, "these tests need a memory controller"
    made = ControlGroup.make(f"test-full-{os.getpid()}", WRITER_LIMIT, root)
    yield made
    assert made.remove()


@pytest.fixture
def data() -> Iterator[Path]:
    """A file outside of every limit; charged to this process, which writes it."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="disklab-test-") as file:
        for _ in range(DATA_BYTES // MIB):
            file.write(os.urandom(MIB))
        file.flush()
        yield Path(file.name)


@contextmanager
def watchdog(lab: Lab) -> Iterator[threading.Event]:
    """Abort the host's mount when the block takes too long; the event tells whether it did."""
    hung = threading.Event()

    def abort() -> None:
        hung.set()
        mount = str(lab.host() / "mnt")
        subprocess.run(["umount", "-f", mount], check=False, capture_output=True)

    timer = threading.Timer(HANG_SECONDS, abort)
    timer.start()
    try:
        yield hung
    finally:
        timer.cancel()
        timer.join()


def memory_group_of(pid: int, root: GroupRoot) -> str:
    """Return the memory group of a process, as a path below the root of the hierarchy."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if (root.version == 1 and "memory" in controllers.split(",")) or (
            root.version == 2 and not controllers
        ):
            return path
    raise AssertionError("a process is always in some group")


def times_at_the_limit(group: ControlGroup) -> int:
    """Return how often the group had to make room before it could go on."""
    if group.root.version == 1:
        return int((group.folder / "memory.failcnt").read_text())
    events = (group.folder / "memory.events").read_text().split()
    return int(events[events.index("max") + 1])


def write_back(file: Path) -> None:
    """Wait, outside of every group, until a file's pages are on its disk."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def write_and_check(lab: Lab, group: ControlGroup, data: Path, point: Path) -> None:
    """Write far more than the limit from inside the group, buffered, with fsync; compare."""
    flood = ["dd", f"if={data}", f"of={point / 'flood'}", "bs=1M", "conv=fsync"]
    steps = ["/bin/sh", "-c", IN_STEPS, "sh", str(data), str(point / "copy"), str(STEPS)]
    read = ["sha256sum", str(point / "copy")]
    with watchdog(lab) as hung:
        flooded = ended(group.inside(flood))
        killed = group.was_short()
        # A killed flood leaves dirty pages in its group: full of them, it would kill the next too.
        write_back(point / "flood")
        wrote = ended(group.inside(steps))
        # From the disk: the group cannot hold it.
        seen = ended(group.inside(read))
    assert not hung.is_set(), f"the disk hung; {flooded.stderr}{wrote.stderr}"
    # cgroup v1 does not slow a group's writers down when all its pages wait for the disk: the
    # kernel may kill them instead. The disk goes on, and that is what matters here.
    assert flooded.returncode == 0 or (flooded.returncode == -9 and killed), flooded.stderr
    assert wrote.returncode == 0, wrote.stderr
    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.split()[0] == hashlib.sha256(data.read_bytes()).hexdigest()
    assert times_at_the_limit(group) > 0, "the group was never full"
    assert group.use().page_cache <= WRITER_LIMIT


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_a_writer_in_a_full_memory_group(
    lab: Lab, group: ControlGroup, data: Path, filesystem: str
) -> None:
    point = lab.root / "mnt"
    options = ["--size", "1GiB", "--filesystem", filesystem, "--mount", str(point)]
    lab.attach("azure/P30", *options)
    write_and_check(lab, group, data, point)
    written = lab.json("disk", "show", "data")["counters"]["operations"]["write"]["bytes"]
    assert written >= DATA_BYTES, "the page cache took it and the disk never saw it"


def test_an_engine_started_in_a_limited_group_leaves_it(
    lab: Lab, group: ControlGroup, data: Path
) -> None:
    point = lab.root / "mnt"
    # Room for Python; then as small as the writer's.
    group.set_limit(512 * MIB)
    attach = ["disk", "attach", "azure/P30", "--no-calibrate", "--size", "1GiB"]
    ended(
        group.inside([str(DISKLAB), *attach, "--mount", str(point)]), env=lab.environment(), code=0
    )
    engines = lab.processes()
    assert len(engines) >= 2, "the engine and its watchdog"
    for pid in engines:
        assert memory_group_of(pid, group.root) == "/"
    assert set(group.processes()).isdisjoint(engines)
    group.set_limit(WRITER_LIMIT)
    write_and_check(lab, group, data, point)
