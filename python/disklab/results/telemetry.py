"""Telemetry of a repeat as Parquet, in long form: `phase, t_s, source, metric, value`.

Rows are written in parts of bounded size while the repeat runs, and joined into one file at its
end. A Parquet file has its index at the end, so a crash would cost a file that was still open; the
parts that were finished stay readable.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

SCHEMA: dict[str, type[pl.DataType]] = {
    "phase": pl.String,
    "t_s": pl.Float64,
    "source": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
}
PART_ROWS = 50_000
"""Rows held in memory: a few MB, and some minutes of telemetry."""


class TelemetryWriter:
    """Collects rows and writes them in parts; its memory does not grow with the run."""

    def __init__(self, path: Path) -> None:
        """Take the file to make; its parts lie in `<file>.parts/` until `close`."""
        self._path = path
        self._parts = parts_of(path)
        self._parts.mkdir(parents=True)
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
        unfinished = self._parts / f".{self._written:05}"
        frame.write_parquet(unfinished)
        unfinished.rename(self._parts / f"{self._written:05}.parquet")
        self._written += 1
        self._rows.clear()

    def close(self) -> None:
        """Join the parts into the one file; they are removed when it is there."""
        self.flush()
        beside = self._path.with_name(f".{self._path.name}")
        scan_parts(self._parts).sink_parquet(beside)
        beside.replace(self._path)
        shutil.rmtree(self._parts)

    def __enter__(self) -> TelemetryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parts_of(path: Path) -> Path:
    """Return the folder of a telemetry file's parts."""
    return path.with_name(path.name + ".parts")


def scan_parts(folder: Path) -> pl.LazyFrame:
    """Return the finished parts of a telemetry file, in order."""
    parts = sorted(folder.glob("*.parquet"))
    return pl.scan_parquet(parts) if parts else pl.LazyFrame(schema=SCHEMA)


def scan_telemetry(path: Path) -> pl.LazyFrame:
    """Return a repeat's telemetry, also of one that was interrupted; empty when there is none."""
    if path.exists():
        return pl.scan_parquet(path)
    return scan_parts(parts_of(path))
