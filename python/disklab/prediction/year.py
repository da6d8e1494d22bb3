"""What a year of disk weather costs a cell: each kind of weather is one simulation of its own load.

A kind's minutes all have the p99 of its simulation, which is held against the promise. How many
minutes a kind has is drawn (`weather`).

A log on its own volume has that volume's weather.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from disklab.catalog import Catalog
from disklab.catalog.profile import Distribution, quantile_ns
from disklab.catalog.weather import HALF, Weather, weather_of_disks
from disklab.databases.simulating import NS_PER_S, Breaking
from disklab.engine.process import Memory, Workers, simulate_once
from disklab.prediction.cells import breaking_of, database_part, with_part
from disklab.prediction.outages import AT_ONCE_S, Outage, System, expected, needed_of, volume_of
from disklab.prediction.weather import (
    CODES,
    SHARINGS,
    WELL,
    WHAT_OF,
    Absence,
    Counts,
    Fleet,
    Kind,
    Sharing,
    State,
    Year,
    absent_minutes,
    depths_of,
    drawn_year,
    with_absences,
    with_logs,
)
from disklab.results import Yearly
from disklab.results.required import SUSTAINED
from disklab.results.weather import (
    MINUTES_PER_MONTH,
    MONTHS,
    Minutes,
    WeatherKind,
    WeatherYear,
)
from disklab.spec import ClusterTrial, TimedEvent, Trial
from disklab.spec.timetable import Failures, nodes_of_zone
from disklab.spec.timetable_checks import lost_with_vm

Job = dict[str, Any]

YEARS = 100
"""Drawn for each share of zones: tenths of them are ten."""
LOGS = 1_000_000
"""Between the seeds of a year's volumes with data and those of its logs."""
FIRST_S, MOST_S, STALLED_S = 1.0, 20.0, 7.0
"""What is simulated of a quiet hour to see its rate, of any weather at most, and of what serves
nothing: until reads have timed out, after 5 s as Cassandra ships."""
LEAST_S = 0.5
"""Ten refill windows."""
OPERATIONS = 10_000
"""A hundred of them are slower than p99."""
SETTLED_S = 0.5
"""Of the load before the weather changes."""
UNSTATED = 2.0
"""Without a promise, a p99 of more than twice that of a quiet hour is bad."""
FAILED_RATIO = 0.01
"""Where more operations fail, the slowest hundredth has no time at all."""
MOST_TIMES = 1000.0


def stated_failures(weather: Weather, spec: ClusterTrial) -> Failures:
    """Return how often nodes fail: as the file says, else by the weather."""
    if spec.failures is not None:
        return spec.failures
    names = ("vm_lost_per_year", "vm_restarts_per_year", "disk_lost_per_year", "restarted_after_s")
    times = {"replaced_after_s": weather["replaced_after_min"] * SECONDS}
    # What happens once in a billion years is nothing to simulate.
    rates = {name: round(weather[name], 9) for name in names}
    return Failures.model_construct(None, **rates, **times)


def weather_of_trial(spec: ClusterTrial, catalog: Catalog, name: str = "data") -> Weather:
    """Return the weather of the disks of one of a trial's volumes."""
    volume = spec.cluster.volumes[spec.cluster.device_of(name)]
    return weather_of_disks(catalog, volume.disks, spec.cluster.vm.partition("/")[0])


NO_YEAR = (
    "the simulator can fail nodes of Cassandra, PostgreSQL, MariaDB, MySQL, etcd and YugabyteDB "
    "under a given load, but no devices"
)


