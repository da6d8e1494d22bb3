"""`disklab calibrate --here`: a calibration from a short rehearsal on this machine.

A bed of rows is filled once; which of its cells are measured is chosen by what they tell of the
parameters (`design`). CPU times and pauses begin as the processes told them, and are fitted with
the rest; cells that were held out say whether the calibration is any better than the package's.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import nnls  # type: ignore[import-untyped]

from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import (
    AT_COLLECTOR_THREADS,
    AT_YOUNG_BYTES,
    Calibration,
    CalibrationRow,
    Correlation,
    package_calibration,
)
from disklab.databases.simulating import own_client
from disklab.errors import Problem, UserError
from disklab.events import Emit
from disklab.prediction import design
from disklab.prediction.counted import prepare_rehearsed
from disklab.prediction.design import Known
from disklab.prediction.fitting import (
    MOST_PER_CELL,
    Evaluation,
    Fit,
    Watch,
    evaluate,
    fit,
    measured_cells,
)
from disklab.prediction.run import Options
from disklab.probe.cells import (
    QUICK_BLOCKS,
    QUICK_DURATION_S,
    QUICK_SIZE_BYTES,
    Cell,
    Direction,
    Plan,
    Profile,
)
from disklab.probe.emulated import Emulated, Look, look_here
from disklab.probe.known import Disk
from disklab.procedures import preparation
from disklab.procedures.jobs import QUICK
from disklab.procedures.life import Stage
from disklab.procedures.rehearsal import rehearse
from disklab.results import Run, TrialResult
from disklab.spec import Experiment, Trial

PARAMETERS = (
    "overhead_ns",
    "read_cpu_ns",
    "write_cpu_ns",
    "read_pause_ns",
    "write_pause_ns",
    "pause_every_requests",
    "coordinator_cpu_ns",
)
"""What one node under load can tell. Of two that are not told apart the later one stays."""

PERMILLE = 1000
SCALE = 20
ROWS_HERE = 60_000
"""250 MB of rows, filled in about ten seconds: more than the page cache of the smallest VM here."""
ROW = "5 x 818B"
"""The studies' rows, for which the package's times hold."""

VMS = {
    cores: f"azure/Standard_DS{number}_v2"
    for cores, number in ((1, 1), (2, 2), (4, 3), (8, 4), (16, 5))
}
"""By vCPUs. The largest that this machine can be at full speed: in slow motion a core is as slow as
this machine's in the calibration, and faster than it in the rehearsal."""

BED_S = 75.0
"""Hosts, a database, its warm-up and its rows. **Source:** our own rehearsals, on two cores."""
WARM_S = 20.0
"""A warm cell: eight seconds of its own load, and eight that are measured."""
COLD_S = 10.0
REFILL_S = 30.0
"""After a cell that writes the rows are filled again."""
HELD_OUT = 3
"""Cells that are measured and not fitted."""

IN_MEMORY = {"before.page_cache": "warm", "workload.working_set": "1%"}
CHECKS: dict[str, dict[str, Any]] = {
    "from the disk, 4 threads": {"workload.load": {"threads": 4}},
    "in memory, 8 threads": {**IN_MEMORY, "workload.load": {"threads": 8}},
    "in memory, a fifth writes, 8 threads": {
        **IN_MEMORY,
        "workload.operations": {"read": "80%", "write": "20%"},
        "workload.load": {"threads": 8},
    },
}
"""Held out: loads between those that may be chosen."""


@dataclass(frozen=True)
class Asked:
    """What is wanted of a calibration on this machine."""

    disks: str
    minutes: float
    out: Path
    """Folder of the run."""
    options: Options
    start: Calibration


@dataclass(frozen=True)
class Hands:
    """What makes disks and beds: this process, or under sudo one that has the rights for it."""

    check: preparation.Check = preparation.check
    stage: Callable[[preparation.Prepared], Stage | None] = lambda _: None
    look: Look = look_here


@dataclass(frozen=True)
class Probed:
    """The median of a 4 KiB read at depth 1: as fio saw it, and as the disk owes it."""

    seen_ns: float
    owed_ns: float


@dataclass(frozen=True)
class Check:
    """Held-out cells: the error of the package's calibration, and of the new one."""

    trials: tuple[Trial, ...]
    before: Evaluation
    after: Evaluation
    measured: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Made:
    """A calibration of this machine, and what is known of it."""

    run: Run
    chosen: tuple[str, ...]
    probed: Probed | None
    fit: Fit
    known: tuple[Known, ...]
    measured: dict[str, int]
    """Parameters that processes told themselves, before the fit."""
    check: Check | None
    calibration: Calibration


