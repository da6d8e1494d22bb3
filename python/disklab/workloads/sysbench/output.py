"""What sysbench prints, as the events of a load.

**Source:** sysbench 1.0.20 as in Debian 12. The values of its histogram are the middles of
logarithmic steps of 1.8 %, also of the last one: the maximum may lie above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from disklab.engine.load import LoadDone, LoadProgress
from disklab.results import Histogram, encode

MS = 1e6
"""Nanoseconds in a millisecond."""
OPERATION = "transaction"
"""What sysbench counts: the kind of operation of its results."""

INTERVAL = re.compile(
    r"\[ (?P<t>\d+)s \] thds: (?P<threads>\d+) tps: (?P<tps>[\d.]+) .*"
    r"lat \(ms,\d+%\): (?P<ms>[\d.]+) err/s: (?P<errors>[\d.]+) reconn/s: (?P<reconnects>[\d.]+)"
)
BUCKET = re.compile(r"\s*(?P<ms>\d+\.\d+) \|\**\s+(?P<count>\d+)$")
TOTALS = {
    "events": re.compile(r"\s*total number of events:\s+(\d+)"),
    "elapsed_s": re.compile(r"\s*total time:\s+([\d.]+)s"),
    "retried": re.compile(r"\s*ignored errors:\s+(\d+)"),
    "reconnects": re.compile(r"\s*reconnects:\s+(\d+)"),
    "mean_ms": re.compile(r"\s*avg:\s+([\d.]+)"),
    "max_ms": re.compile(r"\s*max:\s+([\d.]+)"),
}


@dataclass
class Told:
    """What sysbench has said so far."""

    totals: dict[str, float] = field(default_factory=dict)
    buckets: list[tuple[float, int]] = field(default_factory=list)
    """Latency in ms and count."""
    time_dilation: int = 1
    """What a second of the result takes in sysbench's time; what is kept here is in the latter."""
    _operations: float = 0.0
    _errors: float = 0.0
    _last_s: int = 0

    def take(self, line: str) -> LoadProgress | None:
        """Take a line; return the interval that it tells of."""
        found = INTERVAL.match(line)
        if found is not None:
            return self._interval(found)
        bucket = BUCKET.match(line)
        if bucket is not None:
            self.buckets.append((float(bucket["ms"]), int(bucket["count"])))
            return None
        for name, pattern in TOTALS.items():
            total = pattern.match(line)
            if total is not None:
                self.totals[name] = float(total[1])
        return None

    def is_whole(self) -> bool:
        """Return whether sysbench has come to its end."""
        return {"events", "elapsed_s"} <= self.totals.keys()

    def done(self, *, cpu_ns: int, started_unix_ns: int, open_loop: bool) -> LoadDone:
        """Return the whole run. Call it when `is_whole`."""
        slow = self.time_dilation
        elapsed_s = self.totals["elapsed_s"] / slow
        histogram = histogram_of((ms / slow, count) for ms, count in self.buckets)
        counted = int(self.totals["events"])
        text = encode(histogram)
        summary = histogram.summary_ms() if counted else {}
        errors = {
            # A deadlock or a serialization failure: rolled back, and the transaction begun anew.
            name: int(self.totals.get(name, 0))
            for name in ("retried", "reconnects")
        }
        rate = counted / elapsed_s if elapsed_s else 0.0
        failed = sum(errors.values())
        return LoadDone.model_validate(
            {
                "elapsed_s": elapsed_s,
                "ops_per_s": rate,
                "operations": {
                    OPERATION: {
                        "count": counted,
                        "failed": failed,
                        "ops_per_s": rate,
                        **{
                            name: self.totals[name] / slow if name in self.totals else None
                            for name in ("mean_ms", "max_ms")
                        },
                        **{f"{name}_ms": summary.get(name) for name in ("p50", "p95", "p99")},
                        "p99.9_ms": summary.get("p99.9"),
                    }
                },
                "response": {OPERATION: text},
                # With a rate, sysbench counts the time in its queue in and tells no other.
                "service": {} if open_loop else {OPERATION: text},
                "lateness": None,
                "unsent": 0,
                "abandoned": 0,
                "errors": {name: count for name, count in errors.items() if count},
                "last_error": None,
                "wrong_rows": 0,
                "missing_rows": 0,
                "cpu_ns": cpu_ns,
                "started_unix_ns": started_unix_ns,
                "interrupted": False,
            }
        )

    def _interval(self, found: re.Match[str]) -> LoadProgress:
        t_s = int(found["t"])
        length_s = t_s - self._last_s
        self._last_s = t_s
        self._operations += float(found["tps"]) * length_s
        failed = float(found["errors"]) + float(found["reconnects"])
        self._errors += failed * length_s
        return LoadProgress(
            t_s=t_s / self.time_dilation,
            operations=round(self._operations),
            errors=round(self._errors),
            ops_per_s=float(found["tps"]) * self.time_dilation,
            p50_ms=None,
            p99_ms=float(found["ms"]) / self.time_dilation,
            late_ns_p99=None,
            in_flight=int(found["threads"]),
            cpu_ns=0,
            last_error=None,
            histograms={},
        )


def histogram_of(buckets: Iterable[tuple[float, int]]) -> Histogram:
    """Return the counts of sysbench in the layout of our own."""
    empty = Histogram.of(())
    counts = np.zeros_like(empty.counts)
    for ms, count in buckets:
        ns = min(max(round(ms * MS), 0), empty.layout.highest)
        counts[empty.layout.index_of(ns)] += count
    return Histogram(empty.layout, counts)