@dataclass(frozen=True)
class Case:
    """A cell, its weather, and the simulations that tell what each kind does to it."""

    spec: ClusterTrial
    job: Job
    breaking: Breaking
    weather: Weather
    costs: Yearly | None
    """What a lost node takes, where the simulator knows that."""
    log_weather: Weather | None = None
    """Of the log's own volume; None: it has none."""

    @property
    def is_open(self) -> bool:
        """Whether its load has a rate of its own, and its clients do not wait."""
        load = self.spec.workload.load
        return load is not None and load.rate_per_s is not None

    @property
    def fleet(self) -> Fleet:
        """The volumes."""
        cluster = self.spec.cluster
        return Fleet(cluster.nodes, cluster.zones, self.weather, self._disks())

    @property
    def logs(self) -> Fleet | None:
        """The logs' own volumes; a VM that is frozen is counted with those of the data."""
        if self.log_weather is None:
            return None
        weather = self.log_weather.with_value(pauses_per_year=0.0)
        return replace(self.fleet, weather=weather, disks=self._disks(of_log=True))

    def _volume(self, *, of_log: bool = False) -> Job:
        return volume_of(self.job, "commitlog_volume" if of_log else "data_volume")

    def _disks(self, *, of_log: bool = False) -> int:
        return len(self._volume(of_log=of_log)["disks"])

    def absences(self) -> list[Absence]:
        """Return how nodes go away: lost VMs and disks, and restarts."""
        failures, costs = stated_failures(self.weather, self.spec), self.costs
        away_s, booted_s = failures.replaced_after_s, failures.restarted_after_s
        own = lost_with_vm(self.spec)
        lost_s = disk_s = None
        if costs is not None:
            lost_s, disk_s = costs.lost_s, costs.disk_lost_s
            booted_s = booted_s if costs.restarted_s is None else costs.restarted_s
        disks = 0 if own else self._disks()
        rates = (
            (failures.vm_lost_per_year, away_s, lost_s, own),
            (failures.disk_lost_per_year * disks, away_s, disk_s, True),
            (failures.vm_restarts_per_year, booted_s, booted_s, False),
        )
        return [
            Absence(rate, gone_s / 60, max((back_s or gone_s) - gone_s, 0.0) / 60, loses)
            for rate, gone_s, back_s, loses in rates
            if rate
        ]

    def canonical(self, kind: Kind) -> Kind:
        """Return the kind that is simulated for it: nodes of some databases are alike."""
        if kind == WELL:
            return WELL
        return kind if self.breaking.first else replace(kind, first=True)

    def kinds(self, years: Iterable[Counts]) -> set[Kind]:
        """Return what is simulated for these years."""
        drawn = {self.canonical(kind) for year in years for kind in year}
        return drawn | {WELL, *_absent_minutes(self)}

    def in_words(self, kind: Kind) -> str:
        """Return a kind of weather in words, with whose it is where that makes a difference."""
        words = NAMES[kind.what]
        if kind.of_log:
            words = words.replace("volume", "log volume").replace("zone", "zone of log volumes")
        if (first := self.breaking.first) and kind.what != "well":
            if kind.what in ("two", "many"):
                words += f" ({'with' if kind.first else 'without'} the {first})"
            else:
                words += f" ({f'the {first}' if kind.first else 'another node'})"
        return words + (f", {DEPTHS[kind.depth]}" if kind.depth in DEPTHS else "")

    def job_of(self, kind: Kind, window_s: float) -> Job:
        """Return the simulation of a kind of weather, so long."""
        delays = self.breaking.delays
        # Lost, and known to be: the minute before it is a stall's.
        known = replace(delays, start_s=0.0, join_s=0.0, notice_s=0.0, gossip_s=0.0)
        events = [TimedEvent.model_validate(event) for event in self._events(kind)]
        part = database_part(self.job)
        if kind.what == "stalled":
            window_s = max(window_s, STALLED_S)
        duration_ns = round((window_s + SETTLED_S) * NS_PER_S)
        course: Job = {"warm_up_ns": round(SETTLED_S * NS_PER_S)}
        # Terminals and threads of sysbench stop after a time alone.
        if "stop" in part["workload"]:
            course["stop"] = {"operations": None, "duration_ns": duration_ns}
        else:
            course["duration_ns"] = duration_ns
        waits = delays if kind.what == "stalled" else known
        faults = self.breaking.job(events, self.spec.database, waits, self.spec.cluster, ())
        return with_part(self.job, {"workload": part["workload"] | course, "faults": faults})

    def _events(self, kind: Kind) -> Iterator[Job]:
        nodes = self._nodes(kind)
        volume = {"volume": self._volume(of_log=True)["name"]} if kind.of_log else {}
        if kind.what == "rebuild":
            yield {"at": "0s", "lose": nodes[0]}
            yield {"at": f"{AT_ONCE_S}s", "replace": nodes[0]}
            return
        for node in nodes:
            if kind.what == "stalled":
                yield {"at": "0s", "stall": node, **volume}
            elif kind.what == "lost":
                yield {"at": "0s", "lose": node}
            else:
                yield {"at": "0s", "slow": node, "times": self.times(kind), **volume}

    def _nodes(self, kind: Kind) -> list[str]:
        cluster = self.spec.cluster
        names = [f"n{number + 1}" for number in range(cluster.nodes)]
        if kind.what == "well":
            return []
        if kind.what == "many":
            zone = nodes_of_zone(cluster, "1")
            return zone if len(zone) > 2 else names
        first = 0 if kind.first or len(names) == 1 else 1
        return names[first : first + (2 if kind.what == "two" else 1)] or names[-1:]

    def times(self, kind: Kind) -> float:
        """Return how many times as long I/Os take in a slow event of a kind."""
        weather = self.log_weather if kind.of_log and self.log_weather is not None else self.weather
        if kind.depth == State.BLOCKED:
            disk = self._volume(of_log=kind.of_log)["disks"][0]
            write = Distribution.model_validate(disk["latency"]["write"])
            usual_ms = float(quantile_ns(write, 500_000)) / 1e6
            return round(min(max(weather["blocked_ms"] / usual_ms, 2.0), MOST_TIMES), 3)
        (level,) = (each.level for each in depths_of(weather) if each.state == kind.depth)
        return round(1 / level, 3)


