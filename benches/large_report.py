"""A report of a hundred thousand results, and one of ten hours of seconds: time and memory.

`python -m benches.large_report [--results N] [--repeats N] [--hours H]`. The bound of both is ten
seconds and 1 GiB (docs/report.md).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from disklab.results import ExperimentNote, Histogram, PlannedTrial, Run, RunInfo, encode, merged
from disklab.results.records import TrialResult

MOST_SECONDS = 10.0
MOST_BYTES = 1 << 30
LEVELS = (10, 100)
"""Of the first two factors; the third has as many as the results ask for."""


@dataclass(frozen=True)
class Cost:
    """What a report took."""

    seconds: float
    peak_bytes: int
    page_bytes: int


def write_results(out: Path, results: int, repeats: int) -> Path:
    """Write a finished run with so many results; return its folder."""
    cells = results // repeats
    first, second = LEVELS
    made: list[dict[str, str | int | float]] = [
        {"disk": f"disk {n % first}", "threads": n // first % second, "row": n // first // second}
        for n in range(cells)
    ]
    planned = [PlannedTrial(trial=n, factors=one) for n, one in enumerate(made)]
    run = Run.create(out, info("many", repeats), experiment_text="title: many\n", planned=planned)
    random = np.random.default_rng(1)
    with (run.folder / "trials.jsonl").open("w", encoding="utf-8") as file:
        for trial, factors in enumerate(made):
            for repeat in range(repeats):
                rate = float(5000 * np.exp(random.normal(0, 0.5)))
                result = TrialResult(
                    experiment="many", mode="rehearse", run=run.info.id, trial=trial,
                    repeat=repeat, factors=factors, ops_per_s=rate, share=None,
                    latency_ms={"p50": 2.0, "p95": 5.0, "p99": 9.0, "max": 20.0, "mean": 2.5},
                )  # fmt: skip
                file.write(result.model_dump_json() + "\n")
    return run.folder


def write_hours(out: Path, hours: float) -> Path:
    """Write a finished run of two cells, each measured for so long; return its folder."""
    made: list[dict[str, str | int | float]] = [{"disk": "one"}, {"disk": "two"}]
    planned = [PlannedTrial(trial=n, factors=one) for n, one in enumerate(made)]
    run = Run.create(out, info("long", 1), experiment_text="title: long\n", planned=planned)
    random = np.random.default_rng(1)
    pool = [Histogram.of((2e6 * np.exp(random.normal(0, 0.5, 400))).astype(int).tolist())
            for _ in range(24)]  # fmt: skip
    texts = [encode(one) for one in pool]
    seconds = round(hours * 3600 / len(made))
    with run.writing():
        for trial, factors in enumerate(made):
            write_course(run, trial, seconds, texts, encode(merged(pool)))
            run.append(TrialResult(
                experiment="long", mode="rehearse", trial=trial, factors=factors,
                ops_per_s=5000.0 + trial * 500, duration_s=float(seconds),
                latency_ms=merged(pool).summary_ms(),
            ))  # fmt: skip
    return run.folder


def write_course(run: Run, trial: int, seconds: int, texts: Sequence[str], whole: str) -> None:
    """Write the seconds and the telemetry of a trial."""
    with run.record_seconds(trial, 0) as course:
        for second in range(seconds):
            course.second({"t_s": second + 1.0, "operations": 5000, "ops_per_s": 5000.0,
                           "histograms": {"read": texts[second % len(texts)]}})  # fmt: skip
        course.whole({"elapsed_s": float(seconds), "response": {"read": whole}})
    with run.record_telemetry(trial, 0) as telemetry:
        for second in range(seconds):
            telemetry.add("measure", float(second), "machine", "busy_cores", 1.2)
            telemetry.add("measure", float(second), "disk data", "read_iops", 4000.0)


def info(name: str, repeats: int) -> RunInfo:
    """Return the facts of a run that nobody made."""
    return RunInfo(
        id=f"{name}-rehearse-20261121T120000-abcd", mode="rehearse",
        experiment=ExperimentNote(title=name, source="synthetic", file="synthetic.yaml"),
        seed=1, repeats=repeats, command=["disklab", "rehearse", "synthetic.yaml"],
        started="2026-11-21T12:00:00+00:00", environment={}, versions={}, prices=[], notes=[],
    )  # fmt: skip


def report(folder: Path) -> Cost:
    """Make the report of a run with the command that users call; return what it took."""
    command = [str(Path(sys.executable).with_name("disklab")), "report", str(folder)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`disklab report {folder}` ended with {process.returncode}")
    page = (folder / "report.html").stat().st_size
    return Cost(seconds, usage.ru_maxrss * 1024, page)


def main() -> int:
    """Write both runs, report both, print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--keep", type=Path, help="write the runs here and leave them")
    given = parser.parse_args()
    late = False
    with tempfile.TemporaryDirectory() as temporary:
        out = given.keep or Path(temporary)
        for what, folder in (
            (f"{given.results} results", write_results(out, given.results, given.repeats)),
            (f"{given.hours:g} hours", write_hours(out, given.hours)),
        ):
            cost = report(folder)
            late |= cost.seconds > MOST_SECONDS or cost.peak_bytes > MOST_BYTES
            print(f"{what}: {cost.seconds:.1f} s, {cost.peak_bytes / (1 << 20):.0f} MiB, "
                  f"page {cost.page_bytes / (1 << 20):.1f} MiB")  # fmt: skip
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
