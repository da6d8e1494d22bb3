"""Fixed rate and variable threads, against a database whose latency is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.results import TrialResult

from tests.fakes.world import World

from .conftest import Rehearsal

EXPERIMENT = """
title: What do fixed and variable say of a disk?
cluster: {nodes: 3, vm: azure/Standard_D2s_v5, volumes: {data: {disks: azure/P30}}}
database: {engine: postgresql, replication_factor: 1}
dataset: {rows: 10k, row: 1 x 100B}
workload: {operations: {read: 100%}, stop: {operations: 4k}}
procedure: {variable: {median_latency: 5ms, threads: {start: 6, factor: 4, most: 96}}}
factors:
  procedure:
    fixed:    {procedure: {fixed: {rate: 90/s}}}
    variable: {}
rehearse: {nodes: 1, time_dilation: 1}
"""


def searched(world: World, folder: Path) -> dict[str, TrialResult]:
    """Return both results by the name of their procedure."""
    run = Rehearsal(folder, EXPERIMENT)(world)
    return {str(one.factors["procedure"]): one for one in run.results()}


def test_the_most_threads_that_meet_the_median_are_found(world: World, tmp_path: Path) -> None:
    # Each thread waits for all others: 0.5 ms a thread.
    world.latency_ms = lambda threads: 0.5 * (threads or 1)
    found = searched(world, tmp_path)
    # A third of the cluster is here, and so is a third of its load.
    assert found["fixed"].loop == {"kind": "open", "rate_per_s": 30.0, "arrivals": "poisson"}
    variable = found["variable"]
    steps = (variable.model_extra or {})["steps"]
    # The search ends where the target is missed.
    assert [step["threads"] for step in steps] == [2, 8, 32]
    medians = [step["latency_ms"]["p50"] for step in steps]
    assert medians == pytest.approx([1.0, 4.0, 16.0], rel=1e-2)
    assert variable.loop == {"kind": "closed", "threads": 8, "procedure": "variable"}
    assert "search" in {phase.name for phase in variable.phases}


def test_a_median_that_the_fewest_threads_miss_is_a_warning(world: World, tmp_path: Path) -> None:
    world.latency_ms = lambda _threads: 6.0
    variable = searched(world, tmp_path)["variable"]
    assert [step["threads"] for step in (variable.model_extra or {})["steps"]] == [2]
    assert variable.loop == {"kind": "closed", "threads": 2, "procedure": "variable"}
    assert any("is missed already" in text for text in variable.warnings), variable.warnings


def test_a_step_that_was_met_by_chance_is_a_warning(world: World, tmp_path: Path) -> None:
    asked: list[int | None] = []

    def slower_each_time(threads: int | None) -> float:
        asked.append(threads)
        return 2.0 * asked.count(threads) * (threads or 1)

    world.latency_ms = slower_each_time
    variable = searched(world, tmp_path)["variable"]
    assert variable.loop["threads"] == 2
    assert any("missed it when measured again" in text for text in variable.warnings)