def case_of(trial: Trial, job: Job, catalog: Catalog, costs: Yearly | None) -> Case | None:
    """Return the weather of a trial; None: the simulator breaks none of its nodes, or has no load.

    A load that is searched for, and caches that another trial leaves, have no quiet hour.
    """
    breaking, spec = breaking_of(trial), trial.spec
    has_load = not job.get("then") and spec.variable is None
    if spec.cluster is None or breaking is None or not has_load or not database_part(job):
        return None
    log = database_part(job)["cluster"].get("commitlog_volume")
    return Case(
        spec,
        job,
        breaking,
        weather_of_trial(spec, catalog),
        costs,
        None if log is None else weather_of_trial(spec, catalog, log),
    )


class Draws:
    """Drawn years; those of equal fleets are drawn once."""

    def __init__(self, seed: int) -> None:
        """Draw years of the seed and those behind it."""
        self.seed = seed
        self._drawn: dict[object, list[Counts]] = {}

    def year(self, case: Case, sharing: Sharing = "assumed", number: int = 0) -> Year:
        """Return a year of a case's volumes."""
        seed, logs = self.seed + number, case.logs
        year = drawn_year(case.fleet, sharing, seed)
        return year if logs is None else with_logs(year, drawn_year(logs, sharing, seed + LOGS))

    def of(self, case: Case, sharing: Sharing = "assumed", years: int = YEARS) -> list[Counts]:
        """Return the minutes of so many years."""
        key = case.fleet.key, case.logs and case.logs.key, sharing
        drawn = self._drawn.setdefault(key, [])
        missing = range(len(drawn), years)
        drawn += [self.year(case, sharing, number).minutes() for number in missing]
        return drawn[:years]

    def minutes(self, case: Case, years: int) -> dict[Kind, float]:
        """Return the minutes a month of each kind, with the share of zones that is assumed."""
        return minutes_of(case, self.of(case, years=years))


class Judge:
    """Holds the simulation of each kind of weather against the promise of a case."""

    def __init__(
        self, case: Case, answers: Mapping[Kind, Job], before: Judge | None = None
    ) -> None:
        """Take the answers of the simulator, that of a quiet hour among them.

        `before`: of the system before a change, whose unstated promise counts. Clients of a closed
        loop wait, so a change moves the quiet hour itself: there a minute has to be bad by both.
        """
        self._case, self._answers, self.kinds = case, answers, answers.keys()
        self.quiet_ms = answers[WELL]["latency_ms"]["p99"]
        self.quiet_rate = answers[WELL]["ops_per_s"]
        if before is not None and case.is_open:
            self.quiet_ms = before.quiet_ms
        elif before is not None:
            self.quiet_ms = max(self.quiet_ms, before.quiet_ms)
            self.quiet_rate = min(self.quiet_rate, before.quiet_rate)
        asked = case.spec.require.latencies() if case.spec.require is not None else {}
        self.bounds = {
            (operation, name): bound
            for operation, bounds in asked.items()
            for name, bound in bounds.items()
        }
        self.stated = bool(self.bounds)
        if not self.stated:
            self.bounds = {("all", "p99"): UNSTATED * self.quiet_ms}

    def promise(self) -> str:
        """Return it in words."""
        parts = [
            f"{name if operation == 'all' else f'{operation} {name}'} at most {bound:.3g} ms"
            for (operation, name), bound in self.bounds.items()
        ]
        return ", ".join(parts)

    def of(self, kind: Kind, minutes_per_month: float = 0.0) -> WeatherKind:
        """Return what a kind does. What was not simulated counts as missed."""
        answer = self._answers.get(self._case.canonical(kind))
        figures: Job = {}
        if answer is None or answer["event"] == "refused":
            reasons = answer["reasons"] if answer else []
            why = reasons[0]["rule"] if reasons else "nothing was simulated"
            reason = f"not simulated: {why}"
        else:
            reason = next(self._missed(answer), "")
            rate, failed = answer["ops_per_s"], failed_per_s(answer)
            if kind.what == "stalled" and self._case.is_open:
                # A client gives up later than the simulation ends.
                failed = max(failed, self.quiet_rate - rate)
            figures = {
                "p99_ms": answer["latency_ms"]["p99"],
                "ops_per_s": rate,
                "failed_per_s": failed,
            }
        return WeatherKind(
            what=self._case.in_words(kind),
            minutes_per_month=minutes_per_month,
            above=bool(reason),
            reason=reason,
            **figures,
        )

    def _missed(self, answer: Job) -> Iterator[str]:
        failed = failed_per_s(answer)
        rate, quiet = answer["ops_per_s"], self.quiet_rate
        if failed > FAILED_RATIO * (rate + failed):
            yield f"{failed / (rate + failed):.0%} of the operations fail"
        least = (SUSTAINED if self._case.is_open else HALF) * quiet
        # Of operations that never end there is no latency.
        if rate < least:
            yield f"{rate / quiet:.0%} of the rate"
        for (operation, name), bound in self.bounds.items():
            part = answer if operation == "all" else answer["per_operation"].get(operation)
            value = part["latency_ms"].get(name) if part else None
            if value is not None and value > bound:
                yield f"{'' if operation == 'all' else f'{operation} '}{name} {value:.3g} ms"


