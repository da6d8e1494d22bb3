"""A year of disk weather: which volumes of a cluster are slow, stalled or away in each minute.

Each volume, zone and VM is a Markov process of its own: well for an exponential time, then in an
event of exponential length, so that the share of time in events is the stated one. A minute has the
weather of one moment in it, which keeps every share of time exact; stalls and freezes that are
shorter than a minute spoil theirs and count as a whole one.

**Divergence:** events of volumes and of zones are independent of the load, of the time of day and
of each other, except as `shared` says; an event has one depth from its start to its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from disklab.catalog.weather import HALF, Weather, level_spans

DAYS = 365
MINUTES_PER_DAY = 24 * 60
MINUTES_PER_YEAR = DAYS * MINUTES_PER_DAY
LEAST_MIN = 1.0
"""An event that is shorter spoils the p99 of its minute: more than 1 % of it."""

Sharing = Literal["none", "assumed", "all"]
SHARINGS: tuple[Sharing, ...] = ("none", "assumed", "all")
"""What of the slow time volumes of a zone have together: nothing, the weather's own share with its
own share of volumes, or all of it with all volumes. No source tells, so answers have all three."""


class State(IntEnum):
    """What a node's volume does, the worse the larger."""

    WELL = 0
    SLIGHT = 1
    """Slow, and more than half of what is provisioned is delivered."""
    SLOW = 2
    BLOCKED = 3
    """In effect."""
    STALLED = 4
    """It serves nothing, or its VM is frozen."""
    AWAY = 5
    """Its VM is lost, or restarts."""
    REBUILDING = 6
    """Its data come back from other copies."""


Minutes = NDArray[np.uint8]


@dataclass(frozen=True)
class Absence:
    """How a node goes away as a whole."""

    per_year: float
    away_min: float
    """Until its process is there again."""
    rebuild_min: float = 0.0
    """Then, until it has its data."""
    loses_data: bool = False

    @property
    def spans(self) -> tuple[tuple[State, float, float], ...]:
        """What its node is in turn: from when, and how long, in minutes.

        The minute in which the others notice it is as of a stall.
        """
        away = max(self.away_min, LEAST_MIN)
        return (
            (State.STALLED, 0.0, LEAST_MIN),
            (State.AWAY, LEAST_MIN, away - LEAST_MIN),
            (State.REBUILDING, away, self.rebuild_min),
        )


@dataclass(frozen=True)
class Fleet:
    """The volumes of a cluster and their weather."""

    nodes: int
    zones: int
    weather: Weather
    disks: int = 1
    """Of each node's stripe, which is as slow as the slowest of them."""

    @property
    def key(self) -> tuple[object, ...]:
        """What its years depend on."""
        return (self.nodes, self.zones, self.disks, *sorted(self.weather.items()))


@dataclass(frozen=True)
class Depth:
    """How deep a slow event goes."""

    state: State
    share: float
    """Of the slow events."""
    level: float
    """What is delivered, of what is provisioned: the middle of its levels."""


def depths_of(weather: Weather) -> list[Depth]:
    """Return the depths of slow events: levels are uniform between the weather's ends."""
    spans = level_spans(weather)
    whole = spans[-1][1] - spans[0][0]
    blocked = min(weather["blocked_level"], HALF)

    def state_of(low: float) -> State:
        return State.BLOCKED if low < blocked else State.SLOW if low < HALF else State.SLIGHT

    return [
        Depth(state_of(low), (high - low) / whole if whole else 1.0, (low + high) / 2)
        for low, high in spans
    ]


def shares_of(weather: Weather, sharing: Sharing) -> tuple[float, float, float]:
    """Return the share of time that a volume is slow by itself, that its zone is, and who is hit.

    The last is the share of the zone's volumes.
    """
    slow = weather["slow_ratio"]
    shared, hit = {
        "none": (0.0, 0.0),
        "assumed": (weather["shared_ratio"], weather["shared_volumes_ratio"]),
        "all": (1.0, 1.0),
    }[sharing]
    if not shared or not hit:
        return slow, 0.0, 0.0
    # Where few volumes share much, more would be the zone's than there is time.
    return (1 - shared) * slow, min(shared * slow / hit, HALF), hit


What = Literal["well", "one", "two", "many", "stalled", "lost", "rebuild"]
WHATS: tuple[What, ...] = get_args(What)


@dataclass(frozen=True)
class Kind:
    """A kind of weather: what is wrong with how many nodes."""

    what: What
    depth: State = State.WELL
    """Of slow volumes."""
    first: bool = False
    """Whether the first node is among them: the primary, where a database has one."""
    of_log: bool = False
    """Whether it is the volume with the log alone, and not that with the data."""


