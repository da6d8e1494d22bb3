"""Folders whose author may be anybody, such as a run from elsewhere: opened step by step.

Everything of a run is read and written by descriptors below its folder. No step follows a link, a
pipe or device holds nobody up, and what is added to is a plain file of the user's own with one
name: a run can point nowhere else, neither for reading nor for root's writing.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from disklab.errors import Problem, UserError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# A run of a thousand trials has some thousands of files, in three levels.
MOST_ENTRIES = 1_000_000
MOST_DEPTH = 8


class LinkedError(OSError):
    """A step below a folder is a link, or a file added to is not a plain one of the user's own."""


@dataclass(frozen=True)
class Inside:
    """A file or folder by its name below a folder."""

    folder: Path
    name: str
    """One name, or several with `/` between them."""

    def __str__(self) -> str:
        """Return the path, for messages."""
        return str(self.path)

    @property
    def path(self) -> Path:
        """Where it is. Never opened by this path: a step of it may have become a link."""
        return self.folder / self.name

    def beside(self, name: str) -> Inside:
        """Return what has another name in the same folder."""
        return Inside(self.folder, str(PurePosixPath(self.name).with_name(name)))

    @contextmanager
    def above(self) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the folder that it is in, and its name there. Raises OSError."""
        *steps, name = PurePosixPath(self.name).parts or ("/",)
        if name in ("..", "/") or ".." in steps or "/" in steps:
            raise LinkedError(errno.EINVAL, "is not below its folder", str(self))
        at = _opened(self.folder, _FOLDER, None)
        try:
            for step in steps:
                inner = _opened(step, _FOLDER, at)
                os.close(at)
                at = inner
            yield at, name
        finally:
            os.close(at)

    def stat(self) -> os.stat_result | None:
        """Return what stands there, itself and not what a link points to; None: nothing."""
        try:
            with self.above() as (at, name):
                return os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def exists(self) -> bool:
        """Return whether anything stands there, a link included."""
        try:
            return self.stat() is not None
        except OSError:
            return False

    def is_file(self) -> bool:
        """Return whether a regular file stands there."""
        with suppress(OSError):
            there = self.stat()
            return there is not None and stat.S_ISREG(there.st_mode)
        return False

    def opened(self) -> int:
        """Return a descriptor for reading; a pipe is not waited for. Raises OSError."""
        with self.above() as (at, name):
            return _opened(name, os.O_RDONLY | _FILE, at)

    def made(self, mode: int = 0o644) -> BinaryIO:
        """Make a file, which must not be there. Raises OSError."""
        with self.above() as (at, name):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE
            return os.fdopen(_opened(name, flags, at, mode), "w+b", buffering=0)

    def appended(self, mode: int = 0o644) -> int:
        """Return a descriptor for adding to a file, which is made if it is missing. Raises OSError.

        It is a regular file of the user's own (or of root's) with one name, so that nothing
        anywhere else is written.
        """
        with self.above() as (at, name):
            descriptor = _opened(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FILE, at, mode)
        rule = _why_not_plain(os.fstat(descriptor))
        if rule is None:
            return descriptor
        os.close(descriptor)
        raise LinkedError(errno.EPERM, rule, str(self))

    def replace(self, content: bytes, *, sync: bool = True) -> None:
        """Write a file all at once: a reader, also after a crash, sees the old or the new one."""
        with self.above() as (at, name):
            beside = f".{name[:200]}.{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            descriptor = _opened(beside, flags, at, 0o644)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    if sync:
                        os.fsync(file.fileno())
                os.rename(beside, name, src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=at)
                raise
            if sync:
                os.fsync(at)

    def rename(self, name: str) -> None:
        """Give it another name in its folder, in the place of what has it. Raises OSError."""
        with self.above() as (at, old):
            os.rename(old, name, src_dir_fd=at, dst_dir_fd=at)

    def remove(self) -> None:
        """Remove a file, or a link and not what it points to; nothing when there is none."""
        with self.above() as (at, name), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)

    def remove_tree(self) -> None:
        """Remove a folder with all in it; no link is followed. Raises OSError."""
        with self.above() as (at, name):
            _remove_tree(name, at, MOST_DEPTH)

    def make_folder(self, *, exist_ok: bool = False) -> None:
        """Make it as a folder. Raises OSError."""
        with self.above() as (at, name):
            try:
                os.mkdir(name, dir_fd=at)
            except FileExistsError:
                if not exist_ok:
                    raise
                os.close(_opened(name, _FOLDER, at))

    def names(self) -> list[str]:
        """Return the names in it, a folder, sorted; none when it is missing."""
        try:
            with self.above() as (at, name):
                descriptor = _opened(name, _FOLDER, at)
        except FileNotFoundError:
            return []
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)

    def sync_above(self) -> None:
        """Make new names in its folder survive a crash."""
        with self.above() as (at, _):
            os.fsync(at)


def placed(path: Path | Inside) -> Inside:
    """Return a file that the user has named, or our own: the way to its folder may have links."""
    return (
        path if isinstance(path, Inside) else Inside(Path(os.path.realpath(path.parent)), path.name)
    )


def check_own(folder: Path, place: str, also: int | None = None) -> None:
    """Raise UserError for a run folder that is not to be gone on with: it may be a trap.

    All in it belongs to the user who runs this, or to root, and is a folder or a plain file with
    one name. `also`: a user whose files may lie in it, as those of logs. Nothing is written, and no
    link is followed.
    """
    try:
        descriptor = _opened(folder, _FOLDER, None)
        try:
            _Check(place, also).folder(descriptor, folder, MOST_DEPTH)
        finally:
            os.close(descriptor)
    except OSError as error:
        rule = f"cannot be looked through: {error.strerror}"
        raise UserError(
            Problem(place, str(folder), rule, "name a run folder of your own")
        ) from None


@dataclass
class _Check:
    """One look through a folder."""

    place: str
    also: int | None
    entries: int = 0

    def folder(self, at: int, path: Path, depth: int) -> None:
        """Raise UserError for the first thing in it that is none of a run's."""
        rule = _why_foreign(os.fstat(at), None)
        if rule is not None:
            raise _refusal(path, self.place, rule)
        for name in os.listdir(at):
            self.entries += 1
            if self.entries > MOST_ENTRIES:
                raise _refusal(path, self.place, f"holds more than {MOST_ENTRIES:,} files")
            there = os.stat(name, dir_fd=at, follow_symlinks=False)
            if not stat.S_ISDIR(there.st_mode):
                rule = _why_not_plain(there, self.also)
                if rule is not None:
                    raise _refusal(path / name, self.place, rule)
                continue
            if depth == 0:
                raise _refusal(path / name, self.place, f"is more than {MOST_DEPTH} folders deep")
            inner = _opened(name, _FOLDER, at)
            try:
                self.folder(inner, path / name, depth - 1)
            finally:
                os.close(inner)


