"""`disklab calibrate`: parameters fitted to measured cells by least squares.

The error of a cell is the logarithm of predicted / measured, so that twice too fast weighs as much
as half as fast; parameters move on a logarithmic scale, so that none becomes negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from disklab import spec
from disklab.catalog import Catalog, load_catalog
from disklab.catalog.suggest import did_you_mean
from disklab.databases.calibration import Calibration, CalibrationRow, Parameter, Range
from disklab.databases.simulating import Job, own_client
from disklab.engine.process import simulate
from disklab.errors import Problem, UserError, refuse
from disklab.prediction.against import median
from disklab.prediction.cells import database_part, prepare, with_parameters
from disklab.prediction.counted import (
    CLIENT,
    levels,
    prepare_rehearsed,
    rehearsed_trials,
    study_of,
)
from disklab.prediction.outcome import sql_figures
from disklab.prediction.run import Options
from disklab.procedures.jobs import FULL, Effort
from disklab.results import TrialResult
from disklab.spec import Experiment, Trial, bundled

WEIGHTS = {
    "ops/s": 1.0,
    "p50": 0.5,
    "p95": 0.25,
    "p99": 0.15,
    "CPU": 0.5,
    "disk IOPS": 0.25,
    "disk MB/s": 0.25,
}
"""What a figure's error counts. Published percentiles are read off charts, the tail worst."""

REHEARSED = ("ops/s", "p50", "p95", "p99")
"""What a rehearsal tells of its node. Its CPU has the client's and the emulator's beside it."""

# Simulated figures have noise of a percent or so: a smaller step would measure that.
STEP = 0.1
# A parameter further than this from where it began is one that the rows do not tell.
MOST_FACTOR = 20.0
# A cell tells a rate and a tail: its other percentiles follow from those, and in a closed loop the
# rate follows from the mean.
MOST_PER_CELL = 2
# A step takes an evaluation for each parameter, and one of it all; each simulates every row. Fits
# of three parameters settle within half a dozen steps; one of eight still moved after four.
MOST_STEPS = 10


@dataclass(frozen=True)
class MeasuredCell:
    """A measured cell and the job that predicts it."""

    trial: Trial
    measured: dict[str, float]
    job: Job
    rehearsed: bool = False


@dataclass(frozen=True)
class Evaluation:
    """The cells as predicted with some values of the parameters."""

    values: dict[str, int]
    predicted: tuple[dict[str, float], ...]
    error: float
    """Root mean square of the weighted logarithmic errors."""


@dataclass(frozen=True)
class Fit:
    """What a calibration found."""

    before: Evaluation
    after: Evaluation
    cells: tuple[MeasuredCell, ...]
    evaluations: int
    at_bound: tuple[str, ...]
    """Parameters that ended where they may go no further: the rows do not tell them."""
    calibration: Calibration


Watch = Callable[[Evaluation, int], None]
"""Told each evaluation and its number."""


def measured_cells(
    experiment: Experiment,
    results: Sequence[TrialResult],
    calibration: Calibration,
    effort: Effort = FULL,
) -> list[MeasuredCell]:
    """Return the cells of an experiment that were measured and can be simulated.

    Repeats count once, as their median. What was rehearsed is predicted as it was rehearsed, one
    node at its scale: see `rehearsed`; `effort` is that of the rehearsal. Raises UserError when
    there is no such cell.
    """
    catalog: Catalog = load_catalog()
    rows: dict[object, list[TrialResult]] = {}
    for result in results:
        if result.usable:
            rows.setdefault(levels(result.factors), []).append(result)
    share = next((one.share for one in results if one.mode == "rehearse" and one.share), None)
    if share is not None:
        calibration = calibration.newest()
    wanted = experiment.trials("predict") if share is None else rehearsed_trials(experiment, share)
    weighed = WEIGHTS.keys() if share is None else REHEARSED
    place = str(experiment.path)
    found, reasons = [], []
    for trial in wanted:
        repeats = rows.get(levels(trial.factors))
        if repeats is None or trial.refused is not None:
            continue
        if share is None:
            prepared = prepare(trial, catalog, calibration, place)
        else:
            prepared = prepare_rehearsed(trial, catalog, calibration, place, effort)
        if prepared.job is None or not database_part(prepared.job):
            reasons += [str(reason.rule) for reason in prepared.reasons]
            continue
        told = {name: value for name, value in median(repeats).items() if name in weighed}
        if told:
            found.append(MeasuredCell(trial, told, prepared.job, share is not None))
    if not found:
        rule = "has no measured cell that the simulator can answer"
        way_out = "; ".join(dict.fromkeys(reasons)) or "name results of this experiment"
        raise UserError(Problem("EXPERIMENT", str(experiment.path), rule, way_out))
    return found


