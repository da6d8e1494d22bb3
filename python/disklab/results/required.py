"""Whether a cell keeps the promise of its `require`: met, missed, cannot tell, cannot sustain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, field_validator

from disklab.catalog.quantity import parse_disks
from disklab.errors import UserError
from disklab.results.figures import LARGEST, Amount, Count, Record
from disklab.results.records import PlannedTrial, TrialResult, of_cluster
from disklab.results.timetable import in_time, recovery_time_s

# Whether an offered rate was carried: the one rule of reports, requirements and advice.

SUSTAINED = 0.97
"""Share of the offered operations from which a rate counts as carried.

What is under way at the end is not counted. A queue that grows is soon far below.
"""
SURE = ("even", "trace")
"""Arrivals that are the same each time."""
DEVIATIONS = 4
"""Random arrivals of N operations vary by 1/sqrt(N) (one standard deviation). Further than four of
them off is chance in one run of 30,000."""


def offered_per_s(result: TrialResult) -> float | None:
    """Return the rate that an open loop offered, operations a second; None of a closed loop."""
    rate = result.loop.get("rate_per_s")
    return float(rate) if rate else None


def ceiling_per_s(result: TrialResult) -> float | None:
    """Return the operations a second that a closed loop may do at most; None: it has no ceiling."""
    rate = result.loop.get("at_most_per_s")
    return float(rate) if rate else None


def below_ceiling(ops_per_s: float, ceiling_per_s: float) -> str:
    """Return that a closed loop does not reach its ceiling."""
    share = ops_per_s / ceiling_per_s
    return (
        f"{ops_per_s:,.0f} of the {ceiling_per_s:,.0f} operations a second that the load's ceiling "
        f"allows ({share:.0%}): its threads do no more"
    )


def paced_at(results: Sequence[TrialResult]) -> float | None:
    """Return the ceiling that a closed loop is held by; None: it has none, or does not reach it.

    Its rate says nothing about disks then, and its latencies do: as those of an offered rate.
    """
    ceilings = {ceiling_per_s(result) for result in results}
    ceiling = ceilings.pop() if len(ceilings) == 1 else None
    rates = [result.ops_per_s for result in results if result.ops_per_s is not None]
    held = ceiling is not None and rates and median(rates) >= SUSTAINED * ceiling
    return ceiling if held else None


def carried_ratio(results: Sequence[TrialResult]) -> float | None:
    """Return the median of achieved over offered rates; None: the loop was closed."""
    ratios = [
        result.ops_per_s / rate
        for result in results
        if result.ops_per_s is not None and (rate := offered_per_s(result)) is not None
    ]
    return median(ratios) if ratios else None


def least_ratio(results: Sequence[TrialResult]) -> float:
    """Return the share of an offered rate that still counts as carried, by the shortest run.

    Short runs of random arrivals may do less by chance.
    """
    found = [_least(result) for result in results if offered_per_s(result) is not None]
    return min(found, default=SUSTAINED)


def is_overloaded(results: Sequence[TrialResult]) -> bool:
    """Return whether a cell cannot carry the rate that was offered to it."""
    ratio = carried_ratio(results)
    return ratio is not None and ratio < least_ratio(results)


def _least(result: TrialResult) -> float:
    rate, seconds = offered_per_s(result), result.duration_s
    if not rate or not seconds or result.loop.get("arrivals") in SURE:
        return SUSTAINED
    return min(SUSTAINED, max(0.0, 1 - DEVIATIONS / math.sqrt(rate * seconds)))


CLIFF_RATIO = 10.0
"""A band that reaches so many times its figure is no doubt about it, but a cliff: where things are
a little worse than calibrated, a queue grows for as long as the cell lasts."""

SURVIVES_DEALLOCATION = "survives deallocation"
MAY_BE_LOST = "may be lost"


class Outcome(str, Enum):
    """What became of a requirement; the value is how people say it."""

    MET = "met"
    MISSED = "missed"
    CANNOT_TELL = "cannot tell"
    CANNOT_SUSTAIN = "cannot sustain"


class Bounds(Record):
    """`require.read` as a run stores it: milliseconds."""

    mean_ms: Amount | None = None
    p50_ms: Amount | None = None
    p95_ms: Amount | None = None
    p99_ms: Amount | None = None
    p999_ms: Amount | None = None
    of_time_ratio: Amount | None = None
    """The share of a year's minutes that keep the bounds; None: a quiet hour counts."""

    def told(self) -> Iterator[tuple[str, float]]:
        """Yield each bound by the name that results have."""
        for name in ("mean", "p50", "p95", "p99", "p999"):
            bound = getattr(self, f"{name}_ms")
            if bound is not None:
                yield ("p99.9" if name == "p999" else name), bound


