"""Versions in files: replaced by rename, and appended to, with an fsync before each promise."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Mapping
from pathlib import Path

from campaigns.power.disk import LostError
from campaigns.power.marks import Marks

FILES = 6
APPENDED = "journal"


def content(name: str, version: int) -> bytes:
    """Return up to three blocks that say in each line whose, and which version, they are."""
    line = f"{name} {version:08d}\n".encode()
    return line * (200 + 400 * (version % 3))


def appended(version: int) -> bytes:
    text = f"{version:08d} " + "x" * (version * 37 % 900)
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def work(volume: Path, marks: Marks, rounds: int, seed: int) -> None:
    """Write versions until `rounds` were acknowledged."""
    chance = random.Random(seed)
    folder = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    journal = os.open(volume / APPENDED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fsync(journal)
    os.fsync(folder)
    marks.begin()
    try:
        for version in range(1, rounds + 1):
            name = f"f{chance.randrange(FILES)}"
            with marks.promise(name, version):
                new = volume / f"{name}.new"
                with new.open("wb") as file:
                    file.write(content(name, version))
                    file.flush()
                    os.fsync(file.fileno())
                new.rename(volume / name)
                os.fsync(folder)
            with marks.promise(APPENDED, version):
                os.write(journal, appended(version))
                os.fsync(journal)
    finally:
        os.close(journal)
        os.close(folder)


def check(volume: Path, acknowledged: Mapping[str, int], sent: Mapping[str, int]) -> None:
    """LostError: a file is older than promised, newer than sent, mixed or damaged."""
    for name in (f"f{number}" for number in range(FILES)):
        least, most = acknowledged.get(name, 0), sent.get(name, 0)
        path = volume / name
        data = path.read_bytes() if path.exists() else b""
        found = int(data.split(None, 2)[1]) if data.startswith(name.encode() + b" ") else 0
        if data != (content(name, found) if found else b""):
            raise LostError(f"{name}: {len(data)} bytes are of no version, {least} was promised")
        if not least <= found <= most:
            raise LostError(f"{name}: version {found}; {least} was promised and {most} sent")
    lines = (volume / APPENDED).read_bytes().splitlines(keepends=True)
    least = acknowledged.get(APPENDED, 0)
    whole = [appended(version) for version in range(1, least + 1)]
    if lines[:least] != whole:
        raise LostError(f"{APPENDED}: {len(lines)} lines, and {least} whole ones were promised")
