"""A measurement as a series of passes, added up exactly.

Why passes: a cold measurement is transient. Three million reads of 150 million rows leave the page
cache of the full system cold to the end. At a scale of 1/500 the same measurement is a thousand
reads and a fifth of a second; going on would warm the cache and answer another question. So it is
done again and again, each time from the same condition, until there is enough of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from disklab.engine.load import LoadDone, Stop
from disklab.engine.tpcc import TpccOutcome
from disklab.procedures.effort import Effort
from disklab.results import Histogram, Whole, decode, encode, merged


@dataclass
class Series:
    """What the passes of a trial have given so far."""

    effort: Effort
    again: bool = True
    """False: one pass is all, such as a run in steady state."""
    timed: bool = False
    """Whether a pass ends after a time alone, however many operations that are."""
    headline: str | None = None
    """The operation whose rate and latency stand for the whole; None: all together."""
    passes: int = 0
    operations: int = 0
    elapsed_s: float = 0.0
    cpu_ns: int = 0
    unsent: int = 0
    wrong_rows: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """By kind of operation."""
    last_error: str | None = None
    tpcc: list[TpccOutcome] = field(default_factory=list)
    """Of each pass, where the workload is TPC-C; of its check, as the last one."""
    rates: list[float] = field(default_factory=list)
    """Operations a second of each interval, in order."""
    _begun: float = field(default_factory=time.monotonic)
    _response: dict[str, Histogram] = field(default_factory=dict)
    _service: dict[str, Histogram] = field(default_factory=dict)
    _lateness: Histogram | None = None

    def wants_more(self) -> bool:
        """Return whether another pass is to be made."""
        if self.passes == 0:
            return True
        if not self.again or self.passes >= self.effort.most_passes:
            return False
        return not self.is_enough() and not self.is_over_time()

    def is_enough(self) -> bool:
        """Return whether there are operations and seconds enough."""
        if self.timed:
            return self.elapsed_s >= self.effort.least_timed_s
        enough = self.operations >= self.effort.least_operations
        return enough and self.elapsed_s >= self.effort.least_load_s

    def is_over_time(self) -> bool:
        """Return whether the series with all that lies between its passes takes too long."""
        return time.monotonic() - self._begun >= self.effort.most_series_s

    def goal(self, stop: Stop) -> int | None:
        """Return how many operations the series will have at least; None: time decides."""
        each = stop.operations
        if not self.again or self.timed:
            return each
        if each is None:
            return self.effort.least_operations
        return -(-self.effort.least_operations // each) * each

    def add(self, done: LoadDone) -> None:
        """Add a pass."""
        if self.passes == 0:
            # What lies before the first pass (a fill) is not repeated.
            self._begun = time.monotonic()
        self.passes += 1
        self.elapsed_s += done.elapsed_s
        self.cpu_ns += done.cpu_ns
        self.unsent += done.unsent
        self.wrong_rows += done.wrong_rows
        self.last_error = done.last_error or self.last_error
        for kind, count in done.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        for mine, told in ((self._response, done.response), (self._service, done.service)):
            for operation, text in told.items():
                found = decode(text)
                mine[operation] = merged([mine[operation], found]) if operation in mine else found
        for operation, summary in done.operations.items():
            self.counts[operation] = self.counts.get(operation, 0) + summary.count
        self.operations = sum(self.counts.values())
        if done.tpcc is not None:
            self.tpcc.append(done.tpcc)
        if done.lateness is not None:
            late = decode(done.lateness)
            self._lateness = merged([self._lateness, late]) if self._lateness else late

    def check(self, done: LoadDone) -> None:
        """Add what a check of the data found after the last pass."""
        if done.tpcc is not None:
            self.tpcc.append(done.tpcc)

    @property
    def ops_per_s(self) -> float:
        """Operations that succeeded, in each second of load."""
        counted = self.operations if self.headline is None else self.counts.get(self.headline, 0)
        return counted / self.elapsed_s if self.elapsed_s else 0.0

    def response(self, operation: str | None = None) -> Histogram:
        """Return the response times in ns of one kind of operation, or those of the trial."""
        chosen = operation or self.headline
        if chosen is None:
            return merged(self._response.values())
        return merged([self._response[chosen]] if chosen in self._response else [])

    def service(self, operation: str) -> Histogram | None:
        """Return the service times in ns of one kind of operation."""
        return self._service.get(operation)

    def lateness(self) -> Histogram | None:
        """Return by how much operations were sent late, in ns."""
        return self._lateness

    def whole(self) -> Whole:
        """Return the histograms of the whole series."""
        return Whole(
            elapsed_s=self.elapsed_s,
            response={name: encode(one) for name, one in self._response.items()},
            service={name: encode(one) for name, one in self._service.items()},
            lateness=encode(self._lateness) if self._lateness else None,
        )

    def in_words(self) -> str:
        """Return how the measurement was made up."""
        if self.passes == 1:
            return f"{self.operations} operations in {self.elapsed_s:.1f} s"
        return (
            f"{self.passes} passes from the same condition: {self.operations} operations, "
            f"{self.elapsed_s:.1f} s of load"
        )
