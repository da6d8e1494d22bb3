"""From what a bed is to what a trial wants it to be: the steps between, decided without doing any.

The page cache is the database's own (its memory group); the host cache is the emulated host's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from disklab.database_settings import Setting
from disklab.spec import ClusterTrial

Step = Literal[
    "empty",
    "fill",
    "settle",
    "change settings",
    "set caching",
    "set read-ahead",
    "drop host cache",
    "warm host cache",
    "drop page cache",
    "run the load",
    "set credits",
    "warm up",
]
"""In the order in which they are taken."""

PHASES: dict[Step, str] = {
    "empty": "fill",
    "fill": "fill",
    "settle": "settle",
    "change settings": "condition",
    "set caching": "condition",
    "set read-ahead": "condition",
    "drop host cache": "condition",
    "warm host cache": "condition",
    "drop page cache": "condition",
    "run the load": "condition",
    "set credits": "condition",
    "warm up": "warm-up",
}
"""The phase of a trial that a step belongs to."""

WORDS: dict[Step, str] = {
    "empty": "emptying the tables",
    "fill": "writing the rows",
    "settle": "until everything is in data files, compacted or vacuumed",
}
"""Steps whose name is that of their phase, in words."""

HostCache = Literal["none", "empty", "written", "used"]
"""What the host cache of the data volume holds. `none`: the volume does not use it; `used`: what
reads and writes since have left there."""

Credits = float | Literal["none", "used"]
"""Which share of their burst credits the disks have. `none`: none of them bursts on credits."""


@dataclass(frozen=True)
class BedState:
    """What is known of a bed before a trial."""

    data: Literal["nothing", "empty", "filled", "changed"] = "nothing"
    """`changed`: written to since the fill."""
    settled: bool = False
    """Flushed, and no compaction pending."""
    caching: str = "None"
    read_ahead_bytes: int | None = None
    """None: the kernel's own."""
    host_cache: HostCache = "none"
    credits: Credits = "none"
    settings: Mapping[str, Setting] | None = None
    """Of the database as it was configured last; None: they are not ours."""


def steps(state: BedState, spec: ClusterTrial) -> list[Step]:
    """Return what is to be done so that a trial, or a cold pass of it, can begin."""
    before = spec.before
    volume = spec.cluster.volumes["data"]
    found: list[Step] = []
    if state.settings is not None and state.settings != spec.database.settings:
        found.append("change settings")
    if state.caching != volume.caching:
        # Before the fill: what is written then goes through the cache as it would in the cloud.
        found.append("set caching")
        state = replace(
            state,
            caching=volume.caching,
            host_cache="none" if volume.caching == "None" else "empty",
        )
    if state.read_ahead_bytes != volume.read_ahead_bytes:
        found.append("set read-ahead")
    refilled = False
    if before.dataset == "empty":
        if state.data != "empty":
            found.append("empty")
    elif state.data != "filled":
        found += ["fill"] if state.data in ("nothing", "empty") else ["empty", "fill"]
        refilled = True
    # An emptied table has nothing to flush or compact; Cassandra's gauge of pending compactions
    # stays up for minutes when a truncation has ended one.
    is_empty = before.dataset == "empty"
    if refilled or (before.compactions == "finished" and not state.settled and not is_empty):
        found.append("settle")
    if refilled and state.host_cache != "none":
        # Compactions have removed tables since, whose blocks it holds still: a cache smaller than
        # the data served half as many reads as when the same trial came later on its bed.
        state = replace(state, host_cache="used")
    found += _host_cache(state, before.host_cache)
    found += _last(state, spec, found)
    return found


def _last(state: BedState, spec: ClusterTrial, before: Sequence[Step]) -> list[Step]:
    """Return what comes right before the measurement, behind these steps."""
    found: list[Step] = []
    # Settings change with the restart that drops the page cache.
    if spec.before.page_cache == "cold" or "change settings" in before:
        found.append("drop page cache")
    if spec.before.page_cache == "warm":
        found.append("run the load")
    wanted = spec.before.credits_ratio
    if state.credits != "none" and (state.credits != wanted or before or found):
        # What a fill or the pass before has spent is not this one's loss.
        found.append("set credits")
    if spec.workload.warm_up_s:
        found.append("warm up")
    return found


def _host_cache(state: BedState, wanted: str) -> list[Step]:
    """Return how the host cache gets into its condition.

    `written` and `warm` are the same set of blocks, all that the data files have, as far as it
    fits: whatever the fill wrote and whatever a read of everything would leave. It is brought about
    by the emulator, without waiting for the disks.
    """
    if state.host_cache == "none" or wanted == "as-left":
        return []
    if wanted == "empty":
        return [] if state.host_cache == "empty" else ["drop host cache"]
    return [] if state.host_cache == "written" else ["drop host cache", "warm host cache"]
