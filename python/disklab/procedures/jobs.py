"""What is asked of a turn's workload: its random streams, and when its runs end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from disklab.database_facts import facts_of, names
from disklab.engine.load import Stop
from disklab.spec import TrialSpec
from disklab.spec.amounts import given
from disklab.spec.share import threads_of
from disklab.workloads.rows import WARM_UP_THREADS
from disklab.workloads.tpcc import LOAD_CONNECTIONS

# How much is measured: enough for the figures to mean something, and not more.


@dataclass(frozen=True)
class Effort:
    """How long a trial measures. A series of passes goes on until both least amounts are there."""

    least_operations: int
    least_load_s: float
    least_timed_s: float
    """Of load whose end is a time and not a number of operations: what it takes is up to it."""
    most_passes: int
    """Bound of a series, whatever it has collected by then."""
    most_series_s: float
    """Bound of a series with all that lies between its passes, in this machine's time."""
    warm_up_operations: int
    """For the database's just-in-time compiler, once after each of its starts."""
    steady_run_s: float
    """Of a run that is to find a steady state, where the trial gives no time."""
    longest_run_s: float
    """Bound of a single run, whatever the trial gives."""

    def dilated(self, time_dilation: int) -> Effort:
        """Return the same effort in the time of a system of which a second takes so many here.

        What bounds the wait of whoever sits before this machine stays.
        """
        return replace(
            self,
            least_load_s=self.least_load_s / time_dilation,
            least_timed_s=self.least_timed_s / time_dilation,
            steady_run_s=self.steady_run_s / time_dilation,
            longest_run_s=self.longest_run_s / time_dilation,
        )


# Ten thousand operations leave a hundred beyond the 99th percentile; five seconds outlast the 50 ms
# windows of a throttled disk a hundred times. Where time decides (transactions of tens of
# milliseconds), twelve seconds are three passes of a study's half hour at 1/500. Warm-up:
# Cassandra's reads are as fast as they get after about 100k operations (measured in 2026-09).
FULL = Effort(
    least_operations=10_000,
    least_load_s=5.0,
    least_timed_s=12.0,
    most_passes=60,
    most_series_s=90.0,
    warm_up_operations=100_000,
    steady_run_s=20.0,
    longest_run_s=60.0,
)
# For a first look: a p99 of thirty operations. With half of this warm-up, reads still cost the
# server five times their CPU (busy machine, 2026-11).
QUICK = Effort(
    least_operations=3_000,
    least_load_s=1.5,
    least_timed_s=4.0,
    most_passes=10,
    most_series_s=20.0,
    warm_up_operations=80_000,
    steady_run_s=8.0,
    longest_run_s=15.0,
)


# Shorter passes would be mostly their own beginning and end.
LEAST_PASS_S = 1.0
# TPC-C's terminals key in for up to 18 s and think for 12 s on average before each transaction (the
# standard, 5.2.5): however small the data are, a minute is two or three transactions of each, after
# half of one in which those begin that had to key in first.
LEAST_TPCC_S = 60.0
LEAST_TPCC_WARM_UP_S = 30.0


# A fill and a warm-up have no more clients, however few threads the trial has.
_ROWS = [facts_of(name).rows for name in names()]
_FILLS = [rows.fill_in_flight for rows in _ROWS if rows.most_in_flight is not None]
LEAST_CLIENTS = max(*_FILLS, WARM_UP_THREADS, LOAD_CONNECTIONS)
# Of an open loop, where clients are connections.
OPEN_LOOP_CLIENTS = max(rows.most_in_flight or 0 for rows in _ROWS)


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


def stop_of(spec: TrialSpec, effort: Effort, scale: float) -> Stop:
    """Return when one pass of the trial's load ends.

    What uses its condition up (see `uses_up`) stops as the file says, in proportion to the data: a
    cold cache of a hundredth of the size is warm after a hundredth of the time. What does not goes
    on until there is a steady state to measure, however few operations the share asks for.
    """
    stop = spec.workload.the_stop
    if spec.events:
        # Its times are those of the timetable; nothing but its end ends it.
        end_s = given(stop.duration_s, "duration")
        return Stop(duration_s=end_s, give_up_s=end_s)
    if spec.workload.tpcc is not None:
        return Stop(duration_s=max((stop.duration_s or 0) * scale, LEAST_TPCC_S))
    if not uses_up(spec):
        return steady_stop(spec, effort)
    duration_s = stop.duration_s
    if duration_s is not None:
        duration_s = min(max(duration_s * scale, LEAST_PASS_S), effort.longest_run_s)
    return Stop(operations=stop.operations, duration_s=duration_s)


def steady_stop(spec: TrialSpec, effort: Effort) -> Stop:
    """Return when a run ends that is to find a steady state."""
    stop = spec.workload.stop
    timed = stop.duration_s if stop and stop.duration_s else effort.steady_run_s
    return Stop(duration_s=min(timed, effort.longest_run_s))


def clients(spec: TrialSpec, threads: int | None = None) -> int:
    """Return how many clients a trial's load has at once. `threads` replaces the trial's own."""
    return max(threads or threads_of(spec) or OPEN_LOOP_CLIENTS, LEAST_CLIENTS)


def most_clients(spec: TrialSpec) -> int:
    """Return how many clients there can be at once in any part of a trial."""
    return clients(spec, spec.procedure.chosen.most_threads())


def uses_up(spec: TrialSpec) -> bool:
    """Return whether the measurement itself uses up the condition that it starts from.

    A cold cache is warm and an empty table full after a while; a warm cache stays warm.
    """
    return spec.before.page_cache == "cold" or spec.before.dataset == "empty"


def warm_up_of(spec: TrialSpec, effort: Effort, scale: float) -> Stop | None:
    """Return how long the trial's load runs uncounted before each pass; None: it does not.

    Time shrinks with the data, as in `stop_of`: a cache of a hundredth of the size is filled, and
    credits of a hundredth are spent, in a hundredth of the time.
    """
    if spec.workload.tpcc is not None:
        return Stop(duration_s=max(spec.workload.warm_up_s * scale, LEAST_TPCC_WARM_UP_S))
    if not spec.workload.warm_up_s:
        return None
    scaled_s = max(spec.workload.warm_up_s * scale, LEAST_PASS_S)
    return Stop(duration_s=min(scaled_s, effort.longest_run_s))
