"""`python -m campaigns.truth.alike`: one disk against itself, and a disk whose cache answers late.

Two conditions that are one and the same are rehearsed as if they were two. A report that finds one
of them better is wrong: how often it does is what its verdicts are worth. With `--late-us` every
reply of the emulator is held back instead, and each trial has to be found invalid.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from disklab.engine.process import EngineProcess
from disklab.hosts.places import Places
from disklab.report.pair import Kind, Pair, compare, deciding_quantity
from disklab.report.report import Report
from disklab.results import Run

from campaigns.truth.matrix import DATA, SCALE, STUDY, keys, threads
from campaigns.truth.rehearsing import MOST_SECONDS_TO_END, Place, end

STATE = Path("campaigns/truth/alike.jsonl")
PLACE = Path("target/truth")
ROWS_HERE = 60_000
REPEATS = 3
"""The fewest with which a report says a direction."""

CACHED = {
    f"{DATA}.caching": "ReadOnly",
    f"{DATA}.read_ahead": "0KiB",
    **threads(2),
}
"""Every read is a hit, and none waits for a limit: what it takes is what a hit takes."""
LOADS: dict[str, dict[str, Any]] = {
    "from the disk": {},
    "from the host cache": CACHED,
    "from the disk, 4 threads": threads(4),
    "from the disk, zipfian": keys("zipfian"),
    "read-ahead 0": {f"{DATA}.read_ahead": "0KiB"},
}
"""Of the pairs, in turn."""

DISKS, ONE, SAME = "data disks", "one", "the same"
WRONG = (Kind.BETTER, Kind.WORSE)


def text(pairs: int, loads: dict[str, dict[str, Any]]) -> str:
    """Return an experiment with so many pairs of equal conditions."""
    content = yaml.safe_load(STUDY.text())
    content["title"] = "Is a disk better than itself?"
    content["dataset"]["rows"] = ROWS_HERE * SCALE
    # All rows fit.
    content["cluster"]["host_cache"] = f"{1024 * SCALE}MiB"
    named = list(loads.items())
    drawn = (named[number % len(named)] for number in range(pairs))
    content["factors"] = {
        "pair": {f"{number:02}, {name}": patch for number, (name, patch) in enumerate(drawn, 1)},
        # Equal in effect: a rehearsal of both shares one bed.
        DISKS: {ONE: {}, SAME: {f"{DATA}.filesystem": "xfs"}},
    }
    return yaml.safe_dump(content, sort_keys=False)


def rehearsed(place: Place, path: Path, words: Sequence[str], minutes: float, late_us: int) -> Run:
    """Rehearse a file, for so many minutes at most, and return the run."""
    deadline, out = time.monotonic() + minutes * 60, place.folder / "alike"
    before = set(out.iterdir()) if out.exists() else set()
    with (place.folder / "said").open("a", encoding="utf-8") as said:
        process = subprocess.Popen(
            place.command("rehearse", str(path), "--quick", *words, "--out", str(out)),
            stdout=said,
            stderr=said,
            text=True,
            env=place.environment(),
            start_new_session=True,
        )
        try:
            with held_back(place, late_us):
                process.wait(max(deadline - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            pass
        finally:
            end(process)
    (made,) = set(out.iterdir()) - before
    return Run.open(str(made))


@contextmanager
def held_back(place: Place, late_us: int) -> Iterator[None]:
    """Hold each system call of the emulator's ring back while the block runs, as strace can."""
    over = threading.Event()
    tracers: dict[int, subprocess.Popen[bytes]] = {}

    def follow() -> None:
        places = Places(place.folder / "run", Path(place.environment()["DISKLAB_DATA_DIR"]))
        while not over.wait(0.5):
            engines = (EngineProcess.of(host.run) for host in places.hosts())
            for pid in {engine.pid for engine in engines if engine} - tracers.keys():
                delay = f"inject=io_uring_enter:delay_enter={late_us}"
                command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", delay, "-p", str(pid)]
                tracers[pid] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    watcher = threading.Thread(target=follow, daemon=True)
    if late_us:
        watcher.start()
    try:
        yield
    finally:
        over.set()
        if late_us:
            watcher.join()
        for tracer in tracers.values():
            tracer.send_signal(signal.SIGTERM)
            tracer.wait(MOST_SECONDS_TO_END)


def judged(run: Run, seed: int) -> list[dict[str, Any]]:
    """Return what a report says of each pair, one object a pair; pairs that failed are left out."""
    (subject,) = Report.of([run]).subjects
    found = []
    for first in subject.matrix.cells.values():
        second = subject.matrix.cell({**first.factors, DISKS: SAME})
        if first.factors[DISKS] == SAME or second is None:
            continue
        judgements = compare(subject, first, subject, second)
        deciding = deciding_quantity((first, second), judgements)
        if deciding is None:
            continue
        context = {"pair": first.factors["pair"]}
        pair = Pair(context, ONE, SAME, (first, second), judgements, deciding)
        found.append(told_of(pair, seed))
    return found


def told_of(pair: Pair, seed: int) -> dict[str, Any]:
    """Return a pair as one object."""
    interval = pair.judgement.interval
    return {
        "seed": seed,
        "pair": str(pair.context["pair"]),
        "kind": pair.kind.value,
        "wrong": pair.kind in WRONG,
        "ratio": round(pair.judgement.ratio, 4),
        "interval": interval and [round(interval.low, 4), round(interval.high, 4)],
        "repeats": list(pair.judgement.repeats),
        "load_average": round(os.getloadavg()[0], 1),
    }


def late_ones(run: Run, late_us: int) -> list[dict[str, Any]]:
    """Return what became of trials whose replies were held back, one object each."""
    return [
        {
            "late_us": late_us,
            "time_dilation": result.share.time_dilation if result.share else 1,
            "hits": result.host_cache_hit_ratio,
            "status": result.status,
            "reasons": result.invalid_reasons,
        }
        for result in run.results()
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.truth.alike", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, help="of one bed; 10 by default")
    parser.add_argument("--seed", type=int, default=1, help="of order and keys; 1 by default")
    parser.add_argument("--minutes", type=float, default=15.0, help="how long at most")
    parser.add_argument("--time-dilation", type=int, default=0, help="0: as the CPUs require")
    parser.add_argument("--late-us", type=int, default=0, help="hold replies back instead")
    parser.add_argument("--state", type=Path, default=STATE, help=f"pairs; {STATE} by default")
    parser.add_argument("--through", default="", metavar="COMMAND", help="such as nice")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    place = Place(PLACE, tuple(shlex.split(given.through)))
    place.folder.mkdir(parents=True, exist_ok=True)
    path = place.folder / "alike.yaml"
    content = text(1, {"cached": CACHED}) if given.late_us else text(given.pairs, LOADS)
    path.write_text(content, encoding="utf-8")
    repeats = 1 if given.late_us else REPEATS
    words = ["--repeat", str(repeats), "--seed", str(given.seed)]
    if given.time_dilation:
        # On a busy machine fewer replies are late in slow motion.
        words += ["--time-dilation", str(given.time_dilation)]
    run = rehearsed(place, path, words, given.minutes, given.late_us)
    found = late_ones(run, given.late_us) if given.late_us else judged(run, given.seed)
    with given.state.open("a", encoding="utf-8") as file:
        for one in found:
            file.write(json.dumps(one) + "\n")
            print(one)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
