"""Yearly minutes and losses: known answers, and closed form against drawn years."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
from disklab.prediction.outages import (
    MINUTES_PER_YEAR,
    SECONDS_PER_YEAR,
    Outage,
    System,
    expected,
)

DAY_S = 86_400


def system(nodes: int, copies: int, needed: int, *outages: Outage, zones: int = 1) -> System:
    return System(nodes, zones, copies, needed, outages)


def test_one_node_is_away_for_its_share_of_time_and_loses_what_it_has() -> None:
    found = expected(system(1, 1, 1, Outage(12.0, DAY_S, loses_data=True)))
    share = 12 * DAY_S / (12 * DAY_S + SECONDS_PER_YEAR)
    assert found.unavailable_min == pytest.approx(share * MINUTES_PER_YEAR)
    # It cannot fail while it is away.
    assert found.losses == pytest.approx(12 * (1 - share))
    assert found.loss_probability == pytest.approx(1 - math.exp(-found.losses))


def test_two_copies_are_lost_when_the_second_fails_during_the_rebuild_of_the_first() -> None:
    # The textbook's mean time to data loss of a mirror: MTTF^2 / (2 MTTR).
    found = expected(system(2, 2, 1, Outage(0.1, DAY_S, loses_data=True)))
    mttr_years = DAY_S / SECONDS_PER_YEAR
    assert found.losses == pytest.approx(2 * mttr_years / 10**2, rel=0.001)


def test_restarts_cost_minutes_and_no_data() -> None:
    found = expected(system(3, 3, 2, Outage(4.0, 60, loses_data=False)))
    assert found.losses == 0
    share = 4 * 60 / SECONDS_PER_YEAR
    assert found.unavailable_min == pytest.approx(3 * share**2 * MINUTES_PER_YEAR, rel=0.001)


def test_a_row_needs_its_own_copies_alone() -> None:
    many = expected(system(30, 3, 2, Outage(1.0, DAY_S, loses_data=True)))
    few = expected(system(3, 3, 2, Outage(1.0, DAY_S, loses_data=True)))
    assert many.row_unavailable_min == pytest.approx(few.row_unavailable_min)
    assert many.unavailable_min > 50 * few.unavailable_min


def test_copies_in_zones_of_their_own_share_fewer_failures() -> None:
    outage = Outage(1.0, DAY_S, loses_data=True)
    spread = expected(system(9, 3, 2, outage, zones=3))
    flat = expected(system(9, 3, 2, outage))
    assert spread.unavailable_min == pytest.approx(27 / 36 * flat.unavailable_min, rel=0.02)
    # 27 of the 84 threes have one node of each zone.
    assert spread.losses == pytest.approx(27 / 84 * flat.losses, rel=0.02)


# Failures so frequent that drawn years see what is rare otherwise.
OFTEN = (Outage(8.0, 5 * DAY_S, loses_data=True), Outage(20.0, DAY_S, loses_data=False))


@dataclass(frozen=True)
class Drawn:
    """What was seen in drawn years."""

    years: float
    unavailable_min: float
    """A year."""
    outages: int
    """Times that some row could not be served, in all the years."""
    losses: int
    """In all the years."""


def drawn_years(system: System, seed: int, most: int) -> Drawn:
    """Return what failures drawn one after the other did, of as many years as have `most` of them.

    Times between failures are exponential, those away as long as each outage says.
    """
    rate = sum(one.per_year for one in system.outages) * system.nodes
    years = most / rate
    stream = random.Random(seed)
    zone_of = [at for at, count in enumerate(system.groups) for _ in range(count)]
    changes: list[tuple[float, int, int, bool]] = []
    for node in range(system.nodes):
        changes += _life_of(system, node, years, stream)
    changes.sort()
    away, empty = [0] * len(system.groups), [0] * len(system.groups)
    unavailable, outages, losses, was_whole = 0.0, 0, 0, True
    for (at, node, change, loses), (then, *_) in pairwise([*changes, (years, 0, 0, False)]):
        zone = zone_of[node]
        away[zone] += change
        if loses:
            before = sum(map(bool, empty))
            empty[zone] += change
            now = sum(map(bool, empty))
            losses += now > before and now == system.copies
        is_whole = sum(map(bool, away)) < system.fatal
        if not is_whole:
            unavailable += min(then, years) - min(at, years)
        outages += was_whole and not is_whole
        was_whole = is_whole
    return Drawn(years, unavailable / years * MINUTES_PER_YEAR, outages, losses)


def _life_of(
    system: System, node: int, years: float, stream: random.Random
) -> list[tuple[float, int, int, bool]]:
    """Return when a node goes and comes, in years, in the order of time."""
    rates = [one.per_year for one in system.outages]
    rate, at = sum(rates), 0.0
    found: list[tuple[float, int, int, bool]] = []
    while True:
        at += stream.expovariate(rate)
        if at >= years:
            return found
        (outage,) = stream.choices(system.outages, rates)
        found.append((at, node, 1, outage.loses_data))
        at += outage.away_s / SECONDS_PER_YEAR
        found.append((at, node, -1, outage.loses_data))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("nodes", "copies", "needed", "zones"),
    [(1, 1, 1, 1), (3, 3, 2, 1), (3, 3, 1, 3), (6, 3, 2, 1), (7, 3, 2, 3), (9, 3, 3, 3)],
)
def test_closed_form_and_drawn_years_agree(
    nodes: int, copies: int, needed: int, zones: int, seed: int
) -> None:
    given = system(nodes, copies, needed, *OFTEN, zones=zones)
    exact, drawn = expected(given), drawn_years(given, seed, 40_000)
    # In the rarest case, three of three away, runs deviate by 5 %.
    assert drawn.unavailable_min == pytest.approx(exact.unavailable_min, rel=0.15)
    # Four standard deviations of a number of rare events.
    mean = exact.losses * drawn.years
    assert mean > 80
    assert abs(drawn.losses - mean) < 4 * math.sqrt(mean)
