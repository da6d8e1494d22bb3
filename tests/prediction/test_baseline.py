"""Guesses without a model, and what counts against them."""

from __future__ import annotations

import pytest
from disklab.prediction.against import Baseline, ComparedCell, Comparison
from disklab.prediction.counted import ALL, LATENCIES, InSight, in_sight, levels


def row(disk: str, copies: int, work: str) -> tuple[tuple[str, str], ...]:
    return levels({"data disks": disk, "copies": copies, "work": work})


FITTED = {
    row("attached", 1, "write"): {"ops/s": 100.0, "p50": 1.0},
    row("attached", 4, "write"): {"ops/s": 25.0, "p50": 4.0},
    row("attached", 1, "read"): {"ops/s": 100.0},
    row("attached", 4, "read"): {"ops/s": 100.0},
    row("attached", 4, "mixed"): {"ops/s": 20.0},
}


@pytest.mark.parametrize(
    ("cell", "rate"),
    [
        (row("attached", 1, "write"), 100),
        (row("local", 4, "write"), 25),
        (row("attached", 2, "write"), 50),
        (row("local", 2, "write"), 50),
        (row("attached", 8, "write"), 25),
        # Half of 2 x 100 x 25 / 125, which the fitted mixed row was.
        (row("local", 1, "mixed"), 50),
    ],
)
def test_a_guess_comes_from_the_fitted_rows_alone(
    cell: tuple[tuple[str, str], ...], rate: float
) -> None:
    assert Baseline(FITTED).guess(cell)["ops/s"] == pytest.approx(rate)


def test_without_fitted_rows_there_is_no_guess() -> None:
    assert Baseline({}).guess(row("local", 1, "read")) is None


def test_skill_compares_the_same_cells_and_leaves_out_what_was_in_sight() -> None:
    def cell(predicted: float, guessed: float | None, **more: object) -> ComparedCell:
        guess = {} if guessed is None else {"ops/s": guessed, "p50": guessed}
        told = {"ops/s": predicted, "p50": predicted}
        return ComparedCell({}, {"ops/s": 100.0, "p50": 100.0}, told, guessed=guess, **more)  # type: ignore[arg-type]

    seen = InSight("x", {}, LATENCIES, "in sight")
    cells = (
        cell(110, 140, seen=seen),
        cell(110, 140, seen=seen),
        cell(300, None, seen=seen),
        cell(100, 900, note="calibration row"),
    )
    comparison = Comparison("x", cells)
    assert comparison.errors("ops/s") == pytest.approx([0.1, 0.1, 2.0])
    assert comparison.skill("ops/s") == pytest.approx((0.4, 0.75))
    assert comparison.errors("p50") == []
    assert comparison.skill("p50") is None
    told = list(comparison.summary())
    assert told[0].endswith("3 cells; without a model 40 %, skill +0.75")
    assert told[1].startswith("p50: no cell counts (known when a value was fitted): off by 10 %")


def test_what_the_latency_file_calls_fitted_does_not_count() -> None:
    stem = "cassandra-disk-caching-read-ahead"
    none = in_sight(stem, levels({"cluster.volumes.data.caching": "None", "threads": 128}))
    assert none.figures == ALL
    cached = in_sight(stem, levels({"cluster.volumes.data.caching": "ReadOnly", "threads": 128}))
    assert "ops/s" not in cached.figures
    assert in_sight("cassandra-local-or-attached", row("local", 1, "read")) is None
