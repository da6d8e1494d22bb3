"""Which predicted cells prove something when they are held against what was published."""

from __future__ import annotations

from typing import Any

from disklab.prediction.calibration import Calibration
from disklab.results import ReferenceRun, TrialResult, reference_runs
from disklab.spec import Experiment

Levels = tuple[tuple[str, str], ...]

OTHER_LOADS: dict[tuple[str, Levels], str] = {
    ("azure-local-disks", (("device", "NVMe"), ("workload.fio.profile", "async"))): (
        "published with 4k blocks, 16 jobs, depth 512"
    ),
}
"""Published cells whose load was not the experiment's: shown, and not counted.

**Source:** tomaskubica.cz 2020-09, the fio job of the NVMe disk.
"""


SEARCHED = "cassandra-vm-types"
"""Study of a search for the load at a median of 10 ms, whose rows lie elsewhere.

Small rows have medians of 18 to 40 ms, and by Little's law medium ones one operation under way.
"""

CATALOGUED = {"azure-local-disks": ("workload.fio.profile", "sync")}
"""Cells whose percentiles are the catalogue's own service times of those devices.

That they come out again shows that nothing is lost on the way, and predicts nothing.
"""

FITTED = "calibration row"
IN_CATALOGUE = "calibration row: the catalogue's service times are these"


def why_not_counted(
    study: ReferenceRun | None, factors: dict[str, Any], calibration: Calibration | None
) -> str:
    """Return why the error of a cell proves nothing; empty: it counts, or nobody published it."""
    if study is None:
        return ""
    stem = study.info.id.removesuffix("-published")
    key = levels(factors)
    row = next((row for row in study.results() if levels(row.factors) == key), None)
    if row is None:
        return ""
    if calibration is not None and calibration.covers(stem, dict(row.factors)):
        return FITTED
    if CATALOGUED.get(stem) in key:
        return IN_CATALOGUE
    if stem == SEARCHED:
        count = under_way(row)
        what = "operation" if count == 1 else "operations"
        return f"published with {count} {what} under way, not at the target"
    return OTHER_LOADS.get((stem, key), "")


def under_way(row: TrialResult) -> int:
    """Return how many operations were under way in a measured cell, by Little's law."""
    assert row.ops_per_s is not None
    return max(1, round(row.ops_per_s * row.latency_ms["mean"] / 1000))


def study_of(experiment: Experiment) -> ReferenceRun | None:
    """Return the published study of an experiment; None: nobody published one."""
    for run in reference_runs():
        if run.info.experiment.title == experiment.title:
            return run
    return None


def levels(factors: dict[str, Any]) -> Levels:
    """Return the levels of a cell in a form that can be compared."""
    return tuple(sorted((name, str(level)) for name, level in factors.items()))
