"""Predicts what was rehearsed, with the CPU times of this machine and nothing else of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from disklab.catalog import load_catalog
from disklab.databases.calibration import Calibration, calibration_for
from disklab.engine.process import simulate
from disklab.prediction.cells import database_part, with_parameters
from disklab.prediction.counted import prepare_rehearsed, rehearsed_trials
from disklab.procedures.jobs import QUICK, Seeds
from disklab.results import Share
from disklab.spec import Trial
from disklab.workloads.rows import load_seed

from campaigns.truth.matrix import (
    BEDS,
    MEMORY_ALONE,
    MEMORY_MIXED,
    MEMORY_READS,
    REFERENCES,
    Bed,
    key_of,
)
from campaigns.truth.state import Line, experiment_of

SEEDS = (1, 2, 3, 4)
"""A rehearsal's pass is one draw; the mean of four is known twice as well."""

NS_PER_S = 10**9
NS_PER_MS = 10**6


@dataclass(frozen=True)
class Told:
    """What is compared of a cell, rehearsed or predicted. None: it is not there."""

    read_ios: float
    """I/Os of all volumes for each operation; so are the bytes."""
    read_bytes: float
    write_bytes: float
    hit_ratio: float | None
    ops_per_s: float
    p50: float
    p95: float
    p99: float
    at_its_own_rate: Told | None = None
    """Of a second pass: predicted with a warm-up as fast as it is simulated."""


def rehearsed(line: Line) -> Told:
    """Return what a rehearsal tells."""
    count = sum(line["operations"].values())
    latency = line["latency_ms"]
    return Told(
        read_ios=line["disk_read_ios"] / count,
        read_bytes=line["disk_read_bytes"] / count,
        write_bytes=line["disk_write_bytes"] / count,
        hit_ratio=line["host_cache_hit_ratio"],
        ops_per_s=line["ops_per_s"],
        p50=latency["p50"],
        p95=latency["p95"],
        p99=latency["p99"],
    )


def predicted(answers: Sequence[Mapping[str, Any]]) -> Told:
    """Return the mean of what the simulator answers with several seeds."""
    told = [answer["telemetry"] for answer in answers]

    def mean(name: str) -> float:
        return fmean(float(one[name]) for one in told)

    hits = [one["host_cache_hit_ratio"] for one in told]

    def latency(name: str) -> float:
        return fmean(answer["latency_ms"][name] for answer in answers)

    return Told(
        read_ios=mean("read_ios_per_operation"),
        read_bytes=mean("read_bytes_per_operation"),
        write_bytes=mean("write_bytes_per_operation"),
        hit_ratio=None if None in hits else fmean(hits),
        ops_per_s=fmean(answer["ops_per_s"] for answer in answers),
        p50=latency("p50"),
        p95=latency("p95"),
        p99=latency("p99"),
    )


def predictions(lines: Mapping[str, Line], folder: Path) -> dict[str, Told]:
    """Return the prediction of every stored cell that is no reference.

    Cells of a bed wait until all of its references have been rehearsed.
    """
    jobs: dict[str, Any] = {}
    for bed in BEDS:
        keys = {key_of(bed, cell): cell.name for cell in bed.cells}
        known = {name: lines[key] for key, name in keys.items() if key in lines}
        wanted = {key: name for key, name in keys.items() if name in known.keys() - {*REFERENCES}}
        if wanted and known.keys() >= {*REFERENCES}:
            jobs |= _jobs_of(bed, known, wanted, folder)
    told = {key: predicted(found) for key, found in simulated(jobs).items()}
    second = {key: job for key, job in jobs.items() if work_of(job)["warm_up_ns"]}
    counted = {key: job for key, job in second.items() if lines[key].get("warmed_up_with")}
    alone = {key: predicted(found) for key, found in simulated(warm_ups(counted)).items()}
    again = {}
    for key, job in second.items():
        faster = lines[key]["ops_per_s"] / told[key].ops_per_s
        if key in alone:
            simulated_s = work_of(job)["warm_up_ns"] / NS_PER_S
            faster = lines[key]["warmed_up_with"] / (alone[key].ops_per_s * simulated_s)
        again[key] = warmed(job, faster)
    for key, found in simulated(again).items():
        counts = predicted(found)
        told[key] = replace(
            told[key],
            read_ios=counts.read_ios,
            read_bytes=counts.read_bytes,
            write_bytes=counts.write_bytes,
            hit_ratio=counts.hit_ratio,
            at_its_own_rate=told[key],
        )
    return told


