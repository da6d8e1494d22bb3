"""Files below a directory that is another's root: no link and no `..` leads out of it."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from disklab.errors import MachineError
from disklab.machines.local import same_content

# openat2(2) has this number on every architecture (Linux 5.6); the C library has no function.
_OPENAT2 = 437
_RESOLVE_IN_ROOT = 0x10
_KERNELS_OWN = (PurePosixPath("/proc"), PurePosixPath("/sys"))
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    """`struct open_how` of <linux/openat2.h>."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class RootedFiles:
    """The `Files` of an emulated host, reached from outside through a descriptor of its root."""

    def __init__(self, root: int, machine: str) -> None:
        """Take an open directory, and the name of the machine for messages."""
        self._root = root
        self._machine = machine

    def open(self, path: PurePosixPath, flags: int) -> int:
        """Return a descriptor of a path as a program in the host sees it. Raises OSError."""
        how = _How(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
        size = ctypes.sizeof(how)
        handle = _libc.syscall(_OPENAT2, self._root, os.fsencode(path), ctypes.byref(how), size)
        if handle < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        return int(handle)

    def read(self, path: PurePosixPath, most_bytes: int = 1 << 20) -> bytes:
        """Return a regular file. Raises MachineError: absent, not readable, none, or larger."""
        with self._named(path), self._regular(path) as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise MachineError(f"{path} on {self._machine} is larger than {most_bytes} bytes")
        return data

    def write(self, path: PurePosixPath, data: bytes, mode: int = 0o600) -> None:
        """Write a file whole; a link in its place is replaced, not followed."""
        with self._named(path):
            if any(path.is_relative_to(own) for own in _KERNELS_OWN):
                handle = self.open(path, os.O_WRONLY | os.O_NOFOLLOW)
                try:
                    os.write(handle, data)
                finally:
                    os.close(handle)
                return
            with self._in_place_of(path, mode) as file:
                file.write(data)

    def names(self, folder: PurePosixPath) -> list[str]:
        """Return the sorted names in a folder."""
        with self._named(folder), self.folder(folder) as at:
            return sorted(os.listdir(at))

    def put(self, source: Path, path: PurePosixPath, mode: int = 0o600) -> None:
        """Copy a file; nothing is written when it is there with this content."""
        with self._named(path), source.open("rb") as given:
            with suppress(OSError, MachineError), self._regular(path) as there:
                if same_content(given, there):
                    os.fchmod(there.fileno(), mode)
                    return
            given.seek(0)
            with self._in_place_of(path, mode) as file:
                shutil.copyfileobj(given, file)

    def get(self, path: PurePosixPath, target: Path) -> None:
        """Copy a file to a new one; raises MachineError when the new one is there already."""
        with self._named(path), self._regular(path) as there, target.open("xb") as file:
            shutil.copyfileobj(there, file)

    @contextmanager
    def folder(self, path: PurePosixPath) -> Iterator[int]:
        """Yield a descriptor of a folder; raises OSError when it is none."""
        at = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield at
        finally:
            os.close(at)

    @contextmanager
    def _regular(self, path: PurePosixPath) -> Iterator[BinaryIO]:
        with os.fdopen(self.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise MachineError(f"{path} on {self._machine} is not a regular file")
            yield file

    @contextmanager
    def _in_place_of(self, path: PurePosixPath, mode: int) -> Iterator[BinaryIO]:
        beside = f".{path.name[:200]}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.folder(path.parent) as at:
            handle = os.open(beside, flags, 0o600, dir_fd=at)
            try:
                with os.fdopen(handle, "wb") as file:
                    yield file
                    file.flush()
                    os.fchmod(handle, mode)
                os.rename(beside, path.name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=at)
                raise

    @contextmanager
    def _named(self, path: PurePosixPath) -> Iterator[None]:
        if not path.is_absolute() or ".." in path.parts:
            raise MachineError(f"{path}: a path on a machine is absolute and has no `..`")
        try:
            yield
        except OSError as error:
            place = error.filename or path
            message = f"{place} on {self._machine}: {error.strerror or error}"
            raise MachineError(message) from error