def check_parameters(
    names: Sequence[str], calibration: Calibration, cells: int, *, rehearsed: bool = False
) -> None:
    """Refuse unknown parameters, those not seen, and more of them than cells to fit them on."""
    problems = []
    for name in names:
        if rehearsed and name.startswith(CLIENT):
            rule, way_out = "belongs to the studies' client; a rehearsal has its own", "fit others"
            problems.append(Problem("--fit", name, rule, way_out))
        elif name not in calibration.parameters:
            known = list(calibration.parameters)
            way_out = did_you_mean(name, known, f"choose from {', '.join(known)}")
            problems.append(Problem("--fit", name, "is not a parameter of the model", way_out))
    if len(names) > MOST_PER_CELL * cells:
        rule = f"{len(names)} parameters cannot be fitted on {cells} cells"
        problems.append(Problem("--fit", ",".join(names), rule, "fit fewer, or on more cells"))
    refuse(problems)


def fit(
    cells: Sequence[MeasuredCell],
    names: Sequence[str],
    calibration: Calibration,
    options: Options,
    watch: Watch,
) -> Fit:
    """Return the calibration whose named parameters predict the cells best."""
    rehearsed = any(cell.rehearsed for cell in cells)
    check_parameters(names, calibration, len(cells), rehearsed=rehearsed)
    if rehearsed:
        calibration = calibration.newest()
    start = {name: max(1, calibration.parameters[name].value) for name in names}
    seen: list[Evaluation] = []
    known: dict[tuple[int, ...], list[float]] = {}

    def residuals(moved: NDArray[np.float64]) -> NDArray[np.float64]:
        shifts = [float(shift) for shift in moved]
        values = {
            name: max(1, round(start[name] * math.exp(shift)))
            for name, shift in zip(names, shifts, strict=True)
        }
        key = tuple(values.values())
        if key not in known:
            evaluation, known[key] = evaluate(cells, calibration, values, options)
            seen.append(evaluation)
            watch(evaluation, len(seen))
        return np.asarray(known[key])

    bound = math.log(MOST_FACTOR)

    def slopes(at: NDArray[np.float64]) -> NDArray[np.float64]:
        # SciPy's own steps are those of smooth functions, far below the noise of a simulation.
        here = residuals(at)
        columns = []
        for index in range(len(names)):
            step = STEP if at[index] + STEP < bound else -STEP
            moved = at.copy()
            moved[index] += step
            columns.append((residuals(moved) - here) / step)
        return np.stack(columns, axis=1)

    found = least_squares(
        residuals,
        np.zeros(len(names)),
        jac=slopes,
        bounds=(-bound, bound),
        # One cell that no parameter explains must not pull the others along.
        loss="soft_l1",
        f_scale=0.1,
        max_nfev=MOST_STEPS,
        # A step that changes less than this is noise.
        xtol=0.005,
        ftol=0.005,
    )
    best = min(seen, key=lambda evaluation: evaluation.error)
    close = 0.01
    at_bound = tuple(
        name for name, shift in zip(names, found.x, strict=True) if abs(shift) > bound - close
    )
    fitted = calibrated(calibration, best.values, cells)
    return Fit(seen[0], best, tuple(cells), len(seen), at_bound, fitted)


def evaluate(
    cells: Sequence[MeasuredCell],
    calibration: Calibration,
    values: dict[str, int],
    options: Options,
) -> tuple[Evaluation, list[float]]:
    """Simulate every cell with the values; return the figures and the weighted errors."""
    parameters = {**calibration.values(), **values}
    jobs = (
        {
            "cell": number,
            "seed": options.seed,
            "fidelity": options.fidelity,
            **with_parameters(cell.job, own_client(parameters) if cell.rehearsed else parameters),
        }
        for number, cell in enumerate(cells)
    )
    predicted: list[dict[str, float]] = [{} for _ in cells]
    for answer in simulate(jobs, workers=options.workers):
        if answer["event"] == "refused":
            raise UserError(*(Problem(**reason) for reason in answer["reasons"]))
        spec = cells[answer["cell"]].trial.spec
        predicted[answer["cell"]] = {
            "ops/s": answer["ops_per_s"],
            **answer["latency_ms"],
            **sql_figures(answer, spec.nodes),
        }
    errors = [
        WEIGHTS[figure] * math.log(max(told[figure], 1e-9) / value)
        for cell, told in zip(cells, predicted, strict=True)
        for figure, value in cell.measured.items()
    ]
    error = math.sqrt(sum(one * one for one in errors) / len(errors))
    return Evaluation(values, tuple(predicted), error), errors


