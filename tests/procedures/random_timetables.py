"""Timetables drawn at random, each valid, after which nothing is broken and nothing may be lost."""

from __future__ import annotations

import random
from typing import Any

from disklab import spec
from disklab.spec import ClusterTrial, TimedEvent
from disklab.spec.amounts import only
from disklab.spec.timetable_checks import Walk

HEAD = """
title: etcd on a timetable drawn at random
cluster:
  nodes: 3
  zones: 3
  network: azure/standard
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P2, caching: %s, filesystem: ext4}}
client: {nodes: 1, vm: azure/Standard_E8ds_v4}
database: {engine: etcd, replication_factor: 3}
dataset: {rows: 300, row: 1 x 300B}
workload:
  operations: {read: 50%%, write: 50%%}
  keys: uniform
  load: {rate: 30/s}
  stop: {duration: %ds}
before: {page_cache: as-left}
rehearse: {scale: 1, time_dilation: 1, nodes: 3}
"""
NODES = ("n1", "n2", "n3")
PAIRS = ("n1-n2", "n1-n3", "n2-n3", "client-n1", "client-n2", "client-n3")
BREAKING = ("kill", "lose", "restart", "cut", "slow_link", "lossy", "slow", "stall", "credits")
MENDING = {"kill": "start", "lose": "start", "slow": "mend", "stall": "mend"}


def drawn(seed: int) -> str:
    """Return an experiment whose events are drawn from a seed: one thing is broken at a time.

    So a majority of the members always serves, and whatever was acknowledged must be there.
    """
    chance = random.Random(seed)
    events: list[dict[str, Any]] = []
    at_s = 2.0
    for _ in range(chance.randint(2, 4)):
        kind = chance.choice([*BREAKING, "lose_zone"])
        broken = _event(kind, chance)
        events.append({"at": f"{at_s:g}s", **broken})
        at_s += chance.choice([1, 2, 3])
        mended = _mended(kind, broken)
        if mended is not None:
            events.append({"at": f"{at_s:g}s", **mended})
            at_s += chance.choice([1, 2])
    shown = ", ".join(
        "{" + ", ".join(f"{key}: {value}" for key, value in event.items()) + "}" for event in events
    )
    caching = chance.choice(["None", "ReadOnly"])
    text = HEAD % (caching, round(at_s) + 3) + f"events: [{shown}]\n"
    _check(text)
    return text


def _event(kind: str, chance: random.Random) -> dict[str, Any]:
    if kind == "lose_zone":
        return {kind: chance.randint(1, 3)}
    if kind in ("cut", "slow_link", "lossy"):
        event: dict[str, Any] = {kind: chance.choice([*NODES, *PAIRS])}
        if kind == "slow_link":
            event["round_trip"] = f"{chance.randint(1, 60)}ms"
            if chance.random() < 0.5:
                event["bandwidth"] = f"{chance.randint(1, 20)}MB/s"
        if kind == "lossy":
            event["loss"] = f"{chance.randint(1, 30)}%"
        return event
    return {kind: chance.choice(NODES)}


def _mended(kind: str, broken: dict[str, Any]) -> dict[str, Any] | None:
    """Return the event that mends another; None: it needs none."""
    what = broken[kind]
    if kind == "lose_zone":
        return {"start": f"n{what}"}
    if kind in ("cut", "slow_link", "lossy"):
        return {"join": what}
    return {MENDING[kind]: what} if kind in MENDING else None


def _check(text: str) -> None:
    (trial,) = spec.parse(text).trials("rehearse")
    assert trial.refused is None, trial.refused
    walk = Walk.of(only(ClusterTrial, trial.spec))
    for event in trial.spec.events:
        assert isinstance(event, TimedEvent)
        walk.take(event)
    assert walk.is_whole, text
