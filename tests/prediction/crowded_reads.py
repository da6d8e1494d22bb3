"""Reads rows of a file from a process of a memory group, and has the kernel count its pages.

`python crowded_reads.py FILE mapped|buffered MEMORY_STAT EVERY` says `ready`, waits for the reads
on one line of its input ([[first byte, length], ...] as JSON), does them, and says `done`. Each
EVERY reads it looks at `memory.stat`, which brings the kernel's own counts up to date, and lets the
processor forget which pages it has looked up: what it remembers it does not mark as used.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

FORGOTTEN_PAGES = 64
"""More than Linux forgets one by one (`tlb_single_page_flush_ceiling`, 33)."""
FORGETS_EVERY = 5


def reader(path: str, how: str) -> Callable[[int, int], None]:
    """Return what reads from a byte on."""
    descriptor = os.open(path, os.O_RDONLY)
    if how == "buffered":

        def by_call(start: int, length: int) -> None:
            assert len(os.pread(descriptor, length, start)) == length

        return by_call
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)

    def by_faults(start: int, length: int) -> None:
        for page in range(start // mmap.PAGESIZE, (start + length - 1) // mmap.PAGESIZE + 1):
            mapped[page * mmap.PAGESIZE]

    return by_faults


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(path: str, how: str, stat: str, every: str) -> None:
    read, own = reader(path, how), mmap.mmap(-1, FORGOTTEN_PAGES * mmap.PAGESIZE)
    say("ready")
    for number, (start, length) in enumerate(json.loads(sys.stdin.readline())):
        if number % int(every) == 0:
            Path(stat).read_text(encoding="ascii")
        if number % FORGETS_EVERY == 0:
            for page in range(FORGOTTEN_PAGES):
                own[page * mmap.PAGESIZE] = 1
            own.madvise(mmap.MADV_DONTNEED)
        read(start, length)
    say("done")
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
