"""Small results for tests: synthetic, and named so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from disklab.results import ExperimentNote, PlannedTrial, Run, RunInfo, TrialResult

TITLE = "Synthetic: does the cache help?"


def info(run_id: str = "synthetic-rehearse-20261121T120000-abcd", **more: Any) -> RunInfo:
    note = ExperimentNote(title=TITLE, source="made by a test", file="synthetic.yaml")
    return RunInfo(**{"id": run_id, "mode": "rehearse", "experiment": note, "seed": 1, **more})


def result(trial: int = 0, repeat: int = 0, **more: Any) -> TrialResult:
    factors = {"caching": "ReadOnly" if trial % 2 else "None", "threads": 64 << (trial // 2)}
    given: dict[str, Any] = {
        "experiment": TITLE,
        "mode": "rehearse",
        "trial": trial,
        "repeat": repeat,
        "factors": factors,
        "ops_per_s": 1000.0 + trial,
        "nodes": 1,
        "latency_ms": {"mean": 1.0, "p50": 0.9, "p95": 2.0, "p99": 3.0, "p99.9": 9.0, "max": 12.0},
    }
    return TrialResult(**{**given, **more})


def run(out: Path, **more: Any) -> Run:
    planned = [PlannedTrial(trial=n, factors=result(n).factors) for n in range(4)]
    return Run.create(out, info(**more), experiment_text="title: synthetic\n", planned=planned)
