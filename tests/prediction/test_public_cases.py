"""Devices that people asked about in public, beside the answers that their threads or vendors gave.

Bursting disks and VMs stand in `test_steady.py`, job files in `test_traces.py`, and a disk that
gives what was sold (Azure/AKS#1311) in `test_probe_verdict.py`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.in_process import disklab
from tests.prediction.test_steady import predicted

BLOCK = 128 << 10


def answer(folder: Path, vm: str, volume: str, fio: str, *, before: str = "{}") -> dict[str, Any]:
    text = f"""
title: A public case
device: {{vm: {vm}, volume: {{{volume}}}}}
workload:
  fio: {{{fio}, direct: true}}
  stop: {{duration: 5s}}
before: {before}
"""
    folder.mkdir(exist_ok=True)
    (result,), _ = predicted(folder, text)
    return result


def test_a_cached_disk_of_a_d8s_v3_ends_where_its_issue_says(tmp_path: Path) -> None:
    """openshift/installer#4326: 128 MB/s cached (Azure's SKU: 131,072,000 B/s), 192 uncached."""
    fio = "profile: async, rw: write, bs: 128k, jobs: 4, depth: 32"
    rates = {
        caching: answer(
            tmp_path / caching,
            "azure/Standard_D8s_v3",
            f"disks: azure/P30, caching: {caching}",
            fio,
            before="{credits: 0%}",
        )["ops_per_s"]
        for caching in ("ReadOnly", "None")
    }
    assert rates["ReadOnly"] * BLOCK == pytest.approx(131_072_000, rel=0.01)
    assert rates["None"] * BLOCK == pytest.approx(192e6, rel=0.01)


def test_three_cached_disks_do_what_the_cache_does(tmp_path: Path) -> None:
    """MicrosoftDocs/azure-docs#102522: 16,000 from the cache; from the disks 12,800 all day."""
    volume = "disks: 3 x azure/P30, caching: ReadOnly"
    fio = "profile: async, rw: randread, bs: 4k"
    vm = "azure/Standard_D8s_v3"
    warm = answer(tmp_path / "warm", vm, volume, fio, before="{host_cache: warm, credits: 0%}")
    assert warm["ops_per_s"] == pytest.approx(16_000, rel=0.01)
    uncached = "disks: 3 x azure/P30, caching: None"
    base = answer(tmp_path / "none", vm, uncached, fio, before="{credits: 0%}")
    assert base["ops_per_s"] == pytest.approx(12_800, rel=0.01)


@pytest.mark.parametrize("better", ["azure/P30", '"azure/PremiumV2(1024GiB, 5000 IOPS, 200 MB/s)"'])
@pytest.mark.parametrize("cheaper", ["azure/E30", "azure/S30"])
def test_a_dearer_tier_does_no_fewer_synchronous_writes(
    tmp_path: Path, better: str, cheaper: str
) -> None:
    """etcd-io/etcd#10577: which disk for a write-ahead log; the same source had 1.3 ms for SSDs."""
    fio, vm = "profile: sync, rw: randwrite, bs: 4k", "azure/Standard_D8s_v3"
    rates = [
        answer(tmp_path / name, vm, f"disks: {disks}", fio)["ops_per_s"]
        for name, disks in (("better", better), ("cheaper", cheaper))
    ]
    assert rates[0] >= rates[1] * 0.99


def test_default_throughput_binds_a_gp3_with_many_iops(tmp_path: Path) -> None:
    """scylladb/seastar#1030: 125 MiB/s, not the 250 that iotune measured on its burst."""
    fio, disks = "profile: async, rw: write, bs: 128k", 'disks: "aws/gp3(2000GiB, 16000 IOPS)"'
    for number, vm in enumerate(("aws/r5.2xlarge", "aws/r5b.2xlarge")):
        result = answer(tmp_path / str(number), vm, disks, fio)
        assert result["ops_per_s"] * BLOCK == pytest.approx(125 << 20, rel=0.01)


def test_a_d4s_v5_keeps_6400_a_second(tmp_path: Path) -> None:
    """MicrosoftDocs/azure-docs#106799: D4s_v5 is sold with 6,400 uncached; 20,000 is its burst."""
    fio = "profile: async, rw: randread, bs: 4k"
    result = answer(tmp_path, "azure/Standard_D4s_v5", "disks: 4 x azure/P30, caching: None", fio)
    assert result["steady"]["ops_per_s"] == pytest.approx(6400, rel=0.01)


