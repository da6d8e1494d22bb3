"""Emulated hosts that a crash left: their processes, memory groups and folders.

A set of hosts has the folder `<run>/networks/<name>`. Each first process holds the lock of a file
in it, and the kernel shows that: nothing else makes a process one of ours.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from disklab import reading
from disklab.engine.locks import ENDING_SECONDS, Life, comes_free, is_here
from disklab.engine.own_folder import folder, remove_tree, why_foreign, why_not_removable
from disklab.engine.process import end_process, start_time_of
from disklab.hosts.control_group import ControlGroup, GroupRoot
from disklab.hosts.left_databases import Outcome, Removed, Step, applied
from disklab.hosts.places import Owner
from disklab.names import NAME
from disklab.waiting import Wait

GROUP, LOCK, OWNER = "group.", "lock.", "owner"
"""Files in the folder: each host's memory group by name, each host's lock, and whose set it is."""
PROGRAM = b"host_init.py"
# What a host has on its disks is written out when its mounts go.
KILL_SECONDS = 30.0
POLL_SECONDS = 0.02
GONE_SECONDS = 10.0


@dataclass(frozen=True)
class FirstProcess:
    """A process that holds a host of ours, or is its first."""

    pid: int
    start_time: int
    run_dir: Path

    def is_ours(self) -> bool:
        """Return whether the kernel shows that it holds a lock in the folder, at this moment."""
        return start_time_of(self.pid) == self.start_time and _holds_lock(self.pid, self.run_dir)


def owner_life(run_dir: Path) -> Life:
    """Return whether the process that made a set still runs. Without a record it is gone."""
    owner = Owner.recorded(run_dir / OWNER)
    return Life.GONE if owner is None else owner.life(run_dir)


def unseen(run_dir: Path) -> str | None:
    """Return why hosts of a set may live of which no process is seen; None: there are none.

    Waits for processes that were killed, whose locks go last.
    """
    owner = Owner.recorded(run_dir / OWNER)
    if owner is not None and (why := owner.why_elsewhere(run_dir)) is not None:
        return why
    if first_processes(run_dir):
        return None
    # Only those of here can be about to end.
    here = owner is not None and is_here(owner.namespace, owner.boot)
    seconds = ENDING_SECONDS if here else 0.0
    free = all(comes_free(lock, seconds) for lock in sorted(run_dir.glob(f"{LOCK}*")))
    return None if free else "a process of another PID namespace holds its locks: clean it there"


def remove_network(run_dir: Path) -> list[Removed]:
    """End and remove what is left of a set of hosts; return what became of each thing."""
    return list(applied(steps_of(run_dir)))


def steps_of(run_dir: Path) -> Iterator[Step]:
    """Yield what there is to remove of a set of hosts.

    The folder stays as long as a process of it lives, or somebody is in a memory group.
    """
    name = run_dir.name
    if why_left(run_dir) is not None:
        return
    for process in first_processes(run_dir):
        yield Step("host process", str(process.pid), name, partial(_end, process), holds=True)
    for group in recorded_groups(run_dir):
        remove = partial(_remove_group, group)
        yield Step("memory group", str(group.folder), name, remove, holds=True)
    yield Step("run directory", str(run_dir), name, partial(_remove_run_dir, run_dir))


def why_left(run_dir: Path) -> str | None:
    """Return why a folder would be left alone; None: it would be removed."""
    return why_not_removable(run_dir.parent.parent, "network", run_dir.parent.name, run_dir.name)


def first_processes(run_dir: Path) -> list[FirstProcess]:
    """Return the processes that hold the hosts of a set, found through the kernel."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if not any(word.endswith(PROGRAM) for word in words):
            continue
        start_time = start_time_of(int(process.name))
        if start_time is not None:
            one = FirstProcess(int(process.name), start_time, run_dir)
            if one.is_ours():
                found.append(one)
    return found


def recorded_groups(run_dir: Path) -> list[ControlGroup]:
    """Return the memory groups of a set that are there."""
    root = GroupRoot.of_machine()
    if root is None or why_foreign(*_place(run_dir)) is not None:
        return []
    found = []
    for file in sorted(run_dir.glob(f"{GROUP}*")):
        with suppress(OSError):
            name = reading.record_text(file, reading.RECORD)
            # One name of a folder, never a path.
            if name is not None and NAME.fullmatch(name) is not None:
                group = ControlGroup(name, root)
                if any(place.exists() for place in group.folders):
                    found.append(group)
    return found


def _place(run_dir: Path) -> tuple[Path, Literal["network"], str, str]:
    return run_dir.parent.parent, "network", run_dir.parent.name, run_dir.name


def _holds_lock(pid: int, run_dir: Path) -> bool:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
        with folder(run_dir.parent.parent, run_dir.parent.name, run_dir.name) as at:
            names = [name for name in os.listdir(at) if name.startswith(LOCK)]
            locks = {_identity(os.stat(name, dir_fd=at, follow_symlinks=False)) for name in names}
    except OSError:
        return False
    for number in numbers:
        with suppress(OSError):
            if _identity(os.stat(f"/proc/{pid}/fd/{number}")) not in locks:
                continue
            told = Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="ascii")
            if any(line.startswith("lock:") and "FLOCK" in line for line in told.splitlines()):
                return True
    return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _end(process: FirstProcess) -> Outcome:
    ended = end_process(process.pid, process.is_ours, signal.SIGKILL, KILL_SECONDS)
    return ended, "" if ended else "a program in it waits for its disk"


def _remove_group(group: ControlGroup) -> Outcome:
    with Wait("the groups of a host's programs are empty", GONE_SECONDS) as wait:
        for place in group.folders:
            # A program in the host may have made groups of its own below.
            for inner in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
                while inner.exists() and not wait.is_over:
                    with suppress(OSError):
                        inner.rmdir()
                        break
                    wait.pause(POLL_SECONDS, str(inner))
    gone = group.remove()
    return gone, "" if gone else "a process is in it still"


def _remove_run_dir(run_dir: Path) -> Outcome:
    why = remove_tree(*_place(run_dir))
    return why is None, why or ""
