"""Which part of the simulator answers a trial: a device's own, or that of the trial's database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from disklab.catalog import Catalog
from disklab.database_facts import simulated
from disklab.databases.calibration import Calibration
from disklab.databases.registry import simulated_of
from disklab.databases.simulating import REHEARSE, Breaking, Job, Simulated, left_caches
from disklab.errors import Problem
from disklab.prediction import devices
from disklab.spec import Trial, TrialSpec


@dataclass(frozen=True)
class Prepared:
    """A job, or why there is none."""

    job: Job | None
    reasons: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def prepare(
    trial: Trial, catalog: Catalog, calibration: Calibration | None, place: str
) -> Prepared:
    """Return the job of a trial, or why there is none. `place`: the file, for the reasons."""
    spec = trial.spec
    model = model_of(spec)
    reasons = [*(not_modelled(spec, place) if model is None else model.unmodelled(spec, place))]
    if reasons:
        return Prepared(None, tuple(reasons))
    if model is None:
        notes = tuple(trial.replay.notes()) if trial.replay is not None else ()
        return Prepared({"device": devices.job_of(trial)}, (), notes)
    assert calibration is not None
    warnings = tuple(model.warnings(trial, catalog, calibration))
    return Prepared({model.key: model.job(spec, catalog, calibration)}, (), warnings)


def model_of(spec: TrialSpec) -> Simulated | None:
    """Return what makes jobs of a trial's database; None: it has none, or none is simulated."""
    return simulated_of(spec.database.engine) if spec.database is not None else None


def breaking_of(trial: Trial) -> Breaking | None:
    """Return what the simulator knows of a trial's nodes that break; None: they do not."""
    model = model_of(trial.spec)
    return model.breaking if model is not None else None


def not_modelled(spec: TrialSpec, place: str) -> Iterator[Problem]:
    """Yield what the simulator does not model of a trial without a database that it models."""
    if spec.database is not None:
        rule = f"the simulator models {simulated()} so far"
        yield Problem(f"{place}: database.engine", spec.database.engine, rule, REHEARSE)
    yield from left_caches(spec, place)


def database_of(job: Job) -> str | None:
    """Return the key of a job's part that has calibrated parameters; None: it is a device's."""
    parts = (key for key, part in job.items() if isinstance(part, dict) and "parameters" in part)
    return next(parts, None)


def with_parameters(job: Job, parameters: dict[str, int]) -> Job:
    """Return a database's job with other parameters."""
    key = database_of(job)
    assert key is not None
    return {**job, key: {**job[key], "parameters": parameters}}