@pytest.mark.parametrize("disks", ["aws/gp3(100GiB)", "aws/gp2(100GiB)"])
def test_writes_of_gp_volumes_take_a_millisecond(tmp_path: Path, disks: str) -> None:
    """etcd-io/etcd#9544: 367,535 syncs on gp2, mean 0.94 ms, 99.7 % within 4 ms."""
    fio = "profile: sync, rw: write, bs: 4k"
    result = answer(tmp_path, "aws/m6i.xlarge", f'disks: "{disks}"', fio)
    assert 0.5 <= result["latency_ms"]["p50"] <= 1.0
    assert result["latency_ms"]["p99"] <= 4.0


def test_a_profile_of_cassandra_stress_is_told_what_to_write(tmp_path: Path) -> None:
    """scylladb/scylladb#23376: a user profile, which is YAML and no experiment."""
    file = tmp_path / "profile.yaml"
    file.write_text("keyspace: ks\ntable: t\ncolumnspec:\n- {name: a, size: fixed(10)}\n")
    ran = disklab("experiment", "check", str(file), code=2)
    said = " ".join(ran.stderr.split())
    assert "is a user profile of cassandra-stress, not an experiment" in said
    assert said.count("error:") == 1


def test_sections_of_postgresql_are_a_list_in_an_experiment(tmp_path: Path) -> None:
    """azuredisk-csi-driver's perf-profiles.md: P20 on D4s_v4, another read-ahead."""
    text = """
title: PostgreSQL-like fio of the Azure disk CSI driver's page
device:
  vm: azure/Standard_D4s_v4
  volume: {disks: azure/P20, caching: None}
workload:
  fio:
  - {name: checkpointer, rw: write, bs: 8k, direct: false, size: 4GiB}
  - {name: wal, rw: write, bs: 8k, direct: false, fdatasync: 1, size: 2GiB}
  - {name: large_read, rw: read, bs: 8k, direct: false, size: 10GiB}
  stop: {duration: 20s}
before: {credits: 0%}
factors:
  device.volume.read_ahead: [128KiB, 256KiB]
"""
    results, _ = predicted(tmp_path, text)
    kinds = {"checkpointer write", "wal write", "wal sync", "large_read read"}
    small, large = (result["per_operation"] for result in results)
    assert small.keys() == large.keys() == kinds
    # What reads in order waits for one read-ahead after the other.
    read = "large_read read"
    assert large[read]["ops_per_s"] > small[read]["ops_per_s"]
    # The log waits behind what the checkpointer has queued, which is what its page is about.
    assert large["wal sync"]["latency_ms"]["p50"] > 100


def test_postgresql_falls_to_a_tenth_when_the_credits_are_gone(tmp_path: Path) -> None:
    """akopytov/sysbench#475: 290 transactions a second, 30 after half an hour.

    Its command leaves --rand-type out, so three draws in four are of a hundredth of each table.
    """
    text = """
title: PostgreSQL on m5.large under sysbench
cluster:
  nodes: 1
  vm: aws/m5.large
  volumes: {data: {disks: "aws/gp2(100GiB)", filesystem: ext4}}
client: {nodes: 1, vm: aws/c5.4xlarge}
database: {engine: postgresql}
workload:
  sysbench:
    {script: oltp_read_write, tables: 100, rows_per_table: 1M, threads: 12, rand_type: special}
  stop: {duration: 300s}
before: {page_cache: warm}
"""
    (result,), _ = predicted(tmp_path, text, "--no-bands")
    # A third too low: its CPU times are measured here, and half as long again on a vCPU of m5.
    assert result["ops_per_s"] == pytest.approx(290, rel=0.4)
    assert result["steady"]["ops_per_s"] == pytest.approx(30, rel=0.25)
    (gone,) = result["credits_gone"]
    assert 25 * 60 <= gone["at_s"] <= 45 * 60


def test_a_command_of_cassandra_stress_is_bound_by_three_volumes(tmp_path: Path) -> None:
    """scylladb/scylla-cluster-tests#2984: a billion rows of 1 KiB, 3 copies, gp3."""
    text = """
title: scylla-cluster-tests' cassandra-stress on EBS
cluster:
  nodes: 3
  vm: aws/r5.8xlarge
  volumes: {data: {disks: "aws/gp3(5000GiB, 16000 IOPS, 1000 MiB/s)"}}
client: {nodes: 2, vm: aws/c5.4xlarge}
database: {engine: cassandra, version: "4.1", replication_factor: 3, consistency: QUORUM}
dataset: {rows: 1G, row: 8 x 128B}
workload: {operations: {read: 100%}, keys: gaussian, load: {threads: 400}, stop: {duration: 60s}}
"""
    (result,), _ = predicted(tmp_path, text, "--no-bands")
    assert result["bottleneck"]["resource"] == "data disk IOPS"


