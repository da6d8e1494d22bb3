"""The size of telemetry is read from its headers, so that a small file never takes much memory."""

from __future__ import annotations

import io
import random
from pathlib import Path

import polars as pl
import pytest
from disklab.errors import UserError
from disklab.folders import Inside
from disklab.results import telemetry
from disklab.results.telemetry import (
    SCHEMA,
    ParquetError,
    TelemetryWriter,
    Unpacked,
    scan_telemetry,
)

CODECS = ("zstd", "lz4", "snappy", "gzip", "brotli", "uncompressed")


def rows(count: int, letters: int = 1) -> pl.LazyFrame:
    numbers = pl.LazyFrame().select(t_s=pl.int_range(count).cast(pl.Float64) * 0)
    return numbers.select(
        phase=pl.lit("measure"), t_s="t_s", source=pl.lit("x" * letters),
        metric=pl.lit("m"), value="t_s",
    )  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_rows_and_bytes_are_those_of_the_file(tmp_path: Path, codec: str) -> None:
    file = tmp_path / "t.parquet"
    rows(2_000).collect().write_parquet(file, compression=codec)  # type: ignore[arg-type]
    size = Unpacked()
    with file.open("rb") as opened:
        size.add(opened)
        size.add(opened)
    assert size.rows == 4_000
    assert size.pages >= 10
    assert 1_000 < size.size_bytes < 200_000


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = Inside(tmp_path, "0-0.parquet")
    with TelemetryWriter(path) as writer:
        for number in range(100_001):
            writer.add("measure", number, "machine", f"cpu {number % 3}", number)
    assert scan_telemetry(path).select(pl.len()).collect().item() == 100_001


def test_a_small_file_of_many_rows_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As told: a megabyte of 200 million rows took a report to 10.8 GB."""
    monkeypatch.setattr(telemetry, "MOST_ROWS", 1_000_000)
    rows(1_000_001).sink_parquet(tmp_path / "0-0.parquet")
    assert (tmp_path / "0-0.parquet").stat().st_size < 1 << 20
    with pytest.raises(UserError, match="1,000,001 rows, and at most 1,000,000 are read"):
        scan_telemetry(Inside(tmp_path, "0-0.parquet"))


def test_pages_that_unpack_to_gigabytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "MOST_UNPACKED_BYTES", 1 << 20)
    frame = rows(3_000).with_columns(
        source=pl.lit("y" * 2_000) + pl.int_range(pl.len()).cast(pl.String)
    )
    frame.collect().write_parquet(tmp_path / "0-0.parquet")
    assert (tmp_path / "0-0.parquet").stat().st_size < 1 << 20
    with pytest.raises(UserError, match="unpacked it has more than"):
        scan_telemetry(Inside(tmp_path, "0-0.parquet"))


def test_the_parts_of_an_interrupted_repeat_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "MOST_ROWS", 5_000)
    (tmp_path / "0-0.parquet.parts").mkdir()
    for number in range(2):
        rows(3_000).collect().write_parquet(tmp_path / f"0-0.parquet.parts/{number:05}.parquet")
    with pytest.raises(UserError, match="6,000 rows"):
        scan_telemetry(Inside(tmp_path, "0-0.parquet"))


def test_a_damaged_file_is_counted_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    rows(500, 20).collect().write_parquet(file)
    good, chance, refused = file.read_bytes(), random.Random(1), 0
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        size = Unpacked()
        try:
            size.add(io.BytesIO(bytes(data[: chance.choice([len(data), len(data) // 2])])))
        except ParquetError:
            refused += 1
    assert 100 < refused < 2_000
    assert SCHEMA.keys() == pl.read_parquet(file).schema.keys()
