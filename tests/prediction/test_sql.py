"""From trials of YugabyteDB to jobs, and what the quick simulation of them answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.databases.simulating import host_profile
from disklab.prediction.against import figures
from disklab.prediction.counted import study_of
from disklab.prediction.outcome import sql_figures

from tests.prediction.jobs import prepared, prepared_trial, refused, simulated
from tests.prediction.test_command import run

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "yugabytedb-disk-types.yaml"
READ_20, WRITE_20, READ_30, TPCC = 0, 1, 2, 4
"""Trials of the Premium SSD; the other disks follow five by five."""

SMALL = """\
title: small
cluster: {nodes: 3, vm: azure/Standard_D8s_v5, volumes: {data: {disks: azure/P15}}}
database: {engine: yugabytedb, replication_factor: 3}
workload:
  sysbench: {script: oltp_read, tables: 2, rows_per_table: 1M, threads: 24}
  stop: {duration: 60s}
"""


def job(index: int) -> Any:
    trial = spec.load(EXPERIMENT).trials("predict")[index]
    return prepared_trial(trial).job["sql"]


def test_the_study_becomes_its_cluster() -> None:
    found = job(READ_30)
    cluster, database = found["cluster"], found["database"]
    assert (cluster["nodes"], cluster["cores"]) == (3, 8)
    assert (database["replication_factor"], database["tls"]) == (3, True)
    # Block cache, page cache and everything else share the VM's 32 GiB.
    caches = database["block_cache_bytes"] + cluster["page_cache_bytes"]
    assert 24 << 30 < caches < 32 << 30
    tables = {table["name"]: table for table in found["tables"]}
    assert tables["sbtest"]["rows"] == tables["k"]["rows"] == 450_000_000
    assert tables["sbtest"]["tablets"] == 30 * 3 * 8
    load = found["workload"]
    assert (load["sessions"], load["connections"]) == (60, None)
    assert (load["warm_up_ns"], load["duration_ns"]) == (300 * 10**9, 2100 * 10**9)
    (transaction,) = load["transactions"]
    statements = [one for one in transaction["statements"] if one["accesses"]]
    assert [(one["times"], one["reported_as"]) for one in statements] == [(10, "select")]


def test_burst_credits_begin_as_the_experiment_says() -> None:
    host = job(READ_30)["cluster"]["host"]
    (disk,) = host["volumes"][0]["disks"]
    assert host["uncached"], "the VM bursts too"
    for limit in (*disk["limits"], *host["uncached"]):
        assert limit["burst"]["start"] == limit["burst"]["credits"] // 2
    text = EXPERIMENT.read_text().replace("before: {credits: 50%}", "")
    full = spec.parse(text).trials("predict")[READ_30].spec
    (disk,) = host_profile(full)["volumes"][0]["disks"]
    assert [limit["burst"]["start"] for limit in disk["limits"]] == [None, None]


def test_tpcc_has_its_terminals_mix_and_pauses() -> None:
    load = job(TPCC)["workload"]
    assert (load["sessions"], load["connections"]) == (20_000, 600)
    transactions = load["transactions"]
    assert sum(one["share_ppm"] for one in transactions) == 1_000_000
    assert [one["name"] for one in transactions if one["counted"]] == ["new order"]
    # TPC-C 4.2.2: at most 12.86 new orders a minute from a warehouse's ten terminals.
    cycle_s = sum(
        one["share_ppm"] * (one["keying_ns"] + one["think_ns"]) for one in transactions
    ) / (10**6 * 10**9)
    assert 10 * 60 / cycle_s * 0.45 == pytest.approx(12.86, rel=0.01)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("stop: {duration: 60s}", "stop: {operations: 1000}", "run for a time"),
        ("title: small", "title: s\nbefore: {page_cache: as-left}", "is independent of others"),
        (
            "sysbench: {script: oltp_read, tables: 2, rows_per_table: 1M, threads: 24}",
            "operations: {read: 100%}\n  load: {threads: 8}",
            "sends sysbench or TPC-C to YugabyteDB",
        ),
    ],
)
def test_what_is_not_modelled_is_refused_with_the_reason(old: str, new: str, reason: str) -> None:
    assert old in SMALL
    text = SMALL.replace(old, new, 1)
    if "operations: {" in new:
        text = text.replace("workload:", "dataset: {rows: 1M, row: 5 x 100B}\nworkload:", 1)
    refused(text, reason)


def test_settings_and_loads_beyond_the_calibration_are_named() -> None:
    text = SMALL.replace("threads: 24", "threads: 2000")
    text = text.replace(
        "replication_factor: 3", "replication_factor: 3, settings: {log_segment_size_mb: 1}"
    )
    warnings = " ".join(prepared(text).warnings)
    assert "2000 threads (fitted on 24 to 600)" in warnings
    assert "log_segment_size_mb" in warnings


def test_thirty_tables_need_more_than_a_p15_gives() -> None:
    trials = [READ_30, READ_30 + 5, TPCC]
    answers = {index: simulated(sql=job(index)) for index in trials}
    premium, second = answers[READ_30], answers[READ_30 + 5]
    assert premium["bottleneck"]["resource"] == "data disk IOPS"
    assert premium["ops_per_s"] < 0.6 * second["ops_per_s"]
    # Burst credits of half an hour at 3500 IOPS do not last for 35 minutes.
    assert min(one["left"] for one in premium["credits"] if "IOPS" in one["place"]) == 0
    for answer in (premium, second):
        # Little's law: sixty threads.
        assert answer["ops_per_s"] * answer["latency_ms"]["mean"] / 1000 == pytest.approx(60, 0.01)
        assert answer["per_operation"]["select"]["operations"] == pytest.approx(
            10 * answer["per_operation"]["transaction"]["operations"], rel=0.01
        )
    mix = answers[TPCC]["per_operation"]
    assert set(mix) == {"new order", "payment", "order status", "delivery", "stock level"}


def test_credits_of_tpcc_end_in_quick_runs_where_they_end_in_full_ones() -> None:
    # Full, Premium SSD: 364 new orders a second, credits gone; v2: 428, and 13.98 reads for each.
    premium, second = (simulated(sql=job(index)) for index in (TPCC, TPCC + 5))
    assert min(one["left"] for one in premium["credits"] if "disk 0 IOPS" in one["place"]) == 0
    assert premium["ops_per_s"] == pytest.approx(364, rel=0.05)
    assert "latencies are too short" in premium["error_note"]
    assert sql_figures(second, 3)["tpmC"] == pytest.approx(12.86 * 2000, rel=0.03)
    assert second["telemetry"]["read_ios_per_operation"] == pytest.approx(13.98, rel=0.05)
    assert "latencies are too short" not in second["error_note"]


@pytest.mark.parametrize(
    ("trial", "reads", "writes"), [(READ_20, 0.755, 0), (WRITE_20, 0.827, 5.40)]
)
def test_a_quick_run_has_the_ios_of_a_full_one(trial: int, reads: float, writes: float) -> None:
    # Full, Premium SSD v2, for each transaction.
    told = simulated(sql=job(trial + 5))["telemetry"]
    assert told["read_ios_per_operation"] == pytest.approx(reads, rel=0.05)
    assert told["write_ios_per_operation"] == pytest.approx(writes, rel=0.03)


def test_the_study_is_compared_in_its_own_figures() -> None:
    study = study_of(spec.load(EXPERIMENT))
    (row,) = (
        row
        for row in study.results()
        if row.factors["disk"] == "Ultra" and row.ops_per_s == 4310.24
    )
    found = figures(row)
    assert (found["CPU"], found["disk IOPS"], found["disk MB/s"]) == (0.8, 5000, 130)


def test_tpcc_at_the_ceiling_of_its_terminals_says_so(tmp_path: Path) -> None:
    """10 warehouses: 12.86 new orders a minute each, whatever the disk does."""
    file = tmp_path / "tpcc.yaml"
    file.write_text("""
title: Which disk for TPC-C?
cluster: {nodes: 1, vm: azure/Standard_E8s_v4, volumes: {data: {disks: azure/P30}}}
database: {engine: postgresql}
workload: {tpcc: {warehouses: 10, connections: 50}, stop: {duration: 300s}}
""")
    out = str(tmp_path / "runs")
    ran = run("predict", str(file), "--fidelity", "quick", "--json", "--out", out)
    result = json.loads(ran.stdout.splitlines()[0])
    assert result["ops_per_s"] == pytest.approx(12.86 * 10 / 60, rel=0.1)
    assert result["bottleneck"]["resource"] == "TPC-C's terminals"
    assert any("use more warehouses" in text for text in result["warnings"])
