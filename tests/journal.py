"""A journal of writes to a block device, and what a failure may and may not lose of them.

Writers keep many writes in flight; for each block the journal knows the newest version that was
submitted, acknowledged, and covered by an acknowledged flush. After the failure every block is read
back and must hold a version that the disk's promise allows.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import threading
import time
import zlib
from dataclasses import dataclass, field
from enum import Enum

BLOCK_BYTES = 4096
HEADER = struct.Struct("<8sQQI")  # magic, block number, version, checksum of the rest
MAGIC = b"disklab!"


class Promise(Enum):
    """What a disk promises about a write."""

    ACKNOWLEDGED = "everything acknowledged survives"
    FLUSHED = "everything flushed survives; what was not flushed may be lost"
    NOTHING = "nothing survives: the disk comes back empty"


def block_of(number: int, version: int) -> bytes:
    """Return the content of a block: a header that tells which write made it, and filling."""
    filling = random.Random(number << 32 | version).randbytes(BLOCK_BYTES - HEADER.size)
    return HEADER.pack(MAGIC, number, version, zlib.crc32(filling)) + filling


def version_of(number: int, content: bytes) -> int | None:
    """Return which write made this content; 0 for never written, None for a torn block."""
    if not any(content):
        return 0
    version: int
    magic, found, version, checksum = HEADER.unpack_from(content)
    whole = magic == MAGIC and found == number and checksum == zlib.crc32(content[HEADER.size :])
    return version if whole else None


@dataclass
class Journal:
    """Newest version of each block by how far its write got."""

    blocks: int
    submitted: list[int] = field(init=False)
    acknowledged: list[int] = field(init=False)
    flushed: list[int] = field(init=False)
    flushes: int = 0

    def __post_init__(self) -> None:
        self.submitted = [0] * self.blocks
        self.acknowledged = [0] * self.blocks
        self.flushed = [0] * self.blocks

    def violations(self, device: str, promise: Promise) -> list[str]:
        """Read every block back and return what the promise forbids."""
        found = []
        for number, content in enumerate(read_blocks(device, self.blocks)):
            version = version_of(number, content)
            low, high = {
                Promise.ACKNOWLEDGED: (self.acknowledged[number], self.submitted[number]),
                Promise.FLUSHED: (self.flushed[number], self.submitted[number]),
                Promise.NOTHING: (0, 0),
            }[promise]
            in_flight = self.submitted[number] > self.acknowledged[number]
            if version is None and in_flight and promise is not Promise.NOTHING:
                continue  # a write in flight is promised whole sectors, not whole blocks
            if version is None or not low <= version <= high:
                found.append(f"block {number}: version {version}, allowed {low} to {high}")
        return found

    def lost(self, device: str) -> int:
        """Return how many blocks hold less than what was acknowledged."""
        contents = read_blocks(device, self.blocks)
        versions = [version_of(number, content) for number, content in enumerate(contents)]
        return sum(
            version is not None and version < acknowledged
            for version, acknowledged in zip(versions, self.acknowledged, strict=True)
        )


def read_blocks(device: str, blocks: int) -> list[bytes]:
    """Read the first blocks past every cache of this machine."""
    buffer = mmap.mmap(-1, 1 << 20)  # O_DIRECT wants aligned memory, and mmap is
    contents: list[bytes] = []
    file = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        while len(contents) < blocks:
            got = os.preadv(file, [buffer], len(contents) * BLOCK_BYTES)
            if got == 0:
                raise EOFError(f"{device} ends after {len(contents)} of {blocks} blocks")
            contents += [buffer[at : at + BLOCK_BYTES] for at in range(0, got, BLOCK_BYTES)]
    finally:
        os.close(file)
    return contents[:blocks]


class Writers:
    """Threads that write random blocks of their own share, and one that flushes, until EIO."""

    def __init__(self, device: str, journal: Journal, seed: int, threads: int = 4) -> None:
        self.journal = journal
        self.device = device
        self.stopping = threading.Event()
        self.failures: list[OSError] = []
        self.threads = [
            threading.Thread(target=self._write, args=(seed * 100 + index, index, threads))
            for index in range(threads)
        ]
        self.threads.append(threading.Thread(target=self._flush))

    def start(self) -> None:
        """Start them all."""
        for thread in self.threads:
            thread.start()

    def await_failure(self, seconds: float = 30.0) -> None:
        """Return when a writer has met an error, or the time is over: a busy machine is slow."""
        deadline = time.monotonic() + seconds
        while not self.failures and time.monotonic() < deadline:
            time.sleep(0.01)

    def join(self, seconds: float = 30.0) -> None:
        """Tell them to stop and wait; they also stop by themselves at the first error."""
        self.stopping.set()
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise TimeoutError(f"an I/O on {self.device} did not end within {seconds:g} s")

    def _write(self, seed: int, share: int, shares: int) -> None:
        chance = random.Random(seed)
        own = range(share, self.journal.blocks, shares)
        buffer = mmap.mmap(-1, BLOCK_BYTES)
        file = os.open(self.device, os.O_WRONLY | os.O_DIRECT)
        try:
            while not self.stopping.is_set():
                number = chance.choice(own)
                version = self.journal.submitted[number] + 1
                buffer[:] = block_of(number, version)
                self.journal.submitted[number] = version
                os.pwritev(file, [buffer], number * BLOCK_BYTES)
                self.journal.acknowledged[number] = version
        except OSError as error:
            self.failures.append(error)
        finally:
            os.close(file)

    def _flush(self) -> None:
        file = os.open(self.device, os.O_WRONLY | os.O_DIRECT)
        try:
            while not self.stopping.wait(0.05):  # often enough that a short run sees several
                covered = list(self.journal.acknowledged)
                os.fdatasync(file)
                self.journal.flushed = covered
                self.journal.flushes += 1
        except OSError as error:
            self.failures.append(error)
        finally:
            os.close(file)
