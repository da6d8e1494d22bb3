"""Where the bytes of files lie on their device: the kernel's FIEMAP."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

# From <linux/fs.h> and <linux/fiemap.h>; no module of Python has them.
FS_IOC_FIEMAP = 0xC020660B
FIEMAP_FLAG_SYNC = 0x1
FIEMAP_EXTENT_LAST = 0x1
# Unknown place, delayed allocation, inside metadata, or unwritten: no bytes of the file are there.
FIEMAP_EXTENT_NOWHERE = 0x2 | 0x4 | 0x200 | 0x800
HEADER = struct.Struct("=QQLLLL")
EXTENT = struct.Struct("=QQQQQLLLL")
# A call returns at most so many; files of a database on a fresh disk have a few.
EXTENTS_PER_CALL = 256
# Bound of one file: an extent of 4 KiB each for 64 GiB would be more than we can meet.
MOST_CALLS = 1 << 16

Range = tuple[int, int]
"""Offset and length on the device, in bytes."""


def ranges_of(files: Iterable[Path]) -> list[Range]:
    """Return where the bytes of files lie on their device, in the order of the files.

    A file that vanishes meanwhile (a compaction ended) is left out.
    """
    found: list[Range] = []
    for file in files:
        with suppress(FileNotFoundError):
            found += _extents(file)
    return found


def _extents(file: Path) -> Iterator[Range]:
    """Yield the extents of one file. Offsets are those of the device under the file system."""
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        start = 0
        for _ in range(MOST_CALLS):
            request = bytearray(HEADER.size + EXTENTS_PER_CALL * EXTENT.size)
            HEADER.pack_into(
                request, 0, start, (1 << 64) - 1 - start, FIEMAP_FLAG_SYNC, 0, EXTENTS_PER_CALL, 0
            )
            fcntl.ioctl(handle, FS_IOC_FIEMAP, request)
            count = HEADER.unpack_from(request)[3]
            flags = FIEMAP_EXTENT_LAST
            for index in range(count):
                logical, physical, length, _, _, flags, *_ = EXTENT.unpack_from(
                    request, HEADER.size + index * EXTENT.size
                )
                if not flags & FIEMAP_EXTENT_NOWHERE:
                    yield physical, length
                start = logical + length
            if count == 0 or flags & FIEMAP_EXTENT_LAST:
                return
    finally:
        os.close(handle)
