"""HDR histograms as the load engine writes them: base64 of the V2 encoding, mergeable exactly.

The counts are NumPy arrays, so that the hundred thousand histograms of a long run are read in
seconds. **Source:** HdrHistogram's V2 encoding (ZigZag LEB128 counts, runs of zeros as negative
numbers) and its bucket arithmetic, http://hdrhistogram.org.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

PLAIN_COOKIE, COMPRESSED_COOKIE = 0x1C849303, 0x1C849304
# The low byte of the cookie's second half tells the word size, which V2 leaves open (0x10).
COOKIE_MASK = ~0xF0 & 0xFFFFFFFF
HEADER = struct.Struct(">iiiiqqd")
# A histogram of 1 us to 1 h with three digits has about 24,000 counts of at most nine bytes. Larger
# ones are not ours but of a broken or hostile file: a report holds hundreds of them at a time.
MOST_COUNTS = 1 << 17
MOST_PAYLOAD_BYTES = 2 << 20
MOST_LAYOUTS = 4
"""Of one sum; a load engine has one."""
MOST_VALUES = 1 << 53
"""Values in a histogram; sums of many then stay within 64 bits."""

LOWEST_NS, HIGHEST_NS, DIGITS = 1_000, 3_600_000_000_000, 3
"""The load engine's range: 1 us to 1 h, three significant digits."""


class HistogramError(ValueError):
    """A text that is no HDR histogram; the message says in what way."""


@dataclass(frozen=True)
class Layout:
    """Which value each count stands for."""

    lowest: int
    highest: int
    digits: int

    @property
    def unit_magnitude(self) -> int:
        """Power of two of the smallest unit that is told apart."""
        return self.lowest.bit_length() - 1

    @property
    def half_magnitude(self) -> int:
        """Power of two of half the sub-buckets."""
        told_apart = 2 * int(10**self.digits)
        return (told_apart - 1).bit_length() - 1

    @cached_property
    def length(self) -> int:
        """Number of counts."""
        half = 1 << self.half_magnitude
        buckets, covered = 1, (2 * half) << self.unit_magnitude
        while covered <= self.highest:
            covered <<= 1
            buckets += 1
        return (buckets + 1) * half

    def index_of(self, value: int) -> int:
        """Return the count that a value belongs to."""
        half = self.half_magnitude
        bucket = max(0, value.bit_length() - self.unit_magnitude - half - 1)
        sub = value >> (bucket + self.unit_magnitude)
        return ((bucket + 1) << half) + (sub - (1 << half))


