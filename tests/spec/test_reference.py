"""The reference experiments: all load, and their trials are what the files say."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from disklab import spec
from disklab.spec import Figure

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

TRIALS = {
    "azure-local-disks": 12,
    "azure-queue-depths": 14,
    "azure-read-write-mix": 12,
    "beanstalkd-fsync": 3,
    "cassandra-cache-cliff": 15,
    "cassandra-disk-caching-read-ahead": 32,
    "cassandra-disk-caching-threads": 8,
    "cassandra-host-caching-quick": 2,
    "cassandra-local-or-attached": 18,
    "cassandra-local-or-attached-quick": 6,
    "cassandra-lost-local-disk": 6,
    "cassandra-node-replacement": 5,
    "cassandra-vm-types": 48,
    "cassandra-what-to-buy": 1,
    "cassandra-what-to-buy-aws": 1,
    "postgresql-what-to-buy": 1,
    "cassandra-ycsb": 18,
    "device-trace": 8,
    "etcd-which-disk": 8,
    "galera-local-or-attached": 4,
    "kafka-disks-and-copies": 8,
    "mariadb-doublewrite": 2,
    "mariadb-which-disk": 3,
    "myrocks-sysbench": 4,
    "mysql-8-sysbench": 4,
    "nats-sync-interval": 6,
    "opensearch-durability": 4,
    "postgresql-disk-types-quick": 6,
    "postgresql-failover-disks": 6,
    "postgresql-io-method": 3,
    "postgresql-lost-server": 10,
    "postgresql-year-of-weather": 1,
    "redis-fsync": 6,
    "valkey-appendfsync": 6,
    "yugabytedb-disk-types": 15,
}


def reference(name: str) -> spec.Experiment:
    return spec.load(EXPERIMENTS / f"{name}.yaml")


def place(name: str, factor: str) -> str:
    """Return where a factor stands: file, line, key."""
    lines = (EXPERIMENTS / f"{name}.yaml").read_text().splitlines()
    (line,) = [at for at, text in enumerate(lines, 1) if text.startswith(f"  {factor}:")]
    return f"{name}.yaml:{line}: {factor}"


def trial(experiment: spec.Experiment, **levels: str) -> spec.Trial:
    """Return the one trial whose levels are these; `_` stands for a blank or dot."""
    found = [
        one
        for one in experiment.trials("predict")
        if all(str(one.factors[name]) == level for name, level in levels.items())
    ]
    assert len(found) == 1
    return found[0]


def test_every_reference_experiment_is_here_and_loads() -> None:
    assert {file.stem for file in EXPERIMENTS.glob("*.yaml")} == set(TRIALS)
    for name, count in TRIALS.items():
        assert len(reference(name).trials("predict")) == count


def test_local_or_attached_is_what_the_file_says() -> None:
    experiment = reference("cassandra-local-or-attached")
    assert experiment.title == "Local or attached data disks for Cassandra?"
    trials = experiment.trials("predict")
    assert [one.index for one in trials] == list(range(18))
    assert trials[0].factors == {
        "data disks": "attached",
        "database.replication_factor": 1,
        "workload": "write",
    }
    write, read = trials[0].spec, trials[1].spec
    assert read.cluster is not None
    data = write.cluster.volumes["data"]
    assert (data.count, data.caching, data.chunk_bytes, data.read_ahead_bytes) == (
        4,
        "ReadOnly",
        65536,
        8192,
    )
    assert write.workload.operations.model_dump() == {"read": 0, "write": 1}
    assert write.workload.keys == "sequential"
    assert write.workload.load.threads == 256
    assert write.workload.stop.operations == 10_000_000
    # `before: {dataset: empty}` patches, and leaves the caches as the baseline has them.
    assert write.before.dataset == "empty"
    assert (write.before.page_cache, write.before.host_cache) == ("cold", "written")
    assert read.before.dataset == "filled"
    assert read.workload.stop.operations == 3_000_000
    assert (read.dataset.rows, read.dataset.columns, read.dataset.column_bytes) == (
        10_000_000,
        5,
        818,
    )
    assert read.database.settings["commitlog_sync_period_in_ms"] == 10000
    assert read.procedure.kind == "closed_loop"


def test_local_data_lie_on_the_temp_disk_beside_the_commit_log() -> None:
    trials = reference("cassandra-local-or-attached").trials("predict")
    attached, local = trials[0].spec.cluster, trials[9].spec.cluster
    assert attached.device_of("commitlog") == "commitlog"
    assert local.device_of("commitlog") == "data"
    # One disk has no stripe, although the baseline's stripe of four has a chunk.
    assert local.volumes["data"].chunk_bytes is None


def test_rehearsal_shares_keep_the_ratios_of_a_node() -> None:
    read = reference("cassandra-local-or-attached").trials("rehearse", scale=Fraction(1, 100))[1]
    share = read.share
    assert share.nodes == Figure(full=6, here=1)
    assert share.threads == Figure(full=128, here=21)
    assert share.rows == Figure(full=10_000_000, here=16_667)
    assert share.operations == Figure(full=3_000_000, here=5_000)
    assert share.host_cache_bytes == Figure(full=576 << 30, here=6_184_752_906)
    assert share.volume_bytes["data"].full == 4 << 40
    assert share.volume_bytes["data"].here == (4 << 40) // 100
    assert (read.spec.cluster.nodes, read.here.cluster.nodes) == (6, 1)
    assert read.here.workload.load.threads == 21
    predicted = reference("cassandra-local-or-attached").trials("predict")[1]
    assert predicted.share.is_full
    assert predicted.here.workload == predicted.spec.workload
    assert predicted.here.dataset == predicted.spec.dataset


def test_time_is_dilated_as_far_as_the_machine_has_fewer_cpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = reference("cassandra-local-or-attached")
    # DS14_v2 has 16 vCPUs.
    for cpus, nodes, dilation in ((2, 1, 8), (2, 3, 24), (16, 1, 1), (64, 1, 1), (12, 1, 2)):
        monkeypatch.setattr("os.cpu_count", lambda cpus=cpus: cpus)
        (first, *_) = experiment.trials("rehearse", nodes=nodes)
        assert first.share.time_dilation == dilation, (cpus, nodes)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert experiment.trials("rehearse", time_dilation=1)[0].share.time_dilation == 1
    assert experiment.trials("predict")[0].share.time_dilation == 1
    # What is described stays as it is described: the slower clock makes it slow.
    one, eight = (experiment.trials("rehearse", time_dilation=factor)[1].here for factor in (1, 8))
    assert one == eight


def test_more_copies_than_rehearsed_nodes_are_refused_with_the_way_out() -> None:
    experiment = reference("cassandra-local-or-attached")
    refused = [one for one in experiment.trials("rehearse") if one.refused]
    assert {one.factors["database.replication_factor"] for one in refused} == {3, 5}
    reason = refused[0].refused
    assert reason.rule == "replication factor 3 needs 3 nodes; this rehearsal has 1"
    assert reason.way_out == "--nodes 3"
    assert reason.place.endswith(
        place("cassandra-local-or-attached", "database.replication_factor")
    )
    assert not any(one.refused for one in experiment.trials("rehearse", nodes=6))
    assert not any(one.refused for one in experiment.trials("predict"))


def test_copies_that_are_not_compared_follow_the_rehearsed_nodes() -> None:
    experiment = reference("cassandra-vm-types")
    one, three = (experiment.trials("rehearse", nodes=nodes)[0] for nodes in (1, 3))
    assert not one.refused
    assert (one.share.replication_factor.full, one.share.replication_factor.here) == (3, 1)
    assert one.here.database.replication_factor == 1
    variable = experiment.select(procedure="variable").trials("rehearse")[0].here.procedure
    assert variable.variable.threads.model_dump() == {"start": 3, "factor": 1.5, "most": 341}
    # Each node has the same data, three copies on three or one on one.
    assert one.share.rows == three.share.rows
    assert three.share.replication_factor.here == 3
    # One level of a compared factor is still no other level.
    chosen = reference("cassandra-local-or-attached").select(**{"database.replication_factor": 5})
    assert all(trial.refused for trial in chosen.trials("rehearse"))


def test_a_stand_in_has_room_for_its_warehouses() -> None:
    trials = reference("yugabytedb-disk-types").trials("rehearse")
    sizes = {t.spec.workload.kind: t.share.volume_bytes["data"].here for t in trials}
    # 256 GiB / 500 and what PostgreSQL writes beside its rows; what four warehouses of it need.
    assert sizes["sysbench"] == pytest.approx((256 << 30) / 500 + (512 << 20), rel=0.03)
    assert sizes["tpcc"] == (512 + 4 * 192) << 20


def test_a_shrunk_volume_has_room_for_what_does_not_shrink() -> None:
    trial = reference("postgresql-disk-types-quick").trials("rehearse", scale=Fraction(1, 400))[0]
    whole = trial.share.volume_bytes["data"]
    assert whole.here == int(whole.full / 400) + (512 << 20)
    full = reference("postgresql-disk-types-quick").trials("predict")[0].share
    assert full.volume_bytes["data"].here <= full.volume_bytes["data"].full


def test_data_that_do_not_fit_the_local_disk_are_refused_cells() -> None:
    trials = reference("cassandra-cache-cliff").trials("predict")
    refused = {(t.factors["dataset.rows"], t.factors["data disks"]): t.refused for t in trials}
    found = {cell for cell, reason in refused.items() if reason is not None}
    assert found == {("500M", "local"), ("1000M", "local"), ("2000M", "local")}
    reason = refused["500M", "local"]
    assert place("cassandra-cache-cliff", "dataset.rows") in reason.place
    assert reason.value == "500M"
    assert "330.2 GiB a node, 660.5 GiB with room for compaction (x 2)" in reason.rule
    assert "holds 224 GiB" in reason.rule
    assert "use at most 169578027 rows" in reason.way_out


def test_vm_types_switches_procedures_and_fills_a_share_of_the_disk() -> None:
    experiment = reference("cassandra-vm-types")
    trials = experiment.trials("predict")
    kinds = {str(t.factors["procedure"]): t.spec.procedure for t in trials}
    fixed, variable = kinds["fixed"], kinds["variable"]
    assert fixed.variable is None
    assert fixed.fixed.rate_per_s == 500
    assert variable.variable.median_latency_ms == 10
    assert variable.variable.threads.model_dump() == {"start": 8, "factor": 1.5, "most": 1024}
    local = trials[0].spec
    assert local.workload.load.rate_per_s == 500
    # 30 % of three nodes' temp disks, by three copies of rows of 335 B.
    temp = trials[0].share.volume_bytes["data"].full
    assert local.dataset.rows == pytest.approx(0.3 * temp / 335, rel=1e-6)


def test_yugabytedb_merges_sysbench_and_replaces_it_by_tpcc() -> None:
    experiment = reference("yugabytedb-disk-types")
    write = trial(experiment, disk="Ultra", workload="sysbench write, 20 tables").spec.workload
    assert (write.sysbench.script, write.sysbench.threads) == ("oltp_insert", 24)
    assert (write.sysbench.tables, write.sysbench.rows_per_table) == (20, 15_000_000)
    tpcc = trial(experiment, disk="Ultra", workload="TPC-C").spec.workload
    assert tpcc.sysbench is None
    assert (tpcc.tpcc.warehouses, tpcc.tpcc.connections) == (2000, 600)
    assert (tpcc.warm_up_s, tpcc.kind) == (300, "tpcc")
    rehearsed = experiment.trials("rehearse")[0]
    assert rehearsed.share.engine == "postgresql"
    # Nobody says how many nodes: as many as three copies need.
    assert rehearsed.share.nodes == Figure(full=3, here=3)
    assert rehearsed.refused is None


def test_devices_may_begin_with_any_share_of_credits() -> None:
    text = (EXPERIMENTS / "azure-local-disks.yaml").read_text()
    trials = spec.parse(f"{text}before: {{credits: 50%}}\n", "x.yaml").trials("predict")
    assert {one.spec.before.credits_ratio for one in trials} == {0.5}


def test_device_experiments_name_vm_volume_and_fio() -> None:
    experiment = reference("azure-local-disks")
    assert experiment.kind == "device"
    amd = experiment.trials("predict")[0].spec
    assert amd.device.vm == "azure/Standard_E8as_v4"
    assert amd.device.volume.disks == "local"
    assert amd.workload.fio.block_bytes == 8192
    cached = trial(experiment, **{"device": "OS disk, cached", "workload.fio.profile": "async"})
    assert cached.spec.device.volume.caching == "ReadWrite"
    assert cached.spec.workload.fio.profile == "async"
