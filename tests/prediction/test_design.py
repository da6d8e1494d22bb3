"""Which cells tell parameters apart, on information whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from disklab.prediction.design import EIGHT_OF_TEN, NOISE, Matrix, choose, tell

A, B = "overhead_ns", "read_cpu_ns"


def of(*slopes: float) -> Matrix:
    """Return what one figure tells that moves by these slopes."""
    row = np.array([slopes])
    found: Matrix = row.T @ row / NOISE**2
    return found


def test_a_parameter_is_known_as_well_as_its_figure() -> None:
    only, none = tell(of(0.5, 0.0), (A, B))
    # A figure with 5 % noise that moves half as much as the parameter tells it to 10 %.
    assert only.within == pytest.approx(math.exp(EIGHT_OF_TEN * 0.1), rel=1e-3)
    assert (none.name, none.within, none.like) == (B, None, "")


def test_what_moves_everything_alike_is_not_told_apart() -> None:
    both = sum((of(0.5, 0.25) for _ in range(10)), np.zeros((2, 2)))
    first, second = tell(both, (A, B))
    assert second.like == A
    # The sum is known by ten figures.
    expected = math.exp(EIGHT_OF_TEN * 0.1 / math.sqrt(10))
    assert first.within == pytest.approx(expected, rel=1e-3)


def test_more_noise_tells_less() -> None:
    (twice,) = tell(of(1.0), (A,), 2 * NOISE)
    (once,) = tell(of(1.0), (A,))
    assert math.log(twice.within) == pytest.approx(2 * math.log(once.within), rel=1e-3)


def test_cells_are_chosen_for_what_others_do_not_tell() -> None:
    cells = [of(1.0, 0.0), of(0.9, 0.0), of(0.0, 0.3)]
    assert choose(cells, [10, 10, 10], 20) == [0, 2]
    assert choose(cells, [10, 10, 10], 30) == [0, 2, 1]


def test_a_dear_cell_must_tell_more() -> None:
    alike = [of(1.0), of(1.0)]
    assert choose(alike, [30, 10], 10) == [1]
    # Without the time for any there is one all the same: the caller has checked the time.
    assert choose(alike, [30, 20], 10) == [1]
