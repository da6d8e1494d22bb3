"""Writing so that a crash loses nothing that was finished, and nothing is ever overwritten."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from disklab import reading
from disklab.errors import Problem, UserError


def write_whole(path: Path, text: str) -> None:
    """Write a file all at once: a reader, also after a crash, sees the old one or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Append one line and wait until it is on the disk.

    What a full disk cut off is taken back, so that the lines before it stay readable.
    """
    new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
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
        sync_folder(path.parent)


def set_torn_end_aside(path: Path) -> str | None:
    """Cut off a last line without end, keep it in `<name>.torn`, and return it; None when whole."""
    if not path.exists():
        return None
    with reading.opened(path, reading.TRIALS) as file:
        whole, torn = _end(file)
    if not torn:
        return None
    with path.with_name(path.name + ".torn").open("ab") as kept:
        kept.write(torn + b"\n")
        kept.flush()
        os.fsync(kept.fileno())
    os.truncate(path, whole)
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


def set_aside(path: Path) -> None:
    """Rename what an interrupted repeat left behind, so that its second go overwrites nothing."""
    if not path.exists():
        return
    # A repeat that is interrupted a thousand times has another trouble than its names.
    for number in range(1, 1000):
        aside = path.with_name(f"{path.stem}.interrupted-{number}{path.suffix}")
        if not aside.exists():
            path.rename(aside)
            return
    raise UserError(
        Problem(str(path), "1000 interrupted tries", "no free name", "remove some of them")
    )


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold the run folder's lock; a user error when another process writes to the run."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
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
