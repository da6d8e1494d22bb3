"""In which order trials run: what shares a bed runs together, and chance orders the rest.

A *bed* is what takes minutes to make: emulated hosts, a database on them, its data. Trials that
differ only in what a running host can change (host caching, read-ahead) or in the load can share
one. Repeats are the outer loop, so that a slow drift of this machine meets all trials alike; within
a repeat beds come in random order, and so do the trials of a bed.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from disklab.database_facts import facts_of
from disklab.procedures import device, replay
from disklab.procedures.jobs import Effort, most_clients
from disklab.procedures.turn import Key, Turn
from disklab.spec import Trial, TrialSpec

# How long turns will take, guessed before anything was measured. Only progress shows it.

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


# What a running host or the load can change, by section of a trial; some databases' settings, too.
CHANGED_LIVE = {
    "workload": ("operations", "keys", "load", "stop", "warm_up_s"),
    "before": None,
    "procedure": None,
    "client": None,
}
CHANGED_LIVE_OF_WORKLOAD = {
    "sysbench": ("script", "threads"),
    "tpcc": ("connections", "terminals"),
    "tool": ("load", "threads"),
}
CHANGED_LIVE_OF_VOLUME = ("caching", "read_ahead_bytes")


def _forget_live(workload: dict[str, Any]) -> None:
    """Take away what a load can change on tables that are there."""
    sysbench = workload.get("sysbench") or {}
    if sysbench.get("script") == "tpcb":
        sysbench["has_own_tables"] = True
    for kind, own in CHANGED_LIVE_OF_WORKLOAD.items():
        for key in own:
            (workload.get(kind) or {}).pop(key, None)


def bed_of(spec: TrialSpec, *, restarts: bool = False) -> str:
    """Return what names the bed of a trial: equal for trials that can share one.

    `restarts`: also those that differ in settings which a restart changes.
    """
    content = spec.model_dump(mode="json")
    for section, keys in CHANGED_LIVE.items():
        if keys is None:
            content.pop(section, None)
        else:
            for key in keys:
                (content.get(section) or {}).pop(key, None)
    _forget_live(content.get("workload") or {})
    for volume in ((content.get("cluster") or {}).get("volumes") or {}).values():
        for key in CHANGED_LIVE_OF_VOLUME:
            volume.pop(key, None)
    if restarts and spec.database is not None:
        for name in facts_of(spec.database.engine).restart_settings:
            content["database"]["settings"].pop(name, None)
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _beds(trials: Sequence[Trial]) -> dict[int, str]:
    """Return the bed of each trial by its index; where a page cache stays as left none restarts."""
    shared = {trial.index: bed_of(trial.here, restarts=True) for trial in trials}
    as_left = {shared[trial.index] for trial in trials if trial.here.before.page_cache == "as-left"}
    return {
        trial.index: bed_of(trial.here) if shared[trial.index] in as_left else shared[trial.index]
        for trial in trials
    }


def order(
    trials: Sequence[Trial],
    repeats: int,
    seed: int,
    effort: Effort,
    finished: AbstractSet[Key] = frozenset(),
) -> list[Turn]:
    """Return the turns that are left, in running order. Refused trials have none.

    The order is drawn for the whole experiment and what is finished is left out afterwards: a
    resumed run goes on in the order that it began with.
    """
    able = [trial for trial in trials if trial.refused is None]
    beds = _beds(able)
    drawn: list[Turn] = []
    last: str | None = None
    for repeat in range(repeats):
        # A stream of its own for each repeat: one more repeat changes no order of the others.
        chance = random.Random(f"order {seed} {repeat}")  # noqa: S311 - reproducible, not secret
        names = sorted(set(beds.values()))
        chance.shuffle(names)
        if last in names:
            # What is built stays: the bed of the last trial goes on with the next repeat.
            names.remove(last)
            names.insert(0, last)
        for name in names:
            members = [trial for trial in able if beds[trial.index] == name]
            chance.shuffle(members)
            most = max(most_clients(trial.here) for trial in members)
            drawn += [Turn(trial, repeat, name, effort, seed, most) for trial in members]
        last = names[-1] if names else None
    return [turn for turn in drawn if turn.key not in finished]


def how_ordered(turns: Sequence[Turn], repeats: int, seed: int) -> str:
    """Return the order in words, for the results."""
    if all(turn.spec.device is not None for turn in turns):
        return (
            f"{repeats} repeats as the outer loop; trials in random order in each "
            f"(seed {seed}; the disk is made and filled for each trial)"
        )
    beds = len({turn.bed for turn in turns})
    shared = "one bed for all" if beds == 1 else f"{beds} beds, in random order in each repeat"
    return (
        f"{repeats} repeats as the outer loop; trials in random order within each bed "
        f"(seed {seed}; {shared}; a bed is a set of emulated hosts with a filled database, and "
        "is built again when the bed changes)"
    )
