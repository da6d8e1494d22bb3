"""The one form of a trace, and how it comes to lie on a volume."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

SECTOR_BYTES = 4096
"""Emulated disks have sectors of this size, as cloud disks and direct I/O to a file system."""

Outside = Literal["refuse", "wrap"]
"""What becomes of I/Os that lie beyond the volume."""


def column() -> array[int]:
    """Return an empty column of whole numbers of 64 bits."""
    return array("q")


@dataclass(frozen=True)
class Trace:
    """Reads and writes of one device, in the order of their times."""

    form: str
    """`blkparse`, `fio` or `msr`."""
    device: str
    """As the file names it: `8,0`, a file name, host and disk number."""
    at_ns: array[int] = field(default_factory=column)
    """From the first I/O."""
    offset_bytes: array[int] = field(default_factory=column)
    length_bytes: array[int] = field(default_factory=column)
    is_write: bytearray = field(default_factory=bytearray)
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What is not replayed, by kind: `flushes`, `discards`, `I/Os without bytes`."""

    def __len__(self) -> int:
        """Return how many I/Os it has."""
        return len(self.at_ns)

    def ios(self) -> Iterator[tuple[int, int, int, bool]]:
        """Yield time, offset, length and whether it writes, of each I/O."""
        columns = (self.at_ns, self.offset_bytes, self.length_bytes, self.is_write)
        for at, offset, length, writes in zip(*columns, strict=True):
            yield at, offset, length, bool(writes)

    @property
    def end_bytes(self) -> int:
        """The first byte behind all of its I/Os."""
        columns = (self.offset_bytes, self.length_bytes)
        return max((sum(both) for both in zip(*columns, strict=True)), default=0)


@dataclass(frozen=True)
class Placed:
    """A trace as it lies on a volume: whole sectors, none outside."""

    trace: Trace
    widened: int
    """I/Os that were widened to whole sectors."""
    wrapped: int
    """I/Os that lay outside and were brought in, modulo the volume's size."""


def placed(trace: Trace, volume_bytes: int, speed: float = 1.0) -> Placed:
    """Return a trace on a volume of that size, its times divided by `speed`.

    Each I/O is widened to whole sectors. What lies outside is brought in modulo the volume's size;
    what would cross the end ends there. The volume holds the largest I/O: `too_long` tells.
    """
    size = volume_bytes // SECTOR_BYTES * SECTOR_BYTES
    at, offsets, lengths = column(), column(), column()
    widened = wrapped = 0
    for when, offset, length, _ in trace.ios():
        start = offset // SECTOR_BYTES * SECTOR_BYTES
        end = -(-(offset + length) // SECTOR_BYTES) * SECTOR_BYTES
        widened += (start, end) != (offset, offset + length)
        if end > size:
            wrapped += 1
            length, start = end - start, start % size  # noqa: PLW2901
            start, end = min(start, size - length), min(start, size - length) + length
        at.append(round(when / speed))
        offsets.append(start)
        lengths.append(end - start)
    laid = Trace(trace.form, trace.device, at, offsets, lengths, trace.is_write, trace.left_out)
    return Placed(laid, widened, wrapped)


def first(whole: Placed, most_ns: int) -> Placed:
    """Return the I/Os of the first so many nanoseconds; the same object where that is all."""
    trace = whole.trace
    if trace.at_ns[-1] <= most_ns:
        return whole
    end = bisect_right(trace.at_ns, most_ns)
    cut = Trace(
        trace.form,
        trace.device,
        trace.at_ns[:end],
        trace.offset_bytes[:end],
        trace.length_bytes[:end],
        trace.is_write[:end],
        trace.left_out,
    )
    return Placed(cut, whole.widened, whole.wrapped)


# What a trace is made of: directions, block sizes, order, rates.

NS_PER_S = 1_000_000_000
LOOK_BACK = 16
"""Several streams run at once, so an I/O goes on with any of the last 16.

**Source:** Ahmad, "Easy and Efficient Disk I/O Workload Characterization in VMware ESX Server",
IISWC 2007: windows of the last 16 I/Os tell interleaved sequential streams.
"""
MOST_SIZES = 6
"""Block sizes that are told apart; traces have a handful that matter."""


@dataclass(frozen=True)
class Mixture:
    """Figures of a trace."""

    ios: int
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    block_sizes: dict[int, float]
    """Share of I/Os by their bytes, the most frequent first; few sizes, so not all of them."""
    sequential_ratio: float
    """Share of I/Os that begin where one of the last 16 in the same direction ended."""
    touched_bytes: int
    """From the first byte to the last."""
    duration_s: float
    """From the first I/O to the last."""
    offered_per_s: float | None
    """I/Os a second; None: all came at once."""
    busiest_per_s: int
    """I/Os of the second with the most of them."""


def mixture(trace: Trace) -> Mixture:
    """Return the figures of a trace of at least one I/O."""
    reads = written = sequential = 0
    bytes_ = [0, 0]
    sizes: Counter[int] = Counter()
    seconds: Counter[int] = Counter()
    ends: tuple[deque[int], deque[int]] = deque(maxlen=LOOK_BACK), deque(maxlen=LOOK_BACK)
    for at, offset, length, writes in trace.ios():
        reads += not writes
        written += writes
        bytes_[writes] += length
        sizes[length] += 1
        seconds[at // NS_PER_S] += 1
        sequential += offset in ends[writes]
        ends[writes].append(offset + length)
    span_ns = trace.at_ns[-1] - trace.at_ns[0]
    count = len(trace)
    return Mixture(
        ios=count,
        reads=reads,
        writes=written,
        read_bytes=bytes_[0],
        written_bytes=bytes_[1],
        block_sizes={size: n / count for size, n in sizes.most_common(MOST_SIZES)},
        sequential_ratio=sequential / count,
        touched_bytes=trace.end_bytes - min(trace.offset_bytes),
        duration_s=span_ns / NS_PER_S,
        offered_per_s=(count - 1) * NS_PER_S / span_ns if span_ns else None,
        busiest_per_s=max(seconds.values()),
    )
