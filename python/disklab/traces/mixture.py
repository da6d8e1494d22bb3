"""What a trace is made of: directions, block sizes, order, rates."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from disklab.traces.trace import Trace

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
    """Share of I/Os that begin where one of the last 16 of their direction ended."""
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