YCSB = """
recordcount=1000
workload=site.ycsb.workloads.CoreWorkload
readallfields=true
readproportion=0.5
updateproportion=0.5
scanproportion=0
insertproportion=0
requestdistribution=zipfian
fieldcount=10
fieldlength=100
"""


def test_a_workload_file_of_ycsb_is_told_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "workloada"
    file.write_text(YCSB)
    ran = disklab("experiment", "check", str(file), code=2)
    message = " ".join(ran.stderr.split())
    assert "is a workload file of YCSB, not an experiment" in message
    assert "dataset: {rows: 1000, row: 10 x 100B}" in message
    assert "workload: {operations: {read: 50%, write: 50%}, keys: zipfian}" in message


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio measures")
def test_the_probe_takes_the_usual_options_of_fio(tmp_path: Path) -> None:
    """k8s and etcd threads: randrw, rwmixread=75, bs=4k, iodepth=64."""
    options = "--disk azure/P10 --vm azure/Standard_D4s_v3 --rw randrw --rwmixread 75 --bs 4k"
    load = "--profile async --jobs 1 --depth 64 --duration 1s --size 16MiB --json"
    ran = disklab("probe", str(tmp_path), *options.split(), *load.split(), code=0)
    (cell,) = [json.loads(line) for line in ran.stdout.splitlines()]
    assert cell["promise"]["ops_per_s"] in (500, 3500)
    assert cell["per_operation"].keys() == {"read", "write"}


def syncs(folder: Path, vm: str, disks: str, fio: str) -> dict[str, Any]:
    text = f"""
title: A log
device: {{vm: {vm}, volume: {{disks: "{disks}"}}}}
workload:
  fio: {{{fio}}}
  stop: {{duration: 20s}}
"""
    folder.mkdir(exist_ok=True)
    (result,), _ = predicted(folder, text)
    return result


def test_of_googles_disks_the_network_ssd_syncs_a_log_faster_than_the_local_one(
    tmp_path: Path,
) -> None:
    """openshift/release#33248: 1,624 syncs a second; etcd-io/etcd#13053: 782, by a FLUSH each."""
    fio = "rw: write, bs: 4k, fdatasync: 1, size: 1GiB"
    network = syncs(tmp_path / "pd", "gcp/e2-standard-4", "gcp/pd-ssd(200GiB)", fio)
    etcd = "rw: write, bs: 2300, direct: false, fdatasync: 1, size: 22MiB, once: true"
    local = syncs(tmp_path / "local", "gcp/n1-standard-16", "gcp/local-ssd", etcd)
    assert network["ops_per_s"] == pytest.approx(1624, rel=0.15)
    assert local["ops_per_s"] == pytest.approx(782, rel=0.15)


def test_threads_of_one_file_system_share_its_commits_and_barriers_are_a_key(
    tmp_path: Path,
) -> None:
    """Cloud Report 2019: 3,295 to 3,910 writes and syncs of GCP's local SSD without a FLUSH."""
    text = """
title: Synced without barriers
device:
  vm: gcp/n2-standard-16
  volume: {disks: gcp/local-ssd, filesystem: ext4, barriers: false}
workload:
  fio: {rw: randwrite, bs: 32k, direct: false, fsync: 1, size: 128MiB, jobs: 1}
  warm_up: 1s
  stop: {duration: 10s}
factors:
  barriers: {without: {}, with: {device.volume.barriers: true}}
  threads: {one: {}, eight: {workload.fio.jobs: 8}}
"""
    results, _ = predicted(tmp_path, text)
    rates = {
        (result["factors"]["barriers"], result["factors"]["threads"]): result["ops_per_s"]
        for result in results
    }
    assert rates["without", "one"] == pytest.approx(3600, rel=0.15)
    assert rates["with", "one"] < rates["without", "one"] / 3
    # A FLUSH serves all that wait for it, and those that come meanwhile wait for the next.
    assert 3 * rates["with", "one"] < rates["with", "eight"] < 8 * rates["with", "one"]


def test_a_small_disk_of_google_has_the_baseline_of_its_vm(tmp_path: Path) -> None:
    """DataBiosphere/leonardo#4925: 3,600 IOPS of a pd-balanced of 100 GB."""
    fio = "rw: randread, bs: 4k, jobs: 4, depth: 64"
    result = answer(
        tmp_path / "balanced", "gcp/n2-standard-4", 'disks: "gcp/pd-balanced(100GiB)"', fio
    )
    assert result["ops_per_s"] == pytest.approx(3600, rel=0.02)
