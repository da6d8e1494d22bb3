"""Steady state: found where it begins, and denied where there is none."""

from __future__ import annotations

import random

from disklab.procedures.outcome import drift_ratio, steady_state
from hypothesis import given
from hypothesis import strategies as st


def test_a_level_run_is_steady_from_the_start() -> None:
    chance = random.Random(1)
    rates = [1000 * chance.uniform(0.95, 1.05) for _ in range(30)]
    assert steady_state(rates).from_s == 0


def test_a_warm_up_is_left_out() -> None:
    rates = [200.0, 400.0, 600.0, 800.0, 950.0] + [1000.0] * 20
    found = steady_state(rates)
    assert 3 <= found.from_s <= 5


def test_a_run_that_slows_down_to_its_end_has_no_steady_state() -> None:
    rates = [1000.0 - 25 * second for second in range(30)]
    found = steady_state(rates)
    assert not found.found
    assert found.drift_ratio < -0.5


def test_a_seesaw_is_not_steady() -> None:
    assert not steady_state([500.0, 1500.0] * 15).found


def test_few_seconds_tell_nothing() -> None:
    assert not steady_state([1000.0] * 4).found
    assert steady_state([1000.0] * 5).found


@given(st.floats(1, 1e6), st.floats(-0.9, 0.9), st.integers(5, 100))
def test_the_drift_of_a_straight_line_is_its_own(start: float, change: float, count: int) -> None:
    rates = [start * (1 + change * second / (count - 1)) for second in range(count)]
    mean = sum(rates) / count
    assert abs(drift_ratio(rates) - start * change / mean) < 1e-6
