"""Who lives, by flock(2): a lock holds for the whole machine, a process number for one namespace.

A container that shares the run directory has process numbers of its own: there a living process may
have no number here, or that of another one. So what is to be judged holds a lock for as long as it
lives, and a number counts only in the namespace in which it was noted.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from disklab.engine.own_folder import boot_id, new_file
from disklab.waiting import Wait

# A process that was killed gives its memory back before its locks.
ENDING_SECONDS = 10.0
POLL_SECONDS = 0.05
INITIAL = 0xEFFFFFFC
"""The inode of the machine's own PID namespace. Source: Linux, include/linux/proc_ns.h."""

_kept: set[int] = set()
"""Descriptors whose locks are held as long as this process lives."""
_keeping = threading.Lock()


class Life(Enum):
    """What can be told of somebody from here."""

    LIVES = "lives"
    GONE = "gone"
    UNKNOWN = "unknown"
    """Of another PID namespace, without a lock that would tell."""


def pid_namespace() -> int:
    """Return the inode of this process's PID namespace: process numbers hold within it only."""
    return os.stat("/proc/self/ns/pid").st_ino


def own_name(kind: str) -> str:
    """Return a name of what this process makes, which no other living process of the machine has.

    Two containers that share the run directory have processes of the same number.
    """
    namespace = pid_namespace()
    return f"{kind}-{os.getpid()}{'' if namespace == INITIAL else f'-{namespace:x}'}"


def is_here(namespace: int | None, boot: str | None) -> bool:
    """Return whether a process number that was noted there means the same process here.

    None: an older release noted it, for whom there was one namespace only.
    """
    return namespace in (None, pid_namespace()) and boot in (None, boot_id())


def is_held(lock: Path) -> bool | None:
    """Return whether somebody holds the lock of a file; None: there is no such regular file."""
    try:
        file = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        # Shared: those who look do not see each other.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def comes_free(lock: Path, seconds: float = ENDING_SECONDS) -> bool:
    """Wait for the lock of a process that is ending; returns whether nobody holds it any more."""
    with Wait(f"nobody holds {lock}", seconds) as wait:
        while is_held(lock):
            if wait.is_over:
                return False
            wait.pause(POLL_SECONDS)
    return True


def life(lock: Path, namespace: int | None, boot: str | None, runs: Callable[[], bool]) -> Life:
    """Return whether somebody lives who keeps a lock; `runs` looks his process number up.

    That is asked where there is no lock, as of an older release, and the number is one of here.
    """
    held = is_held(lock)
    if held is not None:
        return Life.LIVES if held else Life.GONE
    if boot not in (None, boot_id()):
        return Life.GONE
    if not is_here(namespace, boot):
        return Life.UNKNOWN
    return Life.LIVES if runs() else Life.GONE


def locked_file(root: Path, *names: str) -> int:
    """Return a descriptor of a new file that holds its lock; who inherits it holds it as well."""
    lock = new_file(root, *names)
    # Somebody may look at this moment; nobody keeps it.
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def keep_locked(root: Path, *names: str) -> None:
    """Hold the lock of a new file until the file is removed or this process ends.

    No program that is started inherits it, and no fork keeps it.
    """
    with _keeping:
        for file in [*_kept]:
            if os.fstat(file).st_nlink == 0:
                _kept.remove(file)
                os.close(file)
        _kept.add(locked_file(root, *names))


def _let_go() -> None:
    for file in _kept:
        os.close(file)
    _kept.clear()


os.register_at_fork(after_in_child=_let_go)
