"""Results as a table: one row for each repeat, a column for each factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from disklab.results import rates
from disklab.results.records import RunInfo, TrialResult

LATENCIES = ("mean", "p50", "p95", "p99", "p99.9", "max")

COLUMNS: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "mode": pl.String,
    "trial": pl.Int64,
    "repeat": pl.Int64,
    "status": pl.String,
    "usable": pl.Boolean,
    "ops_per_s": pl.Float64,
    "nodes": pl.Int64,
    "ops_per_s_per_node": pl.Float64,
    **{f"{name}_ms": pl.Float64 for name in LATENCIES},
    "bottleneck": pl.String,
    "host_cache_hit_ratio": pl.Float64,
    "price_usd_per_month": pl.Float64,
    "duration_s": pl.Float64,
}


def results_frame(info: RunInfo, results: Sequence[TrialResult]) -> pl.DataFrame:
    """Return the frame; factors whose levels are not all numbers become text.

    A factor that has the name of another column gets `factor ` in front.
    """
    factors = list(dict.fromkeys(name for result in results for name in result.factors))
    columns = {name: f"factor {name}" if name in COLUMNS else name for name in factors}
    rows = [row(info, result) for result in results]
    frame = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    levels = [
        _levels(columns[name], [result.factors.get(name) for result in results]) for name in factors
    ]
    return frame.select(*list(COLUMNS)[:4], *levels, *list(COLUMNS)[4:])


def row(info: RunInfo, result: TrialResult) -> dict[str, Any]:
    """Return the columns of one repeat, without its factors."""
    return {
        "run": info.id,
        "mode": info.mode,
        "trial": result.trial,
        "repeat": result.repeat,
        "status": result.status,
        "usable": result.usable,
        "ops_per_s": result.ops_per_s,
        "nodes": result.nodes,
        "ops_per_s_per_node": rates.of_node(result),
        **{f"{name}_ms": result.latency_ms.get(name) for name in LATENCIES},
        "bottleneck": result.bottleneck.resource if result.bottleneck else None,
        "host_cache_hit_ratio": result.host_cache_hit_ratio,
        "price_usd_per_month": result.price_usd_per_month,
        "duration_s": result.duration_s,
    }


def _levels(name: str, levels: Sequence[str | int | float | None]) -> pl.Series:
    if all(isinstance(level, int | float) or level is None for level in levels):
        return pl.Series(name, levels, strict=False)
    return pl.Series(name, [None if level is None else str(level) for level in levels])
