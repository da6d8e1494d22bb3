"""Readers of results: HDR histograms as HdrHistogram has them, telemetry by its headers."""

from __future__ import annotations

import base64
import io
import random
import struct
import zlib
from pathlib import Path
from random import Random

import polars as pl
import pytest
from disklab.errors import UserError
from disklab.folders import Inside
from disklab.results import Histogram, HistogramError, Sum, decode, encode, merged, telemetry
from disklab.results.histogram import DIGITS, HIGHEST_NS, LOWEST_NS, MOST_PAYLOAD_BYTES
from disklab.results.seconds import SecondsWriter, read_course
from disklab.results.telemetry import (
    SCHEMA,
    ParquetError,
    TelemetryWriter,
    Unpacked,
    scan_telemetry,
)
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

LATENCIES = st.lists(st.integers(LOWEST_NS, HIGHEST_NS), min_size=1, max_size=300)
PERCENTILES = (1.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0)


def peer(values: list[int]) -> HdrHistogram:
    made = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for value in values:
        made.record_value(value)
    return made


@given(LATENCIES)
@settings(max_examples=60, deadline=None)
def test_reads_what_the_peer_wrote(values: list[int]) -> None:
    other = peer(values)
    ours = decode(other.encode().decode())
    assert ours.total == len(values)
    assert ours.percentiles(PERCENTILES) == [
        other.get_value_at_percentile(percentile) for percentile in PERCENTILES
    ]
    assert ours.mean == pytest.approx(other.get_mean_value(), rel=1e-9)


@given(LATENCIES)
@settings(max_examples=60, deadline=None)
def test_the_peer_reads_what_we_wrote(values: list[int]) -> None:
    written = encode(Histogram.of(values))
    other = HdrHistogram.decode(written)
    assert other.get_total_count() == len(values)
    assert other.get_value_at_percentile(99.0) == peer(values).get_value_at_percentile(99.0)
    assert (decode(written).counts == Histogram.of(values).counts).all()


@given(LATENCIES, LATENCIES)
@settings(max_examples=40, deadline=None)
def test_merging_is_exact(first: list[int], second: list[int]) -> None:
    together = merged([Histogram.of(first), Histogram.of(second)])
    assert (together.counts == Histogram.of(first + second).counts).all()


def test_values_keep_three_digits() -> None:
    for value in (1_047_553, 50_000_000, 3_599_999_999_999):
        assert Histogram.of([value]).percentile(50) == pytest.approx(value, rel=1e-3)


def test_layouts_do_not_mix() -> None:
    other = HdrHistogram(1, 1_000_000, 2)
    other.record_value(5)
    with pytest.raises(HistogramError, match="cannot be merged"):
        merged([Histogram.of([5_000]), decode(other.encode().decode())])


def compressed(payload: bytes) -> str:
    packed = zlib.compress(payload)
    return base64.b64encode(struct.pack(">ii", 0x1C849314, len(packed)) + packed).decode()


HEAD = ">iiiiqqd"
ENDLESS = (0x1C849313, 3, 0, 3, 1, 3600, 1.0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not an HDR V2 histogram"),
        ("not base64!", "not an HDR V2 histogram"),
        (base64.b64encode(b"\0" * 60).decode(), "cookie"),
        (encode(Histogram.of([5_000]))[:-12], "not an HDR V2 histogram"),
        (compressed(struct.pack(HEAD, 0x1C849313, 9, 0, 3, 1000, 3600, 1.0)), "0 there"),
        (compressed(struct.pack(HEAD, 0x1C849313, 0, 0, 9, 1000, 3600, 1.0)), "its range"),
        # A run of zeros far beyond the layout, and a bomb that unpacks to more than it may.
        (compressed(struct.pack(HEAD, *ENDLESS) + b"\xff\xff\x7f"), "its layout has"),
        (compressed(b"\0" * (MOST_PAYLOAD_BYTES + 1)), "cut off or too large"),
    ],
)  # fmt: skip
def test_broken_texts_are_refused(text: str, what: str) -> None:
    with pytest.raises(HistogramError, match=what):
        decode(text)


def test_a_sum_of_many_is_exact_and_leaves_broken_ones_out() -> None:
    random = Random(5)
    parts = [[random.randint(LOWEST_NS, HIGHEST_NS) for _ in range(20)] for _ in range(150)]
    total, other = Sum(), Sum()
    for number, part in enumerate(parts):
        (total if number % 3 else other).add(encode(Histogram.of(part)))
    for broken in ("no base64!", compressed(struct.pack(HEAD, *ENDLESS) + b"\xff\xff\x7f")):
        total.add(broken)
    total.take(other)
    sums = [one for one in total.histograms() if one.total]
    expected = Histogram.of([value for part in parts for value in part])
    assert [(one.counts == expected.counts).all() for one in sums] == [True]
    assert total.broken == 2


def test_the_engines_lines_are_kept_and_merged(tmp_path: Path) -> None:
    """Two generators, each with its own lines, give one course and one whole."""
    path = Inside(tmp_path, "0-0.jsonl")
    with SecondsWriter(path) as writer:
        for generator in (0, 1):
            told = encode(Histogram.of([1_000_000 * (generator + 1)] * 50))
            for second in (1.0, 2.0):
                writer.second(
                    {"event": "progress", "t_s": second, "generator": generator, "operations": 50,
                     "errors": 0, "ops_per_s": 50.0, "histograms": {"read": told}}
                )  # fmt: skip
            writer.whole({"event": "done", "elapsed_s": 2.0, "generator": generator,
                          "response": {"read": told}, "unsent": 0})  # fmt: skip
    with path.path.open("a") as file:
        file.write('{"kind":"second","t_s":3')
    course = read_course(path)
    assert [(one.t_s, one.generator) for one in course.seconds] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert course.unreadable_lines == 1
    whole = course.response()
    assert whole.total == 100
    assert whole.percentiles([25, 75]) == pytest.approx([1e6, 2e6], rel=1e-3)


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