@lru_cache(maxsize=8)
def values(layout: Layout) -> tuple[Counts, Counts]:
    """Return for each count the median and the highest value that it may stand for."""
    index = np.arange(layout.length, dtype=np.int64)
    half = 1 << layout.half_magnitude
    bucket = (index >> layout.half_magnitude) - 1
    sub = (index & (half - 1)) + half
    first = bucket < 0
    bucket[first] = 0
    sub[first] -= half
    shift = bucket + layout.unit_magnitude
    lowest = sub << shift
    width = np.int64(1) << shift
    return lowest + (width >> 1), lowest + width - 1


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of values; those of one layout add up exactly."""

    layout: Layout
    counts: Counts

    @classmethod
    def of(cls, observed: Iterable[int]) -> Histogram:
        """Return the histogram of values in the load engine's layout; clamps to its range."""
        layout = Layout(LOWEST_NS, HIGHEST_NS, DIGITS)
        counts = np.zeros(layout.length, dtype=np.int64)
        for value in observed:
            counts[layout.index_of(min(max(value, 0), layout.highest))] += 1
        return cls(layout, counts)

    @property
    def total(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean of the values; 0 when there are none."""
        total = self.total
        return float(self.counts @ values(self.layout)[0]) / total if total else 0.0

    @property
    def max(self) -> int:
        """Highest value, to the histogram's resolution; 0 when there are none."""
        used = np.flatnonzero(self.counts)
        return int(values(self.layout)[1][used[-1]]) if used.size else 0

    def percentile(self, percentile: float) -> int:
        """Return the value that `percentile` % of the values do not exceed; 0 without values."""
        return self.percentiles([percentile])[0]

    def percentiles(self, wanted: Sequence[float]) -> list[int]:
        """Return several percentiles at the cost of one."""
        cumulated = np.cumsum(self.counts)
        total = int(cumulated[-1]) if cumulated.size else 0
        if not total:
            return [0] * len(wanted)
        # The rank that HdrHistogram uses: the nearest whole count, at least the first.
        ranks = [max(1, int(min(p, 100.0) / 100 * total + 0.5)) for p in wanted]
        found = np.searchsorted(cumulated, ranks, side="left")
        return [int(value) for value in values(self.layout)[1][found]]

    def summary_ms(self) -> dict[str, float]:
        """Return mean, p50, p95, p99, p99.9 and max in milliseconds, of nanosecond values.

        Nothing without values: nobody has seen a latency of zero.
        """
        if not self.counts.any():
            return {}
        named = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
        found = dict(zip(named, self.percentiles(list(named.values())), strict=True))
        told = {"mean": self.mean, **found, "max": self.max}
        return {name: round(ns / 1e6, 6) for name, ns in told.items()}


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum; exact when all have one layout, which one load engine guarantees."""
    total: Histogram | None = None
    for one in histograms:
        if total is None:
            total = Histogram(one.layout, one.counts.copy())
        elif one.layout == total.layout:
            np.add(total.counts, one.counts, out=total.counts)
        else:
            raise HistogramError(f"cannot be merged: {one.layout} and {total.layout}")
    return total or Histogram.of(())


def decode(text: str) -> Histogram:
    """Return the histogram of a base64 text, compressed or not."""
    layout, payload = _opened(text)
    counts = np.zeros(layout.length, dtype=np.int64)
    _add(counts, layout, [payload])
    return Histogram(layout, counts)


BATCH = 64
"""Encoded histograms that are decoded at once: NumPy then costs little for each of them."""


class Sum:
    """Adds up encoded histograms, a batch at a time; of any number, in bounded memory."""

    def __init__(self) -> None:
        self._counts: dict[Layout, Counts] = {}
        self._waiting: dict[Layout, list[bytes]] = {}
        self.broken = 0
        """How many texts were no histograms, and were left out."""

    def add(self, text: str) -> None:
        """Add one base64 text."""
        try:
            layout, payload = _opened(text)
        except HistogramError:
            self.broken += 1
            return
        known = self._counts.keys() | self._waiting.keys()
        if layout not in known and len(known) >= MOST_LAYOUTS:
            self.broken += 1
            return
        waiting = self._waiting.setdefault(layout, [])
        waiting.append(payload)
        if len(waiting) >= BATCH:
            self._decode(layout)

    def take(self, other: Sum) -> None:
        """Add another sum, which is empty afterwards."""
        for layout, counts in other._counts.items():
            if layout in self._counts:
                self._counts[layout] += counts
            else:
                self._counts[layout] = counts
        for layout, payloads in other._waiting.items():
            self._waiting.setdefault(layout, []).extend(payloads)
            if len(self._waiting[layout]) >= BATCH:
                self._decode(layout)
        self.broken += other.broken
        other._counts, other._waiting, other.broken = {}, {}, 0

    def histograms(self) -> list[Histogram]:
        """Return the sums, one for each layout that occurred."""
        for layout in list(self._waiting):
            self._decode(layout)
        return [Histogram(layout, counts) for layout, counts in self._counts.items()]

    def _decode(self, layout: Layout) -> None:
        payloads = self._waiting.pop(layout, [])
        if layout not in self._counts:
            self._counts[layout] = np.zeros(layout.length, dtype=np.int64)
        try:
            _add(self._counts[layout], layout, payloads)
        except HistogramError:
            # One of them is broken; nothing was added. One by one, all others count.
            if len(payloads) == 1:
                self.broken += 1
                return
            for payload in payloads:
                self._waiting[layout] = [payload]
                self._decode(layout)


def encode(histogram: Histogram) -> str:
    """Return the base64 text of the compressed V2 encoding."""
    payload = bytearray()
    used = np.flatnonzero(histogram.counts)
    position = 0
    for index in used.tolist():
        if index > position:
            payload += _leb128(_zigzag(-(index - position)))
        payload += _leb128(_zigzag(int(histogram.counts[index])))
        position = index + 1
    layout = histogram.layout
    head = HEADER.pack(
        PLAIN_COOKIE | 0x10, len(payload), 0, layout.digits, layout.lowest, layout.highest, 1.0
    )
    packed = zlib.compress(head + bytes(payload), level=6)
    return base64.b64encode(
        struct.pack(">ii", COMPRESSED_COOKIE | 0x10, len(packed)) + packed
    ).decode()


def _inflated(data: bytes) -> bytes:
    """Return the plain encoding."""
    cookie, length = struct.unpack_from(">ii", data)
    if cookie & COOKIE_MASK != COMPRESSED_COOKIE:
        return data
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(data[8 : 8 + length], MOST_PAYLOAD_BYTES)
    if not unpacker.eof:
        raise HistogramError("not an HDR V2 histogram: its compressed part is cut off or too large")
    return plain


def _opened(text: str) -> tuple[Layout, bytes]:
    """Return the layout of an encoded histogram, and its counts still encoded."""
    try:
        data = _inflated(base64.b64decode(text, validate=True))
        cookie, length, _, digits, lowest, highest, _ = HEADER.unpack_from(data)
    except (binascii.Error, zlib.error, struct.error, ValueError) as error:
        raise HistogramError(f"not an HDR V2 histogram: {error}") from None
    if cookie & COOKIE_MASK != PLAIN_COOKIE:
        raise HistogramError(f"not an HDR V2 histogram: its cookie is {cookie & 0xFFFFFFFF:#x}")
    payload = data[HEADER.size : HEADER.size + length]
    if len(payload) != length:
        raise HistogramError(
            f"not an HDR V2 histogram: {length} bytes announced, {len(payload)} there"
        )
    if not (0 <= digits <= 5 and lowest >= 1 and 2 * lowest <= highest < 1 << 62):
        raise HistogramError(f"its range is {lowest} to {highest}, {digits} digits")
    if payload and payload[-1] >= 0x80:
        raise HistogramError("its last number is cut off")
    layout = _layout(lowest, highest, digits)
    bits = max(highest.bit_length(), layout.half_magnitude + layout.unit_magnitude + 1)
    if layout.length > MOST_COUNTS or bits > 61:  # twice the highest value is the last one's top
        raise HistogramError(f"its range is {lowest} to {highest}, {digits} digits")
    return layout, payload


@lru_cache(maxsize=8)
def _layout(lowest: int, highest: int, digits: int) -> Layout:
    return Layout(lowest, highest, digits)


def _add(counts: Counts, layout: Layout, payloads: Sequence[bytes]) -> None:
    """Add the counts of encoded histograms: a negative number skips that many, others fill one."""
    payloads = [payload for payload in payloads if payload]
    if not payloads:
        return
    numbers, of_payload = _numbers(payloads)
    steps = np.where(numbers < 0, -numbers, 1)
    ends = np.cumsum(steps)
    firsts = np.searchsorted(of_payload, np.arange(len(payloads)))
    before = ends[firsts] - steps[firsts]
    ends -= before[of_payload]
    if int(ends.max()) > layout.length or int(ends.min()) < 0:
        raise HistogramError(f"{int(ends.max())} counts, its layout has {layout.length}")
    filled = numbers > 0
    if float(numbers[filled].sum(dtype=np.float64)) > MOST_VALUES:
        raise HistogramError(f"it counts more than {MOST_VALUES} values")
    np.add.at(counts, ends[filled] - 1, numbers[filled])


def _numbers(payloads: Sequence[bytes]) -> tuple[Counts, Counts]:
    """Return the ZigZag LEB128 numbers (seven bits a byte, the lowest first) and their payloads.

    Numbers of nine bytes (counts from 2^55 on) do not occur: no run has so many operations.
    """
    data = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > 8:
        raise HistogramError("it has a count of more than eight bytes")
    shifts = 7 * (np.arange(len(data)) - np.repeat(starts, lengths))
    bits = np.add.reduceat((data & 0x7F).astype(np.int64) << shifts, starts)
    borders = np.cumsum([len(payload) for payload in payloads])
    return (bits >> 1) ^ -(bits & 1), np.searchsorted(borders, starts, side="right")


def _zigzag(number: int) -> int:
    return (number << 1) ^ (number >> 63) if number >= 0 else ((-number) << 1) - 1


def _leb128(number: int) -> bytes:
    """Return a number in seven bits a byte; the ninth byte takes eight."""
    written = bytearray()
    while number > 0x7F and len(written) < 8:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number & 0xFF)
    return bytes(written)
