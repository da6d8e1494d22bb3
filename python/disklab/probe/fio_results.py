"""fio's JSON output as a run: what was measured beside what the disk promises.

Each job of the output is a cell; several of one name are one. **Divergence:** percentiles of such
a group, and of reads and writes together, are the means of theirs weighted by I/Os: fio keeps no
histogram of the whole unless it was told to (`group_reporting`, `unified_rw_reporting=both`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from disklab import spec
from disklab.errors import Problem, UserError
from disklab.probe.cells import Plan
from disklab.probe.fio import SIDES, Latency, Measurement, Side, latency_of
from disklab.probe.known import cell_of_fio, disk_of, placed
from disklab.probe.promise import SPENT, Promise, State, owed_now, promise
from disklab.probe.run import CellResult
from disklab.probe.verdict import Outcome, Verdict, Wait, judge, throttling
from disklab.reading import IMPORTED, text
from disklab.results import Operation, TrialResult
from disklab.spec.fio import Fio
from disklab.spec.fio_file import FACTOR, On, experiment_text_of, jobs_of_report
from disklab.telemetry.spoiled import in_words

# A probe's results: one object a cell, in the shape of every disklab trial.


def record(
    result: CellResult, trial: int, experiment: str, factors: Mapping[str, Any]
) -> TrialResult:
    """Return one cell of a probe; `factors` of an experiment, else empty: the cell's own."""
    cell, figures = result.cell, figures_of(result)
    seen, telemetry = result.telemetry, dict(figures["telemetry"])
    if seen is not None:
        telemetry["hit_ratio"] = seen.hit_ratio
        telemetry["limits"] = [
            {**limit, "credits_left": wait.credits_left}
            for limit, wait in zip(telemetry["limits"], seen.waits, strict=True)
        ]
    own = {
        "subject": result.subject,
        "profile": cell.profile.value,
        "rw": cell.direction.rw,
        "rwmixread": cell.direction.read_percent,
        "bs_bytes": cell.block_bytes,
    }
    return TrialResult.model_validate(
        {
            **figures,
            "experiment": experiment,
            "mode": "probe",
            "trial": trial,
            "factors": dict(factors) or own,
            "nodes": 1,
            "telemetry": telemetry,
            "condition": result.condition,
        }
    )


def figures_of(result: CellResult) -> dict[str, Any]:
    """Return what was measured in a cell and how it is judged, as keys of a result.

    Latencies are fio's completion latencies in milliseconds. The loop is closed: service time is
    response time.
    """
    measured, cell, seen = result.measurement, result.cell, result.telemetry
    bound = throttling(measured, seen)
    return {
        "status": "invalid" if result.invalid else "ok",
        "valid": not result.invalid,
        "warnings": [*beyond_this_machine(result), *in_words(result.spoiled)],
        "invalid_reasons": list(result.invalid),
        "spoiled": dict(result.spoiled),
        "loop": {"kind": "closed", "jobs": cell.load.jobs, "depth": cell.load.depth},
        "ops_per_s": measured.iops,
        "mb_per_s": round(measured.bytes_per_s / 1e6, 3),
        "latency_ms": latency_record(measured.latency),
        "per_operation": operations(measured.sides, measured.runtime_s),
        "bottleneck": bottleneck_record(bound, measured.runtime_s) if bound else None,
        "host_cache_hit_ratio": seen.hit_ratio if seen else None,
        "telemetry": {
            "late_ratio": seen.late_ratio if seen else None,
            "limits": [
                {
                    "limit": wait.limit,
                    "delayed_ios": wait.delayed_ios,
                    "delayed_ms": wait.delayed_ns / 1e6,
                }
                for wait in (seen.waits if seen else ())
            ],
        },
        "promise": promise_record(result.promise),
        "verdict": verdict_record(result.verdict),
        "duration_s": measured.runtime_s,
        "fio": {"version": measured.fio_version, "command": list(measured.command)},
    }


def operations(sides: Mapping[str, Side], runtime_s: float) -> dict[str, Operation]:
    """Return the reads, the writes and the syncs of a cell, as far as there are any."""
    return {
        name: Operation(
            operations=side.ios,
            ops_per_s=side.ios / runtime_s,
            latency_ms=latency_record(side.latency),
            service_ms=latency_record(side.latency),
        )
        for name, side in sides.items()
    }


def beyond_this_machine(result: CellResult) -> list[str]:
    """Return which limit of this machine stood in the way of the disk's promise, if one did."""
    judged = result.verdict
    if judged is None or judged.outcome is not Outcome.BEYOND_MACHINE:
        return []
    return [f"{judged.quantity}: {judged.held_back_by}"]


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


Job = Mapping[str, Any]

NOT_SYNCHRONOUS = "its jobs ran at the same time, so none of them is compared with the disk alone"
MANY = "percentiles are means of its jobs' percentiles: fio reported each job separately"


@dataclass(frozen=True)
class FioRun:
    """fio's output, read."""

    experiment_text: str
    """What it measured, as an experiment file."""
    trials: tuple[spec.Trial, ...]
    results: tuple[TrialResult, ...]


def read(path: Path, on: On) -> FioRun:
    """Return an output of `fio --output-format=json` of a disk. Raises UserError."""
    report = read_json(path)
    sections, jobs = jobs_of_report(path, report)
    made = experiment_text_of(path, sections, on)
    trials = spec.parse(made, path).trials("measure")
    refused = next((trial.refused for trial in trials if trial.refused is not None), None)
    if refused is not None:
        raise UserError(*refused.problems[:1])
    apart = len(sections) == 1 or all(section.walled for section in sections[1:])
    results = [
        result_of(trial, jobs[str(trial.factors.get(FACTOR, sections[0].name))], report, apart)
        for trial in trials
    ]
    return FioRun(made, tuple(trials), tuple(results))


