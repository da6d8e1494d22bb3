"""A year of disk weather: closed forms, and drawn years against them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from disklab.catalog import load_catalog
from disklab.catalog.weather import Weather, weather_of
from disklab.prediction.outages import at_least
from disklab.prediction.weather import (
    MINUTES_PER_YEAR,
    SHARINGS,
    Absence,
    Fleet,
    Kind,
    Sharing,
    State,
    Year,
    depths_of,
    drawn_states,
    drawn_year,
    shares_of,
    with_absences,
)
from disklab.results.weather import MINUTES_PER_MONTH

CALM = {
    "stalls_per_year": 0.0,
    "zone_events_per_year": 0.0,
    "pauses_per_year": 0.0,
}
SEEDS = 200
FEWER = 60
"""Where three standard errors are the whole bound: each year takes its time."""


def weather(disk: str = "aws/gp3", /, **values: float) -> Weather:
    return weather_of(load_catalog(), disk, disk.partition("/")[0]).with_value(**values)


def any_in_trouble(weather: Weather, volumes: int, level: float) -> float:
    """Return the share of the time in which some of these volumes delivers less than a level.

    Volumes are independent, as they are in the arithmetic of those who have many.
    """
    least, most = weather["level_least"], weather["level_most"]
    below = min((level - least) / (most - least), 1.0) if most > least else least < level
    each = weather["slow_ratio"] * max(below, 0.0)
    return -math.expm1(volumes * math.log1p(-each))


def slow_copies_ratio(weather: Weather, copies: int, needed: int, sharing: Sharing) -> float:
    """Return the share of the time in which fewer than `needed` copies of a row are well.

    In closed form, for copies on one disk each in one zone: independent events, and those of the
    zone, which hit each copy by itself.
    """
    own, zone, hit = shares_of(weather, sharing)
    fatal = copies - needed + 1
    calm = at_least([own] * copies, fatal)
    return (1 - zone) * calm + zone * at_least([1 - (1 - own) * (1 - hit)] * copies, fatal)


def slow_minutes(fleet: Fleet, sharing: Sharing, seed: int, least: int) -> int:
    """Return the minutes in which so many nodes are slow."""
    states = drawn_states(fleet, sharing, seed)
    return int(np.count_nonzero((states > State.WELL).sum(axis=0, dtype=np.uint8) >= least))


def minutes_of(year: Year, what: str) -> int:
    """Return the minutes of a kind, whichever node it is."""
    return sum(minutes for kind, minutes in year.minutes().items() if kind.what == what)


def test_one_volume_is_slow_for_its_odds_times_their_length() -> None:
    given = weather(**CALM)
    per_year, mean_min = 0.01 * MINUTES_PER_YEAR / 6, 6.0
    fleet = Fleet(1, 1, given)
    drawn = [slow_minutes(fleet, "none", seed, 1) for seed in range(SEEDS)]
    error = np.std(drawn) / math.sqrt(SEEDS)
    assert abs(np.mean(drawn) - per_year * mean_min) < 3 * error
    assert np.mean(drawn) == pytest.approx(per_year * mean_min, rel=0.02)


@pytest.mark.parametrize(
    ("disk", "one", "independent", "assumed"),
    [("aws/gp3", 438, 13.05, 27.9), ("aws/io2", 43.8, 0.13, 1.68)],
)
def test_two_of_three_copies_are_slow_for_the_known_minutes_a_month(
    disk: str, one: float, independent: float, assumed: float
) -> None:
    given = weather(disk)

    def minutes(copies: int, needed: int, sharing: Sharing) -> float:
        return MINUTES_PER_MONTH * slow_copies_ratio(given, copies, needed, sharing)

    assert minutes(1, 1, "none") == pytest.approx(one)
    assert minutes(3, 2, "none") == pytest.approx(independent, abs=0.005)
    assert minutes(3, 2, "assumed") == pytest.approx(assumed, abs=0.05)
    # A common cause takes all copies at once: as one copy.
    assert minutes(3, 2, "all") == pytest.approx(one)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_drawn_years_of_three_copies_agree_with_the_closed_form(sharing: Sharing) -> None:
    given = weather(**CALM)
    drawn = [slow_minutes(Fleet(3, 1, given), sharing, seed, 2) for seed in range(FEWER)]
    exact = MINUTES_PER_YEAR * slow_copies_ratio(given, 3, 2, sharing)
    assert abs(np.mean(drawn) - exact) < 3 * np.std(drawn) / math.sqrt(FEWER)


def test_the_arithmetic_of_768_volumes() -> None:
    premises = {"level_least": 0.01, "level_most": 0.89}
    assert any_in_trouble(weather("aws/gp3", **premises), 768, 0.5) == pytest.approx(
        0.986, abs=5e-4
    )
    assert any_in_trouble(weather("aws/io2", **premises), 768, 0.5) == pytest.approx(
        0.348, abs=5e-4
    )


def test_a_stripe_is_slow_with_any_of_its_disks() -> None:
    given = weather(**CALM)
    drawn = [slow_minutes(Fleet(1, 1, given, disks=4), "none", seed, 1) for seed in range(50)]
    assert np.mean(drawn) == pytest.approx((1 - 0.99**4) * MINUTES_PER_YEAR, rel=0.02)


def test_a_node_is_away_as_often_and_as_long_as_stated() -> None:
    given = weather(slow_ratio=0.0, shared_ratio=0.0, **CALM)
    fleet, absences = Fleet(2, 1, given), [Absence(6.0, 30.0, 90.0)]
    calm = drawn_year(fleet, "none", 1)
    years = [with_absences(calm, fleet, absences, seed) for seed in range(SEEDS)]
    busy = 6 * 120 / MINUTES_PER_YEAR
    # In its first minute the others only notice it.
    for what, minutes in (("stalled", 1), ("lost", 29), ("rebuild", 90)):
        mean = np.mean([minutes_of(year, what) for year in years])
        assert mean == pytest.approx(2 * 6 * minutes / (1 + busy), rel=0.05)


def test_stalls_count_as_a_minute_at_least() -> None:
    given = weather(**CALM | {"stalls_per_year": 50.0}, slow_ratio=0.0, long_stall_ratio=0.0)
    years = [drawn_year(Fleet(1, 1, given), "none", seed) for seed in range(50)]
    mean = np.mean([minutes_of(year, "stalled") for year in years])
    # Of an exponential time of mean one half: what is below a minute counts as one.
    assert mean == pytest.approx(50 * (1 + 0.5 * math.exp(-2)), rel=0.05)


def test_slow_events_are_as_deep_as_the_uniform_law_says() -> None:
    depths = {depth.state: depth for depth in depths_of(weather())}
    assert depths[State.BLOCKED].share == pytest.approx(0.09 / 0.89)
    assert depths[State.SLOW].share == pytest.approx(0.40 / 0.89)
    assert depths[State.SLIGHT].share == pytest.approx(0.40 / 0.89)
    assert depths[State.SLIGHT].level == pytest.approx(0.7)
    local = depths_of(weather_of(load_catalog(), "local", "azure"))
    assert [(depth.state, depth.level) for depth in local] == [(State.SLIGHT, 0.5)]


def test_the_same_seed_draws_the_same_year_and_each_minute_has_a_kind() -> None:
    fleet, absences = Fleet(6, 3, weather(), 4), [Absence(2.0, 15.0, 30.0)]
    first, again = (
        with_absences(drawn_year(fleet, "assumed", 7), fleet, absences, 7) for _ in range(2)
    )
    assert (first.codes == again.codes).all()
    assert sum(first.minutes().values()) == MINUTES_PER_YEAR
    other = drawn_year(replace(fleet, nodes=7), "assumed", 7)
    assert not (first.codes == other.codes).all()
    days = first.minutes_a_day(set(first.minutes()) - {Kind("well")})
    assert len(days) == 365
    assert sum(days) == MINUTES_PER_YEAR - first.minutes()[Kind("well")]
