"""Several load generators as one: what they say of a second, and of the whole run.

Counts, rates and histograms add up; no percentile is made of percentiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from disklab.engine.load import LoadDone, LoadProgress, LoadReady, OperationSummary
from disklab.results import Histogram, decode, encode, merged


def ready(parts: Sequence[LoadReady]) -> LoadReady:
    """Return that all generators are ready; the process is the first one's."""
    whole = None
    if all(one.operations is not None for one in parts):
        whole = sum(one.operations or 0 for one in parts)
    changed = {"slots": sum(one.slots for one in parts), "operations": whole}
    return parts[0].model_copy(update=changed)


def progress(parts: Sequence[LoadProgress], ended: Sequence[LoadProgress] = ()) -> LoadProgress:
    """Return one interval of all generators.

    `ended`: the last lines of those that have ended; their totals still count.
    """
    if len(parts) == 1 and not ended:
        return parts[0]
    histograms = _histograms(one.histograms for one in parts)
    together = merged(histograms.values())
    p50, p99 = together.percentiles([50.0, 99.0]) if together.total else (None, None)
    late = [one.late_ns_p99 for one in parts if one.late_ns_p99 is not None]
    said = [one.last_error for one in parts if one.last_error is not None]
    every = [*parts, *ended]
    return LoadProgress(
        t_s=max(one.t_s for one in parts),
        operations=sum(one.operations for one in every),
        errors=sum(one.errors for one in every),
        ops_per_s=sum(one.ops_per_s for one in parts),
        p50_ms=None if p50 is None else p50 / 1e6,
        p99_ms=None if p99 is None else p99 / 1e6,
        # The worst generator's: a percentile of all would need their histograms.
        late_ns_p99=max(late, default=None),
        in_flight=sum(one.in_flight for one in parts),
        cpu_ns=sum(one.cpu_ns for one in every),
        last_error=said[-1] if said else None,
        histograms={kind: encode(one) for kind, one in histograms.items()},
    )


def done(parts: Sequence[LoadDone]) -> LoadDone:
    """Return the whole run of all generators. It lasts until the last operation of any of them."""
    if len(parts) == 1:
        return parts[0]
    elapsed_s = max(one.elapsed_s for one in parts)
    response = _histograms(one.response for one in parts)
    lateness = [one.lateness for one in parts if one.lateness is not None]
    kinds = dict.fromkeys(kind for one in parts for kind in one.operations)
    operations = {
        kind: _summary(
            [one.operations[kind] for one in parts if kind in one.operations],
            response.get(kind),
            elapsed_s,
        )
        for kind in kinds
    }
    errors: dict[str, int] = {}
    for one in parts:
        for kind, count in one.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    said = [one.last_error for one in parts if one.last_error is not None]
    return LoadDone(
        elapsed_s=elapsed_s,
        ops_per_s=sum(one.count for one in operations.values()) / elapsed_s if elapsed_s else 0.0,
        operations=operations,
        response={kind: encode(one) for kind, one in response.items()},
        service={
            kind: encode(one) for kind, one in _histograms(one.service for one in parts).items()
        },
        lateness=encode(merged(map(decode, lateness))) if lateness else None,
        unsent=sum(one.unsent for one in parts),
        abandoned=sum(one.abandoned for one in parts),
        errors=errors,
        last_error=said[-1] if said else None,
        wrong_rows=sum(one.wrong_rows for one in parts),
        missing_rows=sum(one.missing_rows for one in parts),
        cpu_ns=sum(one.cpu_ns for one in parts),
        started_unix_ns=min(one.started_unix_ns for one in parts),
        interrupted=any(one.interrupted for one in parts),
    )


def _histograms(parts: Iterable[Mapping[str, str]]) -> dict[str, Histogram]:
    """Return the sums of histograms by kind of operation."""
    found: dict[str, list[str]] = {}
    for one in parts:
        for kind, text in one.items():
            found.setdefault(kind, []).append(text)
    return {kind: merged(map(decode, texts)) for kind, texts in found.items()}


def _summary(
    parts: Sequence[OperationSummary], response: Histogram | None, elapsed_s: float
) -> OperationSummary:
    count = sum(one.count for one in parts)
    told: dict[str, float | None] = dict.fromkeys(("mean", "p50", "p95", "p99", "p99.9", "max"))
    if response is not None and response.total:
        told |= response.summary_ms()
    return OperationSummary.model_validate(
        {
            "count": count,
            "failed": sum(one.failed for one in parts),
            "ops_per_s": count / elapsed_s if elapsed_s else 0.0,
            **{f"{name}_ms": value for name, value in told.items()},
        }
    )
