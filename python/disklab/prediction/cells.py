"""Which part of the simulator answers a trial."""

from __future__ import annotations

from disklab.catalog import Catalog
from disklab.database_facts import facts_of
from disklab.prediction import jobs
from disklab.prediction.calibration import Calibration
from disklab.prediction.jobs import Job, Prepared
from disklab.prediction.postgresql import prepare_postgresql
from disklab.prediction.sql import prepare_sql
from disklab.spec import Trial

DATABASES = ("database", "sql", "postgresql")
"""Keys of a job that hold a database and the parameters that it was calibrated with."""

MODELS = {"yugabytedb": prepare_sql, "postgresql": prepare_postgresql}
"""By the model of a database's facts: what makes its jobs."""


def prepare(
    trial: Trial, catalog: Catalog, calibration: Calibration | None, place: str
) -> Prepared:
    """Return the job of a trial, or why there is none. `place`: the file, for the reasons."""
    database = trial.spec.database
    model = MODELS.get(facts_of(database.engine).simulator or "") if database else None
    if model is not None:
        assert calibration is not None
        return model(trial, catalog, calibration, place)
    return jobs.prepare(trial, catalog, calibration, place)


def database_of(job: Job) -> str | None:
    """Return the key of a job's database; None: it is a device."""
    return next((key for key in DATABASES if key in job), None)


def with_parameters(job: Job, parameters: dict[str, int]) -> Job:
    """Return a database's job with other parameters."""
    key = database_of(job)
    assert key is not None
    return {**job, key: {**job[key], "parameters": parameters}}
