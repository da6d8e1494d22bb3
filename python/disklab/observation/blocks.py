"""What a block trace tells of a disk: sizes, mixture, order, latencies; and the trace as a file."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from disklab.catalog.quantity import about_bytes
from disklab.observation.tracing import Ended
from disklab.traces.formats import MOST_IOS
from disklab.traces.trace import Trace, mixture

SECTOR = 512
PERCENTILES = (50.0, 95.0, 99.0)
MOST_SIZES_TOLD = 3
NS_PER_US = 1_000
NS_PER_MS = 1_000_000

# `[CPU] flags seconds: event: major,minor RWBS bytes (command) sector + sectors`, then priority
# (from 6.11 on) and the program's name. Bytes stand at the issue only.
# Source: TP_printk of block_rq and block_rq_completion, include/trace/events/block.h, 5.15 to 6.18.
_LINE = re.compile(
    rb"\[(\d{3,6})\]\s+(?:\S+\s+)?(\d{1,12})\.(\d{6}): block_rq_(issue|complete): "
    rb"(\d{1,4}),(\d{1,7}) ([A-Z]*) (?:\d{1,10} )?\([^)]*\) (\d{1,20}) \+ (\d{1,10})"
)


@dataclass(frozen=True)
class _Event:
    """A line of the kernel."""

    cpu: int
    at_ns: int
    issued: bool
    device: str
    flags: str
    sector: int
    sectors: int

    @classmethod
    def of(cls, told: re.Match[bytes]) -> _Event:
        """Read a line."""
        cpu, seconds, micros, event, major, minor, flags, sector, sectors = told.groups()
        return cls(
            int(cpu),
            int(seconds) * 10**9 + int(micros) * NS_PER_US,
            event == b"issue",
            f"{int(major)},{int(minor)}",
            flags.decode(),
            int(sector),
            int(sectors),
        )


@dataclass(frozen=True)
class Leaf:
    """A disk that has requests, and the part of it that is watched."""

    number: str
    """Major and minor: `8:16`."""
    begin_sector: int = 0
    sectors: int | None = None
    """Of a partition; None: all of the disk."""

    def offset_of(self, sector: int) -> int | None:
        """Return where a sector is in the watched part, in bytes; None: outside."""
        inside = sector - self.begin_sector
        if inside < 0 or (self.sectors is not None and inside >= self.sectors):
            return None
        return inside * SECTOR


def leaves(number: str, sys: Path = Path("/sys/dev/block")) -> list[Leaf]:
    """Return the disks below a block device that have requests of their own.

    Those of a partition are its disk's; logical volumes and stripes pass theirs on to what they
    consist of.
    """
    place = sys / number
    if (place / "partition").exists():
        disk = (place.resolve().parent / "dev").read_text(encoding="ascii").strip()
        begin, sectors = (int((place / name).read_text()) for name in ("start", "size"))
        return [Leaf(disk, begin, sectors)]
    below = sorted((place / "slaves").glob("*"))
    found = [leaf for one in below for leaf in leaves((one / "dev").read_text().strip(), sys)]
    return found or [Leaf(number)]


@dataclass
class Seen:
    """The I/Os of one disk during the recording, in the order in which they were issued."""

    leaf: Leaf
    cpu: array[int] = field(default_factory=lambda: array("q"))
    trace: Trace = field(default_factory=lambda: Trace("blkparse", ""))
    flags: list[str] = field(default_factory=list)
    done_ns: array[int] = field(default_factory=lambda: array("q"))
    """When each was complete, from the recording's first event; -1: not while it was recorded."""
    flushes: int = 0
    discards: int = 0
    full: bool = False
    """Whether there were more than a replay has."""

    def latencies_ms(self, *, writes: bool) -> list[float]:
        """Return how long the disk took for each, the shortest first."""
        trace = self.trace
        rows = zip(trace.at_ns, self.done_ns, trace.is_write, strict=True)
        return sorted(
            (done - at) / NS_PER_MS for at, done, kind in rows if done >= 0 and kind == writes
        )


