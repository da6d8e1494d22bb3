"""Steady state is found where it begins; what bound a trial is a limit, the CPU or the latency."""

from __future__ import annotations

import random

from disklab.procedures.outcome import binding, drift_ratio, steady_state
from disklab.results.records import LimitWait
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


def limit(utilisation: float | None) -> LimitWait:
    return LimitWait(
        limit="disk 0 1100 IOPS",
        volume="data",
        delayed_ios=1200,
        delayed_ms=13_000.0,
        utilisation=utilisation,
    )


def resource(*seen: object) -> str | None:
    found = binding(*seen)  # type: ignore[arg-type]
    return found.resource if found else None


def test_a_limit_at_which_ios_wait_binds() -> None:
    assert resource(limit(1.0), 0.4, 0.3, {"data": 0.9}) == "data disk 0 1100 IOPS"
    # With bursts between pauses its mean use says little.
    assert resource(limit(0.4), 0.4, 0.3, {"data": 0.9}) == "data disk 0 1100 IOPS"
    assert resource(limit(None), 0.4, 0.99, {}) == "data disk 0 1100 IOPS"


def test_a_full_machine_binds_where_a_limit_has_room() -> None:
    assert resource(limit(0.32), 0.2, 0.91, {}) == "this machine's CPU"
    assert resource(limit(0.97), 0.2, 0.91, {}) == "data disk 0 1100 IOPS"
    assert resource(None, 0.0, 0.95, {"data": 0.6}) == "this machine's CPU"


def test_a_disk_in_which_operations_spend_their_time_binds_by_its_latency() -> None:
    assert resource(limit(0.9), 0.04, 0.5, {"data": 0.7, "log": 0.2}) == "data latency"
    assert resource(limit(0.9), 0.04, 0.5, {"data": 0.4}) is None
    assert resource(None, 0.0, 0.5, {}) is None
