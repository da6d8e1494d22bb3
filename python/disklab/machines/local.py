"""The machine that disklab runs on."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from disklab.errors import MachineError
from disklab.machines.binary import find_engine
from disklab.machines.child import LocalChild
from disklab.machines.protocol import ClockOffset, Command, Counters, Finished
from disklab.machines.watched import FileCounters

# The page cache over a folder of files: how much is there, and how to be rid of it.
#
# Only of that folder and that mount: other people's cache is never dropped.

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


STDOUT_BYTES = 256 << 20
"""The most that `run` takes from a program: it is held in memory."""
_KERNELS_OWN = (PurePosixPath("/proc"), PurePosixPath("/sys"))
# A folder that may not be listed can be written in all the same. Only Linux has it.
_TO_PASS = getattr(os, "O_PATH", os.O_RDONLY)


class LocalMachine:
    """The machine that disklab runs on, as a `Machine`."""

    def __init__(self, name: str = "this machine", address: str = "127.0.0.1") -> None:
        """Take what the user calls it and where the other machines of a cluster reach it."""
        self._name = name
        self._address = address
        self._files = LocalFiles()

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self._name

    @property
    def address(self) -> str:
        """Where the other machines of its cluster reach it: an IP address."""
        return self._address

    @property
    def is_here(self) -> bool:
        """It is."""
        return True

    @property
    def engine(self) -> Sequence[str]:
        """The words that start the engine which was installed with this package."""
        return (str(find_engine()),)

    @property
    def files(self) -> LocalFiles:
        """Its files."""
        return self._files

    def run(self, command: Command, seconds: float = 60.0) -> Finished:
        """Run a program to its end. See `Machine.run`."""
        with self.start(command) as child:
            return child.communicate(seconds, STDOUT_BYTES)

    def start(self, command: Command) -> LocalChild:
        """Start a program; it is killed when this process ends."""
        return LocalChild.start(
            command.words,
            stdin=command.stdin,
            variables=command.variables,
            folder=command.folder,
        )

    def cached_bytes(self, paths: Sequence[PurePosixPath]) -> tuple[int, int]:
        """Return the bytes of files, and those of them in memory. See `Machine.cached_bytes`."""
        counts = [cached_bytes(Path(path)) for path in paths]
        return sum(size for size, _ in counts), sum(there for _, there in counts)

    def drop_pages(self, paths: Sequence[PurePosixPath]) -> None:
        """Let go of clean pages. See `Machine.drop_pages`."""
        for path in paths:
            drop(Path(path))

    def counters(self, files: Sequence[PurePosixPath]) -> Counters:
        """Return what reads files when it is asked. See `Machine.counters`."""
        return FileCounters(self._files, files)

    def clock(self) -> ClockOffset:
        """Return 0: it is the same clock."""
        return ClockOffset(0.0, 0.0)


class LocalFiles:
    """The files of this machine, as this process may read and write them."""

    where = ""
    """What messages say behind a path."""

    def open(self, path: PurePosixPath, flags: int) -> int:
        """Return a descriptor of a path. Raises OSError."""
        return os.open(path, flags | os.O_CLOEXEC)

    def read(self, path: PurePosixPath, most_bytes: int = 1 << 20) -> bytes:
        """Return a regular file. Raises MachineError: absent, not readable, none, or larger."""
        with self._named(path), self._regular(path) as file:
            # The size of a file below /proc is 0 whatever it holds, and a setting below /proc/sys
            # refuses a buffer of 4 MiB.
            data = b""
            while len(data) <= most_bytes and (chunk := file.read(64 << 10)):
                data += chunk
        if len(data) > most_bytes:
            raise MachineError(f"{path}{self.where} is larger than {most_bytes} bytes")
        return data

    def write(self, path: PurePosixPath, data: bytes, mode: int = 0o600) -> None:
        """Write a file whole; a link in its place is replaced, not followed."""
        with self._named(path):
            if any(path.is_relative_to(own) for own in _KERNELS_OWN):
                self._write_in_place(path, data)
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
                if _digest(given) == _digest(there):
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
    def folder(self, path: PurePosixPath, flags: int = os.O_RDONLY) -> Iterator[int]:
        """Yield a descriptor of a folder; raises OSError when it is none."""
        at = self.open(path, flags | os.O_DIRECTORY)
        try:
            yield at
        finally:
            os.close(at)

    @contextmanager
    def _named(self, path: PurePosixPath) -> Iterator[None]:
        """Refuse a path that is not absolute and plain; say the system's errors as MachineError."""
        if not path.is_absolute() or ".." in path.parts:
            raise MachineError(f"{path}: a path on a machine is absolute and has no `..`")
        try:
            yield
        except OSError as error:
            named = str(error.filename or "")
            place = named if named.startswith("/") else path
            raise MachineError(f"{place}{self.where}: {error.strerror or error}") from error

    @contextmanager
    def _regular(self, path: PurePosixPath) -> Iterator[BinaryIO]:
        # O_NONBLOCK: a named pipe would wait for its writer before it can be told from a file.
        handle = self.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise MachineError(f"{path}{self.where} is not a regular file")
            yield file

    @contextmanager
    def _in_place_of(self, path: PurePosixPath, mode: int) -> Iterator[BinaryIO]:
        """Write a new file that takes the name when it is whole and on the disk."""
        beside = f".{path.name[:200]}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.folder(path.parent, _TO_PASS) as at:
            handle = os.open(beside, flags, 0o600, dir_fd=at)
            try:
                with os.fdopen(handle, "wb") as file:
                    yield file
                    file.flush()
                    os.fchmod(handle, mode)
                    os.fsync(handle)
                os.rename(beside, path.name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=at)
                raise

    def _write_in_place(self, path: PurePosixPath, data: bytes) -> None:
        handle = self.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            # One call: each one is a value of its own to the kernel.
            if os.write(handle, data) != len(data):
                raise MachineError(f"{path}{self.where} took a part of what was written only")
        finally:
            os.close(handle)


def _digest(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.digest()
