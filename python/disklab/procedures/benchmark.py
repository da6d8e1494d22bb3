"""What TPC-C says beyond rates and latencies: tpmC, what is not compliant, consistency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from disklab.engine.tpcc import TpccOutcome
from disklab.procedures.series import Series


def figures(series: Series) -> dict[str, Any]:
    """Return tpmC, efficiency and mix over the passes, and what the check found; else nothing."""
    runs = _of(series, "run")
    if not runs:
        return {}
    tpmc = [run.tpmc for run in runs if run.tpmc is not None]
    efficiency = [run.efficiency_ratio for run in runs if run.efficiency_ratio is not None]
    found: dict[str, Any] = {"tpcc": runs[-1].model_dump(mode="json", exclude={"conditions"})}
    if tpmc:
        found["tpmc"] = fmean(tpmc)
    if efficiency:
        found["tpcc_efficiency_ratio"] = fmean(efficiency)
    checks = _of(series, "check")
    if checks:
        told = [one.model_dump(mode="json") for one in checks[-1].conditions]
        found["tpcc_conditions"] = told
    return found


def remarks(series: Series) -> Iterator[str]:
    """Yield where the runs are not what the standard asks, each once, and what was tried again."""
    runs = _of(series, "run")
    yield from dict.fromkeys(text for run in runs for text in run.remarks)
    retries = sum((Counter(run.retries) for run in runs), Counter())
    for state, count in retries.items():
        yield (
            f"{count} attempts at transactions were undone by others (SQLSTATE {state}) and made "
            "again: response times hold all attempts"
        )


def violations(series: Series) -> Iterator[str]:
    """Yield the consistency conditions that the data broke: then nothing measured counts."""
    for check in _of(series, "check"):
        for one in check.conditions:
            if not one.passed:
                example = f", such as {one.example}" if one.example else ""
                yield (
                    f"TPC-C consistency condition {one.number} is broken {one.violations} times "
                    f"({one.rule}){example}"
                )


def _of(series: Series, stage: str) -> list[TpccOutcome]:
    return [one for one in series.tpcc if one.stage == stage]
