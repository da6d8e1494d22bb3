"""Telemetry of a repeat as Parquet, in long form: `phase, t_s, source, metric, value`.

Rows are written in parts of bounded size while the repeat runs, and joined into one file at its
end. A Parquet file has its index at the end, so a crash would cost a file that was still open; the
parts that were finished stay readable.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import polars as pl

from disklab import durable, reading
from disklab.errors import Problem, UserError
from disklab.folders import Inside
from disklab.results.figures import LARGEST
from disklab.results.records import RunInfo, TrialResult, of_node

# Results as a table: one row for each repeat, a column for each factor.

LATENCIES = ("mean", "p50", "p95", "p99", "p99.9", "max")

COLUMNS: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "mode": pl.String,
    "trial": pl.Int64,
    "repeat": pl.Int64,
    "status": pl.String,
    "usable": pl.Boolean,
    "ops_per_s": pl.Float64,
    "nodes": pl.Int64,
    "ops_per_s_per_node": pl.Float64,
    **{f"{name}_ms": pl.Float64 for name in LATENCIES},
    "bottleneck": pl.String,
    "host_cache_hit_ratio": pl.Float64,
    "price_usd_per_month": pl.Float64,
    "duration_s": pl.Float64,
}


def results_frame(info: RunInfo, results: Sequence[TrialResult]) -> pl.DataFrame:
    """Return the frame; factors whose levels are not all numbers become text.

    A factor that has the name of another column gets `factor ` in front.
    """
    factors = list(dict.fromkeys(name for result in results for name in result.factors))
    columns = {name: f"factor {name}" if name in COLUMNS else name for name in factors}
    rows = [row(info, result) for result in results]
    frame = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    levels = [
        _levels(columns[name], [result.factors.get(name) for result in results]) for name in factors
    ]
    return frame.select(*list(COLUMNS)[:4], *levels, *list(COLUMNS)[4:])


def row(info: RunInfo, result: TrialResult) -> dict[str, Any]:
    """Return the columns of one repeat, without its factors."""
    return {
        "run": info.id,
        "mode": info.mode,
        "trial": result.trial,
        "repeat": result.repeat,
        "status": result.status,
        "usable": result.usable,
        "ops_per_s": result.ops_per_s,
        "nodes": result.nodes,
        "ops_per_s_per_node": of_node(result),
        **{f"{name}_ms": result.latency_ms.get(name) for name in LATENCIES},
        "bottleneck": result.bottleneck.resource if result.bottleneck else None,
        "host_cache_hit_ratio": result.host_cache_hit_ratio,
        "price_usd_per_month": result.price_usd_per_month,
        "duration_s": result.duration_s,
    }


def _levels(name: str, levels: Sequence[str | int | float | None]) -> pl.Series:
    if all(isinstance(level, int | float) or level is None for level in levels):
        return pl.Series(name, levels, strict=False)
    return pl.Series(name, [None if level is None else str(level) for level in levels])


# How large a Parquet file is when it is unpacked, from its own headers; nothing is unpacked.
#
# A file of a megabyte can hold two hundred million rows, or a page of gigabytes: what reads it gets
# as much memory as it asks for. So footer and headers of all pages are read first, and added up.
# **Source:** parquet-format, `parquet.thrift` (field numbers) and Thrift's compact protocol.

MAGIC = b"PAR1"
MOST_ROWS = 20_000_000
"""Ten hours of five hundred figures a second."""
MOST_UNPACKED_BYTES = 2 << 30
MOST_FOOTER_BYTES = 16 << 20
MOST_PAGES = 200_000
"""A page has a megabyte, or what a row group of some minutes has of a column."""
# A header has statistics: the least and the greatest string of the page.
MOST_HEADER_BYTES = 1 << 20
MOST_DEPTH = 12

Fields = dict[int, Any]
"""A struct of Thrift: its fields by their numbers."""


class ParquetError(ValueError):
    """A file is no Parquet file, or is larger than what is read."""


@dataclass
class Unpacked:
    """What files have together when they are unpacked."""

    rows: int = 0
    size_bytes: int = 0
    pages: int = 0

    def add(self, file: BinaryIO) -> None:
        """Count a file. Raises ParquetError."""
        try:
            self._add(file)
        except ParquetError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, OSError):
            raise ParquetError("its headers are damaged") from None

    def _add(self, file: BinaryIO) -> None:
        size = file.seek(0, os.SEEK_END)
        footer = _struct(_footer(file, size))
        for group in footer.get(4, []):
            self._count(rows=group.get(3, 0))
            for column in group.get(1, []):
                self._add_pages(file, size, column[3])

    def _add_pages(self, file: BinaryIO, size: int, chunk: Fields) -> None:
        """Count the pages of one column of one row group."""
        values = 0
        for header in _pages(file, size, chunk):
            data: Fields = header.get(5) or header.get(8) or {}
            values += data.get(1, 0)
            self._count(size_bytes=header.get(2, 0), pages=1)
            if values > MOST_ROWS:
                raise ParquetError(f"a column has more than {MOST_ROWS:,} values")

    def _count(self, rows: int = 0, size_bytes: int = 0, pages: int = 0) -> None:
        if min(rows, size_bytes) < 0:
            raise ParquetError("a size in its headers is negative")
        self.rows += rows
        self.size_bytes += size_bytes
        self.pages += pages
        if self.rows > MOST_ROWS:
            raise ParquetError(f"it has {self.rows:,} rows, and at most {MOST_ROWS:,} are read")
        if self.size_bytes > MOST_UNPACKED_BYTES:
            rule = f"unpacked it has more than the {MOST_UNPACKED_BYTES:,} bytes that are read"
            raise ParquetError(rule)
        if self.pages > MOST_PAGES:
            raise ParquetError(f"it has more than {MOST_PAGES:,} pages")


def _footer(file: BinaryIO, size: int) -> BinaryIO:
    file.seek(max(size - 8, 0))
    end = file.read(8)
    if len(end) < 8 or end[4:] != MAGIC:
        raise ParquetError("it is not a Parquet file")
    length = int.from_bytes(end[:4], "little")
    if length > min(size - 8, MOST_FOOTER_BYTES):
        raise ParquetError("its footer is longer than what is read")
    file.seek(size - 8 - length)
    return io.BytesIO(file.read(length))


def _pages(file: BinaryIO, size: int, chunk: Fields) -> Iterator[Fields]:
    """Yield the headers of a column's pages."""
    begins = [chunk[number] for number in (9, 11) if chunk.get(number)]
    at = min(begins)
    end = at + chunk.get(7, 0)
    if not 0 <= at <= end <= size:
        raise ParquetError("a column lies outside of the file")
    while at < end:
        file.seek(at)
        told = io.BytesIO(file.read(min(MOST_HEADER_BYTES, end - at)))
        header = _struct(told)
        length = header.get(3, 0)
        if length < 0:
            raise ParquetError("a size in its headers is negative")
        at += told.tell() + length
        yield header


