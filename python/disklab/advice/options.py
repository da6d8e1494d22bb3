"""What is told of an option: price, rate, latencies, limit, lever, and what a lost VM costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from disklab.advice.candidates import NODES, PLAINER_RATIO, Candidate
from disklab.advice.levers import cost_of, in_words
from disklab.prediction.outages import Rebuilt
from disklab.results import TrialResult
from disklab.results.required import (
    CLIFF_RATIO,
    Kept,
    Outcome,
    carried_ratio,
    fullest,
    is_overloaded,
    offered_per_s,
)
from disklab.results.seconds import largest, storage_p99_ms, stretches

SECONDS_IN_MINUTE = 60
MINUTES_IN_HOUR = 60
LONG_MINUTES = 90


@dataclass(frozen=True)
class Lever:
    """A setting that costs nothing, and what it does by simulation at quick fidelity."""

    setting: str
    before: str
    after: str
    cost: str = ""
    """What it takes for that; empty: nothing."""

    def __str__(self) -> str:
        """Return it in words."""
        cost = f", but {self.cost}" if self.cost else ""
        return f"{self.setting} ({self.before} -> {self.after}{cost})"


@dataclass(frozen=True)
class DisksAlone:
    """An option without garbage collection, simulated quick."""

    storage_ms: float
    """What of its p99 is storage."""
    p99_ms: float
    keeps: bool
    """Whether it keeps the promise then."""
    usual_p99_ms: float | None = None
    """With the collector that the file has, where the option has another."""

    def __str__(self) -> str:
        """Return storage's share, and what another collector does: `storage 1.5 ms`."""
        usual = self.usual_p99_ms
        other = f"; with G1 {short(usual)} ms" if usual is not None else ""
        return f"storage {short(self.storage_ms)} ms{other}"


def disks_alone(calm: TrialResult, keeps: bool, usual: TrialResult | None) -> DisksAlone | None:
    """Return what the disks do, from a cell without pauses, and one with the usual collector."""
    if is_overloaded([calm]):
        return None
    overloaded = usual is None or is_overloaded([usual])
    return DisksAlone(
        storage_p99_ms(calm.tail_ms) or 0.0,
        calm.latency_ms["p99"],
        keeps,
        None if overloaded or usual is None else usual.latency_ms["p99"],
    )


