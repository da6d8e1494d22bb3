"""The life of a trial from its bed to its figures: warm-up, condition, measure, again.

Every procedure is made of these two functions; what it does with the load is its own.
"""

from __future__ import annotations

from disklab.procedures import conditions, jobs
from disklab.procedures.bed import Bed
from disklab.procedures.record import Notes
from disklab.procedures.series import Series
from disklab.procedures.turn import Turn


def warm_up(turn: Turn, bed: Bed, notes: Notes) -> None:
    """Let the database's compiler see the load, away from the table that is measured."""
    if bed.is_warm:
        return
    operations = turn.effort.warm_up_operations
    with notes.phase("warm-up", f"{operations} reads and writes of a small table beside"):
        watch = notes.watcher("warm-up", operations)
        bed.warm_up(turn.spec, operations, turn.seeds, watch)


def measure(turn: Turn, bed: Bed, notes: Notes, threads: int | None = None) -> Series:
    """Bring the bed into the trial's condition and measure, as often as it takes.

    `threads` replaces those of the trial. Raises what stops the trial.
    """
    spec, seeds = turn.spec, turn.seeds
    series = Series(turn.effort, again=jobs.uses_up(spec))
    stop = jobs.stop_of(spec, turn.effort, turn.scale)
    while series.wants_more():
        for step in conditions.steps(bed.state, spec):
            with notes.phase(conditions.PHASES[step], step):
                if step == "run the load":
                    warm = jobs.measured(spec, bed.target, seeds, stop, threads, "warm")
                    bed.run(warm, notes.watcher("condition", None))
                else:
                    bed.take(step, spec, notes.watcher("fill", None))
        # A restart for a cold page cache has lost what the compiler knew.
        warm_up(turn, bed, notes)
        stream = f"pass {series.passes}"
        job = jobs.measured(spec, bed.target, seeds, stop, threads, stream)
        with notes.phase("measure"), notes.watching(bed.nodes):
            series.add(bed.run(job, notes.course(series.goal(stop), series.rates)))
    notes.describe("measure", series.in_words())
    return series
