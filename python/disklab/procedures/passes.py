"""The life of a trial from its bed to its figures: warm-up, condition, measure, again.

Every procedure is made of these two functions; what it does with the load is its own.
"""

from __future__ import annotations

from disklab.engine.load import Stop
from disklab.procedures import conditions, jobs
from disklab.procedures.bed import Bed
from disklab.procedures.record import Notes
from disklab.procedures.series import Series
from disklab.procedures.turn import Turn
from disklab.workloads.protocol import Asked, Begin


def warm_up(turn: Turn, bed: Bed, notes: Notes) -> None:
    """Let the database's compiler see the load, away from the table that is measured."""
    if bed.is_warm:
        return
    operations = turn.effort.warm_up_operations
    stream = turn.seeds.stream("warm-up")
    loads = turn.workload().warm_up(bed.target, operations, stream)
    if not loads:
        bed.is_warm = True
        return
    with notes.phase("warm-up", f"{operations} reads and writes of a small table beside"):
        bed.warm_up(loads, notes.watcher("warm-up", operations))


def measure(turn: Turn, bed: Bed, notes: Notes, threads: int | None = None) -> Series:
    """Bring the bed into the trial's condition and measure, as often as it takes.

    `threads` replaces those of the trial. Raises what stops the trial.
    """
    spec = turn.spec
    workload = turn.workload()
    stop = jobs.stop_of(spec, turn.effort, turn.scale)
    uncounted = jobs.warm_up_of(spec, turn.effort, turn.scale) or stop
    series = Series(
        turn.effort,
        again=jobs.uses_up(spec),
        timed=stop.operations is None,
        headline=workload.headline,
    )

    def load(until: Stop, *name: object) -> Begin:
        stream = turn.seeds.stream(*name, threads)
        return workload.run(bed.target, Asked(until, stream, threads))

    while series.wants_more():
        for step in conditions.steps(bed.state, spec):
            with notes.phase(conditions.PHASES[step], step):
                if step in ("run the load", "warm up"):
                    until, name = (stop, "warm") if step == "run the load" else (uncounted, step)
                    bed.run(workload, load(until, name), notes.watcher("warm-up", None))
                else:
                    bed.take(step, spec, workload, notes.watcher("fill", None))
        # A restart for a cold page cache has lost what the compiler knew.
        warm_up(turn, bed, notes)
        begin = load(stop, f"pass {series.passes}")
        with notes.phase("measure"), notes.watching(bed.nodes, bed.time_dilation):
            course = notes.course(series.goal(stop), series.rates)
            series.add(bed.run(workload, begin, course))
    notes.describe("measure", series.in_words())
    check = workload.check(bed.target)
    if check is not None:
        with notes.phase("check", "whether the data are consistent"):
            series.check(bed.verify(check, notes.watcher("check", None)))
    return series
