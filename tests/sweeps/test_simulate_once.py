"""A cell that was simulated is not simulated again, whatever its number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from disklab.engine import process
from disklab.engine.process import simulate_once


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
