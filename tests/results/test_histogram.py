"""Our reader of HDR histograms says what HdrHistogram's own Python library says."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from random import Random

import pytest
from disklab.folders import Inside
from disklab.results import Histogram, HistogramError, Sum, decode, encode, merged
from disklab.results.histogram import DIGITS, HIGHEST_NS, LOWEST_NS, MOST_PAYLOAD_BYTES
from disklab.results.seconds import SecondsWriter, read_course
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
