"""Readers of traces: blkparse's text, fio's iolog of version 3, the CSV of MSR Cambridge.

A reader makes of each line an I/O, something that is left out, or a complaint. Files may be damaged
or meant to harm: lines, numbers and I/Os are bounded, and a wrong line is named. It is never
quoted: an experiment file from elsewhere may name any file here, and messages are shared.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import Problem, UserError
from disklab.reading import GIB, MOST_TOLD, Kind, bounded, lines, shown
from disklab.traces.trace import Trace

TRACE = Kind(
    "a block trace",
    64 * GIB,
    "name a file of blkparse, a fio iolog of version 3, or a CSV of MSR Cambridge",
    4096,
)
MOST_IOS = 1_000_000
"""I/Os of a trace: its job for the simulator has some 30 MB then, and minutes of any disk are in
it. Longer files are cut by `stop`."""
MOST_DEVICES = 64
"""Devices of a file that are told apart in a message."""
FARTHEST_BYTES = 1 << 60
"""No device has so many bytes, and sums of offset and length stay far inside of 64 bits."""
LONGEST_IO_BYTES = 1 << 30
"""As for fio's blocks; Linux sends a disk far less at a time."""
LATEST_NS = (1 << 64) - 1
"""Times of MSR Cambridge count from 1601: they fit 64 bits, and only their differences are kept."""
LONGEST_NS = 1 << 61
"""Seventy years of one trace are a slip."""
SLACK_NS = 60_000_000_000
"""Lines may be out of order by this much at the end of a part: recorders buffer by processor."""

BLKPARSE_SECTOR_BYTES = 512
"""blktrace counts so, whatever sectors the device has."""
NS_PER_US = 1_000
NS_PER_TICK = 100
"""Windows' file time."""

THIS_LINE = "this line"
"""What is shown of a line that is wrong."""


@dataclass(frozen=True)
class Io:
    """One read or write as a line tells it."""

    device: str
    at_ns: int
    offset_bytes: int
    length_bytes: int
    is_write: bool
    queued: bool = True
    """blkparse: asked for (Q); False: sent to the driver (D)."""


@dataclass(frozen=True)
class LeftOut:
    """A line of something that is not replayed."""

    device: str
    what: str


class WrongLineError(ValueError):
    """A line that is not of its format: the rule, and what to do."""

    def __init__(self, rule: str, way_out: str) -> None:
        super().__init__(rule)
        self.rule, self.way_out = rule, way_out


Parsed = Io | LeftOut | None
Parse = Callable[[bytes], Parsed]

_BLKPARSE = re.compile(
    rb"\s*(\d{1,4},\d{1,7})\s+\d+\s+\d+\s+(\d{1,10})\.(\d{9})\s+\d+\s+([A-Z]{1,2}|m)\s+(\S+)"
    rb"(?:\s+(\d{1,19})(?:\s+\+\s+(\d{1,10}))?)?(?:\s.*)?"
)
_SUMMARY = re.compile(rb"(CPU\s*\d+|Total|Throughput|Events|Skips|Input) ?.*")


def blkparse_line(line: bytes) -> Parsed:
    """Return what a line of blkparse's default output tells: queued and issued I/Os count.

    **Source:** blkparse(1), "Default output" and "Trace actions"; flags of RWBS from the kernel's
    blk_fill_rwbs.
    """
    found = _BLKPARSE.fullmatch(line)
    if found is None:
        rule = (
            "is not a line of blkparse: device, CPU, number, seconds, process, action, RWBS, sector"
        )
        raise WrongLineError(rule, "make the text by `blkparse -i NAME`, without -f")
    device, seconds, nanos, action, flags = (
        found[n].decode("utf-8", "replace") for n in range(1, 6)
    )
    if action not in ("Q", "D"):
        return None
    asked = action == "Q"
    if "D" in flags:
        return LeftOut(device, "discards") if asked else None
    if found[6] is None or not int(found[7] or b"0"):
        return LeftOut(device, "flushes") if asked else None
    if not {"R", "W"} & set(flags):
        rule = "RWBS has neither R nor W"
        raise WrongLineError(rule, "leave the line out")
    offset = int(found[6]) * BLKPARSE_SECTOR_BYTES
    length = int(found[7]) * BLKPARSE_SECTOR_BYTES
    at = int(seconds) * 10**9 + int(nanos)
    return _checked(Io(device, at, offset, length, "W" in flags, queued=asked))


