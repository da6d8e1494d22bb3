"""Variable: more and more threads, until the median latency is the one asked for.

The trial's condition is brought about once, before the first step; each step starts from what the
one before left, compactions finished. The step that was chosen is measured once more, and that is
the result: chosen for its median, a step's own figures would flatter it.

**Source:** Instaclustr, "Benchmarking Cassandra with Local Storage on Azure": operations are raised
until the median latency reaches its target, with pending compactions below a limit, and after each
step compactions are waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disklab.procedures import jobs, passes
from disklab.procedures.bed import Bed
from disklab.procedures.record import MEASURED, Notes
from disklab.procedures.series import Series
from disklab.procedures.turn import Turn

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
        return self.median_ms <= median_ms and self.pending_compactions <= most_pending

    @property
    def median_ms(self) -> float:
        """Median response time, in ms."""
        return self.series.response().percentile(50) / 1e6

    def told(self) -> dict[str, Any]:
        """Return the step for the results."""
        return {
            "threads": self.threads,
            "ops_per_s": round(self.series.ops_per_s, 3),
            "latency_ms": self.series.response().summary_ms(),
            "pending_compactions": self.pending_compactions,
        }


def run(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Raise the threads step by step; measure with the most that met the target.

    When the fewest miss it already, they are measured, with a warning.
    """
    variable = turn.spec.the_procedure.variable
    assert variable is not None, "the procedure is variable"
    target = f"{variable.median_latency_ms:g} ms at most {variable.pending_compactions} pending"
    passes.warm_up(turn, bed, notes)
    passes.prepare(turn, bed, notes, jobs.steady_stop(turn.spec, turn.effort))
    found: Step | None = None
    for threads in variable.threads.each()[:MOST_STEPS]:
        step = _step(turn, bed, notes, threads)
        notes.steps.append(step.told())
        if not step.meets(variable.median_latency_ms, variable.pending_compactions):
            break
        found = step
    notes.threads = found.threads if found else step.threads
    if found is None:
        notes.warn(
            f"with {notes.threads} threads, the fewest, the target of {target} compactions is "
            "missed already"
        )
    series = passes.go_on(turn, bed, notes, notes.threads)
    again = Step(notes.threads, series, bed.pending_compactions())
    if found and not again.meets(variable.median_latency_ms, variable.pending_compactions):
        notes.warn(
            f"{notes.threads} threads met the target of {target} compactions in the search, and "
            f"missed it when measured again: median {again.median_ms:.2f} ms, "
            f"{again.pending_compactions} pending"
        )
    notes.describe(MEASURED, f"{notes.threads} threads: {series.in_words()}")
    return series


def _step(turn: Turn, bed: Bed, notes: Notes, threads: int) -> Step:
    """Measure one step of the search, and let compactions finish."""
    series = passes.step(turn, bed, notes, threads)
    step = Step(threads, series, bed.pending_compactions())
    seen = f"{series.ops_per_s:,.0f} ops/s, median {step.median_ms:.2f} ms"
    with notes.phase("settle", f"compactions, after {threads} threads: {seen}"):
        bed.settle()
    notes.describe(passes.SEARCH, f"{threads} threads: {series.in_words()}")
    return step