def _disks(text: str) -> str:
    try:
        parse_disks(text)
    except UserError as error:
        raise ValueError(error.problems[0].rule) from None
    return text


class Volume(Record):
    """What of a volume decides whether its data survive their VM."""

    disks: Annotated[str, AfterValidator(_disks)]
    caching: str | None = None


class Required(Record):
    """`require` as a run stores it, and what of the described system it is judged by."""

    all: Bounds | None = None
    read: Bounds | None = None
    write: Bounds | None = None
    storage_p99_ms: Amount | None = None
    rate_per_s: Amount | None = None
    head_room_ratio: Amount = 0.0
    durability: str = MAY_BE_LOST
    recovery_s: Amount | None = None
    budget_usd_per_month: Amount | None = None
    volumes: dict[str, Volume] = Field(default_factory=dict)
    """The cluster's volumes, for durability."""
    copies: int = 1
    """How many nodes have each row, for durability."""

    @property
    def of_time_ratio(self) -> float | None:
        """The largest share of time that any bound is to be kept for; None: none says."""
        parts = (self.all, self.read, self.write)
        ratios = [part.of_time_ratio for part in parts if part and part.of_time_ratio]
        return max(ratios, default=None)

    def latencies(self) -> Iterator[tuple[str, str, float]]:
        """Yield operation, percentile and bound in milliseconds."""
        for operation in ("all", "read", "write"):
            bounds: Bounds | None = getattr(self, operation)
            for name, bound in bounds.told() if bounds else ():
                yield operation, name, bound


class Cluster(Record):
    """What of a cluster a requirement is judged by."""

    volumes: dict[str, Volume] | None = None


class Database(Record):
    """What of a database a requirement is judged by."""

    replication_factor: Count | None = 1


class Specified(Record):
    """What of a trial's specification a requirement is judged by."""

    require: Required
    cluster: Cluster | None = None
    database: Database | None = None

    def required(self) -> Required:
        """Return what the trial requires, with what of its system it is judged by."""
        volumes = self.cluster.volumes if self.cluster is not None else None
        copies = self.database.replication_factor if self.database is not None else None
        return self.require.model_copy(
            update={"volumes": volumes or {}, "copies": 1 if copies is None else copies}
        )


class StoredTrial(PlannedTrial):
    """A planned trial of a folder whose author may be anybody: what reports read of it is typed."""

    @field_validator("spec")
    @classmethod
    def _specified(cls, spec: dict[str, Any]) -> dict[str, Any]:
        try:
            required_of(spec)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from None
        return spec


@dataclass(frozen=True)
class Point:
    """One requirement of a cell."""

    what: str
    """`read p99`, `rate`, `budget`, `durability`."""
    outcome: Outcome
    asked: str
    found: str
    """The figure, with its range where there is one."""
    miss: float = 1.0
    """The figure over what is asked, or the other way round: 1 or less keeps it for sure."""

    def __str__(self) -> str:
        """Return it in words: `read p99 12 ms (at most 10 ms)`."""
        return f"{self.what} {self.found} ({self.asked})"


@dataclass(frozen=True)
class Kept:
    """The judgement of one cell."""

    outcome: Outcome
    points: tuple[Point, ...]
    achieved_ratio: float | None = None
    """Achieved over offered operations, where the cell cannot sustain what is offered."""

    def __str__(self) -> str:
        """Return the outcome and its reason: `missed: read p99 12 ms (at most 10 ms)`."""
        if self.outcome is Outcome.MET:
            return str(self.outcome.value)
        told = [str(point) for point in self.points if point.outcome is self.outcome]
        return f"{self.outcome.value}: {'; '.join(told)}"


