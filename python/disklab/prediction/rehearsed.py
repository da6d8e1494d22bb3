"""A rehearsal as the simulator sees it: the trial that was really run, and not its full system.

Its disks, its page cache and its data are those of the rehearsal's scale, and its client is ours,
whose CPU and warm-up are next to nothing beside those of the studies' clients. Its CPU is this
machine's: in slow motion as many cores as the node has, each as fast as one of this machine.
"""

from __future__ import annotations

import platform
import re
from fractions import Fraction

from disklab.catalog import Catalog
from disklab.databases.calibration import Calibration
from disklab.databases.simulating import NS_PER_S, Job, Rehearsed
from disklab.errors import Problem
from disklab.prediction.cells import Prepared, model_of, not_modelled
from disklab.procedures.effort import FULL, Effort
from disklab.procedures.jobs import stop_of, uses_up, warm_up_of
from disklab.results import Share
from disklab.spec import Experiment, Trial

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
    if model is None or rehearsed is None:
        reasons = [*not_modelled(spec, place)]
        if spec.cluster is None or spec.database is None:
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
