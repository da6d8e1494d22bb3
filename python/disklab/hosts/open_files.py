"""Files that a process already has open: giving them a device's new read-ahead.

Linux copies the read-ahead of a device into each file when it is opened (`file_ra_state_init`), and
uses that copy from then on, also for mapped files. A database keeps its files open for as long as
it runs: changing the device alone would change nothing for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from disklab.errors import MachineError

# The number is the same on every architecture. Source: Linux 5.6, arch/*/entry/syscalls.
PIDFD_GETFD = 438
_LIBC = ctypes.CDLL(None, use_errno=True)


def renew_read_ahead(pids: Iterable[int], mount: Path) -> int:
    """Let what the processes have open under a mount point take the device's read-ahead anew.

    `POSIX_FADV_NORMAL` on the very file that the process has open sets it (mm/fadvise.c), and
    pidfd_getfd(2) gets hold of that file. Returns how many files there were. Raises MachineError
    where this machine does not allow it: before Linux 5.6, or without CAP_SYS_PTRACE.
    """
    device = mount.stat().st_dev
    return sum(_renew(pid, device) for pid in pids)


def _renew(pid: int, device: int) -> int:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0
    try:
        numbers = [number for number in _open_files(pid) if _is_on(pid, number, device)]
        for number in numbers:
            file = _get(process, pid, number)
            if file is not None:
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)
                finally:
                    os.close(file)
        return len(numbers)
    finally:
        os.close(process)


def _open_files(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
    return []


def _is_on(pid: int, number: int, device: int) -> bool:
    with suppress(OSError):
        found = Path(f"/proc/{pid}/fd/{number}").stat()
        return found.st_dev == device and stat.S_ISREG(found.st_mode)
    return False


def _get(process: int, pid: int, number: int) -> int | None:
    """Return a descriptor of our own for a file of the process; None: it was closed meanwhile."""
    file = int(_LIBC.syscall(PIDFD_GETFD, process, number, 0))
    if file >= 0:
        return file
    error = ctypes.get_errno()
    if error in (errno.EBADF, errno.ESRCH):
        return None
    raise MachineError(
        f"pidfd_getfd on process {pid}: {os.strerror(error)}: files that it has open keep the "
        "read-ahead that they were opened with (Linux 5.6 and CAP_SYS_PTRACE are needed)"
    )