FIO_FILE = frozenset({"add", "open", "close"})
FIO_LEFT_OUT = {"sync": "flushes", "datasync": "flushes", "trim": "discards"}


def fio_line(line: bytes) -> Parsed:
    """Return what a line of fio's iolog of version 3 tells; its times are microseconds.

    **Source:** fio's HOWTO, "Trace file format v3"; microseconds seen in what fio 3.33 writes.
    """
    parts = line.split()
    if len(parts) not in (3, 5):
        rule = "is not a line of a fio iolog: time, file, action, and of an I/O offset and length"
        raise WrongLineError(rule, "record it again by fio's write_iolog")
    device, action = parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "replace")
    at = _whole(parts[0], "time")
    if len(parts) == 3 and action in FIO_FILE:
        return None
    if action in FIO_LEFT_OUT:
        return LeftOut(device, FIO_LEFT_OUT[action])
    if action not in ("read", "write") or len(parts) == 3:
        rule = "its action is none that has an offset and a length"
        raise WrongLineError(rule, "use read, write, sync, datasync or trim")
    offset, length = _whole(parts[3], "offset"), _whole(parts[4], "length")
    if not length:
        return LeftOut(device, "I/Os without bytes")
    return _checked(Io(device, at * NS_PER_US, offset, length, action == "write"))


def untimed_fio_line(line: bytes) -> Parsed:
    """Return what a line of fio's iolog of version 2 tells, which has no times: they are all 0.

    **Source:** fio's HOWTO, "Trace file format v2".
    """
    if b" wait " in line:
        return None
    return fio_line(b"0 " + line)


def msr_line(line: bytes) -> Parsed:
    """Return what a line of the CSV of MSR Cambridge tells.

    **Source:** Narayanan et al., "Write Off-Loading", FAST 2008; SNIA IOTTA trace 388: Timestamp
    (Windows' file time), Hostname, DiskNumber, Type, Offset, Size, ResponseTime.
    """
    parts = line.strip().split(b",")
    if len(parts) != 7:
        rule = f"has {len(parts)} fields; MSR Cambridge has 7: time, host, disk, type, offset, size"
        raise WrongLineError(rule + ", response time", "mend the line or leave it out")
    device = f"{parts[1].decode('utf-8', 'replace')}.{_whole(parts[2], 'disk number')}"
    kind = parts[3].strip().lower()
    if kind not in (b"read", b"write"):
        rule = "its type is neither Read nor Write"
        raise WrongLineError(rule, "mend the line or leave it out")
    at = _whole(parts[0], "time")
    offset, length = _whole(parts[4], "offset"), _whole(parts[5], "size")
    if not length:
        return LeftOut(device, "I/Os without bytes")
    return _checked(Io(device, at * NS_PER_TICK, offset, length, kind == b"write"))


FORMATS: dict[str, Parse] = {"blkparse": blkparse_line, "fio": fio_line, "msr": msr_line}


def _whole(text: bytes, what: str) -> int:
    digits = text.strip()
    if not digits.isdigit() or len(digits) > 20:
        rule = f"its {what} is not a whole number of 64 bits"
        raise WrongLineError(rule, "mend the line or leave it out")
    return int(digits)


def _checked(io: Io) -> Io:
    if io.offset_bytes > FARTHEST_BYTES:
        raise WrongLineError("begins beyond 2^60 bytes", "mend the line or leave it out")
    if io.at_ns > LATEST_NS:
        raise WrongLineError("is later than any clock", "mend the line or leave it out")
    if io.length_bytes > LONGEST_IO_BYTES:
        raise WrongLineError("is longer than 1 GiB", "mend the line or leave it out")
    return io


@dataclass(frozen=True)
class Chosen:
    """Which part of a file is wanted."""

    form: str | None = None
    """None: as the first line tells."""
    device: str | None = None
    """None: the only one."""
    most_ios: int | None = None
    """The first so many of the device; None: all."""
    most_ns: int | None = None
    """Those of the first so many nanoseconds of the trace's own time; None: all."""
    untimed: bool = False
    """Whether a trace without the times of its I/Os will do: it is replayed at a depth."""