WELL = Kind("well")
WHAT_OF: dict[State, What] = {
    State.STALLED: "stalled",
    State.AWAY: "lost",
    State.REBUILDING: "rebuild",
}


KINDS = [
    Kind(what, depth, first, of_log)
    for of_log in (False, True)
    for what in WHATS
    for first in (False, True)
    for depth in State
]
CODES = {kind: code for code, kind in enumerate(KINDS)}
"""Of each kind: how minutes of a year have it."""


Counts = dict[Kind, int]
"""Minutes of a year, by kind."""


@dataclass(frozen=True)
class Year:
    """The weather of each minute of a drawn year."""

    codes: Minutes

    def minutes(self) -> Counts:
        """Return how many minutes each kind has."""
        counts = np.bincount(self.codes)
        return {KINDS[code]: count for code, count in enumerate(counts.tolist()) if count}

    def minutes_a_day(self, kinds: Iterable[Kind]) -> list[int]:
        """Return how many minutes of each of 365 days have one of these kinds."""
        is_one = np.isin(self.codes, [CODES[kind] for kind in kinds])
        days: list[int] = is_one.reshape(DAYS, MINUTES_PER_DAY).sum(axis=1).tolist()
        return days


Times = NDArray[np.float64]
Spell = tuple[int, State, NDArray[np.int64], NDArray[np.int64]]
"""A node, a state, and the minutes from which and before which it is in it."""


def drawn_year(fleet: Fleet, sharing: Sharing, seed: int) -> Year:
    """Return a year of a fleet's volumes; the same seed draws the same year."""
    return Year(_kinds(drawn_states(fleet, sharing, seed)))


def with_logs(year: Year, logs: Year) -> Year:
    """Return a year with the weather of the logs' own volumes, where those with the data are well.

    **Divergence:** what both have at once is that of the data.
    """
    codes = year.codes.copy()
    free = (codes == CODES[WELL]) & (logs.codes != CODES[WELL])
    codes[free] = logs.codes[free] + CODES[Kind("well", of_log=True)]
    return Year(codes)


def with_absences(year: Year, fleet: Fleet, absences: Sequence[Absence], seed: int) -> Year:
    """Return a year in which nodes go away, too; what their volumes did meanwhile is hidden."""
    stream = np.random.default_rng([seed, len(SHARINGS)])
    codes = year.codes.copy()
    spells = _absent_spells(fleet, absences, stream)
    for node, state, begins, ends in sorted(spells, key=lambda spell: spell[1]):
        code = CODES[Kind(WHAT_OF[state], first=node == 0)]
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            codes[begin:end] = code
    return Year(codes)


def absent_minutes(fleet: Fleet, absences: Sequence[Absence], seed: int) -> Counts:
    """Return the minutes of a drawn year in which some node is away, by kind."""
    found: Counts = {}
    stream = np.random.default_rng([seed, len(SHARINGS)])
    for node, state, begins, ends in _absent_spells(fleet, absences, stream):
        kind = Kind(WHAT_OF[state], first=node == 0)
        found[kind] = found.get(kind, 0) + int((ends - begins).sum())
    return found


def drawn_states(fleet: Fleet, sharing: Sharing, seed: int) -> Minutes:
    """Return what the volume of each node, a row each, does in each minute of a year."""
    stream = np.random.default_rng([seed, SHARINGS.index(sharing)])
    states = np.zeros((fleet.nodes, MINUTES_PER_YEAR), dtype=np.uint8)
    spells = [*_slow_spells(fleet, sharing, stream), *_stalled_spells(fleet, stream)]
    # The worse state is written last.
    for node, state, begins, ends in sorted(spells, key=lambda spell: spell[1]):
        row = states[node]
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            row[begin:end] = state
    return states


def _slow_spells(fleet: Fleet, sharing: Sharing, stream: np.random.Generator) -> Iterator[Spell]:
    """Yield when volumes are slow, by themselves and with their zone."""
    weather = fleet.weather
    own, zone_ratio, hit = shares_of(weather, sharing)
    depths, mean = depths_of(weather), weather["slow_min"]
    for node in range(fleet.nodes):
        for _ in range(fleet.disks):
            starts, lengths = _alternating(_rate(own, mean), mean, stream)
            yield from _by_depth([node], starts, lengths, depths, stream)
        pauses = weather["pauses_per_year"], weather["slow_after_pause_min"]
        if all(pauses):
            starts, lengths = _alternating(pauses[0] / MINUTES_PER_YEAR, pauses[1], stream)
            yield node, State.SLIGHT, *_minutes(starts, lengths)
    large = weather["zone_events_per_year"] / MINUTES_PER_YEAR, weather["zone_event_hours"] * 60
    large_hit = 1.0 if sharing == "all" else weather["zone_volumes_ratio"]
    for zone in range(fleet.zones):
        # They are spread in turn.
        nodes = range(zone, fleet.nodes, fleet.zones)
        for (rate, length), ratio in (
            ((_rate(zone_ratio, mean), mean), hit),
            (large, large_hit),
        ):
            starts, lengths = _alternating(rate, length, stream)
            yield from _by_depth(nodes, starts, lengths, depths, stream, ratio, fleet.disks)