def _struct(told: BinaryIO, depth: int = 0) -> Fields:
    """Return the struct that begins here."""
    if depth > MOST_DEPTH:
        raise ParquetError("its headers are too deep")
    fields: Fields = {}
    number = 0
    while head := _byte(told):
        number = number + (head >> 4) if head >> 4 else _signed(told)
        fields[number] = _value(told, head & 15, depth, in_list=False)
    return fields


def _value(told: BinaryIO, kind: int, depth: int, *, in_list: bool) -> Any:
    match kind:
        case 1 | 2:  # a field's kind is its truth; in a list each is a byte
            return _byte(told) == 1 if in_list else kind == 1
        case 3 | 7 | 8:  # a byte, a float of 64 bits, a text
            return told.read({3: 1, 7: 8}.get(kind) or _count(told))
        case 4 | 5 | 6:
            return _signed(told)
        case 9 | 10:
            head = _byte(told)
            length = head >> 4 if head >> 4 < 15 else _count(told)
            return [_value(told, head & 15, depth + 1, in_list=True) for _ in range(length)]
        case 12:
            return _struct(told, depth + 1)
    raise ParquetError("its headers are damaged")


def _count(told: BinaryIO) -> int:
    length = _unsigned(told)
    if length > MOST_FOOTER_BYTES:
        raise ParquetError("its headers are damaged")
    return length


def _signed(told: BinaryIO) -> int:
    number = _unsigned(told)
    return (number >> 1) ^ -(number & 1)


def _unsigned(told: BinaryIO) -> int:
    number = 0
    for shift in range(0, 70, 7):
        part = _byte(told)
        number |= (part & 0x7F) << shift
        if part < 0x80:
            return number
    raise ParquetError("its headers are damaged")


def _byte(told: BinaryIO) -> int:
    return told.read(1)[0]


SCHEMA: dict[str, type[pl.DataType]] = {
    "phase": pl.String,
    "t_s": pl.Float64,
    "source": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
}
MOST_REASON = 200
"""Letters of what polars says; the rest are hints for its developers."""
PART_ROWS = 50_000
"""Rows held in memory: a few MB, and some minutes of telemetry."""

