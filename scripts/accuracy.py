"""Simulates the published studies and prints published, predicted and error, cell by cell.

For whoever works on the simulator: `.venv/bin/python scripts/accuracy.py [STUDY...] [--quick]
[--set NAME=VALUE] [--ablate MECHANISM]`. Users read docs/accuracy.md and `disklab predict`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from disklab.catalog.load import load_catalog
from disklab.catalog.resolve import HostRequest, VolumeRequest, resolve

ROOT = Path(__file__).parents[1]
ENGINE = Path(os.environ.get("ENGINE", ROOT / "target" / "release" / "disklab-engine"))
REFERENCE = ROOT / "python" / "disklab" / "reference" / "published.yaml"
CALIBRATION = ROOT / "python" / "disklab" / "data" / "calibration" / "cassandra.yaml"
Json = dict[str, Any]

# nodetool's owned shares of the study's six nodes.
OWNERSHIP_PPM = [154_000, 155_000, 184_000, 158_000, 182_000, 166_000]
NANOS = 1_000_000_000
GIB = 1 << 30
# Of 112 GiB: 8 GiB heap (the most that cassandra-env.sh of 3.11 chooses by itself), 2 GiB file
# cache (the study's), 4 GiB for everything else.
PAGE_CACHE_BYTES = 98 * GIB


@dataclass
class Cell:
    """One published figure and the job that predicts it."""

    study: str
    label: str
    published: Json
    job: Json
    predicted: Json = field(default_factory=dict)


def host(disks: str, caching: str, commitlog: bool) -> Json:
    """Return the profile of a DS14_v2 with a data volume and, if asked for, a commit log."""
    catalog = load_catalog()
    request = HostRequest(vm="azure/Standard_DS14_v2", scale=Fraction(1))
    stripe = 65536 if disks.startswith("4") else None
    found = resolve(
        catalog,
        request,
        VolumeRequest(disks=disks, caching=caching, chunk_bytes=stripe),  # type: ignore[arg-type]
    )
    profile: Json = json.loads(found.host.model_dump_json())
    if commitlog:
        log = resolve(catalog, request, VolumeRequest(disks="local", name="commitlog"))
        profile["volumes"].append(json.loads(log.volume.model_dump_json()))
    return profile


def cassandra(parameters: Json, **changes: Any) -> Json:
    """Return a job of the Azure-Samples cluster; `changes` are what varies."""
    disks = changes.get("disks", "4 x azure/P30")
    caching = changes.get("caching", "None")
    local = disks == "local"
    return {
        "cluster": {
            "nodes": 6,
            "host": host(disks, caching, not local),
            "cores": 16,
            "page_cache_bytes": PAGE_CACHE_BYTES,
            "network_bytes_per_s": 1_500_000_000,
            "data_volume": "data",
            "commitlog_volume": None if local else "commitlog",
            "read_ahead_bytes": changes.get("read_ahead_kib", 64) << 10,
            "ownership_ppm": OWNERSHIP_PPM,
        },
        "client": {"nodes": 1, "cores": 16, "network_bytes_per_s": 1_500_000_000},
        "network": {"one_way_ns": 50_000},
        "database": {
            "engine": "cassandra",
            "replication_factor": changes.get("rf", 1),
            "consistency": "LOCAL_QUORUM",
            "concurrent_reads": 64,
            "concurrent_writes": 64,
            "read_repair_ppm": 100_000,
        },
        "dataset": {"rows": changes.get("rows", 150_000_000), "columns": 5, "column_bytes": 818},
        "workload": {
            "read_ppm": changes.get("read_ppm", 1_000_000),
            "keys": "uniform",
            "load": {"closed": {"threads": changes.get("threads", 128)}},
            "stop": {"operations": changes.get("operations", 3_000_000)},
        },
        "before": {
            "page_cache": "cold",
            "host_cache": "written",
            "empty": changes.get("empty", False),
        },
        "parameters": parameters,
    }


def published() -> Json:
    """Return the published tables."""
    loaded: Json = yaml.safe_load(REFERENCE.read_text(encoding="utf-8"))
    return loaded


def at(row: Json, index: int) -> Json:
    """Return one column of a published row."""
    figures = {key: values for key, values in row.items() if key != "chart"}
    return {key: values[index] for key, values in figures.items() if values[index] is not None}


def threads_sweep(parameters: Json) -> list[Cell]:
    """Return the threads sweep of the disk caching study."""
    sweep = published()["cassandra_disk_caching"]["threads_sweep"]
    return [
        Cell(
            "threads",
            f"{caching} {threads} threads",
            at(sweep[f"caching_{caching.lower()}"], index),
            cassandra(parameters, caching=caching, threads=threads),
        )
        for caching in ("None", "ReadOnly")
        for index, threads in enumerate(sweep["threads"])
    ]


def read_ahead_sweep(parameters: Json) -> list[Cell]:
    """Return the read-ahead sweeps of the disk caching study, 128 and 256 threads."""
    study = published()["cassandra_disk_caching"]
    sweep, more = study["read_ahead_sweep_128_threads"], study["read_ahead_and_threads"]
    cells = []
    for caching in ("None", "ReadOnly"):
        for index, kib in enumerate(sweep["read_ahead_kib"]):
            row = at(sweep[f"caching_{caching.lower()}"], index)
            job = cassandra(parameters, caching=caching, read_ahead_kib=kib)
            cells.append(Cell("read-ahead 128", f"{caching} {kib} KiB 128 threads", row, job))
        for index, kib in enumerate(more["read_ahead_kib"]):
            row = at(more[f"caching_{caching.lower()}_256_threads"], index)
            job = cassandra(parameters, caching=caching, read_ahead_kib=kib, threads=256)
            cells.append(Cell("read-ahead 256", f"{caching} {kib} KiB 256 threads", row, job))
    return cells


def local_or_attached(parameters: Json) -> list[Cell]:
    """Return the study of local and attached disks."""
    study = published()["cassandra_local_vs_attached"]
    loads: dict[str, Json] = {
        "write_10M_rows_256_threads": {
            "read_ppm": 0, "threads": 256, "operations": 10_000_000, "empty": True,
        },
        "read_3M_of_10M_rows_128_threads": {},
        "mixed_50_50_3M_of_10M_rows_128_threads": {"read_ppm": 500_000},
    }  # fmt: skip
    return [
        Cell(
            name.split("_")[0],
            f"{where} RF {rf} {name.split('_')[0]}",
            at(study[name][where], index),
            cassandra(
                parameters,
                disks="4 x azure/P30" if where == "attached" else "local",
                caching="ReadOnly" if where == "attached" else "None",
                rf=rf,
                rows=10_000_000,
                read_ahead_kib=8,
                **load,
            ),
        )
        for name, load in loads.items()
        for index, rf in enumerate(study[name]["rf"])
        for where in ("attached", "local")
    ]


def cliff(parameters: Json) -> list[Cell]:
    """Return the cache cliff; nobody published it."""
    return [
        Cell(
            "cliff",
            f"{caching} {rows}M rows",
            {},
            cassandra(parameters, caching=caching, rows=rows * 1_000_000, read_ahead_kib=8),
        )
        for rows in (50, 150, 500, 900)
        for caching in ("None", "ReadOnly")
    ]


def devices(_parameters: Json) -> list[Cell]:
    """Return the study of local disks under fio."""
    study = published()["azure_local_disks_fio"]
    catalog = load_catalog()
    places = {
        "E8as_v4_temp": ("azure/Standard_E8as_v4", "local", "None"),
        "E8ds_v4_temp": ("azure/Standard_E8ds_v4", "local", "None"),
        "E8ds_v4_os_readwrite_cache": ("azure/Standard_E8ds_v4", "azure/P4", "ReadWrite"),
        "E8ds_v4_os_P4_uncached": ("azure/Standard_E8ds_v4", "azure/P4", "None"),
        "E8ds_v4_ephemeral_os": ("azure/Standard_E8ds_v4", "ephemeral-os", "None"),
        "L8s_v2_nvme": ("azure/Standard_L8s_v2", "nvme", "None"),
    }
    cells = []
    for name, (vm, disks, caching) in places.items():
        request = VolumeRequest(disks=disks, caching=caching)  # type: ignore[arg-type]
        found = resolve(catalog, HostRequest(vm=vm), request)
        clat = study[name]["clat_us"]
        if isinstance(clat, list):
            clat = {f"p{n}": value for n, value in zip(study["percentiles"], clat, strict=True)}
        sync = {key: clat[key] / 1000 for key in ("p50", "p95", "p99")}
        is_nvme = "nvme" in name
        loads = {
            "sync": (sync, 1, 1, 8192),
            "async": (
                {"ops": study[name]["async_iops"]},
                *((16, 512, 4096) if is_nvme else (4, 256, 8192)),
            ),
        }
        for load, (row, jobs, depth, block) in loads.items():
            fio = {
                "rw": "randwrite",
                "block_bytes": block,
                "jobs": jobs,
                "depth": depth,
                "size_bytes": 5 * GIB,
                "runtime_ns": 60 * NANOS,
                "submit_ns": 4000,
            }
            job = {"host": json.loads(found.host.model_dump_json()), "volume": "data", "fio": fio}
            cells.append(Cell(f"fio {load}", f"{name} {load}", row, job))
    return cells


STUDIES = {
    "devices": devices,
    "threads": threads_sweep,
    "readahead": read_ahead_sweep,
    "local": local_or_attached,
    "cliff": cliff,
}


def simulate(cells: list[Cell], arguments: argparse.Namespace) -> None:
    """Run every cell and keep its prediction."""
    lines = []
    for number, cell in enumerate(cells):
        job = {"cell": number, "seed": arguments.seed, "ablate": arguments.ablate}
        job["fidelity"] = "quick" if arguments.quick else "full"
        kind = "device" if "fio" in cell.job else "database"
        lines.append(json.dumps({**job, kind: cell.job}))
    run = subprocess.run(
        [str(ENGINE), "simulate", "--jobs", str(arguments.jobs)],
        input="\n".join(lines), text=True, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    for line in run.stdout.splitlines():
        answer = json.loads(line)
        if answer["event"] == "refused":
            print(json.dumps(answer))
        elif answer["event"] == "cell":
            cells[answer["cell"]].predicted = answer
        elif answer["event"] == "done":
            print(f"{answer['cells']} cells in {answer['wall_s']:.1f} s")


def error(predicted: float, measured: float) -> float:
    """Return the error in percent."""
    return (predicted / measured - 1) * 100


def show(cells: list[Cell]) -> None:
    """Print one line a cell, and the errors of each study."""
    for cell in cells:
        answer, row = cell.predicted, cell.published
        if not answer:
            continue
        latency, telemetry = answer["latency_ms"], answer["telemetry"]
        text = f"{cell.label:30} {row.get('ops', 0):7} {answer['ops_per_s']:8.0f}"
        text += f" {error(answer['ops_per_s'], row['ops']):+6.1f}%" if "ops" in row else " " * 8
        for percentile in ("p50", "p95", "p99"):
            text += f" | {row.get(percentile, '-'):>5} {latency[percentile]:6.2f}"
        bound = answer["bottleneck"]
        text += f" | {bound['resource']} {bound['place']} {bound['utilisation']:.2f}"
        hits, cached = telemetry["page_cache_hit_ratio"], telemetry["host_cache_hit_ratio"]
        text += f" | pc {hits or 0:.2f} hc {cached or 0:.2f}"
        text += f" io {telemetry['read_ios_per_operation']:.2f}"
        text += f" kB {telemetry['read_bytes_per_operation'] / 1024:.0f}"
        text += f" | {answer['events'] / answer['wall_s'] / 1e6:.1f}Mev/s {answer['wall_s']:.1f}s"
        print(text)
    for study in dict.fromkeys(cell.study for cell in cells):
        for what in ("ops", "p50", "p95", "p99"):
            errors = [
                abs(error(value, cell.published[what]))
                for cell in cells
                if cell.study == study and what in cell.published and cell.predicted
                for value in [
                    cell.predicted["ops_per_s"]
                    if what == "ops"
                    else cell.predicted["latency_ms"][what]
                ]
            ]
            if errors:
                print(
                    f"{study:16} {what:4} median {statistics.median(errors):5.1f} %"
                    f"  max {max(errors):5.1f} %  n {len(errors)}"
                )


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=["threads", "readahead"], metavar="STUDY")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--ablate", action="append", default=[], metavar="MECHANISM")
    arguments = parser.parse_args()
    parameters: Json = {
        name: entry["value"]
        for name, entry in yaml.safe_load(CALIBRATION.read_text(encoding="utf-8"))[
            "parameters"
        ].items()
    }
    for change in arguments.set:
        name, value = change.split("=")
        parameters[name] = json.loads(value)
    cells = [cell for name in arguments.studies for cell in STUDIES[name](parameters)]
    simulate(cells, arguments)
    show(cells)


if __name__ == "__main__":
    main()
