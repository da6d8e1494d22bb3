"""What the simulator predicts of the measured collections, from the package's calibration alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import Calibration, calibration_for
from disklab.databases.cassandra.simulated_settings import (
    Collector,
    collector_of,
    new_keys_permille,
)
from disklab.engine.process import simulate
from disklab.prediction.cells import prepare
from disklab.spec import Trial

MEASURED = Path(__file__).with_name("measured.jsonl")
Line = dict[str, Any]

MIB = 1 << 20
KEY_CACHE_BYTES = 51 * MIB
"""Of the measured node, whatever its heap."""
PARALLEL_EDEN = 160 * MIB
"""Of the 200 MB that HEAP_NEWSIZE of Cassandra 3.11 is on two cores."""
CYCLES = 25
"""Collections in a simulated run: their lengths, which vary by half, are then known to 10 %."""


def package() -> Calibration:
    """Return what the package says of the version that was measured."""
    found = calibration_for("cassandra")
    assert found is not None
    return found.newest()


def measured() -> list[Line]:
    """Return the measured cells."""
    return [json.loads(text) for text in MEASURED.read_text(encoding="utf-8").splitlines()]


def allocated_bytes(line: Line) -> tuple[float, float]:
    """Return what an operation allocates: as it was measured, and as the calibration has it."""
    values = package().values()

    def of(kind: str) -> float:
        fixed, permille = (values[f"{kind}_allocated_{unit}"] for unit in ("bytes", "permille"))
        return fixed + permille * int(line["row_bytes"]) / 1000

    predicted = of("read") if line["mixture"] == "reads" else (of("read") + of("write")) / 2
    return float(line["allocated_bytes"] / line["operations"]), predicted


def collector_for(line: Line) -> Collector:
    """Return the collector that a cell had."""
    if line["collector"] == "Parallel":
        return Collector(PARALLEL_EDEN, line["threads"])
    young = collector_of(line["heap_mib"] * MIB, 2, None).young_bytes
    return Collector(young, line["threads"])


def trial_of(row_bytes: int, rows: int, *, writes: bool, operations: int) -> Trial:
    """Return one node in memory."""
    columns = 5 if row_bytes == 4090 else 1
    mixture = "{read: 50%, write: 50%}" if writes else "{read: 100%}"
    text = f"""\
title: pauses
cluster:
  {{nodes: 1, vm: azure/Standard_DS14_v2, volumes: {{data: {{disks: local, caching: None}}}}}}
database: {{engine: cassandra, version: "5.0", replication_factor: 1, consistency: ONE}}
dataset: {{rows: {rows}, row: {columns} x {row_bytes // columns}B}}
workload: {{operations: {mixture}, load: {{threads: 16}}, stop: {{operations: {operations}}}}}
before: {{page_cache: warm}}
"""
    return spec.parse(text, "pauses.yaml").trials("predict")[0]


def job_of(line: Line, number: int) -> dict[str, Any]:
    """Return the simulator's job of a measured cell, long enough for its collections."""
    writes = line["mixture"] != "reads"
    collector = collector_for(line)
    count = int(CYCLES * collector.young_bytes / allocated_bytes(line)[1])
    trial = trial_of(line["row_bytes"], line["rows"], writes=writes, operations=count)
    job = prepare(trial, load_catalog(), calibration_for("cassandra"), "pauses.yaml").job
    assert job is not None
    known = KEY_CACHE_BYTES // package().fact("key_bytes")
    cluster = job["database"]["cluster"]
    cluster["collector"] = collector.job(new_keys_permille(known, line["rows"]))
    return {"cell": number, "seed": 1, "fidelity": "full", **job}


def pauses_us(lines: list[Line]) -> Iterator[tuple[Line, float, float]]:
    """Yield of each cell the time of pauses for an operation: as measured, and as predicted."""
    jobs = [job_of(line, number) for number, line in enumerate(lines)]
    answers = {one["cell"]: one for one in simulate(jobs)}
    for number, line in enumerate(lines):
        answer = answers[number]
        assert answer["event"] == "cell", answer
        predicted = answer["telemetry"]["pause_ratio"] / answer["ops_per_s"] * 1e6
        yield line, line["pause_ms"] * 1000 / line["operations"], predicted
