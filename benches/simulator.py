"""How fast the simulator is on one core: operations and disk I/Os per second of wall time.

The cell is the 2019 study's cluster: six DS14_v2, four P30 each, 150 M rows, cold reads by 256
threads. With 64 KiB of read-ahead most operations are one I/O and the database's parts weigh most;
with 8 KiB they are two or more, and the disk model does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from disklab.engine.simulation import simulate

from benches.summary import Row, summarise

CELL = Path(__file__).parent.parent / "crates" / "disklab-sim" / "benches" / "cold_reads.json"

OPERATIONS = 200_000
"""In a run of the small size; each further second asked for brings as many more."""

READ_AHEAD_KIB = (64, 8)

FIO_DEPTH = 64

MILLION = 1e6


def bench(repeats: int, seconds: int) -> list[Row]:
    """Simulate each cell so often, one at a time; building 150 M rows is not counted twice."""
    rows = []
    for kib in READ_AHEAD_KIB:
        answers = [run(cold_reads(kib, OPERATIONS * seconds)) for _ in range(repeats)]
        case = f"cold reads, read-ahead {kib} KiB"
        operations = [OPERATIONS * seconds / answer["wall_s"] / MILLION for answer in answers]
        ios = [answer["disk_ios"] / answer["wall_s"] / MILLION for answer in answers]
        rows.append(row(f"{case}, operations", "M/s", operations))
        rows.append(row(f"{case}, disk I/Os", "M/s", ios))
    answers = [run(device(seconds)) for _ in range(repeats)]
    ios = [answer["disk_ios"] / answer["wall_s"] / MILLION for answer in answers]
    return [*rows, row(f"one device, 4 KiB reads, depth {FIO_DEPTH}, disk I/Os", "M/s", ios)]


def row(case: str, unit: str, values: list[float]) -> Row:
    """Return a row of the table."""
    return summarise("simulator, one core", case, "disklab", unit, values)


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


def device(seconds: int) -> dict[str, Any]:
    """Return the disk model alone: the study's stripe of four disks under fio."""
    job = cold_reads(0, 1)
    cluster = job.pop("database")["cluster"]
    job["device"] = {
        "host": cluster["host"],
        "volume": cluster["data_volume"],
        "fio": {
            "rw": "randread",
            "block_bytes": 4096,
            "jobs": 4,
            "depth": FIO_DEPTH // 4,
            "size_bytes": 1 << 33,
            # About 19,000 I/Os a second of virtual time: what 64 I/Os of 3.3 ms make.
            "runtime_ns": 20 * seconds * 10**9,
            "submit_ns": 4_000,
        },
    }
    return job
