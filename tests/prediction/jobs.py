"""Jobs of experiments of one cell and what the simulator answers, for tests of any database."""

from __future__ import annotations

from typing import Any

from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.engine.process import simulate
from disklab.prediction.cells import Prepared, prepare
from disklab.prediction.counted import prepare_rehearsed
from disklab.spec import Trial

CATALOG = load_catalog([])


def prepared_trial(trial: Trial, *, rehearsed: bool = False) -> Prepared:
    """Prepare a trial with its database's calibration; `rehearsed`: at a rehearsal's scale."""
    own = prepare_rehearsed if rehearsed else prepare
    return own(trial, CATALOG, calibration_for(trial.spec.database.engine), "x.yaml")


def prepared(text: str) -> Prepared:
    """Prepare a file's first trial."""
    return prepared_trial(spec.parse(text, "x.yaml").trials("predict")[0])


def job(text: str) -> Any:
    """Return the part of its job that is the database's own."""
    (made,) = prepared(text).needed().values()
    return made


def simulated(**job: Any) -> Any:
    """Return the answer to a job, given by its key, at quick fidelity."""
    (answer,) = simulate([{"cell": 1, "seed": 1, "fidelity": "quick", **job}])
    return answer


def refused(text: str, rule: str) -> None:
    """Assert that no job is made, by a rule that says this, and that each has a way out."""
    made = prepared(text)
    assert made.job is None
    assert any(rule in problem.rule for problem in made.reasons), made.reasons
    assert all(problem.place.startswith("x.yaml: ") for problem in made.reasons), made.reasons
    assert all(problem.way_out for problem in made.reasons), made.reasons
