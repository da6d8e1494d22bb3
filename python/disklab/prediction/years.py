"""Years of disk weather for the cells of a run, and what changes of a system would spare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from disklab.catalog import Catalog
from disklab.catalog.provisioning import Terms, provision
from disklab.catalog.quantity import DiskExpression, parse_disks
from disklab.catalog.weather import in_words
from disklab.engine.process import Workers
from disklab.errors import UserError
from disklab.prediction.cells import breaking_of
from disklab.prediction.weather import SHARINGS, WELL, Kind
from disklab.prediction.year import (
    Case,
    Draws,
    Job,
    Judge,
    case_of,
    simulated,
    year_of,
)
from disklab.results import Yearly
from disklab.results.weather import MINUTES_PER_MONTH, BoughtBack, Turn, WeatherYear
from disklab.spec import ClusterTrial, Trial
from disklab.spec.amounts import only
from disklab.spec.timetable import OtherHost, cluster_on


@dataclass(frozen=True)
class Tools:
    """What years are made with."""

    catalog: Catalog
    seed: int
    workers: Workers
    job_of: Callable[[Trial], Job | None]
    """Returns the job of a trial that differs from one of the file; None: it cannot be."""
    price_of: Callable[[ClusterTrial], float | None]


def weather_years(
    runnable: Mapping[int, tuple[Trial, Job]], costs: Mapping[int, Yearly], tools: Tools
) -> dict[int, WeatherYear]:
    """Return what a year costs each trial whose nodes the simulator breaks.

    `runnable`: jobs by the number of their trial; `costs`: what failures cost, where that is
    known. Raises EngineError when the engine dies.
    """
    catalog, seed = tools.catalog, tools.seed
    draws = Draws(seed)
    cases = {
        index: case
        for index, (trial, job) in runnable.items()
        if (case := case_of(trial, job, catalog, costs.get(index))) is not None
    }
    asked = {
        index: (case, case.kinds(year for of in SHARINGS for year in draws.of(case, of)))
        for index, case in cases.items()
    }
    answers = simulated(asked, seed, tools.workers)
    found, judges = {}, {}
    for index, case in cases.items():
        if answers[index].get(WELL, {}).get("event") == "cell":
            judges[index] = judge = Judge(case, answers[index])
            turns = [*_turns(case, judge, draws)]
            found[index] = year_of(case, draws, judge).model_copy(update={"turns": turns})
    troubled = [index for index, year in found.items() if year.above.mean][:MOST_CHANGED]
    for index in troubled:
        back = bought_back(runnable[index][0], cases[index], judges[index], tools, draws)
        found[index] = found[index].model_copy(update={"back": back})
    return found


MOST_CHANGED = 2
"""Cells for which changes are tried, the first that miss: each change is a year of its own."""
FEWER_YEARS = 20
"""Drawn for a change, or for another number."""
SELDOM_MIN = 0.5
"""Kinds with fewer minutes a month are left out where only a difference is asked for."""
BETTER = {
    **dict.fromkeys(("aws/gp2", "aws/gp3", "aws/st1"), "aws/io2"),
    **dict.fromkeys(("azure/StandardSSD", "azure/StandardHDD"), "azure/PremiumV2"),
}
"""What keeps its promise for longer, by family of disks: as large, with as many IOPS."""


def changed_trials(trial: Trial, catalog: Catalog) -> Iterator[tuple[str, Trial]]:
    """Yield what else could be bought: a change in words, and the trial with it."""
    spec = only(ClusterTrial, trial.spec)
    cluster, database = spec.cluster, spec.database
    breaking = breaking_of(trial)
    more = 1 if breaking is None else breaking.more_copies
    given = database.model_copy(update={"replication_factor": spec.copies + more})
    copies: dict[str, object] = {"database": given}
    if spec.copies + more > cluster.nodes:
        # Each server has all rows: a copy is a server.
        nodes = {"nodes": cluster.nodes + more}
        copies["cluster"] = cluster.model_copy(update=nodes)
    if breaking is not None and (not breaking.replaces or "cluster" not in copies):
        yield "one more copy" if more == 1 else f"{more} more copies", _with(trial, **copies)
    if cluster.zones < cluster.nodes:
        zone = cluster.model_copy(update={"zones": cluster.zones + 1})
        yield "another zone", _with(trial, cluster=zone)
    expression = parse_disks(cluster.volumes[cluster.device_of("data")].disks)
    if expression.is_local:
        return
    disk = provision(catalog, expression, Terms(place="data disks"))
    other = BETTER.get(disk.entry.family_name)
    if other is not None:
        better = DiskExpression(other, expression.count, disk.size_bytes, disk.iops)
        yield other.partition("/")[2], _on(trial, better)
    rate = disk.entry.facts.iops
    if rate is not None and rate.choosable and disk.iops is not None:
        twice = replace(expression, iops=2 * disk.iops)
    else:
        twice = replace(expression, count=2 * expression.count)
    yield "twice the IOPS", _on(trial, twice)


def _with(trial: Trial, **changes: object) -> Trial:
    return replace(trial, spec=trial.spec.model_copy(update=changes))


def _on(trial: Trial, disks: DiskExpression) -> Trial:
    cluster = only(ClusterTrial, trial.spec).cluster
    return _with(trial, cluster=cluster_on(cluster, OtherHost(disks=str(disks))))


def bought_back(
    trial: Trial, case: Case, before: Judge, tools: Tools, draws: Draws
) -> list[BoughtBack]:
    """Return what each change would spare; what cannot be had is left out."""
    missed = {case.in_words(kind) for kind in before.kinds if before.of(kind).above}
    changes: list[tuple[str, Case, dict[Kind, float]]] = []
    for name, changed in changed_trials(trial, tools.catalog):
        try:
            job = tools.job_of(changed)
        except UserError:
            job = None
        other = None if job is None else case_of(changed, job, tools.catalog, case.costs)
        if other is not None:
            changes.append((name, other, _often(other, draws.minutes(other, FEWER_YEARS), missed)))
    answers = simulated(
        {number: (other, often) for number, (_, other, often) in enumerate(changes)},
        tools.seed,
        tools.workers,
    )
    price = tools.price_of(case.spec)
    now = _often(case, draws.minutes(case, FEWER_YEARS), missed)
    lost = sum(minutes for kind, minutes in now.items() if case.in_words(kind) in missed)
    found = []
    for number, (name, other, often) in enumerate(changes):
        if WELL not in answers[number]:
            continue
        judge = Judge(other, answers[number], before)
        after = sum(minutes for kind, minutes in often.items() if judge.of(kind).above)
        then = tools.price_of(other.spec)
        found.append(
            BoughtBack(
                change=name,
                minutes_per_month=after,
                saved_min=lost - after,
                usd_per_month=None if price is None or then is None else round(then - price, 2),
            )
        )
    return found


def _often(case: Case, minutes: Mapping[Kind, float], missed: Set[str]) -> dict[Kind, float]:
    """Return the minutes of the kinds that are simulated for a change.

    A stall takes the longest to simulate, and no change makes one miss that did not before.
    """

    def counts(kind: Kind) -> bool:
        return kind.what != "stalled" or case.in_words(kind) in missed

    return {kind: each for kind, each in minutes.items() if each >= SELDOM_MIN and counts(kind)}


TURNING = (
    "slow_ratio",
    "stalls_per_year",
    "long_stall_ratio",
    "shared_ratio",
    "shared_volumes_ratio",
    "zone_events_per_year",
    "zone_event_hours",
    "zone_volumes_ratio",
    "vm_lost_per_year",
    "vm_restarts_per_year",
    "replaced_after_min",
    "pauses_per_year",
)
"""Numbers of the weather that move minutes without another simulation."""


def _turns(case: Case, judge: Judge, draws: Draws) -> Iterator[Turn]:
    """Yield what each number would make of a promise for a share of time, at both of its ends."""
    require = case.spec.require
    ratio = require.of_time_ratio if require is not None else None
    if ratio is None:
        return
    for name in TURNING:
        odds = case.weather.odds[name]
        ends = []
        for end in odds.ends if odds.ends[0] < odds.ends[1] else ():
            other = replace(case, weather=case.weather.with_value(**{name: end}))
            each = draws.minutes(other, FEWER_YEARS).items()
            missed = sum(minutes for kind, minutes in each if judge.of(kind).above)
            ends.append(max(1 - missed / MINUTES_PER_MONTH, 0.0))
        if ends:
            turns = (ends[0] >= ratio) is not (ends[1] >= ratio)
            yield Turn(number=in_words(name)[0], low=ends[0], high=ends[1], turns=turns)
