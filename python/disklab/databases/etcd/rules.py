"""Is this disk good enough for etcd? What its documentation asks of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disklab.databases.etcd.metrics import EDGES_MS, within
from disklab.databases.record import Growth
from disklab.results import RuleFinding

FAQ = "etcd's documentation, FAQ, https://etcd.io/docs/v3.4/faq/"
"""**Source:** "What does the etcd warning 'failed to send out heartbeat on time' mean?":
wal_fsync_duration_seconds, "p99 duration should be less than 10ms"; and "... 'apply entries took
too long' mean?": backend_commit_duration_seconds, "p99 duration should be less than 25ms"."""
BELOW_MS = {"wal_fsync": 10.0, "backend_commit": 25.0}
WHAT = {"wal_fsync": "99th percentile of WAL fsync", "backend_commit": "99th percentile of commit"}
QUANTILE = 0.99
LEAST_COUNT = 100
"""Fewer have no 99th percentile that is not simply the slowest of them."""


@dataclass(frozen=True)
class Quantile:
    """A quantile of a histogram with wide buckets, in milliseconds."""

    value: float
    """Between the bucket's edges as if its values lay evenly in it, as Prometheus has it."""
    low: float
    high: float


def rules(growth: Growth, slow: int) -> Iterator[RuleFinding]:
    """Yield both rules, as far as a trial has made enough fsyncs or commits for them."""
    for name, below_ms in BELOW_MS.items():
        total = growth(f"{name}s") or 0.0
        if total < LEAST_COUNT:
            continue
        found = quantile(QUANTILE, total, [growth(within(name, edge)) or 0.0 for edge in EDGES_MS])
        yield RuleFinding(
            subject="etcd",
            what=WHAT[name],
            found_ms=found.value / slow,
            below_ms=below_ms,
            within_ms=(found.low / slow, found.high / slow),
            kept=found.value / slow < below_ms,
            source=FAQ,
        )


def quantile(share: float, total: float, counts: list[float]) -> Quantile:
    """Return a quantile of a histogram; `counts`: of what took at most each of `EDGES_MS`.

    **Source:** Prometheus, `histogram_quantile`. Beyond the last edge nothing is known but that.
    """
    rank = share * total
    low, before = 0.0, 0.0
    for edge, count in zip(EDGES_MS, counts, strict=True):
        if count >= rank and count > before:
            value = low + (edge - low) * (rank - before) / (count - before)
            return Quantile(value, low, float(edge))
        low, before = float(edge), count
    return Quantile(low, low, low)
