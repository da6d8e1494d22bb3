"""What the load engine is asked to do for a turn: fill, warm-up, and each measured pass."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from disklab.engine.load import LoadJob, Stop
from disklab.procedures.effort import Effort
from disklab.spec import TrialSpec
from disklab.workloads.rows import fill_job, measure_job

Target = Mapping[str, object]
"""Where a database finds a table: `Database.target`."""

# Shorter passes would be mostly their own beginning and end.
LEAST_PASS_S = 1.0
# The rows of the warm-up's own table: small enough to be written in a second, and enough to go
# through every path of a read from an SSTable.
WARM_UP_ROWS = 4_000
WARM_UP_THREADS = 32
WARM_UP_SHARES = {"read": 0.5, "write": 0.5}


@dataclass(frozen=True)
class Seeds:
    """The random streams of one trial or repeat."""

    seed: int
    """The run's. What stands in the rows hangs on it alone."""
    trial: int
    repeat: int

    def stream(self, *parts: object) -> int:
        """Return the number of a named stream: the same in every run with the same seed."""
        text = " ".join(map(str, (self.trial, self.repeat, *parts)))
        # 53 bits survive every JSON reader.
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11


def rows_of(spec: TrialSpec) -> int:
    """Return how many rows the table of a trial has when it is filled."""
    assert spec.dataset is not None, "rows"
    assert spec.dataset.rows is not None, "fill is rows by now"
    return spec.dataset.rows


def fill(spec: TrialSpec, target: Target, seed: int) -> LoadJob:
    """Return the job that writes every row once, in the order of the keys."""
    return fill_job(spec, target, rows_of(spec), seed)


def warm_up_fill(spec: TrialSpec, target: Target, seed: int) -> LoadJob:
    """Return the job that writes the rows of the warm-up's table."""
    return fill_job(spec, target, WARM_UP_ROWS, seed)


def warm_up(spec: TrialSpec, target: Target, seeds: Seeds, operations: int) -> LoadJob:
    """Return the job that lets the database's compiler see reads and writes."""
    stream = seeds.stream("warm-up")
    job = measure_job(
        spec, target, WARM_UP_ROWS, seeds.seed, repeat=stream, threads=WARM_UP_THREADS
    )
    rows = job.workload.model_copy(update={"keys": "uniform", "operations": WARM_UP_SHARES})
    return job.model_copy(update={"workload": rows, "stop": Stop(operations=operations)})


def measured(  # noqa: PLR0913, PLR0917 - each is decided by somebody else
    spec: TrialSpec, target: Target, seeds: Seeds, stop: Stop, threads: int | None, stream: str
) -> LoadJob:
    """Return the job of a pass of a trial's own load; `threads` replaces the trial's."""
    number = seeds.stream(stream, threads)
    job = measure_job(spec, target, rows_of(spec), seeds.seed, repeat=number, threads=threads)
    return job.model_copy(update={"stop": stop})


def stop_of(spec: TrialSpec, effort: Effort, scale: float) -> Stop:
    """Return when one pass of the trial's load ends.

    What uses its condition up (see `uses_up`) stops as the file says, in proportion to the data: a
    cold cache of a hundredth of the size is warm after a hundredth of the time. What does not goes
    on until there is a steady state to measure, however few operations the share asks for.
    """
    stop = spec.workload.stop
    assert stop is not None, "the spec decides on a stop"
    if not uses_up(spec):
        timed = stop.duration_s or effort.steady_run_s
        return Stop(duration_s=min(timed, effort.longest_run_s))
    duration_s = stop.duration_s
    if duration_s is not None:
        duration_s = min(max(duration_s * scale, LEAST_PASS_S), effort.longest_run_s)
    return Stop(operations=stop.operations, duration_s=duration_s)


def uses_up(spec: TrialSpec) -> bool:
    """Return whether the measurement itself uses up the condition that it starts from.

    A cold cache is warm and an empty table full after a while; a warm cache stays warm.
    """
    return spec.before.page_cache == "cold" or spec.before.dataset == "empty"
