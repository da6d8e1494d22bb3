"""What a device experiment tells beside its figures."""

from __future__ import annotations

import pytest
from disklab.probe.cells import KIB, PERCENTILES, Cell, Direction, Profile
from disklab.probe.fio import Latency, Measurement, Side
from disklab.probe.fio_results import beyond_this_machine
from disklab.probe.run import CellResult
from disklab.probe.verdict import Outcome, Verdict

CELL = Cell(Profile.ASYNC, Direction.RANDWRITE, 8 * KIB)
MS = 1_000_000


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_limit_of_this_machine_is_a_warning(outcome: Outcome) -> None:
    latency = Latency(float(MS), MS, MS, dict.fromkeys(PERCENTILES, MS))
    measured = Measurement(
        CELL, {"write": Side(60, 60 * 8192, latency)}, latency, 60.0, "fio-3.33", ()
    )
    reason = "short by 43%, and this machine is why: a FLUSH was under way"
    cell = CellResult("OS disk", "", measured, verdict=Verdict(outcome, "IOPS", 1.0, 2.0, reason))
    told = [f"IOPS: {reason}"] if outcome is Outcome.BEYOND_MACHINE else []
    assert beyond_this_machine(cell) == told
