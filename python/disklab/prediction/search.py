"""The variable procedure, simulated: the most threads whose median latency meets the target.

A rehearsal raises the threads step by step. A simulation may ask for any step, and the median grows
with the threads, so it halves the steps instead: a few rounds, all cells of a round on all cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.databases.simulating import Job
from disklab.spec.procedures import Variable

# How long a step is simulated: tens of thousands of operations, hundreds of throttle windows.
STEP_NS = 10_000_000_000

Simulate = Callable[[Iterator[Job]], Iterator[Any]]
"""Takes jobs, yields their answers in any order."""


@dataclass
class Search:
    """One cell's search: the answer lies among the steps from `low` to below `high`."""

    variable: Variable
    job: Job
    """With the cell's number; the load is the search's to choose."""

    def __post_init__(self) -> None:
        self.target_ms = self.variable.median_latency_ms
        self.steps = self.variable.threads.each()
        self.low, self.high = 0, len(self.steps)
        self.best: dict[str, Any] = {}
        """The answer of the most threads that met the target so far, or a refusal."""
        self.threads = self.steps[0]
        self.refused = False

    @property
    def open(self) -> bool:
        """Whether there is a step to be simulated."""
        return not self.refused and self.low < self.high

    def next_job(self) -> Job:
        """Return the job of the step in the middle."""
        threads = self.steps[self._middle]
        database = self.job["database"]
        stop = {"operations": None, "duration_ns": STEP_NS + database["workload"]["warm_up_ns"]}
        workload = {
            **database["workload"],
            "load": {"closed": {"threads": threads}},
            "stop": stop,
        }
        # The steps before this one have warmed the load generator.
        off = [*self.job.get("ablate", []), "client_warm_up"]
        return {**self.job, "database": {**database, "workload": workload}, "ablate": off}

    @property
    def _middle(self) -> int:
        return (self.low + self.high) // 2

    def take(self, answer: dict[str, Any]) -> None:
        """Take the answer of the step in the middle."""
        if answer["event"] == "refused":
            self.best, self.refused = answer, True
            return
        middle = self._middle
        if answer["latency_ms"]["p50"] <= self.target_ms:
            self.best, self.threads, self.low = answer, self.steps[middle], middle + 1
            return
        if middle == 0:
            # Even the first step is above the target: its figures are the nearest there are.
            self.best = answer
        self.high = middle

    def notes(self) -> list[str]:
        """Return what a reader of the result must know."""
        found = ["pending compactions do not end the search: the simulator counts bytes, not tasks"]
        p50, most = self.best["latency_ms"]["p50"], self.steps[-1]
        if p50 > self.target_ms:
            found.append(
                f"the median is above {self.target_ms:g} ms even with {self.threads} threads"
            )
        elif self.threads == most:
            found.append(f"the target is not reached with {most} threads, the most allowed")
        return found


def run_searches(searches: Sequence[Search], simulate: Simulate) -> Iterator[Search]:
    """Yield each search as it ends."""
    by_cell = {search.job["cell"]: search for search in searches}
    under_way = list(searches)
    while under_way:
        for answer in simulate(search.next_job() for search in under_way):
            search = by_cell[answer["cell"]]
            search.take(answer)
            if not search.open:
                yield search
        under_way = [search for search in under_way if search.open]
