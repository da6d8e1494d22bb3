"""From trials of PostgreSQL to jobs, and what the simulation of them answers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from disklab import spec
from disklab.databases.calibration import calibration_for
from disklab.databases.postgresql.simulated import entry_bytes, quantity, row_bytes
from disklab.spec.model import Dataset

from tests.prediction.jobs import job, prepared, prepared_trial, refused, simulated

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "postgresql-disk-types-quick.yaml"

SMALL = """\
title: small
cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: azure/P15}}}
database: {engine: postgresql, replication_factor: 1}
dataset: {rows: 1M, row: 10 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  load: {threads: 8}
  stop: {operations: 60000}
"""
SYSBENCH = SMALL.replace("dataset: {rows: 1M, row: 10 x 100B}\n", "").replace(
    """  operations: {read: 50%, write: 50%}
  load: {threads: 8}
  stop: {operations: 60000}
""",
    """  sysbench: {script: oltp_read_write, tables: 2, rows_per_table: 100k, threads: 16}
  stop: {duration: 40s}
""",
)


def test_memory_is_the_providers_plan() -> None:
    found = job(SMALL)
    # 16 GiB: a quarter for shared_buffers, the rest but 128 MiB for the page cache.
    assert found["database"]["shared_buffers_bytes"] == 4 << 30
    assert found["cluster"]["page_cache_bytes"] == (12 << 30) - (128 << 20)
    assert found["database"]["max_wal_bytes"] == 1 << 30


@pytest.mark.parametrize(
    ("row", "bytes_"),
    [
        # PostgreSQL 15, pageinspect's heap_page_items and bt_page_items, with 4 for the pointer.
        (Dataset(rows=1, row="10 x 100B"), 1052),
        (Dataset(rows=1, row="5 x 200B"), 1060),
        (Dataset(rows=1, row="5 x 40B"), 244),
    ],
)
def test_a_row_takes_what_postgresql_gives_it(row: Dataset, bytes_: int) -> None:
    assert row_bytes(row) == bytes_
    assert entry_bytes(8) == 20


def test_settings_are_followed_with_their_units() -> None:
    text = SMALL.replace(
        "replication_factor: 1",
        "replication_factor: 1, settings: {max_wal_size: 4GB, checkpoint_timeout: 15min, "
        "full_page_writes: off, synchronous_commit: off, shared_buffers: 1GB, work_mem: 8MB}",
    )
    settings = job(text)["database"]
    assert settings["max_wal_bytes"] == 4 << 30
    assert settings["checkpoint_timeout_ns"] == 900 * 10**9
    assert settings["shared_buffers_bytes"] == 1 << 30
    assert (settings["full_page_writes"], settings["synchronous_commit"]) == (False, False)
    assert "work_mem" in " ".join(prepared(text).warnings)
    assert quantity(16384, "8kB") == 128 << 20


def test_reads_and_writes_of_rows_are_transactions_of_one_statement() -> None:
    work = job(SMALL)["workload"]
    read, write = work["transactions"]
    assert (read["name"], write["name"]) == ("read", "write")
    assert [one["statements"][0]["commits"] for one in (read, write)] == [False, True]
    assert write["statements"][0]["accesses"][0]["kind"] == "update"
    assert work["load"] == {"closed": {"threads": 8}}


def test_a_rehearsal_has_its_own_memory_and_writes_the_same_bytes_again() -> None:
    experiment = spec.parse(SMALL + "rehearse: {scale: 1/50}\n", "x.yaml")
    (trial,) = experiment.trials("rehearse", scale=Fraction(1, 50), nodes=1)
    made = prepared_trial(trial, rehearsed=True).job["postgresql"]
    assert made["database"]["shared_buffers_bytes"] == (4 << 30) // 50 // 1024 * 1024
    # The server's least: two segments of 16 MiB are too few.
    assert made["database"]["max_wal_bytes"] == 64 << 20
    _, write = made["workload"]["transactions"]
    assert write["statements"][0]["accesses"][0]["written_bytes"] == 0
    assert made["parameters"]["client_cpu_ns"] == 0


def test_xfs_makes_writes_wait_for_reads_and_ext4_does_not() -> None:
    assert job(SMALL)["cluster"]["locks_files"] is True
    ext4 = SMALL.replace("disks: azure/P15", "disks: azure/P15, filesystem: ext4")
    assert job(ext4)["cluster"]["locks_files"] is False


def test_sysbench_commits_by_the_log_and_has_its_index() -> None:
    found = job(SYSBENCH)
    tables = {table["name"]: table for table in found["tables"]}
    assert set(tables) == {"sbtest", "k"}
    # 24 of header, two numbers, 120 and 60 characters with a byte each.
    assert (tables["sbtest"]["row_bytes"], tables["k"]["row_bytes"]) == (220, 0)
    (transaction,) = found["workload"]["transactions"]
    commits = [one["commits"] for one in transaction["statements"]]
    assert commits == [False] * (len(commits) - 1) + [True]


def test_rows_of_several_sizes_are_the_simulators_too() -> None:
    (table,) = job(SMALL.replace("10 x 100B", "1 x 60% 200B + 40% 4KiB"))["tables"]
    # The same as those of one size: a header of 24, the key, a header of four bytes, the pointer.
    sizes = [{"row_bytes": 244, "share_ppm": 600_000}, {"row_bytes": 4140, "share_ppm": 400_000}]
    assert (table["row_bytes"], table["sizes"]) == (1802, sizes)
    assert row_bytes(Dataset(rows=1, row="1 x 200B")) == 244
    assert row_bytes(Dataset(rows=1, row="1 x 4KiB")) == 4140


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("10 x 100B", "1 x 20KiB", "TOAST"),
        ("10 x 100B", "1 x 99% 1KiB + 1% 8KiB", "TOAST"),
        ("10 x 100B", "1 x lognormal median 1KiB p95 8KiB", "TOAST"),
        ("nodes: 1", "nodes: 3", "holds all rows"),
        ("title: small", "title: s\nbefore: {page_cache: as-left}", "is independent of others"),
    ],
)
def test_what_is_not_modelled_is_refused_with_the_reason(old: str, new: str, reason: str) -> None:
    refused(SMALL.replace(old, new, 1), reason)


def test_the_quick_experiment_is_answered_and_bound_by_its_disks() -> None:
    trials = spec.load(EXPERIMENT).trials("predict")
    read, write = (simulated(**prepared_trial(trial).needed()) for trial in trials[:2])
    for answer in (read, write):
        assert answer["event"] == "cell"
        assert answer["bottleneck"]["resource"] == "data disk IOPS"
        # Little's law: 64 threads.
        assert answer["ops_per_s"] * answer["latency_ms"]["mean"] / 1000 == pytest.approx(64, 0.02)
        for name in ("p50", "p95", "p99"):
            total = sum(answer["tail"][name].values())
            assert total == pytest.approx(answer["latency_ms"][name], rel=0.01)
    # A write reads its page, writes it back, and its log: fewer than half as many.
    assert write["ops_per_s"] < 0.5 * read["ops_per_s"]
    assert write["telemetry"]["write_ios_per_operation"] > 1


def test_a_client_on_the_server_takes_its_cpu_from_the_servers_cores() -> None:
    warm = SMALL.replace("1M", "100k").replace("write: 50%", "scan: 0%").replace("50%", "100%")
    warm = warm.replace("threads: 8", "threads: 64") + "before: {page_cache: warm}\n"
    rates = []
    for on_server in ("false", "true"):
        made = job(warm.replace("database:", f"client: {{on_server: {on_server}}}\ndatabase:"))
        answer = simulated(postgresql=made)
        assert answer["bottleneck"]["resource"] == "node CPU"
        rates.append(answer["ops_per_s"])
    apart, shared = rates
    cores, client_ns = made["cluster"]["cores"], made["parameters"]["client_cpu_ns"]
    assert cores / shared - cores / apart == pytest.approx(client_ns / 1e9, rel=0.05)


def test_sysbench_in_memory_is_held_by_cpu_or_commits() -> None:
    answer = simulated(postgresql=job(SYSBENCH))
    assert answer["event"] == "cell"
    told = answer["per_operation"]
    assert told["select"]["operations"] == pytest.approx(
        10 * told["transaction"]["operations"], rel=0.02
    )


def test_further_rows_of_sysbench_s_ranges_cost_less_than_found_ones() -> None:
    costs = job(SYSBENCH)["parameters"]
    # 270 ns a row, 0.59 ns each of 120 bytes, beside 12 us for a row that is found.
    assert costs["scan_row_cpu_ns"] == pytest.approx(costs["row_read_cpu_ns"] * 340 / 12_000, abs=1)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("E", {"scan", "insert"}), ("F", {"read", "read_modify_write"})],
)
def test_scans_and_reads_before_writes_are_simulated_by_name(name: str, kinds: set[str]) -> None:
    text = SMALL.replace("operations: {read: 50%, write: 50%}", f"ycsb: {name}")
    asked = job(text)
    further = asked["parameters"].get("scan_row_cpu_ns")
    calibration = calibration_for("postgresql")
    slower = asked["parameters"]["row_read_cpu_ns"] / calibration.values()["row_read_cpu_ns"]
    if "scan" in kinds:
        # 270 ns a row, 0.59 ns each of 1,000 bytes.
        assert further == pytest.approx(860 * slower, abs=1)
    else:
        assert further is None
    answer = simulated(postgresql=asked)
    assert set(answer["per_operation"]) == kinds
    if "scan" in kinds:
        counts = {kind: one["operations"] for kind, one in answer["per_operation"].items()}
        assert counts["scan"] == pytest.approx(19 * counts["insert"], rel=0.1)


def test_sysbench_s_statements_are_as_many_as_the_file_says() -> None:
    counts = "statements: {point_selects: 3, sum_ranges: 0, index_updates: 5, delete_inserts: 0}"
    (usual,), (counted,) = (
        job(text)["workload"]["transactions"]
        for text in (SYSBENCH, SYSBENCH.replace("threads: 16", f"threads: 16, {counts}"))
    )
    kinds = [
        [(one["reported_as"], one["times"]) for one in each["statements"] if one["reported_as"]]
        for each in (usual, counted)
    ]
    changes = [("update", 1), ("update", 1), ("delete", 1), ("insert", 1)]
    assert kinds[0] == [("select", 10), ("range", 4), *changes]
    assert kinds[1] == [("select", 3), ("range", 3), ("update", 5), ("update", 1)]


def test_rows_that_sysbench_prefers_are_in_memory() -> None:
    """Three of four draws go to a hundredth of the rows: a pool that holds a seventh has these."""
    reads = SYSBENCH.replace("oltp_read_write", "oltp_point_select").replace("100k", "4M")
    reads = reads.replace("factor: 1}", "factor: 1, settings: {shared_buffers: 256MB}}")
    rates = {}
    for kind in ("uniform", "special", "gaussian", "pareto", "zipfian"):
        drawn = job(reads.replace("threads: 16", f"threads: 16, rand_type: {kind}"))
        rates[kind] = simulated(postgresql=drawn)["ops_per_s"]
    assert rates["special"] > 2 * rates["uniform"]
    assert rates["pareto"] > 1.5 * rates["uniform"]
    assert min(rates, key=rates.__getitem__) == "uniform"


def test_yugabytedb_draws_all_rows_alike() -> None:
    text = SYSBENCH.replace("engine: postgresql", "engine: yugabytedb")
    refused(text.replace("threads: 16", "threads: 16, rand_type: special"), "draws all alike")
