"""What others published, as runs of mode `published`: factors as in our experiment files.

A published run is read like any other. It has single figures: no repeats, no course, no telemetry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import polars as pl
import yaml

from disklab.results.figures import Level
from disklab.results.histogram import Histogram
from disklab.results.records import (
    Citation,
    ExperimentNote,
    Figure,
    Operation,
    PlannedTrial,
    Price,
    Reason,
    RunInfo,
    Share,
    Telemetry,
    TrialResult,
)
from disklab.results.seconds import Course, Second
from disklab.results.telemetry import SCHEMA, results_frame

FILE = "reference/published.yaml"
# What the published charts and tables call it -> its name in a result.
LATENCIES = {"mean": "mean", "median": "p50", "p50": "p50", "p95": "p95", "p99": "p99"}
MIB_IN_MB = 1.048576
SECONDS_IN_MINUTE = 60

Section = Mapping[str, Any]
Factors = dict[str, Level]


@dataclass(frozen=True)
class ReferenceRun:
    """A published study; what a stored run offers to readers, it offers too."""

    info: RunInfo
    _results: tuple[TrialResult, ...]
    torn: tuple[str, ...] = ()

    def results(self) -> list[TrialResult]:
        """Return the published cells."""
        return list(self._results)

    def planned(self) -> list[PlannedTrial]:
        """Return nothing: there is no specification behind published figures."""
        return []

    def frame(self) -> pl.DataFrame:
        """Return one row for each published cell."""
        return results_frame(self.info, self._results)

    def course(self, trial: int, repeat: int) -> Course:  # noqa: ARG002
        """Return nothing: nobody publishes seconds."""
        return Course()

    def seconds(self, trial: int, repeat: int) -> Iterator[Second]:  # noqa: ARG002
        """Yield nothing."""
        return iter(())

    def response(self, trial: int, repeat: int) -> Histogram | None:  # noqa: ARG002
        """Return nothing."""
        return None

    def telemetry(self, trial: int, repeat: int) -> pl.LazyFrame:  # noqa: ARG002
        """Return nothing."""
        return pl.LazyFrame(schema=SCHEMA)


@dataclass(frozen=True)
class Published:
    """One published cell before it has a number."""

    factors: Factors
    row: Mapping[str, Any]
    """Keys of a result."""
    chart: Sequence[str] = ()
    """Keys that were read off a chart."""


@cache
def published() -> Section:
    """Return the publishers' figures as they are in the data file."""
    text = resources.files("disklab").joinpath(FILE).read_text("utf-8")
    content: Section = yaml.safe_load(text)
    return content


def reference_runs() -> list[ReferenceRun]:
    """Return every published study, one run for each of our experiment files."""
    known = published()
    caching = "Azure-Samples 2019: Comparing Azure VM data disk caching configurations"
    return [
        _run(
            "cassandra-local-or-attached",
            "Local or attached data disks for Cassandra?",
            "Azure-Samples 2019: Comparing performance of Azure local/ephemeral vs "
            "attached/persistent disks",
            known["cassandra_local_vs_attached"],
            _local_or_attached(known["cassandra_local_vs_attached"]),
        ),
        _run(
            "cassandra-disk-caching-threads",
            "Does host caching help, and up to how many client threads?",
            caching,
            known["cassandra_disk_caching"],
            _threads(known["cassandra_disk_caching"]),
        ),
        _run(
            "cassandra-disk-caching-read-ahead",
            "How much read-ahead does a Cassandra data disk want?",
            caching,
            known["cassandra_disk_caching"],
            _read_ahead(known["cassandra_disk_caching"]),
        ),
        _run(
            "azure-local-disks",
            "How fast are Azure's local disks, and what does a cache change?",
            "tomaskubica.cz 2020-09: Azure VM and fast local disks",
            known["azure_local_disks_fio"],
            _local_disks(known["azure_local_disks_fio"]),
        ),
        _run(
            "yugabytedb-disk-types",
            "Premium SSD, Premium SSD v2 or Ultra for YugabyteDB?",
            "Azure storage for distributed databases, YugabyteDB as test subject",
            known["yugabytedb_azure_disks"],
            _yugabytedb(known["yugabytedb_azure_disks"]),
        ),
        _run(
            "cassandra-vm-types",
            "Which VM type for Cassandra, local or remote storage?",
            "Instaclustr: Benchmarking Cassandra with Local Storage on Azure",
            known["cassandra_vm_types"],
            _vm_types(known["cassandra_vm_types"]),
        ),
    ]