def read_json(path: Path) -> dict[str, Any]:
    """Return the report of a file, before which fio may have printed warnings."""
    content = text(path, IMPORTED)
    try:
        report = json.loads(content[max(0, content.find("{")) :])
    except (json.JSONDecodeError, RecursionError) as error:
        rule = f"is not JSON: {error}"
        raise UserError(Problem(str(path), "(content)", rule, WAY_OUT)) from None
    jobs = report.get("jobs") if isinstance(report, dict) else None
    is_list = isinstance(jobs, list) and jobs and all(isinstance(job, dict) for job in jobs)
    if not is_list or "fio version" not in report:
        raise UserError(Problem(str(path), "(content)", "has no jobs of fio", WAY_OUT))
    return dict(report)


MOST_OF_ERROR = 300
WAY_OUT = "name the output of `fio --output-format=json`"


def result_of(trial: spec.Trial, jobs: Sequence[Job], report: Job, apart: bool) -> TrialResult:
    """Return what jobs of one name measured, as a result of their cell."""
    try:
        return _result_of(trial, jobs, report, apart)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        rule = f"a job lacks what fio writes: {' '.join(repr(error).split())[:MOST_OF_ERROR]}"
        raise UserError(Problem(str(trial.factors or "jobs"), "(job)", rule, WAY_OUT)) from None


def _result_of(trial: spec.Trial, jobs: Sequence[Job], report: Job, apart: bool) -> TrialResult:
    fio = trial.spec.workload.the(Fio)
    measured = measurement(fio, jobs, report)
    owed, warnings = owed_of(trial, fio, measured), [] if len(jobs) == 1 else [MANY]
    if not apart:
        owed, warnings = None, [*warnings, NOT_SYNCHRONOUS]
    judged = None if owed is None else judge(measured, owed, None, None)
    figures = figures_of(CellResult(str(trial.factors), "", measured, owed, judged))
    return TrialResult.model_validate(
        {
            **figures,
            "experiment": f"fio's {report.get('fio version')}",
            "mode": "measure",
            "trial": trial.index,
            "factors": dict(trial.factors),
            "warnings": warnings,
            "nodes": 1,
            "per_operation": operations({**measured.sides, **syncs(jobs)}, measured.runtime_s),
        }
    )


def owed_of(trial: spec.Trial, fio: Fio, measured: Measurement) -> Promise | None:
    """Return what the disk owes; None: it is asked through the page cache, or at a rate."""
    if not fio.direct or fio.fsync or fio.fdatasync or fio.rate_iops or fio.bssplit:
        return None
    at = placed(disk_of(trial))
    plan = Plan((measured.cell,), measured.runtime_s, fio.size_bytes or 1 << 30)
    bursting = promise(at, measured.cell, plan, State())
    owed = owed_now(measured.iops, bursting, promise(at, measured.cell, plan, SPENT))
    # Percentiles that are judged: those that fio was asked for, of one direction.
    told = [side.latency.percentiles_ns.keys() >= {50.0, 99.0} for side in measured.sides.values()]
    return owed if all(told) else replace(owed, percentiles_ns=None)


def measurement(fio: Fio, jobs: Sequence[Job], report: Job) -> Measurement:
    """Return the figures of jobs of one name."""
    sides = {
        name: Side(
            sum(int(job[name]["total_ios"]) for job in jobs),
            sum(int(job[name]["io_bytes"]) for job in jobs),
            together([counted(job[name], "clat_ns") for job in jobs if job[name]["total_ios"]]),
        )
        for name in SIDES
        if any(job[name]["total_ios"] for job in jobs)
    }
    if not sides:
        raise ValueError("no I/O was done")
    runtime_ms = max(float(job[name]["runtime"]) for job in jobs for name in sides)
    return Measurement(
        cell=cell_of_fio(fio),
        sides=sides,
        latency=together([(side.ios, side.latency) for side in sides.values()]),
        runtime_s=max(runtime_ms, 1.0) / 1000,
        fio_version=str(report["fio version"]),
        command=(),
    )


def counted(side: Job, name: str) -> tuple[int, Latency]:
    """Return how many I/Os a job did, and how long they took."""
    # Syncs are counted beside their latencies alone.
    return int(side[name].get("N") or side["total_ios"]), latency_of(side[name])


def together(parts: Sequence[tuple[int, Latency]]) -> Latency:
    """Return latencies of several jobs or directions as one, weighted by their I/Os."""
    count = sum(ios for ios, _ in parts)
    common = set.intersection(*({*of.percentiles_ns} for _, of in parts))
    return Latency(
        mean_ns=sum(ios * of.mean_ns for ios, of in parts) / count,
        min_ns=min(of.min_ns for _, of in parts),
        max_ns=max(of.max_ns for _, of in parts),
        percentiles_ns={
            p: sum(ios * of.percentiles_ns[p] for ios, of in parts) // count for p in sorted(common)
        },
    )


def syncs(jobs: Sequence[Job]) -> dict[str, Side]:
    """Return the fsyncs of jobs, where there were any."""
    parts = [
        counted(job["sync"], "lat_ns")
        for job in jobs
        if job.get("sync", {}).get("lat_ns", {}).get("N")
    ]
    return {"sync": Side(sum(ios for ios, _ in parts), 0, together(parts))} if parts else {}
