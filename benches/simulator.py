"""How fast the simulator is: rates of one core, whole studies and a sweep on all of them.

Of one core the cell is the 2019 study's cluster: six DS14_v2, four P30 each, 150 M rows, cold reads
by 256 threads. With 64 KiB of read-ahead most operations are one I/O and the database's parts weigh
most; with 8 KiB they are two or more, and the disk model does.

Studies and sweep are `disklab predict` as a user runs it, from its start to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from disklab.engine.process import simulate

from benches.summary import Row, summarise

CELL = Path(__file__).parent.parent / "crates" / "disklab-sim" / "benches" / "cold_reads.json"

OPERATIONS = 200_000
"""For each second that is asked for."""

READ_AHEAD_KIB = (64, 8)

FIO_DEPTH = 64

MILLION = 1e6

EXPERIMENTS = Path(__file__).parent.parent / "experiments"

STUDIES = (
    "cassandra-local-or-attached",
    "cassandra-disk-caching-threads",
    "cassandra-disk-caching-read-ahead",
)
STUDIES_S = 90.0
"""What was asked for: every cell of the three at full fidelity, on two cores."""

SWEEP = "cassandra-disk-caching-read-ahead"
SWEEP_FACTORS: dict[str, list[Any]] = {
    "cluster.volumes.data.caching": ["None", "ReadOnly"],
    "cluster.volumes.data.read_ahead": [f"{4 * step}KiB" for step in range(1, 21)],
    "workload.load.threads": [16 * step for step in range(1, 26)],
}
SWEEP_S = 20.0
"""What was asked for: a thousand quick cells."""

SMALL_LEVELS = 2
"""Levels that each factor of a sweep keeps in a run of the small size."""


def bench(repeats: int, seconds: float) -> list[Row]:
    """Simulate each cell so often, one at a time; building 150 M rows is not counted twice."""
    rows = []
    for kib in READ_AHEAD_KIB:
        count = round(OPERATIONS * seconds)
        answers = [run(cold_reads(kib, count)) for _ in range(repeats)]
        case = f"cold reads, read-ahead {kib} KiB"
        operations = [count / answer["wall_s"] / MILLION for answer in answers]
        rows.append(row(f"{case}, operations", "M/s", operations))
        rows += [
            row(f"{case}, {name}", "M/s", rates(answers, key)) for name, key in COUNTED.items()
        ]
    answers = [run(device(seconds)) for _ in range(repeats)]
    ios = rates(answers, COUNTED["disk I/Os"])
    rows.append(row(f"one device, 4 KiB reads, depth {FIO_DEPTH}, disk I/Os", "M/s", ios))
    small = seconds < 1
    # A sweep is predicted as the studies are, so that the small size needs no study.
    cases = [sweep(small)] if small else [sweep(small), studies()]
    return [*rows, *(whole(case, small) for case in cases)]


COUNTED = {"disk I/Os": "disk_ios", "events": "events"}
"""What an answer counts beside operations, by its name in a case."""


def rates(answers: list[dict[str, Any]], key: str) -> list[float]:
    """Return how many millions a second each run had of what an answer counts."""
    return [answer[key] / answer["wall_s"] / MILLION for answer in answers]


def row(case: str, unit: str, values: list[float]) -> Row:
    """Return a row of the table."""
    return summarise("simulator, one core", case, "disklab", unit, values)


@dataclass(frozen=True)
class Predictions:
    """Experiments that are predicted one after the other."""

    name: str
    files: dict[str, dict[str, Any]]
    """Parsed experiment files by name."""
    fidelity: str
    asked_s: float


def studies() -> Predictions:
    """Return the three studies."""
    files = {name: experiment(name) for name in STUDIES}
    return Predictions("three studies", files, "full", STUDIES_S)


def sweep(small: bool) -> Predictions:
    """Return a matrix of a thousand cells; small: of eight."""
    most = SMALL_LEVELS if small else None
    factors = {name: levels[:most] for name, levels in SWEEP_FACTORS.items()}
    return Predictions(
        "sweep", {SWEEP: {**experiment(SWEEP), "factors": factors}}, "quick", SWEEP_S
    )


def experiment(name: str) -> dict[str, Any]:
    """Return an experiment file of the repository."""
    text = (EXPERIMENTS / f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def whole(predictions: Predictions, small: bool) -> Row:
    """Time `disklab predict` from start to end; once, for a seed makes every run the same work."""
    cells, seconds = predict(predictions)
    case = f"{predictions.name}, {cells} cells, fidelity {predictions.fidelity}"
    asked = None if small else predictions.asked_s
    return summarise("simulator, all cores", case, "disklab", "s", [seconds], asked)


def predict(predictions: Predictions) -> tuple[int, float]:
    """Return how many cells were predicted, and how many seconds that took."""
    command = Path(sys.executable).parent / "disklab"
    cells, seconds = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, parsed in predictions.files.items():
            file = Path(folder) / f"{name}.yaml"
            file.write_text(yaml.safe_dump(parsed, sort_keys=False), encoding="utf-8")
            options = ["--fidelity", predictions.fidelity, "--json", "--out", folder]
            start = time.monotonic()
            done = subprocess.run(
                [command, "predict", file, *options], check=True, capture_output=True, text=True
            )
            seconds += time.monotonic() - start
            cells += len(done.stdout.splitlines())
    return cells, seconds


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one job."""
    (answer,) = simulate([job], workers=1)
    if answer["event"] != "cell":
        raise RuntimeError(f"the simulator refuses its own benchmark: {answer['reasons']}")
    return dict(answer)


def cold_reads(read_ahead_kib: int, operations: int) -> dict[str, Any]:
    """Return the study's cell with another read-ahead and number of operations."""
    job: dict[str, Any] = json.loads(CELL.read_text(encoding="utf-8"))
    job["database"]["cluster"]["read_ahead_bytes"] = read_ahead_kib << 10
    job["database"]["workload"]["stop"] = {"operations": operations}
    return job


def device(seconds: float) -> dict[str, Any]:
    """Return the disk model alone: the study's stripe of four disks under fio."""
    job = cold_reads(0, 1)
    cluster = job.pop("database")["cluster"]
    job["device"] = {
        "host": cluster["host"],
        "volume": cluster["data_volume"],
        "fio": {
            "random": True,
            "read_ppm": 10**6,
            "block_bytes": 4096,
            "jobs": 4,
            "depth": FIO_DEPTH // 4,
            "size_bytes": 1 << 33,
            # About 19,000 I/Os a second of virtual time: what 64 I/Os of 3.3 ms make.
            "runtime_ns": round(20 * seconds * 10**9),
            "submit_ns": 4_000,
        },
    }
    return job