def required_of(spec: dict[str, Any]) -> Required | None:
    """Return what a trial requires, from its resolved specification; None: nothing."""
    return Specified.model_validate(spec).required() if spec.get("require") else None


def kept(required: Required, results: Sequence[TrialResult]) -> Kept | None:
    """Judge a cell by all its usable repeats; None: it has no figures."""
    usable = [result for result in results if result.usable]
    return judge(required, usable) if usable else None


def judge(required: Required, usable: Sequence[TrialResult]) -> Kept:
    """Judge a cell by its repeats with figures, of which there is one at least.

    A bound inside the range of the repeats, or inside the band of a prediction, cannot be told.
    """
    points = [
        *_durable(required),
        *_recovered(required, usable),
        *_affordable(required, usable),
    ]
    ratio = carried_ratio(usable)
    if ratio is not None and is_overloaded(usable):
        points.append(_overloaded(usable, ratio))
        # A queue that grows has no latency: its percentiles depend on how long the run was.
        return Kept(points[-1].outcome, tuple(points), ratio)
    points += [*_carried(required, usable), *_quick(required, usable), *_stored(required, usable)]
    outcomes = {point.outcome for point in points}
    for worst in (Outcome.CANNOT_SUSTAIN, Outcome.MISSED, Outcome.CANNOT_TELL):
        if worst in outcomes:
            return Kept(worst, tuple(points))
    return Kept(Outcome.MET, tuple(points))


def judged(results: Sequence[TrialResult], planned: Sequence[PlannedTrial]) -> dict[int, Kept]:
    """Return the judgement of every trial that requires something and has figures."""
    found = {}
    by_trial: dict[int, list[TrialResult]] = {}
    for result in results:
        by_trial.setdefault(result.trial, []).append(result)
    for trial in planned:
        required = required_of(trial.spec)
        told = kept(required, by_trial.get(trial.trial, [])) if required is not None else None
        if told is not None:
            found[trial.trial] = told
    return found


def _overloaded(results: Sequence[TrialResult], ratio: float) -> Point:
    achieved = max(result.ops_per_s or 0.0 for result in results)
    offered = max(float(result.loop["rate_per_s"]) for result in results)
    most = max(max(_banded(result, "ops_per_s", result.ops_per_s or 0.0)) for result in results)
    least = least_ratio(results) * offered
    outcome = Outcome.CANNOT_SUSTAIN if most < least else Outcome.CANNOT_TELL
    found = f"{achieved:,.0f}/s, {ratio * 100:.0f} % of what is offered"
    if outcome is Outcome.CANNOT_TELL:
        found += f", and may be {min(most, offered):,.0f}/s"
    return Point("carries", outcome, f"offered {offered:,.0f}/s", found)


def _carried(required: Required, results: Sequence[TrialResult]) -> Iterator[Point]:
    """Yield whether the rate is carried, with its head-room."""
    found = [rate for result in results if (rate := of_cluster(result)) is not None]
    rates = [offered_per_s(result) or paced_at([result]) for result in results]
    offered = [rate for rate in rates if rate]
    wanted = required.rate_per_s or (max(offered) if offered else None)
    if wanted is None or not found:
        return
    if not offered:
        wanted *= 1 + required.head_room_ratio
        span = min(found), max(found)
        asked = f"at least {wanted:,.0f}/s"
        yield Point("rate", _above(wanted, span), asked, _span(span, "/s", wanted))
        return
    if max(found) < wanted * least_ratio(results):
        asked = f"at least {wanted:,.0f}/s"
        yield Point("rate", Outcome.CANNOT_TELL, asked, f"only {max(found):,.0f}/s were offered")
    yield from _room(required.head_room_ratio, wanted, found, results)


