"""Ranges in an experiment file: read, put in the middle and at their ends, and in the bands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from disklab.errors import UserError
from disklab.prediction.uncertain import MOST_RANGES, read_ranged

from tests.in_process import disklab

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def changed(folder: Path, old: str, new: str) -> Path:
    text = (EXPERIMENTS / "cassandra-disk-caching-threads.yaml").read_text(encoding="utf-8")
    assert old in text
    path = folder / "ranged.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "ends"),
    [
        ("read: 100%", "read: 0..100%", ("0%", "50%", "100%")),
        ("row: 5 x 818B", "row: 5 x 100B..4KiB", ("100B", "640B", "4KiB")),
        ("rows: 150M", "rows: 100M..400M", ("100M", "200M", "400M")),
        ("read_ahead: 64KiB", "read_ahead: 32KiB..128KiB", ("32KiB", "64KiB", "128KiB")),
        ("title: Does", "title: 1..2 Does", None),
        ("# a pass", "# credits: 1..2 a pass", None),
    ],
)
def test_a_range_has_a_middle_and_two_ends(
    tmp_path: Path, old: str, new: str, ends: tuple[str, str, str] | None
) -> None:
    found = read_ranged(changed(tmp_path, old, new), {}).ranges
    assert [(one.low, one.middle, one.high) for one in found] == ([ends] if ends else [])


def test_a_file_without_ranges_is_itself() -> None:
    for path in EXPERIMENTS.glob("*.yaml"):
        assert read_ranged(path, {}).ranges == (), path


def test_the_ends_are_experiments_of_their_own(tmp_path: Path) -> None:
    ranged = read_ranged(changed(tmp_path, "rows: 150M", "rows: 100M..400M"), {})
    (one,) = ranged.ranges
    cells = [ranged.at({one.name: sign}).trials("predict")[0].spec for sign in (-1.0, 0.0, 1.0)]
    assert [cell.dataset.rows for cell in cells] == [100_000_000, 200_000_000, 400_000_000]


@pytest.mark.parametrize("text", ["400M..100M", "100M..3KiB", "5M..5M"])
def test_ends_out_of_order_are_refused_with_their_place(tmp_path: Path, text: str) -> None:
    path = changed(tmp_path, "rows: 150M", f"rows: {text}")
    with pytest.raises(UserError, match="is not a range") as refused:
        read_ranged(path, {})
    assert "ranged.yaml:16: rows" in str(refused.value)


def test_a_file_has_as_many_ranges_as_can_be_tried(tmp_path: Path) -> None:
    path = changed(tmp_path, "rows: 150M", "rows: 1M..2M\n" * MOST_RANGES)
    assert len(read_ranged(path, {}).ranges) == MOST_RANGES
    path.write_text(path.read_text() + "threads: 1..2\n")
    with pytest.raises(UserError, match=f"{MOST_RANGES + 1} ranges"):
        read_ranged(path, {})


def test_a_range_that_matters_is_in_the_band_and_named(tmp_path: Path) -> None:
    path = changed(tmp_path, "read_ahead: 64KiB", "read_ahead: 64KiB..256KiB")
    only = ("--only", "caching=ReadOnly", "--only", "threads=128", "--fidelity", "quick")
    ran = disklab("predict", str(path), *only, "--json", "--out", str(tmp_path / "runs"), code=0)
    bands = json.loads(ran.stdout)["bands"]
    # What binds are the bytes of the cached reads: a row costs 64 KiB and more, up to four times.
    named = {one["name"]: one for one in bands["movers"]}
    (name,) = (name for name in named if name.startswith("range: read_ahead"))
    assert named[name]["ratios"]["ops_per_s"] < 0.8
    assert "64KiB to 256KiB" in named[name]["because"]
    assert bands["figures"]["ops_per_s"]["low"] < 0.8
    assert bands["figures"]["ops_per_s"]["high"] > 1.25
