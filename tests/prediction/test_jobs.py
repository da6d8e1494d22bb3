"""From trials to jobs of the simulator: what each figure becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.databases.calibration import (
    calibration_for,
    page_cache_bytes,
    read_calibration,
)
from disklab.databases.cassandra import simulated_settings
from disklab.errors import UserError
from disklab.prediction import Options, predict
from disklab.prediction.cells import prepare
from disklab.prediction.run import requests_of

from tests.prediction.jobs import CATALOG, job, prepared, refused

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

SMALL = """\
title: small
cluster: {nodes: 3, vm: azure/Standard_DS14_v2, volumes: {data: {disks: 4 x azure/P30}}}
database: {engine: cassandra}
dataset: {rows: 10M, row: 5 x 818B}
workload: {operations: {read: 70%, write: 30%}, load: {threads: 128}, stop: {duration: 60s}}
"""


def reference_job(name: str, index: int) -> Any:
    trial = spec.load(EXPERIMENTS / f"{name}.yaml").trials("predict")[index]
    return prepare(trial, CATALOG, calibration_for("cassandra"), name).job


def test_the_study_of_disk_caching_becomes_its_cluster() -> None:
    found = reference_job("cassandra-disk-caching-threads", 5)["database"]
    cluster = found["cluster"]
    assert (cluster["nodes"], cluster["cores"], cluster["read_ahead_bytes"]) == (6, 16, 65536)
    assert cluster["network_bytes_per_s"] == 1_500_000_000
    assert sum(cluster["ownership_ppm"]) == pytest.approx(1_000_000, abs=2_000)
    volumes = {volume["name"]: volume for volume in cluster["host"]["volumes"]}
    assert volumes["data"]["caching"] == "ReadOnly"
    assert (len(volumes["data"]["disks"]), volumes["data"]["chunk_bytes"]) == (4, 65536)
    assert cluster["host"]["cache"]["capacity_bytes"] == 576 << 30
    assert (cluster["data_volume"], cluster["commitlog_volume"]) == ("data", "commitlog")
    assert found["database"]["concurrent_reads"] == 64
    assert found["dataset"] == {"rows": 150_000_000, "columns": 5, "column_bytes": 818}
    assert found["workload"]["load"] == {"closed": {"threads": 128}}
    assert found["workload"]["stop"] == {"operations": 3_000_000, "duration_ns": None}
    assert found["before"] == {"page_cache": "cold", "host_cache": "written", "empty": False}


def test_rows_of_several_sizes_are_the_simulators_too() -> None:
    assert job(SMALL.replace("5 x 818B", "5 x 75% 200B + 25% 4KiB"))["dataset"] == {
        "rows": 10_000_000,
        "columns": 5,
        "column_bytes": 1174,
        "sizes": [
            {"column_bytes": 200, "share_ppm": 750_000},
            {"column_bytes": 4096, "share_ppm": 250_000},
        ],
    }


def test_data_and_commit_log_on_the_temp_disk_are_one_volume() -> None:
    found = reference_job("cassandra-local-or-attached", 9)["database"]
    assert [volume["name"] for volume in found["cluster"]["host"]["volumes"]] == ["data"]
    assert found["cluster"]["commitlog_volume"] is None
    assert found["workload"]["read_ppm"] == 0
    assert found["before"]["empty"] is True


def test_a_device_is_written_as_fio_writes_it() -> None:
    sync = reference_job("azure-local-disks", 0)["device"]
    deep = reference_job("azure-local-disks", 1)["device"]
    assert (sync["fio"]["jobs"], sync["fio"]["depth"]) == (1, 1)
    assert (deep["fio"]["jobs"], deep["fio"]["depth"]) == (4, 256)
    assert sync["fio"]["block_bytes"] == 8192
    assert sync["fio"]["runtime_ns"] == 60_000_000_000
    for index in range(12):
        fio = reference_job("azure-local-disks", index)["device"]
        volume = fio["host"]["volumes"][0]["size_bytes"]
        assert fio["fio"]["size_bytes"] * fio["fio"]["jobs"] <= volume


def test_a_device_takes_any_jobs_and_depth() -> None:
    found = [reference_job("azure-queue-depths", index)["device"]["fio"] for index in range(7)]
    assert [(fio["jobs"], fio["depth"]) for fio in found] == [(1, 2**n) for n in range(7)]


def test_threads_with_a_ceiling_are_as_many_and_paced() -> None:
    found = job(SMALL.replace("threads: 128", "threads: 128, at_most: 5000/s"))
    assert found["workload"]["load"] == {
        "open": {"rate_per_ks": 5_000_000, "arrivals": "paced", "max_in_flight": 128}
    }


@pytest.mark.parametrize(("ceiling", "bound_by"), [(2_000, "load ceiling"), (900_000, None)])
def test_a_ceiling_is_the_limit_of_threads_that_reach_it(
    tmp_path: Path, ceiling: int, bound_by: str | None
) -> None:
    # Warm: a slower load takes longer until what it reads lies in memory.
    whole = f"{SMALL}before: {{page_cache: warm}}\n"
    text = whole.replace("threads: 128", f"threads: 128, at_most: {ceiling}/s")
    options = Options(fidelity="quick", out=tmp_path)
    (paced,) = predict(spec.parse(text, "x.yaml"), options, lambda _: None).results()
    (free,) = predict(spec.parse(whole, "x.yaml"), options, lambda _: None).results()
    assert paced.loop == {"kind": "closed", "threads": 128, "at_most_per_s": ceiling}
    assert paced.bottleneck is not None
    assert free.ops_per_s is not None
    below = [note for note in paced.warnings if "that the load's ceiling allows" in note]
    if bound_by:
        assert paced.bottleneck.resource == bound_by
        assert paced.ops_per_s == pytest.approx(ceiling, rel=0.01)
        assert paced.latency_ms["p50"] < free.latency_ms["p50"]
        assert not below
    else:
        assert paced.bottleneck.resource == free.bottleneck.resource
        assert paced.ops_per_s == pytest.approx(free.ops_per_s, rel=0.03)
        assert paced.latency_ms["p50"] == pytest.approx(free.latency_ms["p50"], rel=0.05)
        assert below


def test_open_loop_settings_and_defaults() -> None:
    text = SMALL.replace("threads: 128", "rate: 20000/s, arrivals: even").replace(
        "engine: cassandra",
        "engine: cassandra, settings: {concurrent_reads: 96, disk_access_mode: mmap_index_only}, "
        "table: {compression: lz4}",
    )
    found = job(text.replace("stop:", "warm_up: 10s, stop:"))
    assert found["workload"]["load"] == {
        "open": {"rate_per_ks": 20_000_000, "arrivals": "even", "max_in_flight": 4096}
    }
    assert found["workload"]["read_ppm"] == 700_000
    # 60 s are measured after 10 s of warm-up.
    assert found["workload"]["stop"]["duration_ns"] == 70_000_000_000
    assert found["workload"]["warm_up_ns"] == 10_000_000_000
    database = found["database"]
    assert (database["concurrent_reads"], database["concurrent_writes"]) == (96, 32)
    assert (database["access"], database["chunk_bytes"]) == ("mmap_index_only", 16 << 10)
    # Nobody set a read-ahead: the kernel's own. Three nodes draw their shares of the ring.
    assert found["cluster"]["read_ahead_bytes"] == 128 << 10
    assert "ownership_ppm" not in found["cluster"]
    assert found["cluster"]["commitlog_volume"] is None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (
            "settings: {trickle_fsync: true, trickle_fsync_interval_in_kb: 4096}",
            {"trickle_fsync_bytes": 4 << 20},
        ),
        (
            "settings: {trickle_fsync: true, trickle_fsync_interval: 4096KiB}",
            {"trickle_fsync_bytes": 4 << 20},
        ),
        ("settings: {trickle_fsync: true}", {"trickle_fsync_bytes": 10 << 20}),
        ("settings: {trickle_fsync_interval_in_kb: 4096}", {"trickle_fsync_bytes": None}),
        ("settings: {concurrent_reads: 64}", {"trickle_fsync_bytes": None}),
        (
            "settings: {compaction_throughput_mb_per_sec: 128}",
            {"compaction_bytes_per_s": 128 << 20},
        ),
        ("settings: {compaction_throughput: 128MiB/s}", {"compaction_bytes_per_s": 128 << 20}),
        ("settings: {compaction_throughput: 0MiB/s}", {"compaction_bytes_per_s": 0}),
        ("version: 3.11", {"compaction_bytes_per_s": 16 << 20}),
        ('version: "4.0"', {"compaction_bytes_per_s": 64 << 20}),
        ("settings: {}", {"compaction_bytes_per_s": 64 << 20, "access": "mmap"}),
        ("table: {compression: lz4}", {"chunk_bytes": 16 << 10, "decompress_byte_ps": ...}),
        (
            "table: {compression: lz4}, version: 3.11",
            {"chunk_bytes": 64 << 10, "decompress_byte_ps": ...},
        ),
        (
            "table: {compression: zstd, chunk_length: 4KiB}, version: 3.11",
            {"chunk_bytes": 4 << 10, "decompress_byte_ps": ...},
        ),
        ("table: {compression: none}", {"chunk_bytes": None, "decompress_byte_ps": None}),
        ("table: {compaction: size-tiered}", {"compaction": "size-tiered"}),
        ("table: {compaction: leveled}", {"compaction": "leveled"}),
        ("table: {compaction: unified}", {"compaction": "size-tiered"}),
        ('version: "4.1"', {"access": "mmap", "chunk_bytes": None}),
        # Tables that are not mapped are read by buffers.
        (
            'version: "5.0"',
            {
                "access": "mmap_index_only",
                "chunk_bytes": 8192,
                "compressed_permille": 1000,
                "decompress_byte_ps": None,
            },
        ),
        ('version: "5.0", settings: {disk_access_mode: mmap}', {"access": "mmap"}),
        (
            "settings: {commitlog_sync_period_in_ms: 5000, commitlog_segment_size_in_mb: 8}",
            {"commitlog_sync_period_ns": 5 * 10**9, "commitlog_segment_bytes": 8 << 20},
        ),
        (
            "settings: {commitlog_sync_period: 5s, commitlog_segment_size: 8MiB}",
            {"commitlog_sync_period_ns": 5 * 10**9, "commitlog_segment_bytes": 8 << 20},
        ),
        (
            "settings: {}",
            {"read_repair_ppm": 100_000, "near_first": True, "snitch_badness_permille": 100},
        ),
        (
            'version: "5.0"',
            {"read_repair_ppm": 0, "near_first": True, "snitch_badness_permille": 1000},
        ),
        ("settings: {endpoint_snitch: SimpleSnitch}", {"near_first": False}),
        (
            "settings: {dynamic_snitch_badness_threshold: 0.5}",
            {"near_first": True, "snitch_badness_permille": 500},
        ),
    ],
)
def test_a_server_is_as_settings_table_or_version_say(asked: str, found: dict[str, Any]) -> None:
    """`...`: of any value."""
    database = job(SMALL.replace("engine: cassandra", f"engine: cassandra, {asked}"))["database"]
    made = {name: database.get(name) for name in found}
    some = {name for name, value in found.items() if value is ...}
    assert {**made, **dict.fromkeys(some, ...)} == found
    assert None not in {made[name] for name in some}


def test_cpu_times_come_with_the_row_they_hold_for() -> None:
    parameters = job(SMALL)["parameters"]
    # The row of the study that they were fitted on: five columns of 818 bytes.
    assert parameters["at_row_bytes"] == 5 * 818
    assert parameters["client_byte_ps"] > 0


def test_the_study_of_local_disks_has_its_own_settings() -> None:
    found = reference_job("cassandra-local-or-attached", 9)["database"]["database"]
    assert found["trickle_fsync_bytes"] == 10 << 20
    assert found["compaction_bytes_per_s"] == 128 << 20


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "engine: cassandra",
            "engine: redis",
            "the simulator models Cassandra, etcd, MariaDB, MySQL, PostgreSQL and",
        ),
        ("engine: cassandra", "engine: cassandra, tls: true", "what TLS costs Cassandra is not"),
        (
            "engine: cassandra",
            "engine: cassandra, settings: {commitlog_sync: batch}",
            "the simulator knows periodic",
        ),
    ],
)
def test_what_is_not_modelled_is_refused_with_the_reason(old: str, new: str, reason: str) -> None:
    assert old in SMALL
    refused(SMALL.replace(old, new, 1), reason)


def test_writes_at_any_are_refused_for_want_of_hints() -> None:
    text = SMALL.replace("engine: cassandra", "engine: cassandra, consistency: ANY", 1)
    (problem,) = prepared(text.replace("read: 70%, write: 30%", "write: 100%")).reasons
    assert "hints" in problem.rule


def test_a_database_without_a_model_is_refused_once_a_trial() -> None:
    experiment = spec.load(EXPERIMENTS / "redis-fsync.yaml")
    for trial in experiment.trials("predict"):
        found = prepare(trial, CATALOG, None, "x.yaml")
        assert [problem.value for problem in found.reasons] == ["redis"]


def test_outside_the_calibrated_range_a_prediction_says_so() -> None:
    (warning,) = prepared(SMALL).warnings
    assert warning == "outside the calibrated range: 3 nodes (fitted on 6)"
    other = SMALL.replace("azure/Standard_DS14_v2", "azure/Standard_L8s").replace(
        "5 x 818B", "small"
    )
    (warning,) = prepared(other.replace("threads: 128", "threads: 600")).warnings
    for part in ("rows of 170 bytes (fitted on 4090)", "600 threads (fitted on 64 to 512)"):
        assert part in warning
    assert "VMs of azure/Ls (fitted on azure/DSv2)" in warning


@pytest.mark.parametrize("keys", ["uniform", "sequential", "zipfian", "latest"])
def test_every_order_of_keys_is_simulated(keys: str) -> None:
    assert job(SMALL.replace(" load: {", f" keys: {keys}, load: {{", 1))["workload"]["keys"] == keys


def test_keys_in_order_are_read_from_the_tables_that_a_fill_leaves() -> None:
    def tables(text: str) -> Any:
        return job(text)["dataset"].get("tables_ppm")

    order = SMALL.replace(" load: {", " keys: sequential, load: {", 1)
    found = tables(order)
    assert sum(found) == 1_000_000
    # 3.3 M rows of 4,255 B: 23 memtables of a third of 2 GiB, of which the first 16 are one table.
    assert found[0] > 600_000
    assert found == sorted(found, reverse=True)
    # The rows of other keys lie in all tables alike, and an empty table has none yet.
    assert tables(SMALL) is None
    assert tables(order + "before: {dataset: empty}\n") is None
    leveled = order.replace("engine: cassandra", "engine: cassandra, table: {compaction: leveled}")
    assert tables(leveled) is None


def test_settings_without_effect_are_named() -> None:
    text = SMALL.replace(
        "engine: cassandra", "engine: cassandra, settings: {max_hints_delivery_threads: 1}"
    )
    unread = "without effect on the prediction: max_hints_delivery_threads"
    assert any(unread in w for w in prepared(text).warnings)


def test_memory_of_other_vms_leaves_a_page_cache() -> None:
    beside = calibration_for("cassandra").fact("memory_beside_page_cache_bytes")
    assert page_cache_bytes(112, calibration_for("cassandra")) == (112 << 30) - beside
    # A small VM has a small heap: some page cache is always left.
    assert page_cache_bytes(8, calibration_for("cassandra")) == 1 << 30


def test_a_broken_calibration_file_is_told_in_full(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nparameters: {overhead_ns: {value: slow}}\n")
    with pytest.raises(UserError) as caught:
        read_calibration(file)
    message = str(caught.value)
    assert f"{file}: parameters.overhead_ns.value: 'slow'" in message
    assert "disklab calibrate" in message
    assert f"{file}: range" in message
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_calibration(tmp_path / "no.yaml")


def test_the_longest_cell_of_a_study_is_simulated_first() -> None:
    experiment = spec.load(EXPERIMENTS / "cassandra-local-or-attached.yaml")
    names, jobs = [], []
    for trial in experiment.trials("predict"):
        jobs.append(prepare(trial, CATALOG, calibration_for("cassandra"), "x.yaml").job)
        names.append((trial.factors["workload"], trial.factors["database.replication_factor"]))
    by_work = sorted(zip(map(requests_of, jobs), names, strict=True), reverse=True)
    # Ten million writes to five nodes each; three million reads of one.
    assert by_work[0] == (50e6, ("write", 5))
    assert by_work[-1] == (3e6, ("mixed", 1))
    assert (9e6, ("read", 5)) in by_work
    # A device has no operations to count.
    assert requests_of(reference_job("azure-local-disks", 0)) == 0.0


def test_messages_draw_their_way_around_the_published_mean() -> None:
    way = job(SMALL)["network"]
    within, between = way["within_zone"], way["between_zones"]
    assert within["fixed_ns"] + within["spread_ns"] == way["one_way_ns"] == 50_000
    assert between["fixed_ns"] > within["fixed_ns"]


def test_the_network_that_an_experiment_names_is_the_jobs() -> None:
    own = job(SMALL)
    placed = SMALL.replace("nodes: 3,", "nodes: 3, zones: 3, network: azure/standard,")
    named = job(placed)
    assert "zones" not in own["cluster"]
    assert named["cluster"]["zones"] == 3
    assert named["network"] != own["network"]
    trip = CATALOG.networks["azure/standard"]
    for facts, way in ((trip.within_zone, "within_zone"), (trip.between_zones, "between_zones")):
        delay = named["network"][way]
        # There and back: the sum of two exponential times has its median at 1.678 means.
        median_us = (2 * delay["fixed_ns"] + 1.678 * delay["spread_ns"]) / 1000
        p99_us = (2 * delay["fixed_ns"] + 6.638 * delay["spread_ns"]) / 1000
        assert median_us == pytest.approx(facts.at_us(50), rel=0.001)
        assert p99_us == pytest.approx(facts.at_us(99), rel=0.001)
    assert trip.within_zone.at_us(0) == 650
    assert trip.within_zone.at_us(95) == pytest.approx((1080 * 4 + 1500 * 5) / 9)


def test_a_timetable_is_part_of_the_job_and_absent_without_one() -> None:
    found = job(SMALL + "events: [{at: 40s, start: n2}, {at: 20s, kill: n2}]\n")["faults"]
    assert [(one["at_ns"] // 10**9, one["node"], one["what"]) for one in found["events"]] == [
        (20, 1, "kill"),
        (40, 1, "start"),
    ]
    # Phi of 8 is 18.4 s of one round of gossip a second.
    assert found["detect_ns"] == pytest.approx(18.4e9, rel=0.01)
    assert found["stream_bytes_per_s"] == 24 << 20
    assert "faults" not in job(SMALL)


@pytest.mark.parametrize(
    ("database", "bytes_per_s"),
    [
        ('version: "3.11.4"', 25 << 20),
        ("settings: {stream_throughput_outbound_megabits_per_sec: 800}", 100 << 20),
        ("settings: {stream_throughput_outbound: 64MiB/s}", 64 << 20),
        ("settings: {stream_throughput_outbound: 400Mbps}", 50_000_000),
    ],
)
def test_the_throttle_of_streams_is_read_in_every_version(database: str, bytes_per_s: int) -> None:
    text = SMALL.replace("{engine: cassandra}", f"{{engine: cassandra, {database}}}")
    found = job(text + "events: [{at: 20s, kill: n2}]\n")["faults"]
    assert found["stream_bytes_per_s"] == bytes_per_s


@pytest.mark.parametrize(
    ("row", "buffer"), [(246, 4096), (1071, 8192), (4135, 8192), (16431, 16384), (10**6, 65536)]
)
def test_a_table_that_is_not_mapped_is_read_by_buffers(row: int, buffer: int) -> None:
    assert simulated_settings.buffer_bytes(row) == buffer