def _by_depth(  # noqa: PLR0913, PLR0917 - an event has these parts
    nodes: Sequence[int],
    starts: Times,
    lengths: Times,
    depths: Sequence[Depth],
    stream: np.random.Generator,
    hit: float = 1.0,
    disks: int = 1,
) -> Iterator[Spell]:
    """Yield the spells of events of one depth each. `hit`: the share of volumes that it reaches."""
    if not starts.size:
        return
    which = stream.choice(len(depths), size=starts.size, p=[depth.share for depth in depths])
    for node in nodes:
        reached = stream.random(starts.size) < 1 - (1 - hit) ** disks
        for number, depth in enumerate(depths):
            mine = reached & (which == number)
            yield node, depth.state, *_minutes(starts[mine], lengths[mine])


def _stalled_spells(fleet: Fleet, stream: np.random.Generator) -> Iterator[Spell]:
    """Yield when volumes serve nothing, or their VMs are frozen."""
    weather = fleet.weather
    stalls = weather["stalls_per_year"] * fleet.disks / MINUTES_PER_YEAR
    freezes = weather["pauses_per_year"] / MINUTES_PER_YEAR
    for node in range(fleet.nodes):
        starts, lengths = _alternating(stalls, weather["stall_s"] / 60, stream)
        is_long = stream.random(lengths.size) < weather["long_stall_ratio"]
        lengths[is_long] = weather["long_stall_min"]
        yield node, State.STALLED, *_minutes(starts, np.maximum(lengths, LEAST_MIN))
        starts, lengths = _alternating(freezes, weather["pause_s"] / 60, stream)
        yield node, State.STALLED, *_minutes(starts, np.maximum(lengths, LEAST_MIN))


def _absent_spells(
    fleet: Fleet, absences: Sequence[Absence], stream: np.random.Generator
) -> Iterator[Spell]:
    """Yield when nodes are away."""
    for node in range(fleet.nodes):
        for absence in absences:
            whole = sum(length for _, _, length in absence.spans)
            starts, _ = _alternating(absence.per_year / MINUTES_PER_YEAR, whole, stream)
            for state, after, length in absence.spans:
                lengths = np.full(starts.size, length)
                yield node, state, *_minutes(starts + after, lengths)


def _rate(ratio: float, mean_min: float) -> float:
    """Return how often a minute an event begins while there is none, for its share of the time."""
    return ratio / (1 - ratio) / mean_min


def _alternating(
    rate_per_min: float, mean_min: float, stream: np.random.Generator
) -> tuple[Times, Times]:
    """Return starts and lengths of events of a year, in minutes: exponential gaps and lengths."""
    if not rate_per_min:
        return np.zeros(0), np.zeros(0)
    cycle = 1 / rate_per_min + mean_min
    # Six standard deviations more than there are on average: a year is full.
    count = MINUTES_PER_YEAR / cycle
    drawn = math.ceil(count + 6 * math.sqrt(count) + 6)
    gaps = stream.exponential(1 / rate_per_min, drawn)
    lengths = stream.exponential(mean_min, drawn)
    ends = np.cumsum(gaps + lengths)
    inside = ends - lengths < MINUTES_PER_YEAR
    return (ends - lengths)[inside], lengths[inside]


def _minutes(starts: Times, lengths: Times) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the minutes whose moment lies in each event: from the first, to before the second."""
    begins, ends = np.ceil(starts), np.ceil(starts + lengths)
    return begins.astype(np.int64), np.minimum(ends, MINUTES_PER_YEAR).astype(np.int64)


MANY = 3
"""So many slow volumes count as all of a zone."""


def _kinds(states: Minutes) -> Minutes:
    """Return the kind of weather of each minute, by its code."""
    worst = states.max(axis=0)
    minutes = np.flatnonzero(worst)
    states, worst = states[:, minutes], worst[minutes]
    is_slow = (states > State.WELL) & (states < State.STALLED)
    slow = is_slow.sum(axis=0, dtype=np.uint8)
    depth = np.where(worst < State.STALLED, worst, State.WELL)
    what = np.minimum(slow, MANY)
    what[worst == State.STALLED] = WHATS.index("stalled")
    codes = np.full(MINUTES_PER_YEAR, CODES[WELL], dtype=np.uint8)
    first = states[0] > State.WELL
    codes[minutes] = (what * 2 + first) * len(State) + depth
    return codes
