"""A memory-limited control group: cgroup v1 and v2 behind one small class.

It holds a database and its page cache, so that the ratio of data to page cache is that of the full
system. The emulator must never run inside one: when the group is full, its page fault would wait
for its own disk, for ever.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disklab.engine.process import end_process
from disklab.errors import MachineError
from disklab.hosts.ownership import mounts
from disklab.waiting import Wait, until

# Processes that we started, of databases and of commands that have a disk of their own, found
# through the kernel and not through our notes.
#
# Each is started with a mark in its environment, the run directory of its node or of its disk's
# host; its children inherit it. A process is ours only while the kernel shows that mark, with a
# directory below our own as this mount namespace has it.

MARK = "DISKLAB_NODE"
TERM_SECONDS = 2.0
KILL_SECONDS = 5.0
"""What a command has whose disk goes: nobody waits for it any more."""


@dataclass(frozen=True)
class MarkedProcess:
    """A process that carries the mark of a node."""

    pid: int
    node: Path
    """The node's run directory."""

    def is_ours(self) -> bool:
        """Return whether the process with this number carries the mark at this moment."""
        return _mark(self.pid) == str(self.node)

    def end(self, sign: signal.Signals, seconds: float) -> bool:
        """Send a signal and wait for its end; returns whether it has ended."""
        return end_process(self.pid, self.is_ours, sign, seconds)


