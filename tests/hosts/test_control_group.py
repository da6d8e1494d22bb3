"""Memory groups: the real ones of this machine, and the files of a v2 hierarchy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.engine.process import start_time_of
from disklab.errors import MachineError
from disklab.hosts.cleaning import Scope, clean, clean_orphans
from disklab.hosts.control_group import MARK, ControlGroup, GroupRoot, marked_processes
from disklab.hosts.left_databases import OWNER, make_run_dir, record_group, remove_database
from disklab.hosts.places import OWNER_LOCK, Places
from disklab.machines import local

MIB = 1 << 20
# Reads a file into the page cache, says so, keeps it mapped, and waits for the end of its input.
READER = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    sum(mapped[::4096])
print("read", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    root = GroupRoot.of_machine()
    assert root is not None, "these tests need a memory controller"
    made = ControlGroup.make(f"test-{os.getpid()}", 256 * MIB, root)
    yield made
    assert made.remove()
    assert not made.folder.exists()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(8 * MIB))
    local.sync(tmp_path)
    local.drop(tmp_path)
    return path


@pytest.mark.machine
def test_a_group_holds_its_processes_memory_and_page_cache(group: ControlGroup, file: Path) -> None:
    assert group.limit_bytes() == 256 * MIB
    command = group.inside([sys.executable, "-c", READER, str(file)])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout.readline() == b"read\n"
        assert group.processes() == [reader.pid]
        size, cached = local.cached_bytes(file.parent)
        assert (size, cached) == (8 * MIB, 8 * MIB)
        assert group.use().mapped >= 8 * MIB
        # Mapped pages are what fadvise cannot drop, and the group can.
        local.drop(file.parent)
        assert local.cached_bytes(file.parent)[1] == 8 * MIB
        group.reclaim()
        assert local.cached_bytes(file.parent)[1] <= MIB / 4
        assert group.use().anonymous > 0, "the process is left alone"
        group.set_limit(128 * MIB)
        assert group.limit_bytes() == 128 * MIB
    assert group.was_short() == 0


@pytest.mark.machine
def test_a_process_that_needs_more_than_the_limit_is_killed_and_counted(
    group: ControlGroup,
) -> None:
    group.set_limit(32 * MIB)
    greedy = [sys.executable, "-c", "x = bytearray(64 << 20)"]
    ran = subprocess.run(group.inside(greedy), capture_output=True, check=False)
    assert ran.returncode == -9
    assert group.was_short() >= 1


@pytest.mark.machine
def test_what_a_crash_left_of_a_database_is_found_and_ended(
    group: ControlGroup, tmp_path: Path
) -> None:
    run_dir = tmp_path / "databases/n1"
    record_group(run_dir, group)
    mark = {**os.environ, MARK: str(run_dir)}
    other = {**os.environ, MARK: str(tmp_path / "elsewhere/n1")}
    sleeper = ["sleep", "60"]
    with (
        subprocess.Popen(group.inside(sleeper), env=mark) as ours,
        subprocess.Popen(sleeper, env=other) as others,
    ):
        assert [process.pid for process in marked_processes(run_dir)] == [ours.pid]
        outcomes = {one.kind: one.done for one in remove_database(run_dir)}
        assert outcomes == {"database process": True, "memory group": True, "run directory": True}
        assert ours.wait(5) != 0
        assert others.poll() is None, "another's process is never touched"
        others.kill()
    assert not run_dir.exists()


def test_a_database_without_a_host_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    """Its VM is lost, and comes back only as long as the rehearsal lives."""
    places = Places(tmp_path / "run", tmp_path / "data")
    living, dead = places.database("living"), places.database("dead")
    for run_dir in (living, dead):
        make_run_dir(run_dir)
    with subprocess.Popen(["sleep", "60"]) as gone:
        start_time = start_time_of(gone.pid)
        gone.kill()
    # As an older release left it, which had no locks of owners.
    (dead / OWNER_LOCK).unlink()
    (dead / OWNER).write_text(f'{{"pid": {gone.pid}, "start_time": {start_time}}}')
    assert [one.what for one in clean_orphans(places)] == [str(dead)]
    removed, kept = clean(places, Scope())
    assert (removed, kept.healthy, living.exists()) == ([], ["living"], True)
    assert [one.what for one in clean(places, Scope(everything=True))[0]] == [str(living)]


# A v2 hierarchy, as the kernel shows it (Documentation/admin-guide/cgroup-v2.rst). What the kernel
# does behind the files cannot be had on a v1 machine; what we write there can be checked.
@pytest.fixture
def v2(tmp_path: Path) -> GroupRoot:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    parent = tmp_path / "disklab"
    parent.mkdir()
    (parent / "cgroup.controllers").write_text("io memory\n")
    (parent / "cgroup.subtree_control").write_text("io memory\n")
    folder = parent / "n1"
    folder.mkdir()
    (folder / "memory.swap.max").write_text("max\n")
    (folder / "memory.stat").write_text(
        "anon 1000\nfile 5000\nkernel 7\nfile_mapped 300\nfile_dirty 20\n"
    )
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\n")
    (folder / "cgroup.procs").write_text("12\n13\n")
    return GroupRoot(2, tmp_path)


def test_v2_files(v2: GroupRoot) -> None:
    group = ControlGroup.make("n1", 64 * MIB, v2)
    assert (group.folder / "memory.max").read_text() == str(64 * MIB)
    assert (group.folder / "memory.swap.max").read_text() == "0"
    assert group.limit_bytes() == 64 * MIB
    (group.folder / "memory.max").write_text("max\n")
    assert group.limit_bytes() is None
    use = group.use()
    assert (use.anonymous, use.page_cache, use.mapped, use.dirty) == (1000, 5000, 300, 20)
    assert group.was_short() == 1
    assert group.processes() == [12, 13]
    assert group.folders == [v2.memory / "disklab/n1"]


def test_v2_reclaim_asks_for_the_page_cache_and_no_more(v2: GroupRoot) -> None:
    group = ControlGroup("n1", v2)
    (group.folder / "memory.reclaim").write_text("")
    group.reclaim()
    assert (group.folder / "memory.reclaim").read_text() == "5000"


def test_v2_without_memory_reclaim_leaves_no_low_limit_behind(v2: GroupRoot) -> None:
    group = ControlGroup("n1", v2)
    (group.folder / "memory.current").write_text("6100\n")
    (group.folder / "memory.high").write_text("max\n")
    group.reclaim()
    assert (group.folder / "memory.high").read_text() == "max"


def test_a_machine_that_forbids_groups_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with pytest.raises(MachineError, match="writable cgroup file system"):
        ControlGroup.make("n1", MIB, GroupRoot(1, blocked))
