"""Which predicted cells prove something when they are held against what was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from disklab.databases.calibration import Calibration
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

LATENCIES = frozenset({"mean", "p50", "p95", "p99"})
ALL = frozenset({"ops/s", "tpmC", "CPU", "disk IOPS", "disk MB/s"}) | LATENCIES


@dataclass(frozen=True)
class InSight:
    """Cells in whose sight a value was fitted or chosen that no calibration file names."""

    stem: str
    levels: Mapping[str, str]
    figures: frozenset[str]
    """Figures that the value moves: these are not counted."""
    note: str


_SWEEPS = ("cassandra-disk-caching-threads", "cassandra-disk-caching-read-ahead")
_CACHING = "cluster.volumes.data.caching"

IN_SIGHT = (
    InSight(
        "cassandra-disk-caching-read-ahead",
        {_CACHING: "ReadOnly", "cluster.volumes.data.read_ahead": "64KiB"},
        ALL,
        "the same measurement as in cassandra-disk-caching-threads",
    ),
    *(
        InSight(stem, {_CACHING: "None"}, ALL, "in sight: its disks' read times were fitted to it")
        for stem in _SWEEPS
    ),
    *(
        InSight(
            stem,
            {_CACHING: "ReadOnly"},
            LATENCIES,
            "latencies in sight: the host cache's read times were fitted to them",
        )
        for stem in _SWEEPS
    ),
    InSight(
        "yugabytedb-disk-types",
        {"disk": "Premium SSD", "workload": "sysbench read, 30 tables"},
        ALL,
        "in sight: half of the burst credits were chosen for it",
    ),
    InSight(
        "azure-local-disks",
        {"device": "AMD temp disk", "workload.fio.profile": "async"},
        ALL,
        "in sight: the MB/s of its disk were chosen for it",
    ),
)
"""**Source:** latency.yaml of Azure (`fitted`, and what its notes say of the host cache), the
experiment file's `before.credits`, and the choices that docs/accuracy.md lists."""

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
    seen = in_sight(stem, key)
    if seen is not None and seen.figures == ALL:
        return seen.note
    return OTHER_LOADS.get((stem, key), _not_at_the_target(row) if stem == SEARCHED else "")


def _not_at_the_target(row: TrialResult) -> str:
    count = under_way(row)
    what = "operation" if count == 1 else "operations"
    return f"published with {count} {what} under way, not at the target"


def in_sight(stem: str, key: Levels) -> InSight | None:
    """Return what was fitted or chosen in sight of a published cell beside the parameters."""
    known = dict(key)
    for one in IN_SIGHT:
        if one.stem == stem and all(known.get(name) == one.levels[name] for name in one.levels):
            return one
    return None


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
