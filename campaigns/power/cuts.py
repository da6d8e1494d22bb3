"""What a disk may hold after a power cut, from the log of what it was told.

What was written before the last FLUSH is there. Of each later write a cut keeps all, nothing, or
some of its sectors of 4 KiB or 512 B: so writes are lost, torn and, as a later one may stay while
an earlier one goes, reordered. A sector never goes back from newer content to older, as a disk that
answers reads from its cache destages the newest.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.power.recorder import FLUSH, MARK, WRITE, ZERO, Record

SECTORS = (4096, 512)


@dataclass(frozen=True)
class Cut:
    """One power cut: after `position` records; `seed` chooses what stays of un-flushed writes."""

    position: int
    seed: int
    lying: bool = False
    """Whether the disk ignores FLUSH: then all since the writer began may be lost."""


def promised(log: Sequence[Record], position: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the newest versions acknowledged, and sent, before `position`, for each row."""
    versions: dict[str, dict[str, int]] = {"acknowledged": {}, "sent": {}}
    for record in log[:position]:
        if record.kind == MARK and record.data != b"begin":
            what, row, version = record.data.decode().split()
            versions[what][row] = int(version)
    return versions["acknowledged"], versions["sent"]


def beginning(log: Sequence[Record]) -> int:
    """Return the position at which the writer began: all before it is there after each cut."""
    return next(at for at, one in enumerate(log) if one.kind == MARK and one.data == b"begin")


def last_flush(log: Sequence[Record], cut: Cut) -> int:
    """Return how many of the first records are sure to be there."""
    first = beginning(log)
    if cut.lying:
        return first
    flushes = (at for at in range(cut.position - 1, first, -1) if log[at].kind == FLUSH)
    return next(flushes, first)


class Images:
    """Makes the image of each cut; cuts come in ascending order of what was flushed before."""

    def __init__(self, log: Sequence[Record], durable: Path, size: int, whole: int = 0) -> None:
        """Take a log, and how many bytes the disk writes whole where they are aligned; 0: none."""
        self.log = log
        self.whole = whole
        self.durable = durable
        self.done = 0
        with durable.open("wb") as file:
            file.truncate(size)

    def make(self, cut: Cut, image: Path) -> int:
        """Write the image of a cut; return how many un-flushed writes it had."""
        sure = last_flush(self.log, cut)
        if sure < self.done:
            message = f"the cut at {cut.position} needs {sure} records, and {self.done} are applied"
            raise ValueError(message)
        with self.durable.open("r+b") as file:
            for record in self.log[self.done : sure]:
                apply(file.fileno(), record)
        self.done = sure
        shutil.copyfile(self.durable, image)
        chance = random.Random(f"{cut.position} {cut.seed}")
        open_writes = [one for one in self.log[sure : cut.position] if one.kind in (WRITE, ZERO)]
        with image.open("r+b") as file:
            for record in open_writes:
                keep(file.fileno(), record, chance, self.whole)
        return len(open_writes)


def apply(file: int, record: Record) -> None:
    if record.kind in (WRITE, ZERO):
        os.pwrite(file, record.data or bytes(record.length), record.offset)


def keep(file: int, record: Record, chance: random.Random, whole: int = 0) -> None:
    """Write what a cut leaves of an un-flushed write."""
    fate = chance.choice(("all", "nothing", *SECTORS))
    if fate == "nothing":
        return
    if fate == "all":
        apply(file, record)
        return
    sector = int(fate)
    data = record.data or bytes(record.length)
    start = 0
    while start < record.length:
        at = record.offset + start
        is_whole = whole and at % whole == 0 and record.length - start >= whole
        end = start + (whole if is_whole else sector)
        if chance.random() < 0.5:
            os.pwrite(file, data[start:end], at)
        start = end


def cuts_of(log: Sequence[Record], count: int, seed: int, *, lying: bool = False) -> list[Cut]:
    """Return `count` cuts of what came after the writer began, in order.

    Half are anywhere; half are where writes wait for a FLUSH, the likelier the more of them wait.
    """
    first = beginning(log)
    chance = random.Random(seed)
    waiting, open_writes = [], 0
    for record in log[first:]:
        open_writes = 0 if record.kind == FLUSH else open_writes + (record.kind in (WRITE, ZERO))
        waiting.append(open_writes)
    after = range(first + 1, len(log) + 1)
    positions = chance.choices(after, k=count - count // 2)
    positions += chance.choices(after, waiting, k=count // 2)
    return [Cut(at, chance.randrange(1 << 32), lying) for at in sorted(positions)]