@dataclass
class _Rows:
    """I/Os as they come, before they are sorted."""

    at: array[int]
    offset: array[int]
    length: array[int]
    write: bytearray

    def add(self, io: Io) -> None:
        self.at.append(io.at_ns)
        self.offset.append(io.offset_bytes)
        self.length.append(io.length_bytes)
        self.write.append(io.is_write)


def _empty() -> _Rows:
    return _Rows(array("Q"), array("q"), array("q"), bytearray())


def read(path: Path, chosen: Chosen, place: str, name: str = "") -> Trace:
    """Return the trace of a file. Raises UserError with file and line of what is wrong.

    `place` is where the file was named, `name` what messages call it.
    """
    return _Reader(path, chosen, place, name or str(path)).read()


_BINARY = {
    b"\x1f\x8b": "it is packed by gzip: unpack it by gunzip",
    b"\x28\xb5\x2f\xfd": "it is packed by zstd: unpack it by zstd -d",
    b"\xfd7zXZ": "it is packed by xz: unpack it by xz -d",
    b"BZh": "it is packed by bzip2: unpack it by bunzip2",
    b"PK\x03\x04": "it is packed by zip: unpack it by unzip",
    b"\x07tae": "it is what blktrace writes: make text of it by blkparse -i",
    b"eat\x07": "it is what blktrace writes: make text of it by blkparse -i",
}
"""How files begin that hold a trace in another form. blktrace's magic is 0x65617407, in the byte
order of its machine, of which the last byte is the version."""


def _made_readable(line: bytes) -> str | None:
    """Return how to make a trace readable whose bytes are not text; None: nobody knows."""
    return next((way for magic, way in _BINARY.items() if line.startswith(magic)), None)