def work_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the workload of a job."""
    work: dict[str, Any] = database_part({**job})["workload"]
    return work


def warmed(job: Mapping[str, Any], faster: float) -> dict[str, Any]:
    """Return a job whose warm-up reads as many rows as the rehearsal's did, `faster` as a ratio.

    A warm-up is two seconds. How many rows they read, and so what a pass finds in memory, is a
    matter of how fast this machine was beside its other work. Lines of before 2026-11-26 have not
    recorded it, but for the rate of their pass.
    """
    found = copy.deepcopy({**job})
    work_of(found)["warm_up_ns"] = round(work_of(job)["warm_up_ns"] * faster)
    return found


def warm_ups(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the warm-up of each job as a job of its own, which is measured."""
    found = {key: copy.deepcopy({**job}) for key, job in jobs.items()}
    for job in found.values():
        work = work_of(job)
        work["stop"] = {"duration_ns": work["warm_up_ns"]}
        work["warm_up_ns"] = 0
    return found


def _jobs_of(
    bed: Bed, known: Mapping[str, Line], wanted: Mapping[str, str], folder: Path
) -> dict[str, Any]:
    share = Share.model_validate(known[MEMORY_READS]["share"])
    times = machine_times if bed.engine == "cassandra" else sql_times
    trials = {
        str(one.factors["cell"]): one for one in rehearsed_trials(experiment_of(bed, folder), share)
    }
    values = times(known, trials)
    return {
        key: with_the_keys(
            with_parameters(job_of(trials[name], known[name]["cpus"]), values),
            trials[name],
            known[name]["passes"],
        )
        for key, name in wanted.items()
    }


RUN_SEED = 1
"""What a rehearsal has that is given no other one."""
KEYS = "keys 0 of 1"
"""What the one load generator calls its stream of keys (`Choice::new` of disklab-load)."""


def with_the_keys(job: dict[str, Any], trial: Trial, passes: int) -> dict[str, Any]:
    """Return a job that draws the keys which the rehearsal's load drew, pass by pass.

    By a Zipf's law, how many different rows 5,000 reads meet varies by 2 % from draw to draw. Where
    the load ran before its pass, which keys those were hangs on how many there were.
    """
    if work_of(job)["warm_up_ns"]:
        return job
    seeds = Seeds(RUN_SEED, trial.index, 0)
    streams = [
        {"seed": load_seed(RUN_SEED, seeds.stream(f"pass {number}", None)), "name": KEYS}
        for number in range(passes)
    ]
    return {**job, STREAMS: streams}


STREAMS = "streams"
"""Of a job here: those of its passes, for the seeds in turn."""


def job_of(trial: Trial, cpus: int) -> dict[str, Any]:
    """Return the job of a trial rehearsed on `cpus`. Raises AssertionError when it has none.

    A calibration is for the described system: as many cores as its node has, as slow as this
    machine's. What is compared here is this machine: its own cores, faster by the time dilation.
    """
    assert trial.spec.database is not None
    package = _package(trial.spec.database.engine)
    prepared = prepare_rehearsed(trial, load_catalog(), package, "campaigns/truth", QUICK)
    assert prepared.job is not None, prepared.reasons
    database_part(prepared.job)["cluster"]["cores"] = cpus
    return prepared.job


def _package(engine: str) -> Calibration:
    found = calibration_for(engine)
    assert found is not None
    return found


def machine_times(known: Mapping[str, Line], trials: Mapping[str, Trial]) -> dict[str, int]:
    """Return the simulator's parameters as this machine has them, for rows of this bed.

    CPU of client and server is what the references used; pauses are those that they counted; what
    one thread's median has beyond that is the overhead. How CPU is shared between coordinator and
    replica is the package's: on one node their sum alone matters.
    """
    package = _package("cassandra").newest().values()
    reads, mixed = known[MEMORY_READS], known[MEMORY_MIXED]
    coordinator = package["coordinator_cpu_ns"]
    part = coordinator / (coordinator + package["read_cpu_ns"])
    read, client_read = _cpu_ns(reads, "server"), _cpu_ns(reads, "client")
    share = _share_of_writes(mixed)

    def of_writes(both: float, of_reads: float) -> int:
        return max(1, round(_of_writes(both, of_reads, share)))

    spec = trials[MEMORY_READS].spec
    assert spec.dataset is not None
    values = package | {
        "at_row_bytes": spec.dataset.columns * spec.dataset.column_bytes,
        "coordinator_cpu_ns": max(1, round(read * part)),
        "read_cpu_ns": max(1, round(read * (1 - part))),
        "write_cpu_ns": max(1, of_writes(_cpu_ns(mixed, "server"), read) - round(read * part)),
        "client_read_cpu_ns": max(1, round(client_read)),
        "client_write_cpu_ns": of_writes(_cpu_ns(mixed, "client"), client_read),
        **_pauses(reads, mixed, trials[MEMORY_READS]),
        "overhead_ns": 1,
    }
    return values | {"overhead_ns": _overhead_ns(known, trials, values)}


