"""How much is measured: enough for the figures to mean something, and not more."""

from __future__ import annotations

from dataclasses import dataclass, replace


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
