"""`python -m campaigns.weather`: rehearses databases under bad disks, predicts them, writes a page.

A line a rehearsed cell goes to `cells.jsonl`. A prediction has nothing of its cell: not its rate,
nor what its CPUs took.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.engine.process import simulate
from disklab.prediction.counted import prepare_rehearsed, rehearsed_trials
from disklab.results import Run, Share
from disklab.spec import Trial

from campaigns.truth.rehearsing import Place

HERE = Path("campaigns/weather")
STATE = HERE / "cells.jsonl"
NAMES = ("cassandra", "postgresql", "galera", "etcd")
SETTLING_S = 3.0
"""Behind each event, which no rate counts."""
RATE, GAP_S, GAP = 0.25, 2.0, 0.25
"""How far a rate, and seconds without success, may be off."""
NEARLY_NONE = 0.02
"""Of the quiet rate: a difference that counts for nothing while a volume stalls."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What is compared of a cell: operations a second by spell, and seconds without any."""

    rates: dict[str, float]
    p99_ms: dict[str, float]
    """Rehearsed alone: of a second of each spell, in the median; none where nothing succeeded."""
    gap_s: float
    failed: int


def spells(trial: Trial) -> dict[str, tuple[float, float]]:
    """Return from when to when each weather lasts."""
    slow, mended, stalled, well = (event.at_s for event in trial.spec.events)
    assert trial.spec.workload.stop is not None
    whole = trial.spec.workload.stop.duration_s or 0.0
    return {
        "quiet": (SETTLING_S, slow),
        "slow": (slow + SETTLING_S, mended),
        "stalled": (stalled, well),
        "after": (well + SETTLING_S, whole),
    }


def told_of(trial: Trial, course: Sequence[tuple[float, int, float | None]], failed: int) -> Told:
    """Return what a course tells. `course`: ends of intervals, operations, p99 in ms."""
    begins = [0.0, *(end_s for end_s, _, _ in course)]
    rates, p99 = {}, {}
    for name, (begin, over) in spells(trial).items():
        inside = [
            (end_s - at, count, ms)
            for at, (end_s, count, ms) in zip(begins, course, strict=False)
            if at >= begin and end_s <= over + 0.01
        ]
        rates[name] = sum(count for _, count, _ in inside) / sum(s for s, _, _ in inside)
        if slowest := [ms for _, _, ms in inside if ms]:
            p99[name] = median(slowest)
    first = trial.spec.events[2].at_s
    gap = [
        end_s - at
        for at, (end_s, count, _) in zip(begins, course, strict=False)
        if at >= first and not count
    ]
    return Told(rates, p99, sum(gap), failed)


def rehearse(name: str, level: str, place: Place) -> Line:
    """Return what a rehearsed cell tells."""
    words = ["--only", f"broken={level}", "--repeat", "1"]
    with place.rehearsed(HERE / f"{name}.yaml", *words) as results:
        result: Line = next(results, {})
        # The rest is its own end.
        deque(results, maxlen=0)
    if result.get("status") not in ("ok", "invalid"):
        return {"name": name, "level": level, "failed": result.get("reason") or "nothing was told"}
    run = Run.open(place.folder / "runs" / result["run"])
    course = [
        (round(one.t_s, 2), one.operations, one.p99_ms)
        for one in run.seconds(result["trial"], 0)
        if one.phase == "measure"
    ]
    return {
        "name": name,
        "level": level,
        "course": course,
        "led": led(run, result["trial"]),
        "ops_per_s": result["ops_per_s"],
        "errors": result["errors"],
        "share": result["share"],
        "status": result["status"],
        "invalid_reasons": result["invalid_reasons"],
        "spoiled": result["spoiled"],
        "started": result["started"],
        "load_average": round(os.getloadavg()[2], 1),
    }


def led(run: Run, trial: int) -> list[str]:
    """Return the members of etcd that led, in the order of time."""
    found = []
    for path in sorted((run.folder / "logs").rglob("*-output.log")):
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
        led = [json.loads(text)["ts"] for text in texts if "became leader at term" in text]
        found += [(at, path.name.partition("-")[0]) for at in led]
    return [name for _, name in sorted(found)]