def _refusal(path: Path, place: str, rule: str) -> UserError:
    way_out = (
        "a run from elsewhere can be reported, not gone on with; if it is yours, remove what is "
        "not of the run, or give it to the user who runs this"
    )
    return UserError(Problem(place, str(path), rule, way_out))


def _why_foreign(there: os.stat_result, also: int | None) -> str | None:
    """Return why something is another user's; None: it is ours or root's."""
    if there.st_uid in (os.geteuid(), 0, also):
        return None
    return f"belongs to uid {there.st_uid}, and this runs as uid {os.geteuid()}"


def _why_not_plain(there: os.stat_result, also: int | None = None) -> str | None:
    """Return why a file is not one that may be written to; None: it is."""
    if stat.S_ISLNK(there.st_mode):
        return "is a symbolic link, and a run has none"
    if not stat.S_ISREG(there.st_mode):
        return "is a device, pipe or socket, and a run has none"
    if there.st_nlink > 1:
        return "has a second name elsewhere (a hard link), and a run's files have none"
    return _why_foreign(there, also)


def _opened(name: str | Path, flags: int, at: int | None, mode: int = 0o644) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=at)
    except OSError as error:
        # What O_NOFOLLOW meets: ELOOP for a file, ENOTDIR or ELOOP for a folder.
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(name, at):
            rule = "is a symbolic link, which is not followed here"
            raise LinkedError(errno.ELOOP, rule, str(name)) from None
        if error.errno == errno.ENXIO:  # a pipe without a reader, a socket
            raise LinkedError(errno.ENXIO, "is a pipe or socket", str(name)) from None
        raise


def _is_link(name: str | Path, at: int | None) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    return False


def _remove_tree(name: str, at: int, depth: int) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=at)
        return
    if depth == 0:
        raise LinkedError(errno.ELOOP, f"is more than {MOST_DEPTH} folders deep", name)
    inner = _opened(name, _FOLDER, at)
    try:
        for one in os.listdir(inner):
            _remove_tree(one, inner, depth - 1)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=at)