def seen_in(parts: Iterable[bytes], watched: Sequence[Leaf]) -> list[Seen]:
    """Return what the kernel's text tells of each disk that had an I/O.

    The kernel's own remarks (`CPU:1 [LOST 12 EVENTS]`) are passed over: `Ended` counts them.
    """
    found = {one.number.replace(":", ","): Seen(one) for one in watched}
    under_way: dict[tuple[str, int], deque[int]] = defaultdict(deque)
    first: int | None = None
    for line in _lines(parts):
        told = _LINE.search(line)
        if told is None:
            continue
        event = _Event.of(told)
        one = found.get(event.device)
        if one is None:
            continue
        first = event.at_ns if first is None else first
        key = (event.device, event.sector)
        if event.issued:
            row = _issued(one, event, event.at_ns - first)
            if row is not None:
                under_way[key].append(row)
        elif under_way[key]:
            one.done_ns[under_way[key].popleft()] = event.at_ns - first
    return [one for one in found.values() if len(one.trace)]


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _issued(one: Seen, event: _Event, at_ns: int) -> int | None:
    """Take in an I/O; return its row. None: it moves no data, or is not in the watched part."""
    if "D" in event.flags:
        one.discards += 1
        return None
    if not event.sectors:
        one.flushes += 1
        return None
    offset = one.leaf.offset_of(event.sector)
    if offset is None or not {"R", "W"} & set(event.flags):
        return None
    if len(one.trace) >= MOST_IOS:
        one.full = True
        return None
    trace = one.trace
    trace.at_ns.append(at_ns)
    trace.offset_bytes.append(offset)
    trace.length_bytes.append(event.sectors * SECTOR)
    trace.is_write.append("W" in event.flags)
    one.cpu.append(event.cpu)
    one.flags.append(event.flags)
    one.done_ns.append(-1)
    return len(trace) - 1


@dataclass(frozen=True)
class Direction:
    """Reads or writes of a disk."""

    ios: int
    per_s: float
    bytes_per_s: float
    sizes: Mapping[int, float]
    """Share of I/Os by their bytes, the most frequent first; few sizes, so not all of them."""
    latency_ms: Mapping[str, float]
    """From the driver until done: p50, p95, p99, max; empty: none was done."""

    def in_words(self, kind: str) -> str:
        """Return it as people say it."""
        sizes = list(self.sizes.items())[:MOST_SIZES_TOLD]
        told = ", ".join(f"{about_bytes(size)} {share * 100:.0f} %" for size, share in sizes)
        text = f"{self.per_s:,.1f} {kind}/s ({told})"
        if self.latency_ms:
            figures = ", ".join(
                f"{name} {self.latency_ms[name]:.3g}" for name in ("p50", "p95", "p99")
            )
            text += f" in {figures} ms"
        return text


@dataclass(frozen=True)
class BlocksSeen:
    """What a recording tells of one disk."""

    node: str
    device: str
    """As the trace names it: `8,16`."""
    seconds: float
    """How long was recorded."""
    reads: Direction | None
    writes: Direction | None
    sequential_ratio: float
    """I/Os that go on where one of the last 16 of their direction ended."""
    busiest_per_s: int
    flushes: int
    discards: int
    unfinished: int
    """I/Os that were under way when the recording ended."""
    lost: int
    """Events of all disks for which the kernel had no room."""
    cut: bool
    """Whether it ended early, with as many I/Os as can be kept."""
    file: str | None = None
    """Where the trace is written."""

    def in_words(self) -> str:
        """Return it as people say it."""
        kinds = (("reads", self.reads), ("writes", self.writes))
        parts = [one.in_words(kind) for kind, one in kinds if one is not None]
        parts.append(f"{self.sequential_ratio * 100:.0f} % sequential")
        parts.append(f"{self.flushes / self.seconds:,.1f} flushes/s")
        if self.lost:
            parts.append(f"{self.lost:,} events were lost, so all rates are too low")
        if self.cut:
            parts.append("it ended early, with as many I/Os as a replay has")
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        kinds = {"reads": self.reads, "writes": self.writes}
        return {**vars(self), **{k: None if one is None else vars(one) for k, one in kinds.items()}}


