"""How much is measured: enough for the figures to mean something, and not more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How long a trial measures. A series of passes goes on until both least amounts are there."""

    least_operations: int
    least_load_s: float
    most_passes: int
    """Bound of a series, whatever it has collected by then."""
    most_series_s: float
    """Bound of a series with all that lies between its passes."""
    warm_up_operations: int
    """For the database's just-in-time compiler, once after each of its starts."""
    steady_run_s: float
    """Of a run that is to find a steady state, where the trial gives no time."""
    longest_run_s: float
    """Bound of a single run, whatever the trial gives."""


# Ten thousand operations leave a hundred beyond the 99th percentile; five seconds outlast the 50 ms
# windows of a throttled disk a hundred times. Warm-up: Cassandra's reads are as fast as they get
# after about 100k operations (our measurement of 2026-09).
FULL = Effort(
    least_operations=10_000,
    least_load_s=5.0,
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
    most_passes=10,
    most_series_s=20.0,
    warm_up_operations=80_000,
    steady_run_s=8.0,
    longest_run_s=15.0,
)