def candidates() -> dict[str, dict[str, Any]]:
    """Return the cells to choose from, by name: what each changes of the baseline."""
    mixtures = {
        "reads": {"read": "100%"},
        "half writes": {"read": "50%", "write": "50%"},
        "writes": {"write": "100%"},
    }
    found: dict[str, dict[str, Any]] = {}
    for threads in (1, 4, 16, 64):
        words = "1 thread" if threads == 1 else f"{threads} threads"
        load = {"workload.load": {"threads": threads}}
        found[f"from the disk, {words}"] = load
        for name, operations in mixtures.items():
            changed = {**IN_MEMORY, "workload.operations": operations, **load}
            found[f"in memory, {name}, {words}"] = changed
    return {name: patch for name, patch in found.items() if name not in CHECKS}


def experiment_of(disks: str, cpus: int) -> Experiment:
    """Return the experiment with all cells. Raises UserError when the disks are none."""
    vm = VMS[max(cores for cores in VMS if cores <= max(cpus, 1))]
    text = yaml.safe_dump(
        {
            "title": "What does this machine's CPU cost an operation?",
            "cluster": {
                "nodes": 1,
                "vm": vm,
                "volumes": {
                    "data": {"disks": disks, "caching": "None", "filesystem": "xfs"},
                    "commitlog": {"disks": "local"},
                },
            },
            "database": {
                "engine": "cassandra",
                "replication_factor": 1,
                "consistency": "ONE",
                "table": {"compression": "none"},
            },
            "dataset": {"rows": ROWS_HERE * SCALE, "row": ROW},
            "workload": {
                "operations": {"read": "100%"},
                "load": {"threads": 16},
                "stop": {"operations": 5_000 * SCALE},
            },
            "before": {"page_cache": "cold"},
            "factors": {"cell": {**candidates(), **CHECKS}},
            "rehearse": {"nodes": 1, "scale": f"1/{SCALE}", "time_dilation": 1},
        },
        sort_keys=False,
    )
    return spec.parse(text, "calibrate-here.yaml")


def cost_s(trial: Trial) -> float:
    """Return about how long a cell takes on a bed that stands."""
    work, warm = trial.spec.workload, trial.spec.before.page_cache == "warm"
    writes = work.operations is not None and work.operations.changes > 0
    return (WARM_S if warm else COLD_S) + (REFILL_S if writes else 0.0)


def plan(asked: Asked, experiment: Experiment) -> list[str]:
    """Return the cells to measure, the most telling first. Raises UserError without the time."""
    trials = {str(one.factors["cell"]): one for one in experiment.trials("rehearse")}
    names = [name for name in candidates() if trials[name].refused is None]
    checks = sum(cost_s(trials[name]) for name in CHECKS)
    budget = asked.minutes * 60 - BED_S - checks
    least = min(cost_s(trials[name]) for name in names)
    if budget < least * 2:
        minutes = math.ceil((BED_S + checks + least * 2) / 60)
        rule = f"a bed of rows, {HELD_OUT} cells to check and two to fit take longer"
        raise UserError(Problem("--minutes", f"{asked.minutes:g}", rule, f"give {minutes} or more"))
    found = informations_of([trials[name] for name in names], asked)
    chosen = design.choose(found, [cost_s(trials[name]) for name in names], budget)
    return [names[number] for number in chosen]


def informations_of(trials: Sequence[Trial], asked: Asked) -> list[design.Matrix]:
    """Return what each cell tells of the parameters, about those of the start."""
    catalog = load_catalog()
    jobs = []
    for trial in trials:
        prepared = prepare_rehearsed(trial, catalog, asked.start, "calibrate --here", QUICK)
        if prepared.job is None:
            raise UserError(*prepared.reasons)
        jobs.append(prepared.job)
    values = own_client(asked.start.values())
    return design.informations(jobs, PARAMETERS, values, asked.options)


def calibrate(
    asked: Asked,
    emit: Emit,
    say: Callable[[str], None],
    watch: Watch,
    hands: Hands = Hands(),
) -> Made:
    """Choose cells, rehearse them, fit and check. Raises UserError before anything is made."""
    experiment = experiment_of(asked.disks, os.cpu_count() or 1)
    asked = replace(asked, start=on_this_machine(asked.start, experiment))
    chosen = plan(asked, experiment)
    told = {"cell": [*chosen, *CHECKS]}
    options = preparation.Options(repeats=1, quick=True, seed=asked.options.seed, only=told)
    prepared = preparation.prepare(experiment, options, asked.out, say, hands.check)
    say(f"probing {asked.disks}")
    probed = probe_of(asked.disks, hands.look)
    run = rehearse(prepared, emit, hands.stage(prepared))
    return replace(made_of(asked, experiment, chosen, run, watch), probed=probed)