def failed_per_s(answer: Job) -> float:
    """Return the operations that fail each second."""
    failed, elapsed_s = answer["faults"]["failed_operations"], answer["elapsed_s"]
    return float(failed / elapsed_s) if elapsed_s else 0.0


def simulated(
    asked: Mapping[int, tuple[Case, Iterable[Kind]]], seed: int, workers: Workers
) -> dict[int, dict[Kind, Job]]:
    """Return the answer to each kind of each case; equal jobs are simulated once.

    A quiet hour comes first: by its rate, all others have about as many operations.
    """
    memory: Memory = {}

    def answered(places: Sequence[tuple[int, Kind, float]]) -> Iterator[tuple[int, Kind, Job]]:
        jobs = [
            {**asked[index][0].job_of(kind, window_s), "cell": number}
            | {"seed": seed, "fidelity": "quick"}
            for number, (index, kind, window_s) in enumerate(places)
        ]
        for answer in simulate_once(_from_warm(jobs), memory, workers=workers):
            index, kind, _ = places[answer["cell"]]
            yield index, kind, answer

    windows = {}
    for index, _, answer in answered([(index, WELL, FIRST_S) for index in asked]):
        if answer["event"] != "refused" and answer["ops_per_s"]:
            window_s = OPERATIONS / answer["ops_per_s"]
            windows[index] = round(min(max(window_s, LEAST_S), MOST_S), 1)
    found: dict[int, dict[Kind, Job]] = {index: {} for index in asked}
    places = [
        (index, kind, windows[index])
        for index, (_, kinds) in asked.items()
        if index in windows
        for kind in sorted(kinds, key=lambda kind: CODES[kind])
    ]
    for index, kind, answer in answered(places):
        found[index][kind] = answer
    return found


AT_ONCE = 8
"""Kinds of weather that go on from one warm-up: fewer share less, more leave a core idle."""
WARMED_UP = "database"
"""Of a job: the database whose simulation can go on from one warm-up with several timetables."""