def sql_times(known: Mapping[str, Line], trials: Mapping[str, Trial]) -> dict[str, int]:
    """Return the same for PostgreSQL and MariaDB.

    How CPU is shared between a statement, its row, its change and its commit is the package's: of a
    statement of one row their sum alone matters. So is the CPU of a page from the operating system.
    """
    database = trials[MEMORY_READS].spec.database
    assert database is not None
    package = _package(database.engine).values()
    mixed = known[MEMORY_MIXED]
    read = _cpu_ns(known[MEMORY_READS], "server")
    write = _of_writes(_cpu_ns(mixed, "server"), read, _share_of_writes(mixed)) - read
    parts = {
        ("statement_cpu_ns", "row_read_cpu_ns"): read,
        ("row_write_cpu_ns", "commit_cpu_ns"): write,
    }
    values = package | {"overhead_ns": 1}
    for names, whole in parts.items():
        of_package = sum(package[name] for name in names)
        for name in names:
            values[name] = max(1, round(whole * package[name] / of_package))
    return values | {"overhead_ns": _overhead_ns(known, trials, values)}


def _overhead_ns(
    known: Mapping[str, Line], trials: Mapping[str, Trial], values: Mapping[str, int]
) -> int:
    """Return what one thread's median has beyond what is simulated of it."""
    job = job_of(trials[MEMORY_ALONE], known[MEMORY_ALONE]["cpus"])
    without = predicted(simulated({"alone": with_parameters(job, {**values})})["alone"]).p50
    seen = known[MEMORY_ALONE]["latency_ms"]["p50"]
    return max(1, round(float(seen - without) * NS_PER_MS))


def _share_of_writes(mixed: Line) -> float:
    return float(mixed["operations"]["write"] / sum(mixed["operations"].values()))


def _of_writes(both: float, of_reads: float, share: float) -> float:
    """Return what a write costs in a mixture; its reads cost what they do alone."""
    return (both - of_reads * (1 - share)) / share


def _cpu_ns(line: Line, role: str) -> float:
    """Return the CPU time of an operation on this machine's cores, in the described time."""
    cores = line["cpu_ratio"][role] * line["cpus"]
    return float(cores * line["duration_s"] * NS_PER_S / sum(line["operations"].values()))


def _pauses(reads: Line, mixed: Line, trial: Trial) -> dict[str, int]:
    """Return the parameters of pauses as the references had them, with their rows and collector.

    How often they come is what the package says of such rows: a reference told their time alone.
    """
    package = _package("cassandra").newest().values()
    collector = job_of(trial, reads["cpus"])["database"]["cluster"]["collector"]
    spec = trial.spec
    assert spec.dataset is not None

    def allocated(row_bytes: int) -> float:
        return (
            package["read_allocated_bytes"] + package["read_allocated_permille"] * row_bytes / 1000
        )

    row_bytes = spec.dataset.columns * spec.dataset.column_bytes
    fuller = allocated(row_bytes) / allocated(package["at_row_bytes"])
    larger = collector["young_bytes"] / package["at_young_bytes"]
    every = package["pause_every_requests"] * larger / fuller
    share = _share_of_writes(mixed)
    pause, both = _paused_ns(reads) * every, _paused_ns(mixed) * every
    return {
        "at_young_bytes": collector["young_bytes"],
        "at_collector_threads": collector["threads"],
        "read_moved_permille": 0,
        "read_pause_ns": round(pause),
        "write_pause_ns": max(0, round((both - pause * (1 - share)) / share)),
        "pause_every_requests": max(1, round(every)),
    }


def _paused_ns(line: Line) -> float:
    """Return how long pauses took for each operation."""
    return float((line["gc_pause_ms"] or 0.0) * NS_PER_MS / sum(line["operations"].values()))


def with_its_stream(job: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return a job as the simulator takes it, with the keys of one of its passes."""
    found = {name: part for name, part in job.items() if name != STREAMS}
    if STREAMS in job:
        found = copy.deepcopy(found)
        work_of(found)["key_stream"] = job[STREAMS][seed % len(job[STREAMS])]
    return found


def simulated(jobs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the simulator's answers to each job, one for each seed."""
    names = list(jobs)
    asked = [
        {"cell": number, "seed": seed, "fidelity": "full", **with_its_stream(jobs[name], seed)}
        for number, (name, seed) in enumerate((name, seed) for name in names for seed in SEEDS)
    ]
    found: dict[str, list[Any]] = {name: [] for name in names}
    for answer in simulate(asked):
        assert answer["event"] == "cell", answer
        found[names[answer["cell"] // len(SEEDS)]].append(answer)
    return found
