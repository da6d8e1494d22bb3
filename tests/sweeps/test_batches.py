"""Jobs in batches: each is sent once, again when lost, and never when it was simulated before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from disklab.engine import process
from disklab.engine.process import simulate_once
from disklab.errors import EngineError
from disklab.sweeps.batches import AIMED_SECONDS, MOST_BYTES, MOST_JOBS, MOST_TRIES, Batch, Batches
from hypothesis import given
from hypothesis import strategies as st


def cells(batch: Batch) -> list[int]:
    return [json.loads(line)["cell"] for line in batch.lines.splitlines()]


@given(
    sizes=st.lists(st.integers(0, MOST_BYTES), max_size=30),
    fates=st.lists(st.tuples(st.booleans(), st.floats(1e-6, 100)), min_size=200, max_size=200),
)
def test_each_job_is_answered_once_whatever_is_lost(
    sizes: list[int], fates: list[tuple[bool, float]]
) -> None:
    batches = Batches({"cell": cell, "text": "x" * size} for cell, size in enumerate(sizes))
    answered: list[int] = []
    for lost, seconds in fates:
        batch = batches.take()
        if batch is None:
            break
        assert len(batch.lines) <= MOST_BYTES or batch.jobs == 1
        assert batch.jobs <= MOST_JOBS
        batch.starts()
        if lost and batch.tries < MOST_TRIES:
            batches.again(batch, "a test")
        else:
            answered += cells(batch)
            batches.took(batch, seconds)
    assert answered == sorted(answered) or len(set(answered)) == len(answered)
    assert sorted(answered) == list(range(len(sizes)))


def test_batches_grow_to_the_time_that_they_should_take() -> None:
    batches = Batches({"cell": cell} for cell in range(10_000))
    each_s = AIMED_SECONDS / 40
    sizes = []
    for _ in range(12):
        batch = batches.take()
        sizes.append(batch.jobs)
        batches.took(batch, each_s * batch.jobs)
    assert sizes == [1, 2, 4, 8, 16, 32, 40, 40, 40, 40, 40, 40]


@pytest.mark.parametrize("cores", [2, 8])
def test_the_end_of_a_sweep_is_shared_out_in_short_batches(cores: int) -> None:
    """Cores that take batches in turn end within half a second of each other."""
    each_s, jobs = 0.07, 1000
    batches = Batches([{"cell": cell} for cell in range(jobs)])
    free_at = [0.0] * cores
    sizes = []
    while (batch := batches.take(cores)) is not None:
        batches.took(batch, each_s * batch.jobs)
        sizes.append(batch.jobs)
        free_at[free_at.index(min(free_at))] += each_s * batch.jobs
    assert sum(sizes) == jobs
    assert max(free_at) - min(free_at) < 0.5
    assert max(free_at) < each_s * jobs / cores * 1.02
    # Large ones first: an engine that starts for every cell would cost more than it saves.
    assert len(sizes) < jobs / 8


def test_a_sweep_whose_length_nobody_tells_has_batches_of_one_length() -> None:
    batches = Batches({"cell": cell} for cell in range(100))
    batches.took(batches.take(2), 0.001)
    second, third = batches.take(2), batches.take(2)
    assert (second and second.jobs, third and third.jobs) == (2, 2)


def test_what_kills_every_worker_is_given_up_by_name() -> None:
    batches = Batches([{"cell": 1}])
    batch = batches.take()
    for _ in range(MOST_TRIES - 1):
        batch.starts()
        batches.again(batch, "killed by signal 9 on n1")
        assert batches.take() is batch
    batch.starts()
    with pytest.raises(EngineError, match=r"1 cells were sent 5 times.*killed by signal 9 on n1"):
        batches.again(batch, "killed by signal 9 on n1")


@pytest.mark.parametrize(
    "output",
    [b"", b'{"event":"done"}\n', b'{"event":"cell"}\n', b'{"event":"cell"}\n{"event":"cell"}\n'],
)
def test_an_output_that_is_not_whole_is_refused(output: bytes) -> None:
    with pytest.raises(EngineError, match="of 1 cells and ended"):
        Batch(b"{}\n", 1).answers(output)


def test_equal_jobs_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[int] = []

    def simulate(jobs: Iterable[dict[str, Any]], **_: Any) -> Iterator[Any]:
        for job in jobs:
            simulated.append(job["cell"])
            event = "refused" if job["seed"] == 9 else "cell"
            yield {"event": event, "cell": job["cell"], "ops_per_s": job["seed"]}

    monkeypatch.setattr(process, "simulate", simulate)
    memory: dict[str, Any] = {}
    first = [{"cell": 0, "seed": 1}, {"cell": 1, "seed": 2}, {"seed": 1, "cell": 2}]
    answers = {one["cell"]: one["ops_per_s"] for one in simulate_once(first, memory)}
    assert answers == {0: 1, 1: 2, 2: 1}
    assert simulated == [0, 1]
    second = [{"cell": 7, "seed": 2}, {"cell": 8, "seed": 9}]
    assert {one["cell"] for one in simulate_once(second, memory)} == {7, 8}
    # What was refused is asked again: nothing is known of it.
    assert {one["cell"] for one in simulate_once(second, memory)} == {7, 8}
    assert simulated == [0, 1, 8, 8]


def test_what_is_known_in_full_is_not_asked_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[str] = []

    def simulate(jobs: Iterable[dict[str, Any]], **_: Any) -> Iterator[Any]:
        for job in jobs:
            simulated.append(job["fidelity"])
            yield {"event": "cell", "cell": job["cell"], "scale": job["scale"]}

    monkeypatch.setattr(process, "simulate", simulate)
    memory: dict[str, Any] = {}

    def ask(fidelity: str, scale: float) -> Any:
        (answer,) = simulate_once([{"cell": 3, "fidelity": fidelity, "scale": scale}], memory)
        return answer["cell"], answer["scale"]

    # A quick cell that is no smaller than the system is a full one.
    assert ask("quick", 1.0) == ask("full", 1.0) == (3, 1.0)
    assert simulated == ["quick"]
    # A smaller one is none, and a full one is the better answer to a quick job.
    assert ask("quick", 0.5) == ask("full", 0.5) == (3, 0.5)
    assert simulated == ["quick", "quick", "full"]
    assert ask("sketch", 0.5) == (3, 0.5)
    assert simulated == ["quick", "quick", "full"]