def _from_warm(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield jobs, those that differ in weather and length alone as one that goes on with each."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        if WARMED_UP not in job:
            yield job
            continue
        part = job[WARMED_UP]
        like = part | {
            "faults": part["faults"] | {"events": []},
            "workload": part["workload"] | {"stop": None},
        }
        alike.setdefault(json.dumps(like, sort_keys=True), []).append(job)
    for same in alike.values():
        for at in range(0, len(same), AT_ONCE):
            first, *others = same[at : at + AT_ONCE]
            then = [
                {"cell": job["cell"], WARMED_UP: job[WARMED_UP], "from_warm": True}
                for job in others
            ]
            yield first | {"then": then}


def year_of(case: Case, draws: Draws, judge: Judge) -> WeatherYear:
    """Return what drawn years cost a case, by the judgement of each kind of weather."""
    middle = draws.of(case)
    totals = minutes_of(case, middle)
    kinds = {kind: judge.of(kind, totals.get(kind, 0.0)) for kind in judge.kinds}
    above = {kind for kind, verdict in kinds.items() if verdict.above}
    spans = {
        sharing: minutes_above(case, draws.of(case, sharing), above, draws.seed)
        for sharing in SHARINGS
    }
    spec, seed = case.spec, draws.seed
    copies, zones = spec.copies, spec.cluster.zones
    needed = needed_of(spec.database.consistency, copies)
    exact = expected(System(spec.cluster.nodes, zones, copies, needed, (*_outages(case),)))
    first = with_absences(draws.year(case), case.fleet, case.absences(), seed)
    missed = [kind for kind in first.minutes() if case.canonical(kind) in above]
    return WeatherYear(
        disk=case.weather.name,
        promise=judge.promise(),
        asked_ratio=spec.require.of_time_ratio if spec.require is not None else None,
        stated=judge.stated,
        quiet_p99_ms=judge.quiet_ms,
        above=spans["assumed"],
        above_alone=spans["none"],
        above_together=spans["all"],
        kept_ratio=spans["assumed"].kept_ratio,
        unserved_min_per_month=exact.unavailable_min / MONTHS,
        failed_per_year=sum(
            kind.minutes_per_month * MONTHS * SECONDS * (kind.failed_per_s or 0.0)
            for kind in kinds.values()
        ),
        loss_probability=exact.loss_probability,
        kinds=sorted(kinds.values(), key=lambda kind: (not kind.above, -kind.minutes_per_month)),
        strip=first.minutes_a_day(missed),
        years=len(middle),
        seed=seed,
    )


def minutes_of(case: Case, years: Sequence[Counts]) -> dict[Kind, float]:
    """Return the minutes a month of each kind that is simulated.

    Volumes' are those of the drawn years; nodes are away so seldom that they have their mean.
    """
    totals: dict[Kind, float] = {WELL: MINUTES_PER_MONTH}
    for year in years:
        for kind, count in year.items():
            known = case.canonical(kind)
            if known != WELL:
                totals[known] = totals.get(known, 0.0) + count / len(years) / MONTHS
    for kind, minutes in _absent_minutes(case).items():
        totals[kind] = totals.get(kind, 0.0) + minutes / MONTHS
    totals[WELL] = max(2 * MINUTES_PER_MONTH - sum(totals.values()), 0.0)
    return totals


def _absent_minutes(case: Case) -> dict[Kind, float]:
    """Return the mean minutes a year in which some node is away, by kind."""
    found: dict[Kind, float] = {}
    for absence in case.absences():
        for node in range(case.fleet.nodes):
            for state, _, length in absence.spans:
                kind = case.canonical(Kind(WHAT_OF[state], first=node == 0))
                found[kind] = found.get(kind, 0.0) + absence.per_year * length
    return {kind: minutes for kind, minutes in found.items() if minutes}


SECONDS = 60


def minutes_above(case: Case, years: Sequence[Counts], above: set[Kind], seed: int) -> Minutes:
    """Return the minutes a month that miss the promise: their mean, and that of extreme years."""
    absences, tenth = case.absences(), max(len(years) // 10, 1)
    each = []
    for number, year in enumerate(years):
        absent = absent_minutes(case.fleet, absences, seed + number)
        counts = (*year.items(), *absent.items())
        each.append(sum(count for kind, count in counts if case.canonical(kind) in above) / MONTHS)
    each.sort()
    mean = sum(minutes for kind, minutes in minutes_of(case, years).items() if kind in above)
    # Nodes are away in the mean as often as they should, and in drawn years as it happens.
    low, high = fmean(each[:tenth]), fmean(each[-tenth:])
    return Minutes(mean=mean, low=min(low, mean), high=max(high, mean))


def _outages(case: Case) -> Iterator[Outage]:
    """Yield how nodes stop to serve: they are away, or their volumes stall."""
    for absence in case.absences():
        whole_s = (absence.away_min + absence.rebuild_min) * SECONDS
        yield Outage(absence.per_year, whole_s, absence.loses_data)
    for fleet in filter(None, (case.fleet, case.logs)):
        weather = fleet.weather
        stall_s = weather["stall_s"] * (1 - weather["long_stall_ratio"])
        stall_s += weather["long_stall_min"] * 60 * weather["long_stall_ratio"]
        if weather["stalls_per_year"]:
            yield Outage(weather["stalls_per_year"] * fleet.disks, stall_s, loses_data=False)


NAMES = {
    "well": "a quiet hour",
    "one": "one slow volume",
    "two": "two slow volumes",
    "many": "a slow zone",
    "stalled": "a volume that serves nothing",
    "lost": "a lost node",
    "rebuild": "the rebuild of a node",
}
DEPTHS = {
    State.SLIGHT: "above half of its IOPS",
    State.SLOW: "below half of its IOPS",
    State.BLOCKED: "in effect blocked",
}