def marked_processes(below: Path) -> list[MarkedProcess]:
    """Return the living processes marked with a directory below this one, oldest number first."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        mark = _mark(int(process.name))
        if mark is None or not Path(mark).is_relative_to(below):
            continue
        if _sees_ours(int(process.name), Path(mark)):
            found.append(MarkedProcess(int(process.name), Path(mark)))
    return sorted(found, key=lambda one: one.pid)


def end_marked(below: Path) -> bool:
    """End the processes marked with a directory below this one; returns whether all have ended."""
    for sign, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        with Wait(f"what belongs to {below} has ended", seconds) as wait:
            while processes := [one for one in marked_processes(below) if one.pid != os.getpid()]:
                if wait.is_over:
                    break
                for process in processes:
                    process.end(sign, 0)
                wait.pause(POLL_SECONDS)
            else:
                return True
    return False


def _sees_ours(pid: int, node: Path) -> bool:
    """Return whether a path means the same directory to a process as to us."""
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return True
        theirs, ours = os.stat(f"/proc/{pid}/root{node}"), os.stat(node)
        return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
    return False


def _mark(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    start = f"{MARK}=".encode()
    found = next((word for word in words if word.startswith(start)), None)
    return None if found is None else os.fsdecode(found[len(start) :])


# All our groups are below one folder of this name, so that what a crash left can be found.
PARENT = "disklab"
# Reclaiming a few GiB of clean pages takes tenths of a second; a busy machine takes its time.
REMOVE_SECONDS = 10.0
POLL_SECONDS = 0.05
SHRINK_SECONDS = 30.0
# memory.reclaim and force_empty may stop early with something left; asking again helps a few times
# and then no more (pages that are dirty, or locked by I/O, stay).
RECLAIM_TRIES = 5
# The limit of a group that has none, or none yet.
UNLIMITED_BYTES = 1 << 62


@dataclass(frozen=True)
class GroupRoot:
    """Where groups are made on this machine."""

    version: int
    """1 or 2."""
    memory: Path
    """The folder of the memory controller."""
    blkio: Path | None = None
    """v1 only: the folder of the block I/O controller. v2 has one folder for all."""

    @classmethod
    def of_machine(cls) -> GroupRoot | None:
        """Return where this machine has its memory controller; None: nowhere that we may use."""
        found: dict[str, Path] = {}
        unified: Path | None = None
        for mount in mounts():
            if mount.kind == "cgroup2":
                unified = unified or mount.point
            elif mount.kind == "cgroup":
                for controller in ("memory", "blkio"):
                    # Several controllers may share one hierarchy; each has files of its name.
                    if any(mount.point.glob(f"{controller}.*")):
                        found.setdefault(controller, mount.point)
        if "memory" in found:
            return cls(1, found["memory"], found.get("blkio"))
        if unified is not None and "memory" in _words(unified / "cgroup.controllers"):
            return cls(2, unified)
        return None


@dataclass(frozen=True)
class MemoryUse:
    """What a group holds now, in bytes."""

    anonymous: int
    """Heap, stacks, direct buffers."""
    page_cache: int
    mapped: int
    """The part of the page cache that is mapped into a process."""
    dirty: int


@dataclass(frozen=True)
class ControlGroup:
    """One group of ours. Its limit covers anonymous memory and page cache together."""

    name: str
    root: GroupRoot

    @property
    def folder(self) -> Path:
        """The folder with the memory files."""
        return self.root.memory / PARENT / self.name

    @property
    def folders(self) -> list[Path]:
        """Every folder that a process must join."""
        blkio = self.root.blkio
        # Outside the root group of blkio, a FLUSH of the loop device does not hold up the reads
        # (measured: read p95 10.6 ms inside the root group, 0.42 ms without flushes).
        return [self.folder, *([] if blkio is None else [blkio / PARENT / self.name])]

    @classmethod
    def make(cls, name: str, limit_bytes: int, root: GroupRoot) -> ControlGroup:
        """Make a group, or set the limit of one that is there.

        Raises MachineError when this machine does not let us.
        """
        group = cls(name, root)
        try:
            for folder in group.folders:
                folder.parent.mkdir(exist_ok=True)
                if root.version == 2:
                    _enable(root.memory)
                    _enable(folder.parent)
                # With its parent: another disklab may have removed the empty one just now.
                folder.mkdir(parents=True, exist_ok=True)
            group.set_limit(limit_bytes)
            group._keep_out_of_swap()
        except OSError as error:
            group.remove()
            raise MachineError(
                f"{group.folder}: a memory group cannot be created: {error.strerror}; it needs "
                "root and a writable cgroup file system (in a container: --privileged)"
            ) from error
        return group

    def set_limit(self, limit_bytes: int) -> None:
        """Set the limit of memory and page cache together; takes back what is above it.

        Raises MachineError when more than that is in use and cannot be taken back.
        """
        what = f"{self.folder.name} gives memory back"
        if not until(what, lambda: self._try_limit(limit_bytes), SHRINK_SECONDS, POLL_SECONDS):
            raise MachineError(
                f"{self.folder}: more than {limit_bytes} bytes are in use, and could not "
                f"be taken back within {SHRINK_SECONDS:.0f} s: {self.use()}"
            )

    def _try_limit(self, limit_bytes: int) -> bool:
        """Set the limit; returns False when what is in use could not be taken back at once."""
        name = "memory.max" if self.root.version == 2 else "memory.limit_in_bytes"
        try:
            (self.folder / name).write_text(str(limit_bytes), encoding="ascii")
        except OSError as error:
            # Dirty pages leave at the speed of a slow disk.
            if error.errno in (errno.EBUSY, errno.EINTR):
                return False
            raise
        return True

    def _keep_out_of_swap(self) -> None:
        """Keep the heap in memory when pages are taken back: a full system does not swap it."""
        v2, v1 = self.folder / "memory.swap.max", self.folder / "memory.swappiness"
        file = v2 if self.root.version == 2 else v1
        if file.exists():
            file.write_text("0", encoding="ascii")

    def limit_bytes(self) -> int | None:
        """Return the limit; None: there is none."""
        name = "memory.max" if self.root.version == 2 else "memory.limit_in_bytes"
        text = (self.folder / name).read_text(encoding="ascii").strip()
        return None if text == "max" else int(text)

    def inside(self, command: list[str]) -> list[str]:
        """Return the command that joins the group and then becomes `command`.

        The process joins before it becomes the database, so that all its memory is charged here.
        """
        joins = "".join(f'echo $$ > "${i}" && ' for i, _ in enumerate(self.folders, 1))
        script = f'{joins}shift {len(self.folders)} && exec "$@"'
        files = [str(folder / "cgroup.procs") for folder in self.folders]
        return ["/bin/sh", "-c", script, "disklab", *files, *command]

    def processes(self) -> list[int]:
        """Return who is inside."""
        with suppress(OSError):
            return [int(word) for word in _words(self.folder / "cgroup.procs")]
        return []

    def use(self) -> MemoryUse:
        """Return what the group holds now."""
        return memory_use(self.folder / "memory.stat", self.root.version)

    def was_short(self) -> int:
        """Return how often the kernel killed a process of the group for want of memory."""
        name = "memory.events" if self.root.version == 2 else "memory.oom_control"
        facts = _pairs(self.folder / name)
        return facts.get("oom_kill", 0)

    def reclaim(self) -> None:
        """Drop the clean pages of the group, mapped ones too. Dirty pages should be synced first.

        v1: memory.force_empty. v2: memory.reclaim, or a low memory.high before Linux 5.19.
        """
        if self.root.version == 1:
            for _ in range(RECLAIM_TRIES):
                # EBUSY: pages were locked just then.
                with suppress(OSError):
                    (self.folder / "memory.force_empty").write_text("0", encoding="ascii")
                    return
            return
        for _ in range(RECLAIM_TRIES):
            cached = self.use().page_cache
            if cached == 0:
                return
            self._take_back(cached)

    def _take_back(self, size_bytes: int) -> None:
        """v2: take back so much, as far as that can be done.

        Swappiness is not touched: where there is swap, some of the heap may go as well, and comes
        back when it is used.
        """
        file = self.folder / "memory.reclaim"
        if file.exists():
            # EAGAIN: less than this could be taken back.
            with suppress(BlockingIOError):
                file.write_text(str(size_bytes), encoding="ascii")
            return
        current = int((self.folder / "memory.current").read_text(encoding="ascii"))
        high = self.folder / "memory.high"
        try:
            # Before this returns, the kernel has tried to take back what is above.
            high.write_text(str(max(0, current - size_bytes)), encoding="ascii")
        finally:
            high.write_text("max", encoding="ascii")

    def remove(self) -> bool:
        """Remove the group, once nobody is inside; returns whether it is gone."""
        with Wait(f"the last process of {self.folder.name} is gone", REMOVE_SECONDS) as wait:
            for folder in self.folders:
                while folder.exists() and not _remove(folder):
                    if wait.is_over:
                        return False
                    wait.pause(POLL_SECONDS)
                # Another group of ours may be there.
                _remove(folder.parent)
        return True


def memory_use(stat: Path, version: int) -> MemoryUse:
    """Read a memory.stat file."""
    facts = _pairs(stat)
    if version == 2:
        return MemoryUse(facts["anon"], facts["file"], facts["file_mapped"], facts["file_dirty"])
    return MemoryUse(
        facts["total_rss"], facts["total_cache"], facts["total_mapped_file"], facts["total_dirty"]
    )


def _enable(folder: Path) -> None:
    """Let the children of a v2 group have the memory controller, and io where there is one."""
    file = folder / "cgroup.subtree_control"
    present, wanted = _words(file), _words(folder / "cgroup.controllers")
    for controller in ("memory", "io"):
        if controller in wanted and controller not in present:
            file.write_text(f"+{controller}", encoding="ascii")


def _remove(folder: Path) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return not folder.exists()
    return True


def _words(file: Path) -> list[str]:
    return file.read_text(encoding="ascii").split()


def _pairs(file: Path) -> dict[str, int]:
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}
