"""Fixed rate and variable threads: on a real PostgreSQL, and where the latency is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from disklab.procedures.jobs import FULL
from disklab.procedures.passes import least_operations, shortfall
from disklab.procedures.record import Series
from disklab.results import Run, TrialResult

from tests.databases.servers import need
from tests.fakes.world import World
from tests.hosts.conftest import DISKLAB, Lab

from .conftest import Rehearsal

# 3000 IOPS and rows of which two thirds are in no cache (250 MB): a few threads meet a median of
# 5 ms, thirty do not. Fill and vacuums, one after each step of the search, take most of the time.
EXPERIMENT = """
title: What do fixed and variable say of one slow disk?
cluster:
  nodes: 3
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: "azure/PremiumV2(256GiB, 3000 IOPS, 125 MB/s)"}}
database: {engine: postgresql, replication_factor: 1}
dataset: {rows: 36M, row: 5 x 400B}
workload: {operations: {read: 100%}, keys: uniform, stop: {duration: 60s}}
before: {page_cache: cold}
procedure: {variable: {median_latency: 5ms, threads: {start: 6, factor: 4, most: 96}}}
factors:
  procedure:
    fixed:    {procedure: {fixed: {rate: 90/s}}}
    variable: {}
rehearse: {nodes: 1, scale: 1/100, time_dilation: 1}
"""
MOST_SECONDS = 400.0


def test_chance_is_no_shortfall_and_a_queue_is() -> None:
    # 157 of 167 a second in four seconds are 1.6 standard deviations; in a minute they are six.
    assert least_operations(4 * 167) < 4 * 157
    assert least_operations(60 * 167) > 60 * 157


def test_operations_that_failed_are_no_queue_that_grows() -> None:
    series = Series(FULL, elapsed_s=20.0, counts={"read": 3_000}, operations=3_000)
    assert "the response times grow" in shortfall(series, 300.0, timetable=False)
    series.unsent = 68
    series.errors = {"no_connection": 2_932}
    why = "150 of the 300 operations a second offered were completed: 2,932 failed, 68"
    assert shortfall(series, 300.0, timetable=False).startswith(why)
    series.errors = {"no_connection": 1_000}
    assert "1,000 failed" in shortfall(series, 300.0, timetable=True)
    series.operations = 6_000
    assert not shortfall(series, 300.0, timetable=True)


@pytest.fixture(name="_installed")
def installed() -> None:
    need("postgresql")


@pytest.fixture
def results(lab: Lab, tmp_path: Path, _installed: None) -> dict[str, TrialResult]:
    (tmp_path / "both.yaml").write_text(EXPERIMENT)
    command = [str(DISKLAB), "rehearse", str(tmp_path / "both.yaml"), "--quick"]
    subprocess.run(
        [*command, "--out", str(tmp_path / "runs")],
        env=lab.environment(),
        timeout=MOST_SECONDS,
        check=False,
    )
    (folder,) = (tmp_path / "runs").iterdir()
    return {str(one.factors["procedure"]): one for one in Run.open(folder).results()}


# Two minutes; below is the search with a database that is not real.
@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_a_rate_is_offered_and_the_most_threads_that_meet_a_median_are_found(
    results: dict[str, TrialResult],
) -> None:
    fixed, variable = results["fixed"], results["variable"]
    # On a busy machine the emulator is late, and says so.
    assert {fixed.status, variable.status} <= {"ok", "invalid"}, (fixed, variable)

    # A third of the cluster takes a third of the rate.
    assert fixed.loop == {"kind": "open", "rate_per_s": 30.0, "arrivals": "poisson"}
    assert fixed.ops_per_s == pytest.approx(30, rel=0.3)
    assert fixed.telemetry.client_late_p99_ms is not None

    steps = (variable.model_extra or {})["steps"]
    assert [step["threads"] for step in steps] == [2, 8, 32][: len(steps)]
    met = [step for step in steps if step["latency_ms"]["p50"] <= 5]
    assert 1 <= len(met) < 3, steps
    assert steps == [*met, steps[-1]], "the search ends where the target is missed"
    chosen = met[-1]["threads"]
    assert variable.loop == {"kind": "closed", "threads": chosen, "procedure": "variable"}
    # The result is a measurement of its own, with its own keys, not the step that was chosen.
    assert variable.ops_per_s not in [step["ops_per_s"] for step in steps]
    assert "search" in {phase.name for phase in variable.phases}


KNOWN = """
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
    run = Rehearsal(folder, KNOWN)(world)
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
