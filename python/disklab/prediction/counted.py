"""Which predicted cells prove something when they are held against what was published."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from disklab.catalog import Catalog
from disklab.databases.calibration import Calibration
from disklab.databases.simulating import NS_PER_S, Job, Rehearsed
from disklab.errors import Problem
from disklab.prediction.cells import Prepared, model_of, not_modelled
from disklab.procedures.jobs import FULL, Effort, stop_of, uses_up, warm_up_of
from disklab.results import ReferenceRun, Share, TrialResult, reference_runs
from disklab.spec import Experiment, Trial

# A rehearsal as the simulator sees it: the trial that was really run, and not its full system.
#
# Its disks, its page cache and its data are those of the rehearsal's scale, and its client is
# ours, whose CPU and warm-up are next to nothing beside those of the studies' clients. Its CPU is
# this machine's: in slow motion as many cores as the node has, each as fast as one of this
# machine.

CLIENT = "client_"
"""How the names of the client's parameters begin."""

LOOPBACK_ONE_WAY_NS = 7_000
"""Of a message between client and node, which a rehearsal without a network of its own sends
through this machine's loopback.

**Source:** our own measurement: a byte to and fro over TCP between two processes took 14 us
in the median (Linux 6.18, two cores of an AMD EPYC, 2026-11-24).
"""

FIRST_OF_TODAY = (4, 10)
"""Since then faults map what is around them, and a read may fetch more than `read_ahead_kb`.

**Source:** mm/filemap.c and mm/readahead.c of Linux.
"""


def kernel_rules(release: str) -> str:
    """Return whose rules of reading ahead a kernel such as `6.1.0-13-amd64` has, for a job."""
    found = re.match(r"(\d+)\.(\d+)", release)
    version = (int(found[1]), int(found[2])) if found else FIRST_OF_TODAY
    return "6.18" if version >= FIRST_OF_TODAY else "3.10"


def rehearsed_trials(experiment: Experiment, share: Share) -> list[Trial]:
    """Return the matrix as a run with this share rehearsed it."""
    return experiment.trials(
        "rehearse",
        scale=Fraction(share.scale),
        nodes=int(share.nodes.here),
        time_dilation=share.time_dilation,
    )


def prepare_rehearsed(
    trial: Trial,
    catalog: Catalog,
    calibration: Calibration,
    place: str,
    effort: Effort = FULL,
) -> Prepared:
    """Return the job of what was rehearsed, or why there is none.

    `place`: the file; `effort`: how much was measured, which decides how long runs limited by time
    took.
    """
    spec = trial.here
    model = model_of(spec)
    rehearsed = model.rehearsed if model is not None else None
    if spec.cluster is None or model is None or rehearsed is None:
        reasons = [*not_modelled(spec, place)]
        if spec.cluster is None:
            rule, way_out = "a device has no parameters to fit", "name a cluster's experiment"
            reasons.append(Problem(f"{place}: device", "", rule, way_out))
        return Prepared(None, tuple(reasons))
    reasons = [*model.unmodelled(spec, place)]
    if reasons:
        return Prepared(None, tuple(reasons))
    there = Rehearsed(
        trial.share,
        _course(trial, effort.dilated(trial.share.time_dilation)),
        kernel_rules(platform.release()),
        {"one_way_ns": LOOPBACK_ONE_WAY_NS},
    )
    job = rehearsed(spec, catalog, calibration, there)
    return Prepared({model.key: job, "ablate": list(model.without)})


def _course(trial: Trial, effort: Effort) -> Job:
    """Return when a pass of the trial's load begins to be counted, and when it ends.

    Where the page cache is to be warm, the trial's own load has run before, for as long again.
    """
    spec, scale = trial.here, float(Fraction(trial.share.scale))
    stop = stop_of(spec, effort, scale)
    before = warm_up_of(spec, effort, scale)
    uncounted_s = before.duration_s or 0.0 if before else 0.0
    if not uses_up(spec) and spec.before.page_cache == "warm":
        uncounted_s += stop.duration_s or 0.0
    whole_s = None if stop.duration_s is None else stop.duration_s + uncounted_s
    return {
        "stop": {
            "operations": stop.operations,
            "duration_ns": None if whole_s is None else round(whole_s * NS_PER_S),
        },
        "warm_up_ns": round(uncounted_s * NS_PER_S),
    }


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
