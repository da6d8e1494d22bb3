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

from disklab.procedures.effort import Effort
from disklab.procedures.jobs import most_clients
from disklab.procedures.turn import Key, Turn
from disklab.spec import Trial, TrialSpec

# What a running host or the load can change, by section of a trial.
CHANGED_LIVE = {
    "workload": ("operations", "keys", "load", "stop", "warm_up_s"),
    "before": None,
    "procedure": None,
    "client": None,
}
CHANGED_LIVE_OF_WORKLOAD = {"sysbench": ("script", "threads"), "tpcc": ("connections",)}
CHANGED_LIVE_OF_VOLUME = ("caching", "read_ahead_bytes")


def bed_of(spec: TrialSpec) -> str:
    """Return what names the bed of a trial: equal for trials that can share one."""
    content = spec.model_dump(mode="json")
    for section, keys in CHANGED_LIVE.items():
        if keys is None:
            content.pop(section, None)
        else:
            for key in keys:
                (content.get(section) or {}).pop(key, None)
    for kind, own in CHANGED_LIVE_OF_WORKLOAD.items():
        for key in own:
            ((content.get("workload") or {}).get(kind) or {}).pop(key, None)
    for volume in ((content.get("cluster") or {}).get("volumes") or {}).values():
        for key in CHANGED_LIVE_OF_VOLUME:
            volume.pop(key, None)
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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
    beds = {trial.index: bed_of(trial.here) for trial in able}
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