class _Reader:
    def __init__(self, path: Path, chosen: Chosen, place: str, name: str) -> None:
        self.path, self.chosen, self.place, self.name = path, chosen, place, name
        self.problems: list[Problem] = []
        self.left_out: dict[str, Counter[str]] = {}
        self.devices: Counter[str] = Counter()
        self.rows = {True: _empty(), False: _empty()}  # by Io.queued
        self.form = chosen.form
        self.parse: Parse | None = None
        """Other than the form's."""
        self.first_ns: int | None = None

    def read(self) -> Trace:
        for number, parse, line in self._lines():
            self._take(number, parse, line)
            if len(self.problems) > MOST_TOLD or self._has_enough():
                break
        if self.problems:
            raise UserError(*bounded(self.problems, self.name))
        device = self._device()
        queued = self.rows[True]
        rows = queued if len(queued.at) else self.rows[False]
        return self._trace(device, rows)

    def _lines(self) -> Iterator[tuple[int, Parse, bytes]]:
        """Yield number and text of the lines with records, and what reads them."""
        for number, line in enumerate(lines(self.path, TRACE, self.place), 1):
            if line is None:
                rule = f"a line has at most {TRACE.most_line_bytes} bytes"
                self._complain(number, THIS_LINE, rule, TRACE.way_out)
                return
            if not line.strip():
                continue
            if self.form is None:
                self.form = _form_of(line)
            if self.form is None:
                rule = "is the first line of no trace that disklab reads"
                self._complain(number, THIS_LINE, rule, _made_readable(line) or TRACE.way_out)
                return
            if self.form == "fio" and line.startswith(b"fio version"):
                if not self._is_readable(number, line):
                    return
                continue
            if self.form == "msr" and number == 1 and line.lower().startswith(b"timestamp"):
                continue
            if self.form == "blkparse" and _SUMMARY.fullmatch(line.strip()):
                return  # blkparse's own counts, behind the last record
            yield number, self.parse or FORMATS[self.form], line

    def _is_readable(self, number: int, head: bytes) -> bool:
        """Return whether fio's version of an iolog can be read; say why not."""
        version = head.split()[2:]
        if version == [b"2", b"iolog"] and self.chosen.untimed:
            self.parse = untimed_fio_line
        elif version != [b"3", b"iolog"]:
            rule = "only version 3 has the time of each I/O"
            way_out = "record it by fio 3.31 or newer, or replay it at a depth (depth: 32)"
            self._complain(number, THIS_LINE, rule, way_out)
            return False
        return True

    def _take(self, number: int, parse: Parse, line: bytes) -> None:
        try:
            found = parse(line.rstrip(b"\r\n"))
        except WrongLineError as error:
            self._complain(number, THIS_LINE, error.rule, error.way_out)
            return
        if found is None or self.chosen.device not in (None, found.device):
            if found is not None:
                self._count(found.device)
            return
        self._count(found.device)
        if isinstance(found, LeftOut):
            self.left_out.setdefault(found.device, Counter())[found.what] += 1
            return
        if self.first_ns is None:
            self.first_ns = found.at_ns
        if self.chosen.device is None and len(self.devices) > 1:
            return  # which one is meant is asked; nothing more is kept
        self.rows[found.queued].add(found)

    def _count(self, device: str) -> None:
        if device in self.devices or len(self.devices) < MOST_DEVICES:
            self.devices[device] += 1

    def _has_enough(self) -> bool:
        rows = self.rows[True] if len(self.rows[True].at) else self.rows[False]
        count, chosen = len(rows.at), self.chosen
        if not count or (chosen.device is None and len(self.devices) > 1):
            return False
        if chosen.most_ios is not None and count >= chosen.most_ios:
            return True
        if count > MOST_IOS and chosen.most_ns is None:
            return True
        late = chosen.most_ns is not None and rows.at[-1] - (self.first_ns or 0) > (
            chosen.most_ns + SLACK_NS
        )
        return late or count > 2 * MOST_IOS

    def _device(self) -> str:
        chosen = self.chosen.device
        told = ", ".join(f"{name} ({n} lines)" for name, n in self.devices.most_common(10))
        if chosen is not None:
            if chosen not in self.devices:
                rule = "is not a device of the trace"
                raise UserError(
                    Problem(self.name, shown(chosen), rule, f"choose one of {told or 'none'}")
                )
            return chosen
        if len(self.devices) > 1:
            rule = f"the trace has I/Os of several devices: {told}"
            way_out = "say which by workload.trace.device"
            raise UserError(Problem(self.name, "device", rule, way_out))
        return next(iter(self.devices), "")

    def _trace(self, device: str, rows: _Rows) -> Trace:
        order = sorted(range(len(rows.at)), key=rows.at.__getitem__)
        if not order:
            rule = "has no read and no write"
            way_out = "record it while the load runs, or leave out workload.trace.device"
            raise UserError(Problem(self.name, self.form or "empty", rule, way_out))
        first = rows.at[order[0]]
        if self.chosen.most_ns is not None:
            order = [n for n in order if rows.at[n] - first <= self.chosen.most_ns]
        order = order[: self.chosen.most_ios]
        span_ns = rows.at[order[-1]] - first
        if span_ns > LONGEST_NS:
            rule = "from the first I/O to the last are more than seventy years"
            raise UserError(Problem(self.name, f"{span_ns} ns", rule, "mend the times"))
        if len(order) > MOST_IOS:
            rule = f"a replay has at most {MOST_IOS} I/Os"
            way_out = "cut it: workload.stop: {operations: 1M}, or a shorter duration"
            raise UserError(Problem(self.name, f"more than {MOST_IOS}", rule, way_out))
        return Trace(
            form=self.form or "",
            device=device,
            at_ns=array("q", (rows.at[n] - first for n in order)),
            offset_bytes=array("q", (rows.offset[n] for n in order)),
            length_bytes=array("q", (rows.length[n] for n in order)),
            is_write=bytearray(rows.write[n] for n in order),
            left_out=dict(self.left_out.get(device, {})),
        )

    def _complain(self, number: int, value: str, rule: str, way_out: str) -> None:
        self.problems.append(Problem(f"{self.name}:{number}", value, rule, way_out))


def _form_of(line: bytes) -> str | None:
    """Return the format that a first line tells; None: none of them."""
    if line.startswith(b"fio version"):
        return "fio"
    if _BLKPARSE.fullmatch(line.rstrip(b"\r\n")):
        return "blkparse"
    if line.count(b",") == 6:
        return "msr"
    return None
