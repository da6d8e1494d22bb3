"""What becomes of a rehearsal when anything fails at any step: no disk, no server, seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.errors import DisklabError, EngineError, MachineError
from disklab.events import Progress, Warned

from tests.fakes.world import World

from .conftest import Rehearsal

EXPERIMENT = """
title: What fails?
cluster: {nodes: 2, vm: azure/Standard_DS14_v2, volumes: {data: {disks: azure/P30}}}
database: {engine: postgresql, replication_factor: 2}
dataset: {rows: 10k, row: 1 x 100B}
workload: {operations: {read: 100%}, load: {threads: 4}, stop: {operations: 4k}}
factors:
  workload:
    read:  {}
    write: {workload.operations: {write: 100%}}
rehearse: {time_dilation: 2}
"""


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path, EXPERIMENT)


def again(world: World) -> None:
    """Begin anew, with nothing to go wrong."""
    assert not world.standing
    world.steps.clear()
    world.fail_at = None
    world.broken = {}


def test_a_fill_tells_of_how_many_rows_it_is(world: World, rehearsal: Rehearsal) -> None:
    rehearsal(world)
    fills = [one for one in rehearsal.events if isinstance(one, Progress) and one.phase == "fill"]
    assert {one.of for one in fills} == {10_000}
    assert all(one.done for one in fills)


def test_nothing_fails(world: World, rehearsal: Rehearsal) -> None:
    run = rehearsal(world)
    assert [result.status for result in run.results()] == ["ok", "ok"], run.results()
    assert not world.standing
    assert world.steps.count("node: build") == 2, "two nodes, and one bed for both trials"


def test_whatever_fails_is_one_trials_result(world: World, rehearsal: Rehearsal) -> None:
    rehearsal(world)
    steps = list(world.steps)
    for number, name in enumerate(sorted(set(steps))):
        again(world)
        world.error = (MachineError, EngineError)[number % 2]
        world.fail_at = steps.index(name) + 1
        try:
            rehearsal(world)
        except DisklabError:
            # Behind the last trial: something may be left, and whoever called must know.
            assert name in {"database: stop", "node: remove"}
        results = rehearsal.run.results()
        failed = [result for result in results if result.status == "failed"]
        assert len(results) == 2, name
        assert len(failed) <= 1, name
        assert not world.standing, name
        for result in failed:
            assert f"{name} failed" in f"{result.reason.rule}{result.log_excerpt}", name
        # What is put back behind a measurement, with its figures at home, spoils none of them.
        if not failed:
            behind = ("remove", "stop", "dilation 1", "None", "observe")
            assert name.endswith(behind), name


def test_an_interrupt_at_any_step_leaves_nothing_and_the_run_goes_on(
    world: World, rehearsal: Rehearsal
) -> None:
    rehearsal(world)
    steps = list(world.steps)
    world.error = KeyboardInterrupt
    # A second Ctrl-C waits while a bed is taken away: `uninterrupted`.
    for name in sorted(set(steps) - {"database: stop", "node: remove"}):
        at = steps.index(name) + 1
        again(world)
        world.fail_at = at
        run = rehearsal(world)
        assert not world.standing, name
        assert all(result.status == "ok" for result in run.results()), name
        assert len(run.results()) < 2, name
        again(world)
        resumed = rehearsal(world, run)
        assert {result.status for result in resumed.results()} == {"ok"}, name
        assert len(resumed.results()) == 2, name


def test_a_full_disk_fails_each_trial_with_the_words_of_the_log(
    world: World, rehearsal: Rehearsal
) -> None:
    full = "a volume of the node is full: choose a larger disk or fewer rows"
    world.broken = {"load: fill second 2": MachineError(f"rows could not be written\n{full}")}
    results = rehearsal(world).results()
    assert [result.status for result in results] == ["failed", "failed"]
    assert all(full in result.log_excerpt for result in results)
    assert not world.standing


def test_a_node_that_cannot_be_built_is_tried_twice(world: World, rehearsal: Rehearsal) -> None:
    world.broken = {"node: build": EngineError("the host did not come up")}
    results = rehearsal(world).results()
    assert [result.status for result in results] == ["failed", "failed"]
    assert world.steps == ["node: build", "node: build"]


def test_a_database_that_does_not_stop_does_not_keep_its_nodes(
    world: World, rehearsal: Rehearsal
) -> None:
    died = MachineError("the database was killed")
    world.broken = {
        "load: read second 1": died,
        "load: write second 1": died,
        "database: stop": MachineError("waits for its disk and cannot be killed"),
    }
    results = rehearsal(world).results()
    assert [result.reason and result.reason.rule for result in results] == [str(died)] * 2
    told = [event.text for event in rehearsal.events if isinstance(event, Warned)]
    assert sum("cannot be killed" in text and "disklab clean" in text for text in told) == 2
    assert not world.standing