def _run(
    stem: str, title: str, source: str, section: Section, cells: Iterator[Published]
) -> ReferenceRun:
    setup = section.get("setup", {})
    info = RunInfo(
        id=f"{stem}-published",
        mode="published",
        experiment=ExperimentNote(title=title, source=source),
        environment={"setup": setup} if setup else {},
        prices=_prices(section, source),
        notes=[
            *section.get("text_claims", []),
            "published figures are single ones: without repeats there is no interval",
        ],
    )
    results = [
        TrialResult(
            run=info.id,
            experiment=title,
            mode="published",
            trial=number,
            factors=cell.factors,
            citation=Citation(
                source=source,
                read="chart" if cell.chart else "table",
                chart_keys=list(cell.chart),
            ),
            share=_whole_cluster(cell.row.get("nodes")),
            **cell.row,
        )
        for number, cell in enumerate(cells)
    ]
    return ReferenceRun(info, tuple(results))


def _whole_cluster(nodes: int | None) -> Share | None:
    return Share(nodes=Figure(full=nodes, here=nodes)) if nodes else None


def _columns(lines: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the figures of one column of a published table."""
    latency = {
        LATENCIES[name]: float(values[index])
        for name, values in lines.items()
        if name in LATENCIES and values[index] is not None
    }
    return {"ops_per_s": float(lines["ops"][index]), "latency_ms": latency}


def _local_or_attached(section: Section) -> Iterator[Published]:
    tables = {
        "write": ("write_10M_rows_256_threads", 256),
        "read": ("read_3M_of_10M_rows_128_threads", 128),
        "mixed": ("mixed_50_50_3M_of_10M_rows_128_threads", 128),
    }
    nodes = section["setup"]["nodes"]
    for disks in ("attached", "local"):
        for index, factor in enumerate(section[tables["write"][0]]["rf"]):
            for workload, (name, threads) in tables.items():
                lines = section[name][disks]
                factors: Factors = {
                    "data disks": disks,
                    "database.replication_factor": factor,
                    "workload": workload,
                }
                loop = {"kind": "closed", "threads": threads}
                row = {"nodes": nodes, "loop": loop, **_columns(lines, index)}
                yield Published(factors, row, lines.get("chart", ()))


CACHING = {"None": "caching_none", "ReadOnly": "caching_readonly"}


def _threads(section: Section) -> Iterator[Published]:
    sweep = section["threads_sweep"]
    for caching, name in CACHING.items():
        for index, threads in enumerate(sweep["threads"]):
            factors: Factors = {
                "cluster.volumes.data.caching": caching,
                "workload.load.threads": threads,
            }
            yield Published(
                factors,
                {
                    "nodes": section["setup"]["nodes"],
                    "loop": {"kind": "closed", "threads": threads},
                    **_columns(sweep[name], index),
                },
                sweep[name].get("chart", ()),
            )


def _read_ahead(section: Section) -> Iterator[Published]:
    """Yield the sweep at 128 threads, which has latencies, and that at 256, which has rates."""
    sweep, both = section["read_ahead_sweep_128_threads"], section["read_ahead_and_threads"]
    for caching, name in CACHING.items():
        for threads, table, lines in (
            (128, sweep, sweep[name]),
            (256, both, both[f"{name}_256_threads"]),
        ):
            for index, kib in enumerate(table["read_ahead_kib"]):
                factors: Factors = {
                    "cluster.volumes.data.caching": caching,
                    "cluster.volumes.data.read_ahead": f"{kib}KiB" if kib else 0,
                    "workload.load.threads": threads,
                }
                yield Published(
                    factors,
                    {
                        "nodes": section["setup"]["nodes"],
                        "loop": {"kind": "closed", "threads": threads},
                        **_columns(lines, index),
                    },
                )


def _local_disks(section: Section) -> Iterator[Published]:
    """Yield each device twice: its latencies at depth 1, and its rates under the deep queue."""
    for name, device in section.items():
        if not isinstance(device, Mapping) or "async_iops" not in device:
            continue
        place = {
            "published_name": name,
            "device": {key: device[key] for key in ("vm", "disks", "caching")},
            "note": device.get("note", ""),
        }
        clat = device["clat_us"]
        if not isinstance(clat, Mapping):
            clat = {
                f"p{percentile:g}": us
                for percentile, us in zip(section["percentiles"], clat, strict=True)
            }
        latency = {key: us / 1000 for key, us in clat.items()}
        for profile in ("sync", "async"):
            factors: Factors = {"device": device["level"], "workload.fio.profile": profile}
            if profile == "sync":
                loop: dict[str, Any] = {"kind": "closed", "jobs": 1, "depth": 1}
                row: dict[str, Any] = {"latency_ms": latency}
            else:
                loop = {"kind": "closed", "jobs": 4, "depth": 256}
                row = {"ops_per_s": float(device["async_iops"])}
                if "async_mib_s" in device:
                    row["mb_per_s"] = round(device["async_mib_s"] * MIB_IN_MB, 3)
            yield Published(factors, {"loop": loop, "nodes": 1, **place, **row})


def _yugabytedb(section: Section) -> Iterator[Published]:
    tables = {
        "sysbench read, 20 tables": ("sysbench_read_20_tables", "select"),
        "sysbench write, 20 tables": ("sysbench_write_20_tables", "insert"),
        "sysbench read, 30 tables": ("sysbench_read_30_tables", "select"),
        "sysbench write, 30 tables": ("sysbench_write_30_tables", "insert"),
        "TPC-C": ("tpcc_2000_warehouses", "new order"),
    }
    disks = ("Premium SSD", "Premium SSD v2", "Ultra")
    for index, disk in enumerate(disks):
        for workload, (name, operation) in tables.items():
            lines = section[name]
            factors: Factors = {"disk": disk, "workload": workload}
            yield Published(factors, _sql_row(lines, index, operation))


def _sql_row(lines: Mapping[str, Any], index: int, operation: str) -> dict[str, Any]:
    """Return one column of a YugabyteDB table; TPC-C's rate is new orders a second."""
    if lines["cpu_pct"][index] is None:
        reason = Reason(rule="published without a figure", way_out="nothing: it was not measured")
        return {"status": "failed", "reason": reason, "nodes": 3}
    if "tpmc" in lines:
        rate = lines["tpmc"][index] / SECONDS_IN_MINUTE
        mean = each = lines["new_order_ms"][index]
        more = {"tpmc": lines["tpmc"][index]}
        threads = lines["connections"]
    else:
        rate, mean = lines["ops"][index], lines["avg_ms"][index]
        each = lines[f"{operation}_ms"][index]
        more = {}
        threads = round(rate * mean / 1000)  # Little's law on the published row
    return {
        "nodes": 3,
        "loop": {"kind": "closed", "threads": threads},
        "ops_per_s": float(rate),
        "latency_ms": {"mean": float(mean)},
        "per_operation": {operation: Operation(latency_ms={"mean": float(each)})},
        "telemetry": Telemetry(cpu_ratio={"server": lines["cpu_pct"][index] / 100}),
        "disk_iops": lines["disk_iops"][index],
        "disk_mb_per_s": lines["disk_mb_s"][index],
        **more,
    }


def _vm_types(section: Section) -> Iterator[Published]:
    levels = {"L8s_local": "L8s local", "L8s_remote": "L8s remote"}
    for index, column in enumerate(section["columns"]):
        for payload in section["payloads"]:
            lines = section[f"variable_read_{payload}"]
            factors: Factors = {
                "vm": levels.get(column, column),
                "procedure": "variable",
                "dataset.row": payload,
                "workload": "read",
            }
            row = {"nodes": section["nodes"], "loop": {"kind": "closed"}, **_columns(lines, index)}
            yield Published(factors, row)


def _prices(section: Section, source: str) -> list[Price]:
    """Return the prices that a publisher printed: euros a month, pay as you go."""
    return [
        Price(item=vm, amount=amount, currency="EUR", per="month", date="2020-09", source=source)
        for vm, amount in section.get("price_eur_month_payg", {}).items()
    ]