_PART = re.compile(r"[0-9]{5,}\.parquet")


class TelemetryWriter:
    """Collects rows and writes them in parts; its memory does not grow with the run."""

    def __init__(self, path: Inside) -> None:
        """Take the file to make; its parts lie in `<file>.parts/` until `close`."""
        self._path = path
        self._parts = parts_of(path)
        self._parts.make_folder()
        self._rows: list[tuple[str, float, str, str, float]] = []
        self._written = 0

    def add(self, phase: str, t_s: float, source: str, metric: str, value: float) -> None:
        """Add one figure: `measure, 12.0, emulator data, hit_ratio, 0.98`."""
        self._rows.append((phase, float(t_s), source, metric, float(value)))
        if len(self._rows) >= PART_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is in memory as a part of its own."""
        if not self._rows:
            return
        frame = pl.DataFrame(self._rows, schema=SCHEMA, orient="row")
        # A dot-file until it is whole: readers look for `*.parquet` only.
        unfinished = inner(self._parts, f".{self._written:05}")
        with self._writing(), unfinished.made() as file:
            frame.write_parquet(file)
        with self._writing():
            unfinished.rename(f"{self._written:05}.parquet")
        self._written += 1
        self._rows.clear()

    def close(self) -> None:
        """Join the parts into the one file; they are removed when it is there."""
        self.flush()
        name = PurePosixPath(self._path.name).name
        beside = self._path.beside(f".{name}")
        with self._writing():
            beside.remove()  # of a try that was killed
            with beside.made() as file:
                scan_parts(self._parts).sink_parquet(file)
            beside.rename(name)
            self._parts.remove_tree()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with durable.writing_to(self._path.folder):
            try:
                yield
            except pl.exceptions.PolarsError as error:
                raise OSError(errno.EIO, str(error).partition("\n")[0]) from error

    def __enter__(self) -> TelemetryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parts_of(path: Inside) -> Inside:
    """Return the folder of a telemetry file's parts."""
    return Inside(path.folder, f"{path.name}.parts")


def inner(folder: Inside, name: str) -> Inside:
    """Return a file of a folder."""
    return Inside(folder.folder, f"{folder.name}/{name}")


@contextmanager
def readable(path: Inside | Path | str) -> Iterator[None]:
    """Raise UserError where polars cannot read a damaged file."""
    try:
        yield
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        OSError,
        ParquetError,
    ) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # the file has no fault
        if "TooManyOpenFiles" in str(error):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from None
        rule = f"cannot be read: {str(error).partition(chr(10))[0][:MOST_REASON]}"
        place, way_out = str(path), reading.TELEMETRY.way_out
        raise UserError(Problem(place, Path(str(path)).name, rule, way_out)) from None


def scan_parts(folder: Inside) -> pl.LazyFrame:
    """Return the finished parts of a telemetry file, in order."""
    parts = [inner(folder, name) for name in folder.names() if _PART.fullmatch(name)]
    size = Unpacked()
    scans = [_scan(part, size) for part in parts]
    return pl.concat(scans) if scans else pl.LazyFrame(schema=SCHEMA)


def scan_telemetry(path: Inside) -> pl.LazyFrame:
    """Return a repeat's telemetry, also of one that was interrupted; empty when there is none."""
    if not path.exists():
        with readable(path):
            return _checked(scan_parts(parts_of(path)), path)
    with readable(path):
        return _checked(_scan(path, Unpacked()), path)


def _scan(path: Inside, size: Unpacked) -> pl.LazyFrame:
    """Return the rows of a file, which polars reads by the descriptor that was checked.

    Raises ParquetError for one that is too large, together with those that `size` has.
    """
    with reading.opened(path, reading.TELEMETRY) as file:
        size.add(file)
        file.seek(0)
        return pl.scan_parquet(file)


def _checked(lazy: pl.LazyFrame, path: Inside) -> pl.LazyFrame:
    """Return the rows that are figures; a user error when it is another table."""
    with readable(path):
        columns = lazy.collect_schema()
    if dict(columns) != SCHEMA:
        rule = f"its columns are {', '.join(SCHEMA)}"
        way_out = reading.TELEMETRY.way_out
        raise UserError(Problem(str(path), PurePosixPath(path.name).name, rule, way_out))
    return lazy.filter(
        pl.all_horizontal(pl.col("t_s", "value").abs() <= LARGEST),
        pl.all_horizontal(pl.col("phase", "source", "metric").is_not_null()),
    )
