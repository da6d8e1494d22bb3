"""How long a lost, and a restarted, node of a trial is away: short simulations of its own load.

A node is lost beside the trial's load with no delay but those of the disks; what it needs on top
(its `Breaking`, and what the experiment states) is added. A rebuild that outlasts the window
goes on at the rate that was seen in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from disklab.databases.simulating import NS_PER_S, Breaking, with_credits
from disklab.engine.process import Workers, simulate
from disklab.prediction.cells import breaking_of, database_part, with_part
from disklab.results import Yearly
from disklab.spec import ClusterTrial, TimedEvent, Trial
from disklab.spec.timetable import Failures
from disklab.spec.timetable_checks import lost_with_vm

# What failures cost in a year: minutes without rows, and the probability of losing some.
#
# Nodes fail independently of each other, each at its stated rates, and are away for the times that
# a simulated loss and a simulated restart take. Then everything follows in closed form (alternating
# renewal processes); a test holds it against drawn years, which need no formula.
#
# **Divergence:** a zone, a rack or a release that takes several nodes at once is not in it; nor is
# that the rebuild of a second node takes longer while a first one is still away.

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
        MINUTES_PER_YEAR * at_least(zones, system.fatal),
        MINUTES_PER_YEAR * at_least([away] * system.copies, system.fatal),
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


def at_least(shares: list[float], count: int) -> float:
    """Return the probability that so many things, or more, are so, with such shares of the time."""
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


Job = dict[str, Any]

BROKEN_S = 2
"""When the node is lost: connections and caches are as they are under the load by then."""
WINDOW_S = 20
"""What of a rebuild is simulated: four hundred refill windows of 50 ms."""
WRITTEN_S = 12
"""Writes before a node is killed, which it replays."""
BRIEF = 0.25
"""Eighty refill windows: a rebuild's rate to a tenth."""
AT_ONCE_S = 0.001
"""From the loss to the next step: the timetable is looked at every 10 ms."""

REPLACED, STARTED = "replace", "start"


@dataclass(frozen=True)
class _Times:
    """What simulations tell of a trial."""

    rebuilt_s: float = 0.0
    bound: str = ""
    replayed_s: float = 0.0


def yearly_costs(
    runnable: Mapping[int, tuple[Trial, Job]],
    seed: int,
    workers: Workers,
    brief: frozenset[int] = frozenset(),
) -> dict[int, Yearly]:
    """Return what failures cost each trial that states how often there are any.

    Of those that are `brief` less is simulated: their failures are assumed anyway.

    Left out are trials to which none of the stated failures can happen (disks that are lost by
    themselves, where all data lie on the VM's own), and those whose loss the simulator refuses.

    `runnable`: jobs by the number of their trial. Raises EngineError when the engine
    dies.
    """
    stating = {
        index: (broken, failures)
        for index, broken in _breakable(runnable, brief).items()
        if (failures := broken.spec.failures) and _experiments(broken, failures)
    }
    asked = [
        {**job, "cell": 2 * index + number, "seed": seed, "fidelity": "full"}
        for index, stated in stating.items()
        for number, job in _experiments(*stated)
    ]
    found = {index: _Times() for index in stating}
    for answer in simulate(asked, workers=workers) if asked else ():
        index, number = divmod(answer["cell"], 2)
        if answer["event"] == "refused":
            stating.pop(index, None)
        if index not in stating:
            continue
        told = answer["faults"]
        known = found[index]
        if number == 0:
            found[index] = _rebuilt(known, told)
        else:
            found[index] = _replayed(known, told, stating[index][0].job)
    return {index: _yearly(*stated, found[index]) for index, stated in stating.items()}


@dataclass(frozen=True)
class Rebuilt:
    """What a lost node needs until it has its data again, beside the load of its trial."""

    seconds: float
    """From its start: its process, what it waits for, and the stream of its share."""
    bound: str
    """A limit of the simulator, or `latency`."""
    lever: str


def rebuild_times(
    runnable: Mapping[int, tuple[Trial, Job]], seed: int, workers: Workers
) -> dict[int, Rebuilt]:
    """Return how long a lost node of each trial takes to stream its share from the others.

    Trials without other copies are left out. Raises EngineError when the engine dies.
    """
    breakable = _breakable(runnable)
    asked = [
        {**one.broken(REPLACED, BROKEN_S), "cell": index, "seed": seed, "fidelity": "full"}
        for index, one in breakable.items()
    ]
    found = {}
    for answer in simulate(asked, workers=workers) if asked else ():
        if answer["event"] == "refused":
            continue
        times = _rebuilt(_Times(), answer["faults"])
        if times.bound:
            breaking = breakable[answer["cell"]].breaking
            delays = breaking.delays
            seconds = delays.start_s + delays.join_s + times.rebuilt_s
            lever = breaking.lever_of(times.bound, "stream")
            found[answer["cell"]] = Rebuilt(seconds, times.bound, lever)
    return found