def predicted(line: Line) -> Told:
    """Return the prediction of a rehearsed cell."""
    experiment = spec.load(HERE / f"{line['name']}.yaml")
    share = Share.model_validate(line["share"])
    trials = {str(one.factors["broken"]): one for one in rehearsed_trials(experiment, share)}
    trial = trials[line["level"]]
    if line["led"]:
        # A simulated cluster is led by its first member.
        trial = trials["n1" if line["led"][0] == line["level"] else "n2"]
    assert trial.spec.database is not None
    calibration = calibration_for(trial.spec.database.engine)
    assert calibration is not None
    prepared = prepare_rehearsed(trial, load_catalog(), calibration, str(HERE))
    assert prepared.job is not None, prepared.reasons
    job = {**prepared.job, "cell": 0, "seed": 1, "fidelity": "full"}
    (answer,) = simulate([job])
    assert answer["event"] != "refused", answer
    course, length = answer["faults"]["course"], answer["faults"]["course"]["interval_s"]
    counts = [
        (length * (number + 1), count, None) for number, count in enumerate(course["completed"])
    ]
    return told_of(trial, counts, answer["faults"]["failed_operations"])


def rehearsed(line: Line) -> Told:
    """Return what a stored line tells."""
    experiment = spec.load(HERE / f"{line['name']}.yaml")
    trials = {str(one.factors["broken"]): one for one in experiment.trials("rehearse")}
    # The engine counts operations from the beginning.
    before = [0, *(count for _, count, _ in line["course"])]
    course = [
        (end_s, count - earlier, ms)
        for earlier, (end_s, count, ms) in zip(before, line["course"], strict=False)
    ]
    return told_of(trials[line["level"]], course, sum(line["errors"].values()))


def is_near(there: float, here: float, least: float = 0.0) -> bool:
    """Return whether a prediction is within what is allowed."""
    return abs(there - here) <= max(RATE * here, least)


def rows(lines: Sequence[Line]) -> Iterator[tuple[list[str], bool]]:
    """Yield a row of the page for each cell, and whether it is within what is allowed."""
    for line in lines:
        real, there = rehearsed(line), predicted(line)
        cells, near = [f"{line['name']}: {line['level']}"], True
        if spoiled := "rate" in line["spoiled"]:
            cells[0] += " (rates spoiled)"
        if line["led"]:
            cells[0] += " (led)" if line["led"][0] == line["level"] else " (followed)"
        for spell in real.rates:
            good = spoiled or is_near(
                there.rates[spell], real.rates[spell], NEARLY_NONE * real.rates["quiet"]
            )
            near &= good
            cells.append(
                f"{real.rates[spell]:.0f} -> {there.rates[spell]:.0f}{'' if good else ' !'}"
            )
        good = is_near(there.gap_s, real.gap_s, GAP_S)
        near &= good
        cells.append(f"{real.gap_s:.1f} -> {there.gap_s:.1f}{'' if good else ' !'}")
        cells.append(f"{real.failed:,} -> {there.failed:,}")
        cells += [f"{real.p99_ms[name]:.0f}" if name in real.p99_ms else "" for name in real.rates]
        cells.append(f"{line['load_average']:.0f}")
        yield cells, near


HEADS = ["cell", "quiet", "slow", "stalled", "after", "s without success", "failed"]
HEADS += ["p99 quiet, ms", "p99 slow", "p99 stalled", "p99 after", "load"]


def page(lines: Sequence[Line]) -> str:
    """Return the page."""
    table = [*rows(lines)]
    near = sum(good for _, good in table)
    text = (HERE / "page.md").read_text(encoding="utf-8")
    drawn = ["| " + " | ".join(row) + " |" for row in (HEADS, ["---"] * len(HEADS))]
    drawn += ["| " + " | ".join(row) + " |" for row, _ in table]
    notes = (HERE / "notes.md").read_text(encoding="utf-8").strip()
    return text.format(near=near, count=len(table), table="\n".join(drawn), notes=notes)


def stored() -> dict[tuple[str, str], Line]:
    """Return the newest line of each cell that did not fail."""
    if not STATE.exists():
        return {}
    lines = [json.loads(text) for text in STATE.read_text(encoding="utf-8").splitlines()]
    return {(one["name"], one["level"]): one for one in lines if "failed" not in one}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.weather", description=__doc__)
    parser.add_argument("--rehearse", metavar="NAME=LEVEL", action="append", default=[])
    parser.add_argument("--place", type=Path, default=Path("target/weather"))
    parser.add_argument("--page", type=Path, help="write what is stored as a page")
    parser.add_argument("--show", action="store_true", help="print rows")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    given.place.mkdir(parents=True, exist_ok=True)
    for wanted in given.rehearse:
        name, _, level = wanted.partition("=")
        line = rehearse(name, level, Place(given.place))
        with STATE.open("a", encoding="utf-8") as state:
            state.write(json.dumps(line) + "\n")
        print({key: value for key, value in line.items() if key != "course"}, flush=True)
    lines = sorted(stored().values(), key=lambda one: (NAMES.index(one["name"]), one["level"]))
    if given.show:
        for row, near in rows(lines):
            print(near, row, flush=True)
    if given.page:
        given.page.write_text(page(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
