"""Fixed rate: an open loop. Operations start when they are due, whatever the database does."""

from __future__ import annotations

import math

from disklab.procedures import passes
from disklab.procedures.bed import Bed
from disklab.procedures.record import Notes
from disklab.procedures.series import Series
from disklab.procedures.turn import Turn

# Below this share of the offered rate the queue of what is due grows without end: response times
# then say how long the run was.
LEAST_ACHIEVED_RATIO = 0.95
# Poisson arrivals stray by the square root of their number; further than this one run in 700.
MOST_DEVIATIONS = 3.0


def run(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Offer the trial's rate; say when it was not achieved."""
    load = turn.spec.workload.load
    assert load is not None, "checked by the spec"
    assert load.rate_per_s is not None, "fixed has a rate"
    passes.warm_up(turn, bed, notes)
    series = passes.measure(turn, bed, notes)
    if series.operations < least_operations(load.rate_per_s * series.elapsed_s):
        notes.warn(
            f"{series.ops_per_s:.0f} of the {load.rate_per_s:.0f} operations a second that were "
            "offered were done: the response times grow with the length of the run"
        )
    return series


def least_operations(offered: float) -> float:
    """Return how many operations are to be expected at least, of those that chance has offered."""
    return min(LEAST_ACHIEVED_RATIO * offered, offered - MOST_DEVIATIONS * math.sqrt(offered))
