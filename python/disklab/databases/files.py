"""What root writes for a server, and hands over to the user that runs it.

The server owns its data and may not be trusted with more: root follows no link of its, and writes
nothing into a folder of its.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from disklab.engine.account import Account
from disklab.errors import MachineError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_run_dir(run_dir: Path) -> Path:
    """Make the run directory of a node, and the folder of its configuration in it; return that.

    Everybody may pass, so that the server finds its files; root alone may list or write.
    """
    folder = run_dir / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    for one in (run_dir, folder):
        with _opened(one) as at:
            os.fchmod(at, 0o711)
    return folder


def own_folder(folder: Path, account: Account | None) -> None:
    """Make a folder for the server alone, mode 0700; the one above it is ours.

    Raises MachineError for one that belongs to somebody else.
    """
    with _opened(folder.parent) as above:
        with suppress(FileExistsError):
            os.mkdir(folder.name, 0o700, dir_fd=above)
        at = os.open(folder.name, _FOLDER, dir_fd=above)
        try:
            owner = os.fstat(at).st_uid
            if owner not in (os.geteuid(), owner if account is None else account.uid):
                raise MachineError(f"{folder} belongs to uid {owner}: remove it, or use another")
            if account is not None:
                os.fchown(at, account.uid, account.gid)
            os.fchmod(at, 0o700)
        finally:
            os.close(at)


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file that everybody may read, in the place of one of that name; return it."""
    with _new(folder, name) as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    return folder / name


def write_secret(folder: Path, name: str, text: str | bytes, account: Account | None) -> Path:
    """Write a file that the server alone may read, in the place of one of that name; return it."""
    with _new(folder, name) as file:
        file.buffer.write(text if isinstance(text, bytes) else text.encode())
        if account is not None:
            os.fchown(file.fileno(), account.uid, account.gid)
    return folder / name


def open_log(file: Path, account: Account | None) -> int:
    """Return a descriptor by which the server appends to a log, in a folder that is closed to it.

    Programs that take names only get `/proc/self/fd/N`. Raises MachineError when something else
    stands in its place.
    """
    try:
        with _opened(file.parent) as at:
            opened = os.open(file.name, _LOG, 0o644, dir_fd=at)
    except OSError as error:
        raise MachineError(f"{file} cannot be written: {error.strerror}") from error
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(opened)
        raise MachineError(f"{file} is not a plain file: remove it")
    if account is not None:
        os.fchown(opened, account.uid, account.gid)
    return opened


@contextmanager
def _new(folder: Path, name: str) -> Iterator[TextIO]:
    """Open a new file, mode 0600, in a folder of ours."""
    with _opened(folder) as at:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)
        with open(os.open(name, _NEW, 0o600, dir_fd=at), "w", encoding="utf-8") as file:
            yield file


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    at = os.open(folder, _FOLDER)
    try:
        yield at
    finally:
        os.close(at)