def _room(
    wanted_ratio: float, rate_per_s: float, found: Sequence[float], results: Sequence[TrialResult]
) -> Iterator[Point]:
    """Yield whether an open loop leaves head-room: by what it carried, or by its fullest limit."""
    if not wanted_ratio:
        return
    asked = f"at least {wanted_ratio * 100:.0f} %"
    if min(found) >= rate_per_s * (1 + wanted_ratio) * least_ratio(results):
        yield Point("head-room", Outcome.MET, asked, f"{wanted_ratio * 100:.0f} %")
        return
    used = [one for result in results if (one := fullest(result)) is not None]
    if not used:
        return
    room = (min(1 / one - 1 for one in used), max(1 / one - 1 for one in used))
    percent = (room[0] * 100, room[1] * 100)
    outcome = _above(wanted_ratio, room)
    found_text = f"{_span(percent, ' %', wanted_ratio * 100)} by its fullest limit"
    miss = (1 + wanted_ratio) / (1 + room[0])
    yield Point("head-room", outcome, asked, found_text, miss)


def fullest(result: TrialResult) -> float | None:
    """Return the utilisation of the fullest limit, above 0; None: none is known."""
    told = [one.utilisation for one in result.telemetry.limits if one.utilisation]
    if result.bottleneck is not None and result.bottleneck.utilisation:
        told.append(result.bottleneck.utilisation)
    return max(told) if told else None


def _quick(required: Required, results: Sequence[TrialResult]) -> Iterator[Point]:
    """Yield whether latencies stay below their bounds: in a quiet hour, or so much of a year."""
    if required.of_time_ratio is not None:
        yield _of_time(required.of_time_ratio, results)
        return
    for operation, name, bound in required.latencies():
        found = []
        for result in results:
            told = result.latency_ms
            if operation != "all":
                one = result.per_operation.get(operation)
                told = one.latency_ms if one else {}
            if name in told:
                found += _banded(result, f"{name}_ms", told[name])
        what = name if operation == "all" else f"{operation} {name}"
        asked = f"at most {bound:g} ms"
        if not found:
            yield Point(what, Outcome.CANNOT_TELL, asked, "not measured")
            continue
        span = min(found), max(found)
        shown = _span(span, " ms", bound)
        if _at_cliff(results, name):
            shown = f"from {_span((span[0], span[0]), ' ms', bound)}, at a cliff"
        yield Point(what, _below(bound, span), asked, shown, _over(span[1], bound))


def _of_time(ratio: float, results: Sequence[TrialResult]) -> Point:
    """Return whether so many of a year's minutes keep the bounds, at both ends of zones."""
    asked = f"at least {percent_of_time(ratio)} of the minutes"
    years = [result.year for result in results if result.year is not None]
    if len(years) < len(results):
        return Point("a year", Outcome.CANNOT_TELL, asked, "a year is predicted, not measured")
    ends = [end for year in years for end in year.kept_ends]
    low, high = min(ends), max(ends)
    shares = dict.fromkeys((percent_of_time(low), percent_of_time(high)))
    bounds = years[0].promise
    return Point(
        bounds,
        _above(ratio, (low, high)),
        asked,
        " to ".join(shares),
        (1 - low) / (1 - ratio) if ratio < 1 else LARGEST,
    )


def percent_of_time(ratio: float) -> str:
    """Return a share of time with as many nines as it has: 99.95 %, 99.9993 %."""
    lost = 1 - ratio
    digits = 0 if lost <= 0 else min(max(1 - math.floor(math.log10(lost * 100)), 0), 6)
    text = f"{ratio * 100:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def _at_cliff(results: Sequence[TrialResult], name: str) -> bool:
    bands = [one.bands.figures.get(f"{name}_ms") for one in results if one.bands]
    return any(band is not None and band.high > CLIFF_RATIO for band in bands)


def _stored(required: Required, results: Sequence[TrialResult]) -> Iterator[Point]:
    """Yield whether storage's share of p99 stays below its bound."""
    bound = required.storage_p99_ms
    if bound is None:
        return
    promise = f"at most {bound:g} ms"
    shares = [result.storage_p99_ms for result in results if result.storage_p99_ms is not None]
    if len(shares) < len(results):
        yield Point("storage p99", Outcome.CANNOT_TELL, promise, "predicted only")
        return
    span = min(shares), max(shares)
    miss = _over(span[1], bound)
    yield Point("storage p99", _below(bound, span), promise, _span(span, " ms", bound), miss)


def _banded(result: TrialResult, figure: str, value: float) -> list[float]:
    """Return a figure, or the ends of its band. Operations have the band of all together."""
    band = result.bands.figures.get(figure) if result.bands else None
    return [value] if band is None else [value * band.low, value * band.high]