def probe_of(disks: str, look: Look) -> Probed | None:
    """Return what fio sees of an emulated disk. None: it owes no median, as behind a limit.

    What it takes longer than it owes is this machine's, and becomes part of the fitted overhead.
    """
    cell = Cell(Profile.SYNC, Direction.RANDREAD, QUICK_BLOCKS[0])
    asked = Plan((cell,), QUICK_DURATION_S, QUICK_SIZE_BYTES)
    (result,) = look(Emulated(Disk(disks, None), disks, asked), lambda _: None).results
    owed = result.promise.percentiles_ns if result.promise else None
    reads = owed.get("read") if owed else None
    if not reads or 50.0 not in reads:
        return None
    return Probed(result.measurement.latency.percentiles_ns[50.0], reads[50.0])


def made_of(
    asked: Asked, experiment: Experiment, chosen: Sequence[str], run: Run, watch: Watch
) -> Made:
    """Return the calibration that a run's cells tell. Raises UserError when none is usable."""
    asked = replace(asked, start=on_this_machine(asked.start, experiment))
    results = {str(one.factors["cell"]): one for one in run.results() if one.usable}
    fitted_on = [results[name] for name in chosen if name in results]
    if not fitted_on:
        rule = "no cell of it can be used"
        way_out = "look at its reasons: disklab report RUN"
        raise UserError(Problem("the rehearsal", str(run.folder), rule, way_out))
    times = machine_times(fitted_on, asked.start)
    start = with_values(asked.start, times, "measured")
    cells = measured_cells(experiment, fitted_on, start, QUICK)
    asked = replace(asked, start=start)
    information = np.sum(informations_of([cell.trial for cell in cells], asked), axis=0)
    told = design.tell(information, PARAMETERS)
    names = [one.name for one in told if one.within is not None][: MOST_PER_CELL * len(cells)]
    if not names:
        shown = "; ".join(str(cell.trial.factors["cell"]) for cell in cells)
        rule = f"its usable cells ({shown}) determine none of the parameters"
        way_out = "give more --minutes while nothing else runs on this machine"
        raise UserError(Problem("the rehearsal", str(run.folder), rule, way_out))
    fitted = fit(cells, names, start, asked.options, watch)
    asked = replace(asked, start=fitted.calibration)
    information = np.sum(informations_of([cell.trial for cell in cells], asked), axis=0)
    at = [PARAMETERS.index(name) for name in names]
    # What is left of the errors is noise, or worse.
    noise = max(design.NOISE, fitted.after.error)
    after = {one.name: one for one in design.tell(information[np.ix_(at, at)], names, noise)}
    known = [after.get(one.name, one) for one in told]
    held_out = [results[name] for name in CHECKS if name in results]
    check = checked(held_out, experiment, asked) if held_out else None
    rows = [CalibrationRow(experiment="calibrate-here", factors={"cell": name}) for name in chosen]
    calibration = described(fitted, known, information, rows, run)
    return Made(run, tuple(chosen), None, fitted, tuple(known), times, check, calibration)


def on_this_machine(start: Calibration, experiment: Experiment) -> Calibration:
    """Return a calibration whose pauses are those of the rehearsals' JVM, as it foretells them."""
    known = start.newest()
    trial = next(one for one in experiment.trials("rehearse") if one.refused is None)
    job = prepare_rehearsed(trial, load_catalog(), known, "calibrate --here", QUICK).needed()
    collector = job["database"]["cluster"]["collector"]
    values = known.values()
    larger = collector["young_bytes"] / values[AT_YOUNG_BYTES]
    keys = values["read_pause_ns"] * values["read_moved_permille"] / PERMILLE
    bare = values["read_pause_ns"] - keys
    moved = (keys * larger, (values["write_pause_ns"] - bare) * larger)
    told = {
        "read_pause_ns": round(bare + moved[0]),
        "write_pause_ns": max(1, round(bare + moved[1])),
        "pause_every_requests": max(1, round(values["pause_every_requests"] * larger)),
    }
    facts = {
        AT_YOUNG_BYTES: collector["young_bytes"],
        AT_COLLECTOR_THREADS: collector["threads"],
        "read_moved_permille": round(PERMILLE * moved[0] / (bare + moved[0])),
    }
    physical = {
        name: fact.model_copy(update={"value": facts[name]}) if name in facts else fact
        for name, fact in known.physical.items()
    }
    parameters = {
        name: one.model_copy(update={"value": told[name]}) if name in told else one
        for name, one in known.parameters.items()
    }
    # Nobody knows which cloud's vCPU is as fast as this machine's.
    changed = {"physical": physical, "parameters": parameters, "server_vm": None, "client_vm": None}
    return known.model_copy(update=changed)


