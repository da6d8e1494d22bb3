"""What tells one simulator from another: the figures of a few cells at quick fidelity."""

from __future__ import annotations

from collections.abc import Sequence

from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.engine.process import simulate
from disklab.prediction.cells import prepare
from disklab.spec import Experiment

MOST_OFF = 0.02
"""By which a figure may differ and still be that of the same simulator."""


def fingerprint(cells: Sequence[tuple[Experiment, int]]) -> list[float]:
    """Return rate (1/s) and p99 (ms) of each cell, given as experiment and index of the trial."""
    catalog, jobs = load_catalog(), []
    for number, (experiment, index) in enumerate(cells):
        trial = experiment.trials("predict")[index]
        engine = trial.spec.engine or ""
        job = prepare(trial, catalog, calibration_for(engine), str(experiment.path)).job
        jobs.append({"cell": number, "seed": 1, "fidelity": "quick", **(job or {})})
    answers = sorted(simulate(jobs), key=lambda answer: int(answer["cell"]))
    return [
        float(figure)
        for answer in answers
        for figure in (answer["ops_per_s"], answer["latency_ms"]["p99"])
    ]


def differ(known: Sequence[float], now: Sequence[float]) -> bool:
    """Return whether two fingerprints are of different simulators."""
    return len(known) != len(now) or any(
        abs(new / old - 1) > MOST_OFF for old, new in zip(known, now, strict=True)
    )
