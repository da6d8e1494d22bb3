"""What was rehearsed, one JSON line a cell: enough to predict it again and to judge it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from disklab import spec
from disklab.spec import Experiment

from campaigns.truth.matrix import BEDS, Bed, key_of

KEPT = (
    "status",
    "invalid_reasons",
    "ops_per_s",
    "latency_ms",
    "host_cache_hit_ratio",
    "passes",
    "disk_read_ios",
    "disk_read_bytes",
    "disk_write_ios",
    "disk_write_bytes",
    "duration_s",
    "share",
    "errors",
    "started",
)
"""Of a result, as docs/contracts/4-run-folder.md has it."""

Line = dict[str, Any]


def experiment_of(bed: Bed, folder: Path) -> Experiment:
    """Return a bed's experiment, written below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{bed.name.replace(' ', '-').replace(',', '')}.yaml"
    content = yaml.safe_load(bed.text())
    # The digest is of the text without it, so that the stored cells stay what they are.
    if bed.latency is not None:
        content["cluster"]["volumes"]["data"]["latency"] = bed.latency
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return spec.load(path)


def digest(bed: Bed, name: str) -> str:
    """Return what changes when a cell is another one: of what the file asks, as it is written.

    What it is resolved to has more, and changes with each key that experiment files learn.
    """
    content = yaml.safe_load(bed.text())
    content["factors"] = {"cell": content["factors"]["cell"][name]}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def line_of(bed: Bed, result: Mapping[str, Any], load: tuple[float, ...]) -> Line:
    """Return what is kept of a finished trial. `load`: load averages when it was done."""
    told, telemetry = {name: result.get(name) for name in KEPT}, result["telemetry"]
    cpu = telemetry.get("cpu_ratio") or {}
    return {
        "cell": f"{bed.name}: {result['factors']['cell']}",
        "digest": digest(bed, result["factors"]["cell"]),
        **told,
        "operations": {
            name: one["operations"] for name, one in (result.get("per_operation") or {}).items()
        },
        "warmed_up_with": sum(one.get("operations") or 0 for one in result.get("phases", ())),
        "cpu_ratio": cpu,
        "gc_pause_ms": telemetry.get("gc_pause_ms"),
        "gc_pauses": telemetry.get("gc_pauses"),
        "gc_allocated_bytes": telemetry.get("gc_allocated_bytes"),
        "late_ratio": telemetry.get("late_ratio"),
        "bottleneck": (result.get("bottleneck") or {}).get("resource"),
        "reason": (result.get("reason") or {}).get("rule"),
        "warnings": [text for text in result.get("warnings", ()) if "CPU" in text],
        "load_average": [round(one, 1) for one in load],
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
    }


def stored(state: Path) -> dict[str, Line]:
    """Return the latest line of each cell that the matrix still has as it was rehearsed."""
    if not state.exists():
        return {}
    lines = [json.loads(text) for text in state.read_text(encoding="utf-8").splitlines()]
    latest = {line["cell"]: line for line in lines}
    found = {}
    for bed in BEDS:
        for cell in bed.cells:
            line = latest.get(key_of(bed, cell))
            if line is not None and line["digest"] == digest(bed, cell.name):
                found[line["cell"]] = line
    return found
