"""The machine that disklab runs on."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from disklab.errors import MachineError
from disklab.machines import page_cache
from disklab.machines.binary import find_engine
from disklab.machines.child import LocalChild
from disklab.machines.protocol import ClockOffset, Command, Counters, Finished
from disklab.machines.watched import FileCounters

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
        counts = [page_cache.cached_bytes(Path(path)) for path in paths]
        return sum(size for size, _ in counts), sum(there for _, there in counts)

    def drop_pages(self, paths: Sequence[PurePosixPath]) -> None:
        """Let go of clean pages. See `Machine.drop_pages`."""
        for path in paths:
            page_cache.drop(Path(path))

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


def same_content(one: BinaryIO, other: BinaryIO) -> bool:
    """Return whether two files hold the same; reads both to their ends."""
    return _digest(one) == _digest(other)


def _digest(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.digest()
