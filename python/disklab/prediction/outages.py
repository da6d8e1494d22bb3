"""How long a lost, and a restarted, node of a trial is away: short simulations of its own load.

A node is lost beside the trial's load with no delay but those of the disks; what it needs on top
(its `Breaking`, and what the experiment states) is added. A rebuild that outlasts the window
goes on at the rate that was seen in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from disklab.databases.simulating import NS_PER_S, Breaking, with_credits
from disklab.engine.simulation import Workers, simulate
from disklab.prediction.cells import breaking_of, database_of
from disklab.prediction.yearly import Outage, System, drawn_years, expected
from disklab.results import Yearly
from disklab.spec import TimedEvent, Trial
from disklab.spec.timetable_checks import lost_with_vm

Job = dict[str, Any]

BROKEN_S = 2
"""When the node is lost: connections and caches are as they are under the load by then."""
WINDOW_S = 20
"""What of a rebuild is simulated: four hundred refill windows of 50 ms."""
WRITTEN_S = 12
"""Writes before a node is killed, which it replays."""
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
    runnable: Mapping[int, tuple[Trial, Job]], seed: int, workers: Workers
) -> dict[int, Yearly]:
    """Return what failures cost each trial that states how often there are any.

    Left out are trials to which none of the stated failures can happen (disks that are lost by
    themselves, where all data lie on the VM's own), and those whose loss the simulator refuses.

    `runnable`: jobs by the number of their trial. Raises EngineError when the engine
    dies.
    """
    stating = {
        index: (trial, job)
        for index, (trial, job) in runnable.items()
        if trial.spec.failures is not None and _replaces(trial) and _experiments(trial, job)
    }
    asked = [
        {**job, "cell": 2 * index + number, "seed": seed, "fidelity": "full"}
        for index, (trial, given) in stating.items()
        for number, job in _experiments(trial, given)
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
            found[index] = _replayed(known, told, stating[index][1])
    return {
        index: _yearly(trial, job, found[index], seed) for index, (trial, job) in stating.items()
    }


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
    asked = [
        {**_broken(trial, job, REPLACED, BROKEN_S), "cell": index, "seed": seed, "fidelity": "full"}
        for index, (trial, job) in runnable.items()
        if _replaces(trial)
    ]
    found = {}
    for answer in simulate(asked, workers=workers) if asked else ():
        if answer["event"] == "refused":
            continue
        times = _rebuilt(_Times(), answer["faults"])
        if times.bound:
            breaking = _breaking(runnable[answer["cell"]][0])
            delays = breaking.delays
            seconds = delays.start_s + delays.join_s + times.rebuilt_s
            lever = breaking.lever_of(times.bound, "stream")
            found[answer["cell"]] = Rebuilt(seconds, times.bound, lever)
    return found


def _replaces(trial: Trial) -> bool:
    breaking = breaking_of(trial)
    return breaking is not None and breaking.replaces


def _breaking(trial: Trial) -> Breaking:
    breaking = breaking_of(trial)
    assert breaking is not None, "its database's nodes break"
    return breaking


def _experiments(trial: Trial, job: Job) -> list[tuple[int, Job]]:
    """Return the simulations that a trial needs: of a replaced node (0) and of a started one (1).

    None: no stated failure can happen to it.
    """
    failures = trial.spec.failures
    assert failures is not None
    own = lost_with_vm(trial.spec)
    found = []
    if failures.vm_lost_per_year if own else failures.disk_lost_per_year:
        found.append((0, _broken(trial, job, REPLACED, BROKEN_S)))
    if failures.vm_restarts_per_year or (not own and failures.vm_lost_per_year):
        found.append((1, _broken(trial, job, STARTED, WRITTEN_S)))
    return found


def _broken(trial: Trial, job: Job, back: str, at_s: float) -> Job:
    """Return the job with a node that is lost at a time and comes back at once."""
    database = trial.spec.the_database
    gone = "lose" if back == REPLACED else "kill"
    events = [
        TimedEvent.model_validate({"at": f"{at_s}s", gone: "n1"}),
        TimedEvent.model_validate({"at": f"{at_s + AT_ONCE_S}s", back: "n1"}),
    ]
    breaking = _breaking(trial)
    at_once = replace(breaking.delays, start_s=0.0, join_s=0.0, notice_s=0.0)
    key = database_of(job)
    assert key is not None
    given = job[key]
    cluster = given["cluster"]
    # Credits last for minutes, a rebuild for hours: it is what the disks do all the time.
    spent = cluster | {"host": with_credits(cluster["host"], 0.0)}
    whole_s = at_s + WINDOW_S
    load = {"stop": {"operations": None, "duration_ns": whole_s * NS_PER_S}, "warm_up_ns": 0}
    return {
        **job,
        key: {
            **given,
            "cluster": spent,
            "workload": given["workload"] | load,
            "faults": breaking.job(events, database, at_once, None, ()),
        },
    }


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
    key = database_of(job)
    assert key is not None
    half = job[key]["database"].get("memtable_bytes", USUAL_MEMTABLE_BYTES) / 2
    return _Times(known.rebuilt_s, known.bound, took * half / replays[0]["bytes"])


USUAL_MEMTABLE_BYTES = (2 << 30) / 3
"""As `crates/disklab-sim/src/job.rs` has it: a third of a quarter of a heap of 8 GiB."""


def _yearly(trial: Trial, job: Job, times: _Times, seed: int) -> Yearly:
    spec = trial.spec
    cluster, database, failures = spec.the_cluster, spec.the_database, spec.failures
    assert failures is not None
    breaking = _breaking(trial)
    delays = breaking.delays
    replaced_s = delays.start_s + delays.join_s + times.rebuilt_s
    started_s = delays.start_s + times.replayed_s
    own = lost_with_vm(spec)
    lost_s = failures.replaced_after_s + (replaced_s if own else started_s)
    disk_s = failures.replaced_after_s + replaced_s
    restarted_s = failures.restarted_after_s + started_s
    disks = 0 if own else _disks(job)
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
        tuple(one for one in outages if one.per_year),
    )
    exact, drawn = expected(system), drawn_years(system, seed)
    return Yearly(
        lost_s=lost_s if outages[0].per_year else None,
        disk_lost_s=disk_s if outages[2].per_year else None,
        restarted_s=restarted_s if outages[1].per_year else None,
        comes_back=system.copies > 1 or not any(one.loses_data for one in system.outages),
        bound=times.bound,
        lever=breaking.lever_of(times.bound, "stream") if times.bound else "",
        unavailable_min=exact.unavailable_min,
        row_unavailable_min=exact.row_unavailable_min,
        loss_probability=exact.loss_probability,
        drawn_years=drawn.years,
        drawn_unavailable_min=drawn.unavailable_min,
        drawn_outages=drawn.outages,
        drawn_losses=drawn.losses,
    )


def _disks(job: Job) -> int:
    """Return how many disks the data of a node lie on: a stripe is lost with any of them."""
    cluster = job["database"]["cluster"]
    volumes = {volume["name"]: volume for volume in cluster["host"]["volumes"]}
    return len(volumes[cluster["data_volume"]]["disks"])


COUNTED = {"ONE": 1, "LOCAL_ONE": 1, "ANY": 1, "TWO": 2, "THREE": 3}


def needed_of(consistency: str, copies: int) -> int:
    """Return how many of so many copies an operation at a level needs."""
    if consistency == "ALL":
        return copies
    return min(COUNTED.get(consistency, copies // 2 + 1), copies)
