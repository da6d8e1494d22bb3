"""The JSON form of a probe's results: one object a cell, in the shape of every disklab trial."""

from __future__ import annotations

from typing import Any

from disklab.probe.fio import Latency
from disklab.probe.promise import Promise
from disklab.probe.run import CellResult
from disklab.probe.verdict import Telemetry, Verdict, Wait, throttling

RECORD_FORMAT = 1


def record(result: CellResult, trial: int, experiment: str | None = None) -> dict[str, Any]:
    """Return the JSON object of one cell: the shape of every disklab trial, plus the probe's keys.

    Latencies are fio's completion latencies in milliseconds. The loop is closed: service time is
    response time.
    """
    measured, cell = result.measurement, result.cell
    bound = throttling(measured, result.telemetry)
    return {
        "format": RECORD_FORMAT,
        "experiment": experiment,
        "mode": "probe",
        "trial": trial,
        "repeat": 0,
        "factors": {
            "subject": result.subject,
            "profile": cell.profile.value,
            "rw": cell.direction.rw,
            "rwmixread": cell.direction.read_percent,
            "bs_bytes": cell.block_bytes,
        },
        "loop": {"kind": "closed", "jobs": cell.load.jobs, "depth": cell.load.depth},
        "ops_per_s": round(measured.iops, 2),
        "mb_per_s": round(measured.bytes_per_s / 1e6, 3),
        "latency_ms": latency_record(measured.latency),
        "per_operation": {
            name: {"ops": side.ios, "latency_ms": latency_record(side.latency)}
            for name, side in measured.sides.items()
        },
        "bottleneck": bottleneck_record(bound, measured.runtime_s) if bound else None,
        "promise": promise_record(result.promise),
        "verdict": verdict_record(result.verdict),
        "telemetry": telemetry_record(result.telemetry),
        "condition": result.condition,
        "duration_s": measured.runtime_s,
        "fio": {"version": measured.fio_version, "command": list(measured.command)},
        "valid": not result.invalid,
        "warnings": [*result.invalid, *result.warnings],
    }


def bottleneck_record(bound: Wait, runtime_s: float) -> dict[str, Any]:
    """Return the JSON form of the limit that bound, with the share of it that was used."""
    return {
        "resource": bound.limit,
        "utilisation": round(bound.granted / bound.per_s / runtime_s, 4),
    }


def latency_record(latency: Latency) -> dict[str, float]:
    """Return the JSON form of latencies, in milliseconds."""
    return {
        "mean": ms(latency.mean_ns),
        "min": ms(latency.min_ns),
        **{f"p{p:g}": ms(ns) for p, ns in latency.percentiles_ns.items()},
        "max": ms(latency.max_ns),
    }


def ms(ns: float) -> float:
    """Return milliseconds with nanosecond resolution."""
    return round(ns / 1e6, 6)


def promise_record(owed: Promise | None) -> dict[str, Any] | None:
    """Return the JSON form of a promise."""
    if owed is None:
        return None
    return {
        "ops_per_s": round(owed.iops, 2),
        "mb_per_s": round(owed.bytes_per_s / 1e6, 3),
        "bound_by": owed.bound_by,
        "hit_ratio": owed.hit_ratio,
        "latency_ms": {
            side: {f"p{p:g}": ms(ns) for p, ns in of.items()}
            for side, of in (owed.percentiles_ns or {}).items()
        }
        or None,
    }


def verdict_record(judged: Verdict | None) -> dict[str, Any] | None:
    """Return the JSON form of a verdict."""
    if judged is None:
        return None
    return {
        "outcome": judged.outcome.value,
        "quantity": judged.quantity,
        "deviation_ratio": round(judged.deviation_ratio, 4),
        "held_back_by": judged.held_back_by,
    }


def telemetry_record(seen: Telemetry | None) -> dict[str, Any]:
    """Return the JSON form of the emulator's counters over the cell; empty when there are none."""
    if seen is None:
        return {}
    return {
        "hit_ratio": seen.hit_ratio,
        "late_ratio": round(seen.late_ratio, 6),
        "limits": [
            {
                "limit": wait.limit,
                "delayed_ios": wait.delayed_ios,
                "delayed_ms": ms(wait.delayed_ns),
                "credits_left": wait.credits_left,
            }
            for wait in seen.waits
        ],
    }