def machine_times(results: Sequence[TrialResult], start: Calibration) -> dict[str, int]:
    """Return what processes told themselves: CPU times of the server, and its pauses.

    How a read's CPU is shared between coordinator and replica is the start's, as is how many
    requests lie between two pauses: of each pair the cells tell one figure. What only writes, or
    only reads, would tell stays where no cell has any. Keys all fit into the key cache here, so
    reads tell what a pause always takes; keys that are new take as much more as in the start.
    """
    values, found = start.values(), {}
    read_ns, write_ns = of_each(results, server_ns)
    part = values["coordinator_cpu_ns"] / (values["coordinator_cpu_ns"] + values["read_cpu_ns"])
    if read_ns > 0:
        found["coordinator_cpu_ns"] = max(1, round(read_ns * part))
        found["read_cpu_ns"] = max(1, round(read_ns * (1 - part)))
    if write_ns > 0:
        coordinator = found.get("coordinator_cpu_ns", values["coordinator_cpu_ns"])
        found["write_cpu_ns"] = max(1, round(write_ns - coordinator))
    read_paused, write_paused = of_each(results, pause_ns)
    always = 1 - values["read_moved_permille"] / PERMILLE
    paused = (read_paused / always if always > 0 else 0.0, write_paused)
    for name, each_ns in zip(("read_pause_ns", "write_pause_ns"), paused, strict=True):
        if each_ns > 0:
            found[name] = max(1, round(each_ns * values["pause_every_requests"]))
    return found


def of_each(
    results: Sequence[TrialResult], used_ns: Callable[[TrialResult], float | None]
) -> tuple[float, float]:
    """Return how much of something a read and a write take, from mixtures of both; 0: not told."""
    shares, used = [], []
    for one in results:
        counts = {name: part.operations or 0 for name, part in one.per_operation.items()}
        total, whole_ns = sum(counts.values()), used_ns(one)
        if total and whole_ns is not None:
            shares.append([counts.get("read", 0) / total, counts.get("write", 0) / total])
            used.append(whole_ns / total)
    if not used:
        return 0.0, 0.0
    read, write = nnls(np.array(shares), np.array(used))[0]
    return float(read), float(write)


def server_ns(result: TrialResult) -> float | None:
    """Return the CPU time that the database's processes used."""
    ratio = result.telemetry.cpu_ratio.get("server")
    if ratio is None or result.duration_s is None:
        return None
    return ratio * (os.cpu_count() or 1) * result.duration_s * 1e9


def pause_ns(result: TrialResult) -> float | None:
    """Return how long its collectors stopped the database."""
    paused_ms = result.telemetry.gc_pause_ms
    return None if paused_ms is None else paused_ms * 1e6


def with_values(calibration: Calibration, values: Mapping[str, int], status: str) -> Calibration:
    """Return the calibration with other values of some parameters."""
    parameters = {
        name: old.model_copy(update={"value": values[name], "status": status})
        if name in values
        else old
        for name, old in calibration.parameters.items()
    }
    return calibration.model_copy(update={"parameters": parameters})


def checked(held_out: Sequence[TrialResult], experiment: Experiment, asked: Asked) -> Check:
    """Return how far off held-out cells are with the package's calibration, and with `asked`'s."""
    package = package_calibration("cassandra").newest()
    cells = measured_cells(experiment, held_out, package, QUICK)
    before, _ = evaluate(cells, package, {}, asked.options)
    after, _ = evaluate(cells, asked.start, {}, asked.options)
    trials = tuple(cell.trial for cell in cells)
    return Check(trials, before, after, tuple(cell.measured for cell in cells))


def described(
    fitted: Fit,
    known: Sequence[Known],
    information: design.Matrix,
    rows: list[CalibrationRow],
    run: Run,
) -> Calibration:
    """Return the calibration with what is known of each parameter, where it came from and when."""
    cores = f"{os.cpu_count()} cores, Linux {platform.release()}"
    parameters = dict(fitted.calibration.parameters)
    for one in known:
        if one.within is not None and one.name in fitted.after.values:
            because = f"{len(fitted.cells)} cells of a rehearsal ({run.info.id}) on {cores}"
            changed = {"within": round(max(one.within, 1.0), 3), "because": because}
            parameters[one.name] = parameters[one.name].model_copy(update=changed)
    pairs = [
        Correlation(of=of, value=round(value, 2))
        for of, value in design.correlations(information, PARAMETERS).items()
        if abs(value) > LEAST_NAMED
    ]
    others = [one for one in fitted.calibration.correlations if not {*one.of} & {*PARAMETERS}]
    return fitted.calibration.model_copy(
        update={
            "name": f"calibrate --here, {cores}",
            "versions": {**run.info.versions, "kernel": platform.release()},
            "parameters": parameters,
            "correlations": [*others, *pairs],
            "calibration_rows": rows,
        }
    )


LEAST_NAMED = 0.8
"""Correlations below it widen a band by less than a fifth."""
