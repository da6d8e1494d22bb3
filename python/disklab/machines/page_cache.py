"""The page cache over a folder of files: how much is there, and how to be rid of it.

Only of that folder and that mount: other people's cache is never dropped.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from disklab.errors import MachineError

PAGE = mmap.PAGESIZE
# A memtable's worth of dirty pages at the speed of a slow emulated disk.
SYNC_SECONDS = 300.0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


def sync(folder: Path) -> None:
    """Write everything back that is dirty on the file system of this folder, and on no other.

    Raises MachineError when it takes longer than a stalled disk should.
    """
    # A program, not a call: a call on a stalled disk could not be given up.
    with subprocess.Popen(
        ["sync", "-f", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            _, said = program.communicate(timeout=SYNC_SECONDS)
        except subprocess.TimeoutExpired:
            # Popen's own exit would wait for it for ever.
            program.returncode = -1
            raise MachineError(
                f"{folder}: writing back its dirty pages took more than {SYNC_SECONDS:.0f} s; "
                "`disklab disk show` says whether the disk is stalled"
            ) from None
    if program.returncode != 0:
        raise MachineError(f"sync -f {folder}: {said.strip()}")


def cached_bytes(path: Path) -> tuple[int, int]:
    """Return (bytes of a file, or of the files below a folder; bytes of them in the page cache).

    The kernel answers for the owner of a file only; others see everything as cached.
    """
    return _cached(_handles_of(path))


def _cached(handles: Iterable[int]) -> tuple[int, int]:
    size = cached = 0
    for handle in handles:
        length = os.fstat(handle).st_size
        size += length
        cached += min(_resident_pages(handle, length) * PAGE, length)
    return size, cached


def drop(path: Path) -> None:
    """Ask the kernel to forget the clean pages of a file, or of the files below a folder.

    It keeps those that a process has mapped: for them see `ControlGroup.reclaim`.
    """
    for handle in _handles_of(path):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def _handles_of(path: Path) -> Iterator[int]:
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return
    yield from _handles_below(path) if is_folder else _handle(path)


def _handles_below(folder: Path) -> Iterator[int]:
    with suppress(FileNotFoundError):
        for _, _, names, at in os.fwalk(folder):
            for name in names:
                yield from _handle(name, at)


def _handle(name: str | Path, at: int | None = None) -> Iterator[int]:
    """Yield a descriptor of a regular file, open until the next is asked for; none of others.

    The folder is a server's, which may be anybody's: a link is not followed, and a pipe or device
    that it put there is not waited for.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            return
        handle = os.open(name, flags, dir_fd=at)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # became a link, a pipe or a socket
            return
        raise
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            yield handle
    finally:
        os.close(handle)


def _resident_pages(handle: int, length: int) -> int:
    if length == 0:
        return 0
    address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        pages = (length + PAGE - 1) // PAGE
        vector = ctypes.create_string_buffer(pages)
        if _libc.mincore(address, length, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        # Only the lowest bit of each byte has a meaning.
        return sum(byte & 1 for byte in vector.raw[:pages])
    finally:
        _libc.munmap(address, length)
