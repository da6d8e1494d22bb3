"""The variable procedure as a search: it finds the step that climbing would find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from disklab import spec
from disklab.prediction.search import Search, run_searches
from disklab.spec.procedures import Variable
from hypothesis import given
from hypothesis import strategies as st

TEXT = """\
title: search
cluster: {nodes: 3, vm: azure/Standard_DS14_v2, volumes: {data: {disks: azure/P30}}}
database: {engine: cassandra}
dataset: {rows: 10M, row: small}
workload: {operations: {read: 100%}}
procedure: {variable: {median_latency: 10ms, threads: {start: 8, factor: 1.5, most: 1024}}}
"""


def searching(cell: int = 0) -> Search:
    (trial,) = spec.parse(TEXT).trials("predict")
    variable = trial.spec.procedure.chosen
    assert isinstance(variable, Variable)
    database = {"workload": {"warm_up_ns": 0, "read_ppm": 1_000_000}}
    return Search(variable, {"cell": cell, "database": database})


def test_steps_grow_by_the_factor_and_end_at_the_most() -> None:
    variable = Variable.model_validate({"median_latency": "10ms"})
    assert variable.threads.each()[:6] == [8, 12, 18, 27, 40, 60]
    assert variable.threads.each()[-1] == 1024
    slow = Variable.model_validate(
        {"median_latency": "1ms", "threads": {"start": 1, "factor": 1.01, "most": 5}}
    )
    assert slow.threads.each() == [1, 2, 3, 4, 5]


@given(st.lists(st.floats(0.001, 0.2), min_size=1, max_size=4))
def test_every_search_ends_at_the_last_step_that_meets_the_target(ms_each: list[float]) -> None:
    """A database whose median is `ms_each` x threads: climbing stops where it passes 10 ms."""
    asked: list[int] = []

    def simulate(jobs: Iterator[dict[str, Any]]) -> Iterator[Any]:
        for job in jobs:
            workload = job["database"]["workload"]
            threads = workload["load"]["closed"]["threads"]
            assert workload["stop"]["duration_ns"] == 10_000_000_000
            assert job["ablate"] == ["client_warm_up"]
            asked.append(job["cell"])
            p50 = ms_each[job["cell"]] * threads
            yield {"event": "cell", "cell": job["cell"], "latency_ms": {"p50": p50}}

    searches = [searching(cell) for cell in range(len(ms_each))]
    ended = list(run_searches(searches, simulate))
    assert {search.job["cell"] for search in ended} == set(range(len(ms_each)))
    for search in ended:
        each = ms_each[search.job["cell"]]
        climbed = [threads for threads in search.steps if each * threads <= 10]
        assert search.threads == (climbed[-1] if climbed else search.steps[0])
        assert search.best["latency_ms"]["p50"] == pytest.approx(each * search.threads)
        # Halving: four rounds for thirteen steps.
        assert asked.count(search.job["cell"]) <= 4


@pytest.mark.parametrize(
    ("ms_each", "note"),
    [(10.0, "above 10 ms even with 8 threads"), (0.001, "not reached with 1024 threads")],
)
def test_a_target_out_of_reach_is_told(ms_each: float, note: str) -> None:
    def simulate(jobs: Iterator[dict[str, Any]]) -> Iterator[Any]:
        for job in jobs:
            p50 = ms_each * job["database"]["workload"]["load"]["closed"]["threads"]
            yield {"event": "cell", "cell": 0, "latency_ms": {"p50": p50}}

    (search,) = run_searches([searching()], simulate)
    assert any(note in text for text in search.notes())


def test_a_refused_step_ends_the_search() -> None:
    (search,) = run_searches(
        [searching()], lambda jobs: iter([{"event": "refused", "cell": next(jobs)["cell"]}])
    )
    assert search.refused is not None
