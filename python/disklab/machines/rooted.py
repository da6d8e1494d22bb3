"""Files below a directory that is another's root: no link and no `..` leads out of it."""

from __future__ import annotations

import ctypes
import os
from pathlib import PurePosixPath

from disklab.machines.local import LocalFiles

# openat2(2) has this number on every architecture (Linux 5.6); the C library has no function.
_OPENAT2 = 437
_RESOLVE_IN_ROOT = 0x10
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    """`struct open_how` of <linux/openat2.h>."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class RootedFiles(LocalFiles):
    """The `Files` of an emulated host, reached from outside through a descriptor of its root."""

    def __init__(self, root: int, machine: str) -> None:
        """Take an open directory, and the name of the machine for messages."""
        self._root = root
        self.where = f" on {machine}"

    def open(self, path: PurePosixPath, flags: int) -> int:
        """Return a descriptor of a path as a program in the host sees it. Raises OSError."""
        how = _How(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
        size = ctypes.sizeof(how)
        handle = _libc.syscall(_OPENAT2, self._root, os.fsencode(path), ctypes.byref(how), size)
        if handle < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        return int(handle)
