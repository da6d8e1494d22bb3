"""Telemetry of a repeat as Parquet, in long form: `phase, t_s, source, metric, value`.

Rows are written in parts of bounded size while the repeat runs, and joined into one file at its
end. A Parquet file has its index at the end, so a crash would cost a file that was still open; the
parts that were finished stay readable.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import polars as pl

from disklab import reading
from disklab.errors import Problem, UserError
from disklab.folders import Inside
from disklab.results import durable
from disklab.results.parquet import ParquetError, Unpacked
from disklab.results.records import LARGEST

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
