"""How long turns will take, guessed before anything was measured. Only progress shows it."""

from __future__ import annotations

from collections.abc import Sequence

from disklab.procedures import device, replay
from disklab.procedures.turn import Turn

# Seconds, as two cores took them in our runs of 2026-11: hosts with mkfs and the machine's
# measurement, and the first row from Cassandra.
BUILD_S = 25.0
WARM_UP_OPERATIONS_PER_S = 7_000.0
FILL_BYTES_PER_S = 25e6
SETTLE_S = 5.0
# A pass: dropping the page cache, starting the load engine, a second's worth of load.
TRIAL_S = 14.0
QUICK_TRIAL_S = 6.0
ROW_OVERHEAD_BYTES = 165


def data_bytes(turn: Turn) -> int:
    """Return how large the data of a turn are on all nodes together."""
    spec = turn.spec
    if spec.database is None:
        return 0
    rows = spec.dataset.rows if spec.dataset is not None else None
    one = turn.workload().data_bytes + (rows or 0) * ROW_OVERHEAD_BYTES
    return one * spec.database.replication_factor


def of_device(turn: Turn) -> float:
    """Return a guess for a turn without a database: it shares its disk with no other one."""
    if turn.spec.workload.trace is None:
        return device.expected_s(turn)
    # Root's part of a rehearsal has no trace before its turn; nobody asks it how long that takes.
    return 0.0 if turn.trial.replay is None else replay.expected_s(turn)


def expected_s(turns: Sequence[Turn]) -> list[float]:
    """Return a guess for each turn; what a bed costs is the first turn's."""
    found = []
    bed: str | None = None
    for turn in turns:
        if turn.spec.device is not None:
            found.append(of_device(turn))
            continue
        seconds = QUICK_TRIAL_S if turn.effort.least_operations < 10_000 else TRIAL_S
        spec = turn.spec
        fills = data_bytes(turn) / FILL_BYTES_PER_S + SETTLE_S
        if turn.bed != bed:
            seconds += BUILD_S + turn.effort.warm_up_operations / WARM_UP_OPERATIONS_PER_S + fills
        elif spec.workload.operations is not None and spec.workload.operations.changes:
            seconds += fills
        bed = turn.bed
        found.append(seconds)
    return found