def _affordable(required: Required, results: Sequence[TrialResult]) -> Iterator[Point]:
    budget = required.budget_usd_per_month
    if budget is None:
        return
    asked = f"at most {budget:,.0f} USD a month"
    price = results[0].price_usd_per_month
    if price is None:
        yield Point("price", Outcome.CANNOT_TELL, asked, "not known")
        return
    outcome = Outcome.MET if price <= budget else Outcome.MISSED
    yield Point("price", outcome, asked, f"{price:,.0f} USD a month")


def _recovered(required: Required, results: Sequence[TrialResult]) -> Iterator[Point]:
    """Yield whether a lost node is back in time, in every repeat."""
    bound = required.recovery_s
    if bound is None:
        return
    asked = f"within {in_time(bound)}"
    times = [recovery_time_s(one.recovery) for one in results]
    known = [seconds for seconds in times if seconds is not None]
    if len(known) < len(times):
        yield Point("recovery", Outcome.CANNOT_TELL, asked, "not known")
        return
    least, most = min(known), max(known)
    outcome = Outcome.CANNOT_TELL if least <= bound < most else Outcome.MISSED
    if most <= bound:
        outcome = Outcome.MET
    longest = in_time(most)
    if most > bound and longest == in_time(bound):
        longest = f"{told_apart(most, bound)} s"
    shown = longest if least == most else f"{in_time(least)} to {longest}"
    yield Point("recovery", outcome, asked, shown, _over(most, bound))


def _durable(required: Required) -> Iterator[Point]:
    # Runs of disklab 0.x stored "none" where nothing was asked.
    if required.durability in (MAY_BE_LOST, "none"):
        return
    all_stopped = required.durability == SURVIVES_DEALLOCATION
    if required.copies > 1 and not all_stopped:
        return
    asked = f"data survive a {'deallocated' if all_stopped else 'lost'} VM"
    for name, volume in required.volumes.items():
        reason = lost(volume)
        if reason:
            alone = "" if required.copies > 1 else ", and there is no other copy"
            yield Point(f"volume {name}", Outcome.MISSED, asked, reason + alone)


def only_durability(told: Kept) -> bool:
    """Return whether an option misses nothing but that its data survive."""
    missed = [point for point in told.points if point.outcome is not Outcome.MET]
    return bool(missed) and all(point.what.startswith("volume ") for point in missed)


def lost(volume: Volume) -> str:
    """Return why a volume's data do not survive their VM; empty: they do.

    **Source:** Azure documentation, "Temporary disk" and "Virtual machine and disk performance":
    a stopped and deallocated VM loses its local disks, a failed host what a ReadWrite cache holds.
    """
    if parse_disks(volume.disks).is_local:
        return "is on the VM's own disks, which are lost with it"
    if volume.caching == "ReadWrite":
        return "has writes in the host's ReadWrite cache, which are lost with it"
    return ""


def _over(value: float, bound: float) -> float:
    return value / bound if bound else LARGEST


def _below(bound: float, span: tuple[float, float]) -> Outcome:
    if span[1] <= bound:
        return Outcome.MET
    return Outcome.MISSED if span[0] > bound else Outcome.CANNOT_TELL


def _above(bound: float, span: tuple[float, float]) -> Outcome:
    if span[0] >= bound:
        return Outcome.MET
    return Outcome.MISSED if span[1] < bound else Outcome.CANNOT_TELL


def _span(span: tuple[float, float], unit: str, bound: float) -> str:
    """Return a figure, or its range, as far as it tells which side of its bound that is."""
    low, high = (told_apart(one, bound) for one in span)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


MOST_DIGITS = 9


def told_apart(value: float, bound: float, digits: int = 3) -> str:
    """Return a figure rounded to `digits`, or to as many as put it on its side of a bound."""
    text = ""
    for count in range(max(digits, len(f"{value:.0f}")), MOST_DIGITS + 1):
        text = f"{value:,.{count}g}"
        rounded = float(text.replace(",", ""))
        if (rounded > bound, rounded < bound) == (value > bound, value < bound):
            break
    return text
