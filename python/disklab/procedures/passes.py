"""The life of a trial from its bed to its figures: warm-up, condition, measure, again.

Every procedure is made of these functions; what it does with the load is its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from disklab.database_facts import facts_of
from disklab.databases import Streaming
from disklab.engine.load import KnownVersions, LoadDone, SeenVersions, Stop
from disklab.procedures import conditions, jobs
from disklab.procedures.bed import Bed
from disklab.procedures.breaking import Conductor
from disklab.procedures.record import MEASURED, Notes, Series
from disklab.procedures.turn import Turn
from disklab.results import ReadBack
from disklab.results.timetable import recovery_of
from disklab.spec.amounts import only
from disklab.spec.procedures import Fixed, Variable
from disklab.spec.timetable_checks import ends_whole
from disklab.workloads.protocol import Asked

SEARCH = "search"
"""The phase of a procedure that looks for what to measure."""


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


def measure(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Bring the bed into the trial's condition and measure, as often as it takes.

    Raises what stops the trial.
    """
    timetable = turn.spec.events
    stop = jobs.stop_of(turn.spec, turn.effort, turn.scale)
    # What a timetable has broken is not as it was for a second pass.
    series = _series(turn, stop, again=jobs.uses_up(turn.spec) and not timetable)
    seen: SeenVersions | None = None
    while series.wants_more():
        prepare(turn, bed, notes, stop)
        stream = turn.seeds.stream(f"pass {series.passes}", None)
        # Writes with versions tell stale reads and lost updates from others; a client has to keep
        # them in mind for it.
        asked = Asked(stop, stream, versions=bool(timetable))
        seen = _pass(turn, bed, notes, series, asked).versions
    notes.describe(MEASURED, series.in_words())
    workload = turn.workload()
    check = workload.check(bed.target, seen.known if seen is not None else None)
    if check is not None:
        with notes.phase("check", "whether the data are consistent"):
            found = bed.verify(check, notes.watcher("check", None))
            series.check(found)
            note_lost(notes, found)
        read_back_at_all(turn, bed, notes, seen.known if seen is not None else None)
    if seen is not None:
        note_versions(turn, notes, seen)
    return series


def prepare(turn: Turn, bed: Bed, notes: Notes, stop: Stop) -> None:
    """Bring the bed into the trial's condition. `stop`: when one pass of its load ends."""
    workload, dataset = turn.workload(), turn.on_cluster.dataset
    rows = None if dataset is None else dataset.rows
    uncounted = jobs.warm_up_of(turn.spec, turn.effort, turn.scale) or stop
    for step in conditions.steps(bed.state, turn.on_cluster):
        phase, done = conditions.PHASES[step], 0
        with notes.phase(phase, conditions.WORDS.get(step, step)):
            if step in ("run the load", "warm up"):
                until, name = (stop, "warm") if step == "run the load" else (uncounted, step)
                asked = Asked(until, turn.seeds.stream(name, None))
                begin = workload.run(bed.target, asked)
                bed.expect(jobs.clients(turn.spec))
                told = bed.run(workload, begin, notes.watcher("warm-up", None))
                done = sum(one.count for one in told.operations.values())
            else:
                bed.take(step, turn.on_cluster, workload, notes.watcher("fill", rows))
        if done:
            notes.count(phase, done)
    # A restart for a cold page cache has lost what the compiler knew.
    warm_up(turn, bed, notes)


def measure_step(turn: Turn, bed: Bed, notes: Notes, threads: int) -> Series:
    """Try so many threads, from what was there before; no part of the result."""
    stop = Stop(duration_s=turn.effort.steady_run_s)
    series = _series(turn, stop, again=False)
    workload = turn.workload()
    # Its keys are not those of the measurement, which would find in memory what the step has read.
    asked = Asked(stop, turn.seeds.stream(SEARCH, threads), threads)
    with notes.phase(SEARCH, f"{threads} threads"):
        begin = workload.run(bed.target, asked)
        bed.expect(jobs.clients(turn.spec, threads))
        series.add(bed.run(workload, begin, notes.watcher(SEARCH, None)))
    return series


def go_on(turn: Turn, bed: Bed, notes: Notes, threads: int) -> Series:
    """Measure once with so many threads, from what was there before."""
    stop = jobs.steady_stop(turn.spec, turn.effort)
    series = _series(turn, stop, again=False)
    _pass(turn, bed, notes, series, Asked(stop, turn.seeds.stream("pass 0", threads), threads))
    return series


def note_lost(notes: Notes, done: LoadDone) -> None:
    """Note which rows were not what was acknowledged, of a load that has read each of them."""
    if notes.recovery is not None:
        found = _read_back(done)
        notes.recovery = notes.recovery.model_copy(update=found.model_dump())


def _read_back(done: LoadDone) -> ReadBack:
    failed = sum(done.errors.values())
    return ReadBack(
        rows_checked=sum(one.count for one in done.operations.values()) + failed,
        rows_lost=done.missing_rows,
        rows_wrong=done.wrong_rows,
        rows_unread=max(failed - done.missing_rows - done.wrong_rows, 0),
        updates_lost=None if done.versions is None else done.versions.stale_reads,
    )


def read_back_at_all(turn: Turn, bed: Bed, notes: Notes, known: KnownVersions | None) -> None:
    """Read every row from all its copies, where the timetable has left the cluster whole.

    What a quorum still hides, such as a replaced node that did not get a row, shows only so.
    """
    database, spec = bed.database, turn.on_cluster
    if notes.recovery is None or not isinstance(database, Streaming) or not ends_whole(spec):
        return
    if not facts_of(spec.database.engine).consistency_levels:
        return
    check = turn.workload().check(bed.target, known, consistency="ALL")
    if check is None:
        return
    with notes.phase("check at ALL", "whether every copy has what was acknowledged"):
        database.wait_until_whole()
        found = bed.verify(check, notes.watcher("check", None))
    notes.recovery = notes.recovery.model_copy(update={"at_all": _read_back(found)})


