"""The verdict engine on known answers: simulated samples whose true ratio we set."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from disklab.report import verdict, wording
from disklab.report.verdict import (
    Basis,
    Floats,
    Interval,
    Judgement,
    Outcome,
    Quantity,
    Sample,
    Series,
    block_length,
    crossings,
    judge,
    of_repeats,
    of_seconds,
)
from hypothesis import given, settings
from hypothesis import strategies as st

POSITIVE = st.floats(0.1, 1e6)


def rates(random: np.random.Generator, count: int, median: float, spread: float) -> list[float]:
    """Repeats with a heavy tail to one side, as disturbed runs have."""
    noise = random.normal(0, spread, count) - np.abs(random.normal(0, spread, count))
    return list(median * np.exp(noise))


@pytest.mark.parametrize(("repeats", "least"), [(3, 0.90), (4, 0.95), (5, 0.95), (8, 0.95)])
def test_the_interval_of_repeats_covers_the_true_ratio_as_often_as_it_says(
    repeats: int, least: float
) -> None:
    random = np.random.default_rng(7)
    tries, covered = 2000, 0
    for _ in range(tries):
        found = of_repeats(rates(random, repeats, 100, 0.1), rates(random, repeats, 130, 0.1))
        covered += found.low <= 1.3 <= found.high
        assert found.confidence >= least - 1e-9
    # Three standard errors of a share of 2000 below what is promised.
    assert covered / tries >= least - 3 * np.sqrt(least * (1 - least) / tries)


def wave(random: np.random.Generator, length: int, mean: float, correlation: float) -> Floats:
    """A series of seconds that remember each other: AR(1) with 10 % spread."""
    noise = random.normal(0, np.sqrt(1 - correlation**2), length)
    state = np.empty(length)
    state[0] = random.normal()
    for i in range(1, length):
        state[i] = correlation * state[i - 1] + noise[i]
    return mean * (1 + 0.1 * state)


def series(figures: Floats) -> Series:
    return Series(figures, lambda weights: weights @ figures / weights.sum(axis=1))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_interval_of_seconds_takes_autocorrelation_into_account(correlation: float) -> None:
    random = np.random.default_rng(11)
    tries, covered, naive, too_short = 150, 0, 0, 0
    for _ in range(tries):
        before = wave(random, 400, 100, correlation)
        after = wave(random, 400, 110, correlation)
        found = of_seconds([series(before)], [series(after)], random)
        if found is None:
            too_short += 1
            continue
        assert found.basis is Basis.SECONDS
        covered += found.low <= 1.1 <= found.high
        error = 1.96 * np.sqrt((before.var() + after.var()) / 400) / 100
        naive += abs(after.mean() / before.mean() - 1.1) < error * 1.1
    tries -= too_short
    assert too_short <= 15
    assert covered / tries >= 0.91
    if correlation >= 0.8:
        # What one gets who takes seconds for independent: the test above can fail.
        assert naive / tries < 0.7


def test_a_series_that_is_too_short_for_its_memory_gives_no_interval() -> None:
    slow = np.linspace(100, 200, 60)
    assert block_length(slow) > 60 / 8
    assert of_seconds([series(slow)], [series(slow)], np.random.default_rng(1)) is None


def test_a_known_shift_is_found_and_noise_is_not() -> None:
    random = np.random.default_rng(3)
    found = noise = same = 0
    for _ in range(300):
        before = rates(random, 5, 100, 0.02)
        shifted = judge(
            Quantity.OPS, Sample(tuple(before)), Sample(tuple(rates(random, 5, 115, 0.02)))
        )
        equal = judge(
            Quantity.OPS, Sample(tuple(before)), Sample(tuple(rates(random, 5, 100, 0.005)))
        )
        still = judge(
            Quantity.OPS, Sample(tuple(before)), Sample(tuple(rates(random, 5, 100, 0.02)))
        )
        found += shifted.outcome is Outcome.HIGHER
        noise += still.outcome in (Outcome.HIGHER, Outcome.LOWER)
        same += equal.outcome is Outcome.NO_DIFFERENCE
    assert found >= 295
    assert noise <= 15  # one in twenty at most
    assert same >= 200


def test_two_repeats_without_a_course_cannot_tell() -> None:
    judged = judge(Quantity.OPS, Sample((100.0, 101.0)), Sample((200.0, 201.0)))
    assert judged.outcome is Outcome.CANNOT_TELL
    assert judged.basis is Basis.SINGLE
    assert judged.ratio == pytest.approx(2, rel=0.01)
    assert judged.leaning == 1
    assert judged.more_repeats == 5


def test_too_much_noise_says_how_many_repeats_would_do() -> None:
    judged = judge(Quantity.OPS, Sample((90.0, 100.0, 110.0)), Sample((92.0, 101.0, 108.0)))
    assert judged.outcome is Outcome.CANNOT_TELL
    assert judged.more_repeats > 3


def test_a_sure_but_small_difference_is_none_that_matters() -> None:
    judged = judge(Quantity.OPS, Sample((100.0, 100.1, 100.2)), Sample((102.0, 102.1, 102.2)))
    assert judged.outcome is Outcome.NO_DIFFERENCE


@pytest.mark.parametrize("figures", [(), (0.0,), (-1.0, 2.0, 3.0)])
def test_nothing_to_compare_is_none(figures: tuple[float, ...]) -> None:
    assert judge(Quantity.OPS, Sample(figures), Sample((1.0, 2.0, 3.0))) is None


@given(st.lists(POSITIVE, min_size=3, max_size=7), st.lists(POSITIVE, min_size=3, max_size=7))
@settings(max_examples=200, deadline=None)
def test_swapping_the_sides_inverts_the_interval(first: list[float], second: list[float]) -> None:
    there, back = of_repeats(first, second), of_repeats(second, first)
    assert there.low <= there.ratio <= there.high
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


def certain(ratio: float) -> Judgement:
    interval = Interval(ratio, ratio * 0.99, ratio * 1.01, 0.95, Basis.REPEATS)
    outcome = (
        Outcome.HIGHER if ratio > 1.01 else Outcome.LOWER if ratio < 0.99 else Outcome.CANNOT_TELL
    )
    return Judgement(Quantity.OPS, outcome, ratio, interval, (5, 5))


def test_crossings_name_the_levels_between_which_the_order_changes() -> None:
    levels = ["16KiB", "32KiB", "64KiB", "128KiB"]
    found = crossings(levels, [certain(2.5), certain(2.6), certain(1.0), certain(0.6)])
    assert [(one.last, one.first, one.rises) for one in found] == [("32KiB", "128KiB", False)]
    assert crossings(levels, [certain(2), certain(3), None, certain(2)]) == []


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2, max_size=12))
def test_crossings_alternate(ratios: list[float]) -> None:
    found = crossings([str(n) for n in range(len(ratios))], [certain(ratio) for ratio in ratios])
    assert all(one.rises != other.rises for one, other in pairwise(found))


def steady(mean: float) -> Series:
    return series(wave(np.random.default_rng(int(mean)), 400, mean, 0.3))


@pytest.mark.parametrize("repeats", [1, 2])
def test_no_direction_is_told_below_three_valid_repeats_however_clear_their_seconds_are(
    repeats: int,
) -> None:
    before = Sample((100.0,) * repeats, (steady(100),) * repeats, measured=True)
    after = Sample((200.0,) * repeats, (steady(200),) * repeats, measured=True)
    judged = judge(Quantity.OPS, before, after)
    assert judged.basis is Basis.SECONDS
    assert judged.interval.low > 1.5
    assert judged.outcome is Outcome.CANNOT_TELL
    assert judged.leaning == 0
    assert judged.more_repeats == 3
    # Without a course neither; only published figures lean by themselves.
    alone = judge(Quantity.OPS, Sample((100.0,), measured=True), Sample((200.0,), measured=True))
    assert alone.leaning == 0


def test_one_or_two_repeats_of_one_truth_are_never_told_apart() -> None:
    random = np.random.default_rng(5)
    for repeats in (1, 2):
        for _ in range(40):
            sides = [
                Sample(
                    tuple(rates(random, repeats, 100, 0.05)),
                    tuple(series(wave(random, 200, 100, 0.3)) for _ in range(repeats)),
                    measured=True,
                )
                for _ in range(2)
            ]
            assert judge(Quantity.OPS, *sides).outcome is Outcome.CANNOT_TELL


def test_a_sentence_on_several_levels_says_how_surely_all_hold_at_once() -> None:
    three = judge(Quantity.OPS, Sample((100.0, 101.0, 102.0)), Sample((150.0, 151.0, 152.0)))
    assert wording.basis_of([three]) == wording.basis(three)
    told = wording.basis_of([three] * 4).replace(wording.SPACE, " ")
    assert told == "90 % interval, 3 repeats; all 4 at once: 60 % at least"
    many = wording.basis_of([three] * 6).replace(wording.SPACE, " ")
    assert many == "90 % interval, 3 repeats; each by itself, not all 6 at once"


def test_of_many_repeats_the_normal_distribution_gives_the_same_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = [verdict._cut.__wrapped__(n, n + 3) for n in (20, 35, 50)]
    monkeypatch.setattr(verdict, "MOST_EXACT", 1)
    for (cut, confidence), n in zip(exact, (20, 35, 50), strict=True):
        near, told = verdict._cut.__wrapped__(n, n + 3)
        assert abs(near - cut) <= 1
        assert told == pytest.approx(confidence, abs=0.002)


def test_thousands_of_repeats_take_little_and_say_the_same() -> None:
    random = np.random.default_rng(1)
    before = np.exp(random.normal(0, 0.1, 20_000))
    found = verdict.of_repeats(before.tolist(), (1.02 * before[::-1]).tolist())
    assert found.low < 1.02 < found.high
    assert found.high - found.low < 0.01
