"""Writing so that a crash loses nothing that was finished, and nothing is ever overwritten."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from disklab import reading
from disklab.errors import MachineError, Problem, UserError
from disklab.folders import Inside, placed


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raise MachineError, with folder and cause, where a run's files cannot be written."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "no number")
        raise MachineError(
            f"{folder}: cannot be written: {error.strerror or error} ({code}); what is stored "
            "stays. Make room there, or make it writable, and go on"
        ) from error


def write_whole(path: Path | Inside, text: str) -> None:
    """Write a file all at once: a reader, also after a crash, sees the old one or the new one."""
    placed(path).replace(text.encode("utf-8"))


def write_file(path: Path | Inside, content: bytes, place: str) -> None:
    """Write a file so that a reader sees the old one or the whole new one. Raises UserError."""
    try:
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                # Such as /dev/stdout, which nothing may take the place of.
                with path.open("wb") as device:
                    device.write(content)
                return
        placed(path).replace(content, sync=False)
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise UserError(Problem(place, str(path), rule, "name a file that you may write")) from None


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Inside, line: str) -> None:
    """Append one line and wait until it is on the disk.

    What a full disk cut off is taken back, so that the lines before it stay readable.
    """
    new = not path.exists()
    descriptor = path.appended()
    try:
        before = os.fstat(descriptor).st_size
        data = (line + "\n").encode("utf-8")
        try:
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)
    if new:
        path.sync_above()


def set_torn_end_aside(path: Inside) -> str | None:
    """Cut off a last line without end, keep it in `<name>.torn`, and return it; None when whole."""
    if path.stat() is None:
        return None
    with os.fdopen(path.appended(), "r+b", buffering=0) as file:
        whole, torn = _end(file)
        if not torn:
            return None
        aside = path.beside(f"{PurePosixPath(path.name).name}.torn")
        with os.fdopen(aside.appended(), "ab") as kept:
            kept.write(torn + b"\n")
            kept.flush()
            os.fsync(kept.fileno())
        file.truncate(whole)
    return torn.decode("utf-8", errors="replace")


def _end(file: BinaryIO) -> tuple[int, bytes]:
    """Return how many bytes of a file are whole lines, and what follows them."""
    begins = file.seek(0, os.SEEK_END)
    torn = b""
    while begins and b"\n" not in torn:
        step = min(begins, reading.MIB)
        begins -= step
        file.seek(begins)
        torn = file.read(step) + torn
    cut = torn.rfind(b"\n") + 1
    return begins + cut, torn[cut:]


def set_aside(path: Inside) -> None:
    """Rename what an interrupted repeat left behind, so that its second go overwrites nothing."""
    if not path.exists():
        return
    name = PurePosixPath(path.name)
    # A repeat that is interrupted a thousand times has another trouble than its names.
    for number in range(1, 1000):
        aside = f"{name.stem}.interrupted-{number}{name.suffix}"
        if not path.beside(aside).exists():
            path.rename(aside)
            return
    raise UserError(
        Problem(str(path), "1000 interrupted tries", "no free name", "remove some of them")
    )


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold the run folder's lock; a user error when another process writes to the run."""
    descriptor = Inside(folder, "lock").appended()
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rule = "another process is writing to this run"
            way_out = "wait for it, or stop it first"
            raise UserError(Problem("RUN", str(folder), rule, way_out)) from None
        yield
    finally:
        os.close(descriptor)


def write_new(file: Path, text: str) -> None:
    """Write a file that was not there; a link is not followed."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        reason = (error.strerror or "cannot be written").lower()
        raise UserError(Problem("FILE", str(file), reason, "choose another place")) from None
    with open(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