def figures(node: str, seen: Seen, seconds: float, lost: int, *, full: bool) -> BlocksSeen:
    """Return the figures of a disk that had at least one I/O."""
    mixed = mixture(seen.trace)
    done = seen.done_ns
    return BlocksSeen(
        node=node,
        device=device_of(seen.leaf),
        seconds=round(seconds, 3),
        reads=_direction(seen, seconds, writes=False),
        writes=_direction(seen, seconds, writes=True),
        sequential_ratio=mixed.sequential_ratio,
        busiest_per_s=mixed.busiest_per_s,
        flushes=seen.flushes,
        discards=seen.discards,
        unfinished=sum(one < 0 for one in done),
        lost=lost,
        cut=full or seen.full,
    )


def _direction(seen: Seen, seconds: float, *, writes: bool) -> Direction | None:
    lengths = [length for _, _, length, kind in seen.trace.ios() if kind == writes]
    if not lengths:
        return None
    count = len(lengths)
    sizes = {size: n / count for size, n in Counter(lengths).most_common(6)}
    took = seen.latencies_ms(writes=writes)
    told = {f"p{share:g}": took[ceil(share / 100 * len(took)) - 1] for share in PERCENTILES if took}
    if took:
        told["max"] = took[-1]
    return Direction(count, count / seconds, sum(lengths) / seconds, sizes, told)


def device_of(leaf: Leaf) -> str:
    """Return a disk as traces name it: `8,16`."""
    return leaf.number.replace(":", ",")


Recorder = Callable[[list[str], float, Callable[[], bool], Callable[[bytes], None]], Ended]
"""As `tracing.record`, which is root's: here, or in another process."""


def look_at(
    disks: Mapping[str, str], seconds: float, stop: Callable[[], bool], record: Recorder
) -> list[tuple[BlocksSeen, Seen]]:
    """Record the I/Os of block devices by node for so many seconds; return what each disk told.

    `disks`: numbers of devices, such as `8:17`, by the node whose data they have. A disk that had
    no I/O is missing. Raises MachineError.
    """
    nodes = {leaf: node for node, number in disks.items() for leaf in leaves(number)}
    parts: list[bytes] = []
    numbers = sorted({leaf.number for leaf in nodes})
    ended = record(numbers, seconds, stop, parts.append)
    found = []
    for leaf, node in nodes.items():
        for one in seen_in(parts, [leaf]):
            told = figures(node, one, ended.seconds, ended.lost, full=ended.full)
            found.append((told, one))
    return found


def blkparse_text(seen: Seen) -> Iterator[str]:
    """Yield the lines of a disk as blkparse prints them: `D` when issued, `C` when done.

    Its times begin with the recording, its offsets with the watched part. Program and process are
    left out: a replay has no use for them.
    """
    device = device_of(seen.leaf)
    trace = seen.trace
    events = [(at, 0, row) for row, at in enumerate(trace.at_ns)]
    events += [(at, 1, row) for row, at in enumerate(seen.done_ns) if at >= 0]
    for number, (at, action, row) in enumerate(sorted(events), 1):
        sector, sectors = trace.offset_bytes[row] // SECTOR, trace.length_bytes[row] // SECTOR
        yield (
            f"{device:>7} {seen.cpu[row]:2} {number:8} {at // 10**9:5}.{at % 10**9:09} "
            f"{0:5} {'DC'[action]:>2} {seen.flags[row]:>3} {sector} + {sectors}\n"
        )
