"""Variable: more and more threads, until the median latency is the one asked for.

**Source:** Instaclustr, "Benchmarking Cassandra with Local Storage on Azure": operations are raised
until the median latency reaches its target, with pending compactions below a limit, and after each
step compactions are waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disklab.procedures import passes
from disklab.procedures.bed import Bed
from disklab.procedures.record import Notes
from disklab.procedures.series import Series
from disklab.procedures.turn import Turn
from disklab.spec.model import ThreadSteps

# A search ends: 8 threads x 1.5 each step pass a thousand after twelve steps.
MOST_STEPS = 24


@dataclass(frozen=True)
class Step:
    """One step of the search: a whole measurement with so many threads."""

    threads: int
    series: Series
    pending_compactions: int

    def meets(self, median_ms: float, most_pending: int) -> bool:
        """Return whether the step met the latency target and left compactions under control."""
        median = self.series.response().percentile(50) / 1e6
        return median <= median_ms and self.pending_compactions <= most_pending

    def told(self) -> dict[str, Any]:
        """Return the step for the results."""
        return {
            "threads": self.threads,
            "ops_per_s": round(self.series.ops_per_s, 3),
            "latency_ms": self.series.response().summary_ms(),
            "pending_compactions": self.pending_compactions,
        }


def run(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Raise the threads step by step; return the highest step that met the target.

    When the first step misses it already, that one is returned, with a warning.
    """
    procedure = turn.spec.procedure
    assert procedure is not None, "the spec decides on a procedure"
    variable = procedure.variable
    assert variable is not None, "the procedure is variable"
    passes.warm_up(turn, bed, notes)
    best: Step | None = None
    for threads in thread_steps(variable.threads):
        series = passes.measure(turn, bed, notes, threads)
        done = Step(threads, series, bed.pending_compactions())
        notes.steps.append(done.told())
        with notes.phase("settle", "compactions"):
            bed.settle()
        if not done.meets(variable.median_latency_ms, variable.pending_compactions):
            break
        best = done
    if best is None:
        notes.warn(
            f"with {done.threads} threads, the fewest, the target of "
            f"{variable.median_latency_ms:g} ms at most {variable.pending_compactions} pending "
            "compactions is missed already"
        )
        best = done
    notes.threads = best.threads
    notes.describe("measure", f"{best.threads} threads: {best.series.in_words()}")
    return best.series


def thread_steps(steps: ThreadSteps) -> list[int]:
    """Return the threads of each step: each more than the one before, none above the most."""
    found = [min(steps.start, steps.most)]
    exact = float(steps.start)
    while found[-1] < steps.most and len(found) < MOST_STEPS:
        exact *= steps.factor
        found.append(min(max(round(exact), found[-1] + 1), steps.most))
    return found