@dataclass(frozen=True)
class Option:
    """An option that was simulated at full fidelity."""

    candidate: Candidate
    results: tuple[TrialResult, ...]
    kept: Kept
    nodes: int
    rebuilt: Rebuilt | None
    """What a lost node needs to stream its data again, simulated beside the load; None: there is
    no other copy, or the simulator does not break nodes of this database."""
    raised: TrialResult | None = None
    """With the head-room on top of the load; None: none is asked for."""
    copied: bool = False
    """Whether other nodes have its data too."""
    levers: tuple[Lever, ...] = field(default=())
    disks: DisksAlone | None = None
    """What its disks do by themselves; None: not simulated, or overloaded."""

    @property
    def name(self) -> str:
        """As people order it: `3 x L16s_v3 with 2 x local NVMe`."""
        return self.candidate.ordered(self.nodes)

    @property
    def needs(self) -> list[str]:
        """Settings without which it fails, in words."""
        fixed = self.candidate.fixed
        return [
            f"{in_words(path, value)}{' for the data to fit' if path in fixed else ''}"
            for path, value in self.candidate.settings.items()
            if path != NODES
        ]

    @property
    def costs(self) -> list[str]:
        """What these settings take, in words."""
        settings = self.candidate.settings.items()
        return [cost for way in settings if (cost := cost_of(*way, self.candidate))]

    @property
    def price(self) -> str:
        """The price in words."""
        return f"{self.candidate.usd_per_month:,.0f} USD a month"

    @property
    def local(self) -> bool:
        """Whether its data go with the VM."""
        return self.candidate.local

    @property
    def head_room(self) -> float | None:
        """How much more the fullest limit lets through, as a share; None: overloaded."""
        used = [one for result in self.results if (one := fullest(result)) is not None]
        return 1 / max(used) - 1 if used else None

    @property
    def achieved_per_s(self) -> float:
        """Operations a second."""
        return max(result.ops_per_s or 0.0 for result in self.results)

    def latency(self, name: str) -> str:
        """Return a percentile of all operations with its band: `12 ms (8 to 16)`."""
        result = self.results[0]
        value = result.latency_ms.get(name)
        if value is None or self.kept.achieved_ratio is not None:
            return ""
        band = result.bands.figures.get(f"{name}_ms") if result.bands else None
        text = f"{short(value)} ms"
        if band is None:
            return text
        if band.high > CLIFF_RATIO:
            # Not a doubt about a figure: where things are a little worse, a queue grows.
            return f"{text}, at a cliff"
        return f"{text} ({short(value * band.low)} to {short(value * band.high)})"

    @property
    def cliff_ms(self) -> float | None:
        """What p99 is past a cliff that is within its band; None: there is none."""
        bands = self.results[0].bands
        band = bands.figures.get("p99_ms") if bands else None
        if band is None or band.high <= CLIFF_RATIO or not self.latency("p99"):
            return None
        return self.results[0].latency_ms["p99"] * band.high

    @property
    def carries(self) -> str:
        """What rate it carries, with its head-room."""
        ratio = carried_ratio(self.results)
        if self.kept.achieved_ratio is not None and ratio is not None:
            return f"{self.achieved_per_s:,.0f}/s ({ratio * 100:.0f} %)"
        offered = offered_per_s(self.results[0]) or self.achieved_per_s
        room = self.head_room
        return f"{offered:,.0f}/s" + (f", {spare(room)}" if room is not None else "")

    @property
    def bound_by(self) -> str:
        """The fullest limit, and how full it is."""
        return bound_by(self.results[0])

    @property
    def binds(self) -> str:
        """What bounds the option, for a table: a limit, or what its 99th percentile waits for."""
        if not self.bound_by.startswith("none"):
            return self.bound_by
        tail = self.tail.partition(",")[0]
        first = self.bound_by.partition("; first ")[2]
        return ", then ".join(part for part in (tail, first) if part)

    @property
    def tail(self) -> str:
        """What the 99th percentile mostly consists of; empty: nobody tells, or it is overloaded."""
        if self.kept.achieved_ratio is not None:
            return ""
        return largest(stretches(self.results, "p99"))

    @property
    def lost(self) -> str:
        """What is lost when a VM is stopped, moved or lost."""
        if self.rebuilt is None:
            if self.local and self.copied:
                return (
                    "that node's data, which the others have; how long a new one takes to copy "
                    "them is not simulated"
                )
            if self.local:
                return "that node's data, of which there is no other copy"
            return "nothing: the disks move to another VM"
        time = about(self.rebuilt.seconds)
        if self.rebuilt.bound != "latency":
            time += f", limited by {self.rebuilt.bound}"
        if self.local:
            return f"that node's data; streaming them again takes {time}"
        return f"nothing: the disks move to another VM; a replaced node takes {time}"

    def as_json(self) -> dict[str, Any]:
        """Return the option as JSON."""
        result = self.results[0]
        candidate = self.candidate
        return {
            "option": self.name,
            "factor": candidate.name,
            "vm": candidate.vm,
            "disks": candidate.disks.expression,
            "caching": candidate.disks.caching,
            "settings": candidate.settings,
            "usd_per_month": candidate.usd_per_month,
            "outcome": self.kept.outcome.value,
            "why": str(self.kept),
            "ops_per_s": self.achieved_per_s,
            "head_room_ratio": self.head_room,
            "latency_ms": result.latency_ms,
            "bands": result.bands.model_dump(mode="json")["figures"] if result.bands else {},
            "bottleneck": self.bound_by,
            "binds": self.binds,
            "storage_ms": None if self.disks is None else self.disks.storage_ms,
            "p99_without_pauses_ms": None if self.disks is None else self.disks.p99_ms,
            "tail_ms": stretches(self.results, "p99"),
            "levers": [str(lever) for lever in self.levers],
            "local_data": self.local,
            "recovery_s": None if self.rebuilt is None else round(self.rebuilt.seconds),
            "recovery_bound": None if self.rebuilt is None else self.rebuilt.bound,
            "recovery_lever": None if self.rebuilt is None else self.rebuilt.lever,
            "warnings": result.warnings,
        }


def spare(room: float) -> str:
    """Return what the fullest limit leaves in words.

    Limits that are nearly empty promise no rate: what latency does there was not simulated.
    """
    if room < 1:
        return f"{room * 100:.0f} % to spare"
    return f"nothing is more than {100 / (1 + room):.0f} % busy"


def bound_by(result: TrialResult) -> str:
    """Return the fullest limit of a cell, and how full it is."""
    bottleneck = result.bottleneck
    if bottleneck is None:
        return ""
    if bottleneck.resource == "latency":
        # No limit is near; the fullest one says what comes first with more load.
        limits = [one for one in result.telemetry.limits if one.utilisation]
        first = max(limits, key=lambda one: one.utilisation or 0.0, default=None)
        if first is None or first.utilisation is None:
            return "none"
        return f"none; first {first.limit} {first.utilisation * 100:.0f} %"
    used = "" if bottleneck.utilisation is None else f" {bottleneck.utilisation * 100:.0f} %"
    return bottleneck.resource + used


def levers_of(
    bare: TrialResult, others: Sequence[tuple[str, TrialResult, str]]
) -> tuple[Lever, ...]:
    """Return what each setting changes against the option without it, where that is for the better.

    `others`: setting, result, cost. A setting that makes it worse is no advice.
    """
    return tuple(
        Lever(setting, brief(bare), brief(result), cost)
        for setting, result, cost in others
        if _better(bare, result)
    )


EQUAL_RATIO = 1.05
"""Figures within this are called the same, as in a report."""


