"""Closed loop: the trial's threads, each doing one operation after another, until it stops.

Latency is service time: a thread that waits offers nothing meanwhile, and the figures say so.
"""

from __future__ import annotations

from disklab.procedures import passes
from disklab.procedures.bed import Bed
from disklab.procedures.record import Notes
from disklab.procedures.series import Series
from disklab.procedures.turn import Turn


def run(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Measure with the trial's threads."""
    passes.warm_up(turn, bed, notes)
    return passes.measure(turn, bed, notes)