def calibrated(
    calibration: Calibration, values: dict[str, int], cells: Sequence[MeasuredCell]
) -> Calibration:
    """Return a calibration with the fitted values, its rows and the range that they span."""
    parameters = {
        name: old.model_copy(update={"value": values[name], "status": "fitted"})
        if name in values
        else old
        for name, old in calibration.parameters.items()
    }
    return calibration.model_copy(
        update={
            "date": datetime.now(timezone.utc).date().isoformat(),
            "parameters": parameters,
            "range": span(cells, calibration.range),
        }
    )


def span(cells: Sequence[MeasuredCell], otherwise: Range) -> Range:
    """Return the range that the cells span."""
    specs = [cell.trial.spec for cell in cells]
    rows = [one.dataset.columns * one.dataset.column_bytes for one in specs if one.dataset]
    threads = [one.workload.load.threads for one in specs if one.workload.load]
    known = [count for count in threads if count is not None]
    nodes = [one.cluster.nodes for one in specs if one.cluster]
    vms = load_catalog().vms
    series = dict.fromkeys(vms[one.cluster.vm].series_name for one in specs if one.cluster)
    return Range(
        row_bytes=(min(rows), max(rows)) if rows else otherwise.row_bytes,
        threads=(min(known), max(known)) if known else otherwise.threads,
        nodes=(min(nodes), max(nodes)) if nodes else otherwise.nodes,
        vm_series=list(series) or otherwise.vm_series,
    )


def with_rows(calibration: Calibration, stem: str, wanted: dict[str, list[Any]]) -> Calibration:
    """Return the calibration with the rows that a choice of levels means."""
    choices: list[dict[str, Any]] = [{}]
    for name, chosen in wanted.items():
        choices = [{**one, name: level} for one in choices for level in chosen]
    fits = [name for name, one in calibration.parameters.items() if one.status == "fitted"]
    rows = [CalibrationRow(experiment=stem, factors=one, fits=fits) for one in choices]
    return calibration.model_copy(update={"calibration_rows": rows})


def calibration_text(calibration: Calibration) -> str:
    """Return the file of a calibration."""
    head = "# Written by `disklab calibrate`; `disklab predict --calibration FILE` uses it.\n"
    content = calibration.model_dump(mode="json")
    return head + yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)


__all__ = ["Fit", "MeasuredCell", "Parameter", "calibration_text", "fit", "measured_cells"]


# A calibration fitted anew on the rows that it declares, so that what it says can be repeated.

ROUNDS = 2
"""How often all groups are fitted, one after the other.

The parameters of one group move the cells of the others a little: pauses are fitted on writes, and
reads have them too. What the second round still moves is within the noise of a simulation.
"""


def groups(calibration: Calibration) -> dict[tuple[str, ...], list[CalibrationRow]]:
    """Return the declared rows by the parameters that were fitted on them, in the file's order."""
    found: dict[tuple[str, ...], list[CalibrationRow]] = {}
    for row in calibration.calibration_rows:
        if row.fits:
            found.setdefault(tuple(row.fits), []).append(row)
    return found


def declared_cells(rows: Sequence[CalibrationRow], calibration: Calibration) -> list[MeasuredCell]:
    """Return the published cells of declared rows. Raises UserError for rows nobody published."""
    found = []
    for row in rows:
        path = bundled.folder() / f"{row.experiment}{bundled.SUFFIX}"
        experiment = spec.load(path)
        study = study_of(experiment)
        if study is None:
            rule = "disklab has no published results of it"
            way_out = "name a published study in calibration_rows"
            raise UserError(Problem("calibration_rows", row.experiment, rule, way_out))
        part = experiment.only({name: [level] for name, level in row.factors.items()})
        found += measured_cells(part, study.results(), calibration)
    return found


def refit(
    calibration: Calibration, options: Options, watch: Watch
) -> tuple[Calibration, list[Fit]]:
    """Return the calibration fitted anew on its declared rows, and the last fit of each group.

    Raises UserError when it declares no row with parameters to fit.
    """
    known = groups(calibration)
    if not known:
        rule = "declares no rows with `fits`: the parameters that are fitted on them"
        raise UserError(Problem("--calibration", calibration.name, rule, "name an experiment"))
    made, fits = calibration, {}
    for _ in range(ROUNDS):
        for names, rows in known.items():
            fits[names] = fit(declared_cells(rows, made), names, made, options, watch)
            # A group's cells span less than the calibration does.
            made = fits[names].calibration.model_copy(update={"range": calibration.range})
    return made, list(fits.values())