def _better(before: TrialResult, after: TrialResult) -> bool:
    """Return whether one carries more of what is offered, or else answers sooner."""
    if is_overloaded([before]) or is_overloaded([after]):
        did, does = carried_ratio([before]) or 0.0, carried_ratio([after]) or 0.0
        return does > did * EQUAL_RATIO
    return before.latency_ms["p99"] > after.latency_ms["p99"] * EQUAL_RATIO


def brief(result: TrialResult) -> str:
    """Return rate or latency, whichever tells more."""
    ratio = carried_ratio([result])
    if ratio is not None and is_overloaded([result]):
        return f"{result.ops_per_s or 0:,.0f}/s ({ratio * 100:.0f} %)"
    return f"p99 {short(result.latency_ms['p99'])} ms"


def short(value: float) -> str:
    """Return a number with what is known of it: two or three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def about(seconds: float) -> str:
    """Return a time in minutes or hours."""
    minutes = seconds / SECONDS_IN_MINUTE
    if minutes < LONG_MINUTES:
        return f"{max(1, round(minutes))} minutes"
    return f"{minutes / MINUTES_IN_HOUR:.1f} hours"


# In which order options stand: by price what keeps the promise, then how near the rest comes.

RANKS = (Outcome.MET, Outcome.CANNOT_TELL, Outcome.MISSED, Outcome.CANNOT_SUSTAIN)

ALIKE_RATIO = 1.25
"""Latencies without bands that differ by less are one: what a quick cell is off by."""

ALIKE_RATE_RATIO = 1.05
"""The same of rates, as in a report."""


def ranked(options: Iterable[Option], *, by_price: bool = False) -> list[Option]:
    """Return options in their order, each hardware once.

    What qualifies stands by price, but for what is plainer (`plain_first`). What misses stands by
    how far it is from the promise. Options
    that differ by less than their band are one group, sorted by price. What loses
    its data with one VM comes last. `by_price`: all miss for one reason that no disk has.
    """
    if by_price:
        return distinct(sorted(options, key=_usd))
    kinds: dict[int, list[Option]] = {}
    for option in options:
        lossy = option.candidate.lossy
        rank = len(RANKS) if lossy else RANKS.index(option.kept.outcome)
        kinds.setdefault(rank, []).append(option)
    found: list[Option] = []
    for rank in sorted(kinds):
        missing = rank < len(RANKS) and RANKS[rank] in (Outcome.MISSED, Outcome.CANNOT_SUSTAIN)
        for group in groups(kinds[rank]) if missing else [kinds[rank]]:
            ordered = sorted(group, key=_usd)
            found += ordered if rank else plain_first(ordered)
    return distinct(found)


SAME_PRICE = 0.03
"""List prices that differ by less are the same: then fewer nodes are the answer."""

MOST_NODES = 1 << 30
"""More than anybody has: sorts behind."""


def plain_first(options: Sequence[Option]) -> list[Option]:
    """Return options by price, but first the one that is plainer and costs hardly more."""
    cheapest = options[0].candidate
    same = cheapest.usd_per_month * (1 + SAME_PRICE)
    options = sorted(options, key=lambda one: one.nodes if _usd(one) <= same else MOST_NODES)
    cheapest = options[0].candidate
    first = next(
        (
            one
            for one in options
            if one.candidate.usd_per_month <= cheapest.usd_per_month * PLAINER_RATIO
            and one.candidate.plainer_than(cheapest)
        ),
        options[0],
    )
    return [first, *(one for one in options if one is not first)]


def groups(missing: Sequence[Option]) -> list[list[Option]]:
    """Return options that miss the promise, in groups that differ by less than their band.

    The nearest group comes first, and each begins with its nearest.
    """
    found: list[list[Option]] = []
    for option in sorted(missing, key=distance):
        if found and distance(option) <= distance(found[-1][0]) * _width(found[-1][0]):
            found[-1].append(option)
        else:
            found.append([option])
    return found


def distinct(options: Iterable[Option]) -> list[Option]:
    """Return the first option of each hardware, whatever its settings: one buys hardware."""
    found: dict[str, Option] = {}
    for option in options:
        found.setdefault(option.candidate.hardware, option)
    return [*found.values()]


def distance(option: Option) -> float:
    """Return how many times over the promise an option is; of one that falls behind, its load."""
    if option.kept.achieved_ratio is not None:
        return 1 / max(option.kept.achieved_ratio, 1e-6)
    return max((point.miss for point in option.kept.points), default=1.0)


def _width(option: Option) -> float:
    """Return by what factor another option's figure must differ to be another one."""
    behind = option.kept.achieved_ratio is not None
    bands = option.results[0].bands
    band = bands.figures.get("ops_per_s" if behind else "p99_ms") if bands is not None else None
    least = ALIKE_RATE_RATIO if behind else ALIKE_RATIO
    return least if band is None else max(least, band.high)


def _usd(option: Option) -> float:
    return option.candidate.usd_per_month
