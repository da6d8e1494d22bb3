"""What failures cost in a year: minutes without rows, and the probability of losing some.

Nodes fail independently of each other, each at its stated rates, and are away for the times that a
simulated loss and a simulated restart take. Then everything follows in closed form (alternating
renewal processes), and by drawing years (`drawn_years`), which needs no formula: a test holds one
against the other.

**Divergence:** a zone, a rack or a release that takes several nodes at once is not in it; nor is
that the rebuild of a second node takes longer while a first one is still away.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise

HOURS_PER_YEAR = 8766
MINUTES_PER_YEAR = HOURS_PER_YEAR * 60
SECONDS_PER_YEAR = HOURS_PER_YEAR * 3600


@dataclass(frozen=True)
class Outage:
    """One way in which a node fails."""

    per_year: float
    """How often, while it is up."""
    away_s: float
    """How long it is away each time."""
    loses_data: bool


@dataclass(frozen=True)
class System:
    """Nodes, their copies, and how each of them fails."""

    nodes: int
    zones: int
    copies: int
    needed: int
    """Copies that an operation needs."""
    outages: tuple[Outage, ...]

    @property
    def groups(self) -> tuple[int, ...]:
        """Nodes of each zone, where copies are in zones of their own; else each node is one."""
        if self.zones < self.copies or self.zones == 1:
            return (1,) * self.nodes
        return tuple(
            self.nodes // self.zones + (zone < self.nodes % self.zones)
            for zone in range(self.zones)
        )

    @property
    def fatal(self) -> int:
        """Zones with a node away at which some row has too few copies."""
        return self.copies - self.needed + 1


@dataclass(frozen=True)
class Expected:
    """What a year costs on average."""

    unavailable_min: float
    """Minutes in which some row cannot be served at the level."""
    row_unavailable_min: float
    """The same of a given row, so also the share of failing operations."""
    losses: float
    """Times a year that all copies of some row are away with their data."""

    @property
    def loss_probability(self) -> float:
        """Of at least one loss in a year."""
        return -math.expm1(-self.losses)


def expected(system: System) -> Expected:
    """Return what a year costs, in closed form.

    **Source:** alternating renewal processes: a node that fails at rates l1, l2, ... for times t1,
    t2, ... is away for the share (l1 t1 + ...) / (1 + l1 t1 + ...) of the time, whatever the
    distribution of the times (Barlow and Proschan, Mathematical Theory of Reliability, 1965).
    Independent nodes multiply.
    """
    busy = sum(one.per_year * one.away_s / SECONDS_PER_YEAR for one in system.outages)
    up = 1 / (1 + busy)
    away = busy * up
    empty = up * sum(
        one.per_year * one.away_s / SECONDS_PER_YEAR for one in system.outages if one.loses_data
    )
    emptied = up * sum(one.per_year for one in system.outages if one.loses_data)
    zones = [1 - (1 - away) ** count for count in system.groups]
    return Expected(
        MINUTES_PER_YEAR * _at_least(zones, system.fatal),
        MINUTES_PER_YEAR * _at_least([away] * system.copies, system.fatal),
        _losses(system, empty, emptied),
    )


def _counts(shares: list[float]) -> list[float]:
    """Return the probability of each number of things that are so, of things with such shares."""
    found = [1.0]
    for share in shares:
        found = [
            (found[count] * (1 - share) if count < len(found) else 0.0)
            + (found[count - 1] * share if count else 0.0)
            for count in range(len(found) + 1)
        ]
    return found


def _at_least(shares: list[float], count: int) -> float:
    return sum(_counts(shares)[count:])


def _losses(system: System, empty: float, emptied: float) -> float:
    """Return how often a year one zone more than all others of some row becomes empty.

    `empty`: share of time that a node is without its data; `emptied`: how often a year it loses
    them.
    """
    groups = system.groups
    found = 0.0
    for zone, count in enumerate(groups):
        others = [1 - (1 - empty) ** size for at, size in enumerate(groups) if at != zone]
        # The node that fails is the first of its zone, and the others lack just this one.
        first = count * emptied * (1 - empty) ** (count - 1)
        lacking = _counts(others)[system.copies - 1] if len(others) >= system.copies - 1 else 0.0
        found += first * lacking
    return found


MOST_FAILURES = 100_000
"""That are drawn: a second of one core. Their mean number is known to a third of a percent."""


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


def drawn_years(system: System, seed: int, most: int = MOST_FAILURES) -> Drawn:
    """Return what failures drawn one after the other did, of as many years as have `most` of them.

    Times between failures are exponential, those away as long as each outage says.
    """
    rate = sum(one.per_year for one in system.outages) * system.nodes
    years = most / rate
    stream = random.Random(seed)  # noqa: S311 - chance that anybody can draw again
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
