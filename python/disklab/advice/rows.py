"""Each hardware once, in one order, for terminal, page and JSON; and why not the cheaper ones.

What was simulated in full is shown by that, and nowhere by its sketch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.advice.candidates import Candidate
from disklab.advice.options import RANKS, Option
from disklab.advice.promise import TELLING, fullest_limit, limit_is
from disklab.advice.simulator import Fidelity, Tried
from disklab.results import TrialResult
from disklab.results.required import CLIFF_RATIO, Kept, Outcome, Point, carried_ratio, fullest

FIDELITIES: tuple[Fidelity, ...] = ("full", "quick", "sketch")
"""The surest first."""

ALTERNATIVES = 3
"""Other options of which the answer says why they are not it."""

TOO_DEAR = 2.5
"""What costs so many times an answer would not be bought, so it is neither searched nor confirmed
any further, and stands behind the rest."""


@dataclass(frozen=True)
class Row:
    """What became of one hardware."""

    candidate: Candidate
    nodes: int
    kept: Kept
    result: TrialResult
    fidelity: Fidelity
    option: Option | None = None
    """With all that is told of finalists; None: it is none."""

    @property
    def name(self) -> str:
        """As people order it: `3 x L16s_v3 with 2 x local NVMe`."""
        return self.candidate.ordered(self.nodes)

    @property
    def usd(self) -> float:
        """USD a month of all nodes."""
        return self.candidate.usd_per_month

    @property
    def outcome(self) -> Outcome:
        """Whether it keeps the promise, which a first look alone does not tell."""
        met = self.kept.outcome is Outcome.MET
        return Outcome.CANNOT_TELL if met and self.fidelity != "full" else self.kept.outcome

    @property
    def raised(self) -> bool:
        """Whether its figures are of the load with the head-room on top."""
        return self.option is None and self.result.bands is None

    @property
    def why(self) -> str:
        """Return why it is not known to keep the promise; empty: it is."""
        if self.outcome is Outcome.MET:
            return ""
        return "a first look only" if self.kept.outcome is Outcome.MET else str(self.kept)

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return {
            "option": self.name,
            "settings": self.candidate.settings,
            "usd_per_month": self.usd,
            "outcome": self.outcome.value,
            "why": self.why,
            "fidelity": self.fidelity,
            "ops_per_s": self.result.ops_per_s,
            "p99_ms": self.result.latency_ms.get("p99"),
        }


def rows_of(options: Sequence[Option], tried: Iterable[Tried], nodes: int) -> list[Row]:
    """Return a row for each hardware: options in their order, then the rest as it was ranked."""
    found = [
        Row(one.candidate, one.nodes, one.kept, one.results[0], "full", one) for one in options
    ]
    hardware = {one.candidate.hardware for one in found}
    best: dict[str, Tried] = {}
    for one in tried:
        other = best.get(one.candidate.hardware)
        if one.candidate.hardware not in hardware and (other is None or _sure(one) < _sure(other)):
            best[one.candidate.hardware] = one
    rest = [
        Row(one.candidate, one.candidate.nodes_of(nodes), one.kept, one.result, one.fidelity)
        for one in best.values()
    ]
    most = found[0].usd * TOO_DEAR if found and found[0].outcome is Outcome.MET else float("inf")
    rest.sort(
        key=lambda row: (row.candidate.lossy, row.usd > most, RANKS.index(row.outcome), row.usd)
    )
    return found + rest


def _sure(one: Tried) -> tuple[int, bool, bool, float]:
    missed = one.kept.outcome is not Outcome.MET
    return FIDELITIES.index(one.fidelity), one.result.bands is None, missed, one.miss


def alternatives(rows: Sequence[Row], room_ratio: float = 0.0) -> list[str]:
    """Return why the options beside the first, which is the answer, are not it.

    Of the cheaper ones those that save most, one of each kind of disks; then what does the same.
    `room_ratio`: the head-room, with which those were simulated that are no finalists.
    """
    answer, *others = rows
    sure = [one for one in others if one.fidelity == "full" or one.usd < answer.usd]
    cheaper = [one for one in sure if one.usd < answer.usd and one.fidelity != "sketch"]
    cheaper = [one for one in cheaper if one.outcome is not Outcome.MET]
    same = [one for one in sure if one.outcome is Outcome.MET]
    # What keeps its data is asked for first where the answer does not.
    same.sort(key=lambda one: (one.candidate.local and answer.candidate.local, one.usd))
    cheaper.sort(key=lambda one: (FIDELITIES.index(one.fidelity), one.usd))
    cheaper = [*_each_kind(cheaper)]
    few = cheaper[: ALTERNATIVES - min(1, len(same))]
    chosen = [*sorted(few, key=lambda one: one.usd), *same][:ALTERNATIVES]
    return [why_not(one, answer, room_ratio * one.raised) for one in chosen]


def _each_kind(rows: Iterable[Row]) -> Iterator[Row]:
    kinds = set()
    for one in rows:
        if one.candidate.disks.kind not in kinds:
            kinds.add(one.candidate.disks.kind)
            yield one


def why_not(one: Row, answer: Row, room_ratio: float = 0.0) -> str:
    """Return in one sentence why an option is not the answer."""
    saved = answer.usd - one.usd
    price = f"{abs(saved):,.0f} USD a month {'less' if saved > 0 else 'more'}"
    if round(saved) == 0:
        price = "the same price"
    if one.outcome is Outcome.MET:
        keeps = answer.candidate.local and not one.candidate.local
        data = ", and keeps its data when a VM stops" if keeps else ""
        return f"{one.name} does the same for {price}{data}."
    first = "would save" if saved > 0 else "costs"
    sum_ = f"{saved:,.0f} USD a month" if saved > 0 else price
    loaded = room_ratio and not one.candidate.lossy and one.kept.outcome is not Outcome.MET
    load = f"with {room_ratio * 100:.0f} % more load " if loaded else ""
    return f"{one.name} {first} {sum_}, but {load}{reason(one)}."


def reason(one: Row) -> str:
    """Return why an option does not keep the promise, in words that need no explanation."""
    if one.candidate.lossy:
        return (
            "loses its data with one VM: only `--may-be-lost` (`durability: may be lost`) buys it"
        )
    if one.kept.outcome is Outcome.MET:
        return "was looked at too briefly to be sure of it"
    ratio = carried_ratio([one.result])
    if one.kept.achieved_ratio is not None and ratio is not None:
        rate = one.result.ops_per_s or 0.0
        return (
            f"carries only {rate:,.0f} operations a second ({ratio * 100:.0f} %){_full(one.result)}"
        )
    point = max((p for p in one.kept.points if p.outcome is one.kept.outcome), key=lambda p: p.miss)
    if point.outcome is Outcome.CANNOT_TELL:
        return f"may miss it: {doubt(point, one.result)}"
    if point.asked.endswith("full"):
        limit = limit_is(point.what, point.found)
        return f"{limit} on average, which leaves no room ({point.asked})"
    bound = point.asked.removeprefix("at most ")
    return f"misses your {bound} ({point.what} {point.found}){_full(one.result)}"


def doubt(point: Point, result: TrialResult) -> str:
    """Return what a figure may be where it cannot be told whether it is within its bound."""
    bands = result.bands
    name = point.what.rpartition(" ")[2]
    band = bands.figures.get(f"{name}_ms") if bands else None
    if band is not None and band.high > CLIFF_RATIO:
        used = fullest(result)
        near = f" ({limit_is(fullest_limit(result), f'{used * 100:.0f} %')})" if used else ""
        return f"if the system is slightly slower than calibrated, work queues up{near}"
    return f"{point.what} is {point.found} ({point.asked})"


def _full(result: TrialResult) -> str:
    """Return the fullest limit, where it says why."""
    used = fullest(result)
    if used is None or used < TELLING:
        return ""
    return f": {limit_is(fullest_limit(result), f'{min(used, 1.0) * 100:.0f} %')}"