def note_versions(turn: Turn, notes: Notes, seen: SeenVersions) -> None:
    """Note how many reads beside the load were stale, and at which consistency level."""
    if notes.recovery is None:
        return
    database = turn.on_cluster.database
    level = database.consistency if facts_of(database.engine).consistency_levels else None
    notes.recovery = notes.recovery.model_copy(
        update={
            "reads_judged": seen.judged_reads,
            "reads_stale": seen.stale_reads,
            "consistency": level,
        }
    )


def _series(turn: Turn, stop: Stop, *, again: bool) -> Series:
    timed = stop.operations is None
    return Series(turn.effort, again=again, timed=timed, headline=turn.workload().headline)


LEAST_HELD_S = 0.5
"""Times of faults are told in whole seconds."""


def _pass(turn: Turn, bed: Bed, notes: Notes, series: Series, asked: Asked) -> LoadDone:
    """Run the load once and add it to the series."""
    workload = turn.workload()
    begin = workload.run(bed.target, asked)
    bed.expect(jobs.clients(turn.spec, asked.threads))
    with notes.phase(MEASURED), notes.watching(bed.hosts.nodes, bed.hosts.time_dilation):
        course = notes.course(series.goal(asked.stop), series.rates)
        if not turn.spec.events:
            done = bed.run(workload, begin, course)
            series.add(done)
            return done
        cluster = turn.on_cluster.cluster
        conductor = Conductor(
            turn.spec.events,
            bed.hosts.ground(bed.database, cluster),
            bed.hosts.time_dilation,
            notes.emit,
            bed.give_up,
        )
        done = bed.run(workload, begin, course, conductor)
        series.add(done)
        failed = sum(done.errors.values())
        own_s = conductor.own_s()
        found = recovery_of(conductor.taken, notes.ends_s, series.rates, failed, own_s)
        notes.recovery = found
        if found.held_s >= LEAST_HELD_S:
            notes.warn(
                f"disklab took {sum(end - begin for begin, end in own_s):.1f} s to take hosts away "
                f"(unmount, failure, mount), which held the steps after it back by "
                f"{found.held_s:.1f} s: times of the faults are without these, rates are not"
            )
        return done


# Closed loop: the trial's threads, each doing one operation after another, until it stops.
#
# Latency is service time: a thread that waits offers nothing meanwhile, and the figures say so.


def closed_loop(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Measure with the trial's threads."""
    warm_up(turn, bed, notes)
    return measure(turn, bed, notes)


# Fixed rate: an open loop. Operations start when they are due, whatever the database does.

# Below this share of the offered rate the queue of what is due grows without end: response times
# then say how long the run was.
LEAST_ACHIEVED_RATIO = 0.95
# Poisson arrivals stray by the square root of their number; further than this one run in 700.
MOST_DEVIATIONS = 3.0


def fixed_rate(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Offer the trial's rate; say when it was not achieved."""
    rate_per_s = only(Fixed, turn.spec.procedure.chosen).rate_per_s
    warm_up(turn, bed, notes)
    series = measure(turn, bed, notes)
    if text := shortfall(series, rate_per_s, timetable=bool(turn.spec.events)):
        notes.warn(text)
    return series


def shortfall(series: Series, rate_per_s: float, *, timetable: bool) -> str:
    """Return that an offered rate was not done, and why; empty: it was."""
    least, failed = least_operations(rate_per_s * series.elapsed_s), sum(series.errors.values())
    if series.operations >= least:
        return ""
    why = "the response times grow with the length of the run"
    if timetable or series.operations + failed >= least:
        # Those that a server was away for are no queue that grows.
        why = f"{failed:,} failed, {series.unsent:,} were not sent"
    return (
        f"{series.ops_per_s:.0f} of the {rate_per_s:.0f} operations a second offered were "
        f"completed: {why}"
    )


def least_operations(offered: float) -> float:
    """Return how many operations are to be expected at least, of those that chance has offered."""
    return min(LEAST_ACHIEVED_RATIO * offered, offered - MOST_DEVIATIONS * math.sqrt(offered))


# Variable: more and more threads, until the median latency is the one asked for.
#
# The trial's condition is brought about once, before the first step; each step starts from what the
# one before left, compactions finished. The step that was chosen is measured once more, and that is
# the result: chosen for its median, a step's own figures would flatter it.
#
# **Source:** Instaclustr, "Benchmarking Cassandra with Local Storage on Azure": operations are
# raised until the median latency reaches its target, with pending compactions below a limit, and
# after each step compactions are waited for.

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


def variable_threads(turn: Turn, bed: Bed, notes: Notes) -> Series:
    """Raise the threads step by step; measure with the most that met the target.

    When the fewest miss it already, they are measured, with a warning.
    """
    variable = only(Variable, turn.spec.procedure.chosen)
    target = f"{variable.median_latency_ms:g} ms at most {variable.pending_compactions} pending"
    warm_up(turn, bed, notes)
    prepare(turn, bed, notes, jobs.steady_stop(turn.spec, turn.effort))
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
    series = go_on(turn, bed, notes, notes.threads)
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
    series = measure_step(turn, bed, notes, threads)
    step = Step(threads, series, bed.pending_compactions())
    seen = f"{series.ops_per_s:,.0f} ops/s, median {step.median_ms:.2f} ms"
    with notes.phase("settle", f"compactions, after {threads} threads: {seen}"):
        bed.settle()
    notes.describe(SEARCH, f"{threads} threads: {series.in_words()}")
    return step