@dataclass(frozen=True)
class _Breakable:
    """A trial whose database replaces nodes, in the simulator too."""

    spec: ClusterTrial
    job: Job
    breaking: Breaking
    share: float = 1.0
    """Of the usual times that is simulated."""

    def broken(self, back: str, at_s: float) -> Job:
        """Return the job with a node that is lost at a time and comes back at once."""
        at_s *= self.share
        gone = "lose" if back == REPLACED else "kill"
        events = [
            TimedEvent.model_validate({"at": f"{at_s}s", gone: "n1"}),
            TimedEvent.model_validate({"at": f"{at_s + AT_ONCE_S}s", back: "n1"}),
        ]
        at_once = replace(self.breaking.delays, start_s=0.0, join_s=0.0, notice_s=0.0)
        given = database_part(self.job)
        # Credits last for minutes, a rebuild for hours: it is what the disks do all the time.
        spent = {"host": with_credits(given["cluster"]["host"], 0.0)}
        whole_s = at_s + WINDOW_S * self.share
        load = {
            "stop": {"operations": None, "duration_ns": round(whole_s * NS_PER_S)},
            "warm_up_ns": 0,
        }
        database = self.spec.database
        return with_part(
            self.job,
            {
                "cluster": given["cluster"] | spent,
                "workload": given["workload"] | load,
                "faults": self.breaking.job(events, database, at_once, None, ()),
            },
        )


def _breakable(
    runnable: Mapping[int, tuple[Trial, Job]], brief: frozenset[int] = frozenset()
) -> dict[int, _Breakable]:
    return {
        index: _Breakable(trial.spec, job, breaking, BRIEF if index in brief else 1.0)
        for index, (trial, job) in runnable.items()
        if trial.spec.cluster and (breaking := breaking_of(trial)) and breaking.replaces
    }


def _experiments(one: _Breakable, failures: Failures) -> list[tuple[int, Job]]:
    """Return the simulations that a trial needs: of a replaced node (0) and of a started one (1).

    None: no stated failure can happen to it.
    """
    own = lost_with_vm(one.spec)
    found = []
    if failures.vm_lost_per_year if own else failures.disk_lost_per_year:
        found.append((0, one.broken(REPLACED, BROKEN_S)))
    if failures.vm_restarts_per_year or (not own and failures.vm_lost_per_year):
        found.append((1, one.broken(STARTED, WRITTEN_S)))
    return found


def _rebuilt(known: _Times, told: Mapping[str, Any]) -> _Times:
    """Return the times with what a replaced node took."""
    streams = [one for one in told["rebuilds"] if one["kind"] == "stream"]
    if not streams:
        return known
    bound = streams[0]["bound"]["resource"]
    return _Times(streams[0]["seconds"], bound, known.replayed_s)


def _replayed(known: _Times, told: Mapping[str, Any], job: Job) -> _Times:
    """Return the times with what a started node takes to replay half a memtable.

    On average a node fails when its memtable is half full.
    """
    replays = [one for one in told["rebuilds"] if one["kind"] == "replay"]
    if not replays or not replays[0]["bytes"]:
        return known
    took = told["steps"][-1]["ended_s"] - told["steps"][-1]["begun_s"]
    half = database_part(job)["database"].get("memtable_bytes", USUAL_MEMTABLE_BYTES) / 2
    return _Times(known.rebuilt_s, known.bound, took * half / replays[0]["bytes"])


USUAL_MEMTABLE_BYTES = (2 << 30) / 3
"""As `database/cassandra/job.rs` of disklab-sim has it: a third of a quarter of a heap of 8 GiB."""


def _yearly(one: _Breakable, failures: Failures, times: _Times) -> Yearly:
    spec, delays = one.spec, one.breaking.delays
    cluster, database = spec.cluster, spec.database
    replaced_s = delays.start_s + delays.join_s + times.rebuilt_s
    started_s = delays.start_s + times.replayed_s
    own = lost_with_vm(spec)
    lost_s = failures.replaced_after_s + (replaced_s if own else started_s)
    disk_s = failures.replaced_after_s + replaced_s
    restarted_s = failures.restarted_after_s + started_s
    disks = 0 if own else len(volume_of(one.job)["disks"])
    outages = [
        Outage(failures.vm_lost_per_year, lost_s, loses_data=own),
        Outage(failures.vm_restarts_per_year, restarted_s, loses_data=False),
        Outage(failures.disk_lost_per_year * disks, disk_s, loses_data=True),
    ]
    system = System(
        cluster.nodes,
        cluster.zones,
        database.replication_factor,
        needed_of(database.consistency, database.replication_factor),
        tuple(outage for outage in outages if outage.per_year),
    )
    exact = expected(system)
    return Yearly(
        lost_s=lost_s if outages[0].per_year else None,
        disk_lost_s=disk_s if outages[2].per_year else None,
        restarted_s=restarted_s if outages[1].per_year else None,
        comes_back=system.copies > 1 or not any(outage.loses_data for outage in system.outages),
        bound=times.bound,
        lever=one.breaking.lever_of(times.bound, "stream") if times.bound else "",
        unavailable_min=exact.unavailable_min,
        row_unavailable_min=exact.row_unavailable_min,
        loss_probability=exact.loss_probability,
    )


def volume_of(job: Job, name: str = "data_volume") -> Job:
    """Return a volume of a node; a stripe is lost with any of its disks."""
    cluster = database_part(job)["cluster"]
    volumes: list[Job] = cluster["host"]["volumes"]
    return next(volume for volume in volumes if volume["name"] == cluster[name])


COUNTED = {"ONE": 1, "LOCAL_ONE": 1, "ANY": 1, "TWO": 2, "THREE": 3}


def needed_of(consistency: str, copies: int) -> int:
    """Return how many of so many copies an operation at a level needs."""
    if consistency == "ALL":
        return copies
    return min(COUNTED.get(consistency, copies // 2 + 1), copies)
