"""Databases that disklab builds on hosts: over SSH, filled, loaded, and nothing of them left."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.databases.etcd.installation import find_etcd
from disklab.databases.registry import record_of
from disklab.errors import UserError
from disklab.hosts.addresses import free_addresses
from disklab.machines.protocol import Command
from disklab.results import TrialResult

from tests.conftest import IN_CI
from tests.databases.servers import need
from tests.machines.ssh_server import SshServer

from .bench import MEASURE, Bench, rows_in
from .emulated import Disk, Served, served_hosts

SERVERS: dict[str, tuple[str, str]] = {
    "mariadb": ("ready for connections", "Shutdown complete"),
    "redis": ("Ready to accept connections", "Redis is now ready to exit"),
}
"""What they log when they have begun and ended."""


@pytest.mark.parametrize("engine", ["mariadb", pytest.param("redis", marks=pytest.mark.long)])
def test_it_is_built_filled_loaded_and_removed(
    bench: Bench, ssh_server: SshServer, volume: Path, engine: str
) -> None:
    need(engine)
    (address,) = free_addresses(1, record_of(engine).ports)
    host = f"{{address: box, private_address: {address}, volumes: {{data: {volume}}}}}"
    bench.write("e.yaml", rows_in(f"{{engine: {engine}}}", "{read: 50%, write: 50%}"))
    bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {{n1: {host}}}\n")
    run = bench.measured()
    (result,) = run.results()
    assert result.errors == {}
    assert result.ops_per_s
    # What no emulator counted is seen by the host's own counters, or absent; never 0.
    assert result.disk_iops is None or result.disk_iops > 0
    assert not {"disk_read_ios", "disk_write_bytes"} & set(result.model_extra or {})
    assert any("the load came from the machine" in text for text in result.warnings)
    log = (run.folder / "logs" / "n1-output.log").read_text(encoding="utf-8")
    assert [line for line in SERVERS[engine] if line not in log] == []


EXPERIMENT = """
title: What do puts of a majority cost on these hosts?
cluster:
  nodes: 3
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/S10}}
  network: azure/standard
database: {engine: etcd, replication_factor: 3}
dataset: {rows: 200, row: 1 x 100B}
workload:
  operations: {write: 100%}
  load: {rate: 20/s}
  stop: {duration: 14s}
before: {page_cache: as-left}
events:
  - {at: 2s, kill: n3}
  - {at: 4s, start: n3}
  - {at: 7s, cut: n2}
  - {at: 10s, join: n2}
"""
DISK = Disk("azure/S10", "azure/Standard_E8ds_v4")


def cut_at(served: Served, name: str) -> list[str]:
    """Return the addresses to which a host has routes that lead nowhere."""
    words = ["ip", "route", "show", "type", "blackhole"]
    said = served.hosts[name].run(Command(words)).stdout.decode()
    return [line.split()[1] if line.startswith("blackhole") else line for line in said.splitlines()]


@pytest.mark.machine
@pytest.mark.alone  # its hosts have disks mounted, which others' hosts would hold
@pytest.mark.long
def test_three_members_are_built_and_survive_one(bench: Bench, tmp_path: Path) -> None:
    try:
        find_etcd()
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise
    bench.write("e.yaml", EXPERIMENT)
    with served_hosts(3, tmp_path, DISK) as served:
        bench.write("h.yaml", served.text())
        assert "write may_change: [links] at n1, n2, n3, c1" in bench.refused("--plan")
        served.more = {"may_change": ["links"]}
        bench.write("h.yaml", served.text())
        out = bench.plan()
        assert out.count("make    an etcd 3.") == 3
        assert out.count("routes to the other hosts that lead nowhere") == 4
        served.nothing_is_left()
        with bench.start(*MEASURE, "--yes", "--repeat", "1") as process:
            # n2 hears of nobody, and nobody of it, but we do.
            bench.wait_until(lambda: len(cut_at(served, "n2")) == 3 or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            assert cut_at(served, "n1") == [served.hosts["n2"].address]
            _, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        assert [cut_at(served, name) for name in ("n1", "n2", "n3", "c1")] == [[]] * 4
        served.nothing_is_left()
    run = bench.whole_run()
    (result,) = run.results()
    seen = result.recovery
    assert [f"{one.kind} {one.node}" for one in seen.steps] == [
        *("kill n3", "start n3"),
        *("cut n2", "join n2"),
    ]
    assert (seen.rows_checked, seen.rows_lost, seen.rows_wrong) == (200, 0, 0)
    extra = result.model_extra or {}
    assert extra["host"] == "n1/data, n2/data, n3/data"
    (client,) = extra["clients"]
    assert client["operations"] > 0
    assert any("etcd was built on n1" in text for text in result.warnings)
    for name in ("n1", "n2", "n3"):
        assert "--initial-cluster=" in (run.folder / "logs" / f"{name}-etcd-flags.txt").read_text()


# Machines that test have other things to do as well.
PATIENT = "settings: {write_request_timeout: 20s, read_request_timeout: 20s}"
OF_CASSANDRA = rows_in(
    f"{{engine: cassandra, replication_factor: 3, consistency: QUORUM, {PATIENT}}}",
    more="before: {page_cache: as-left}\n",
).replace("nodes: 1", "nodes: 3")


def alone(text: str) -> str:
    """Return an experiment on one node."""
    return text.replace("nodes: 3", "nodes: 1").replace("_factor: 3", "_factor: 1")


def measured(bench: Bench, served: Served, nodes: list[str]) -> TrialResult:
    """Show the plan, measure, and check what the run and the hosts have afterwards."""
    bench.write("h.yaml", served.text())
    out = bench.plan()
    assert out.count("make    a Cassandra 5.0.6 node on Java 17") == len(nodes)
    assert out.count("load    comes from here") == 1
    served.nothing_is_left()
    with bench.start(*MEASURE, "--yes", "--quick") as process:
        _, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    served.nothing_is_left()
    run = bench.whole_run()
    (result,) = run.results()
    assert result.errors == {}
    assert result.ops_per_s
    assert any("Cassandra was built on n1" in text for text in result.warnings)
    extra = result.model_extra or {}
    assert extra["host"] == ", ".join(f"{name}/data" for name in nodes)
    (client,) = extra["clients"]
    assert client["operations"] > 0
    assert [phase.name for phase in result.phases].count("fill") == 1
    for name in nodes:
        log = (run.folder / "logs" / f"{name}-system.log").read_text(encoding="utf-8")
        # What a node says when it is drained: it was stopped in order, and heard to the end.
        assert "DRAINED" in log
        assert "Safepoint" in (run.folder / "logs" / f"{name}-gc.log").read_text(encoding="utf-8")
    return result


@pytest.mark.machine
@pytest.mark.long
def test_a_node_is_built_filled_loaded_and_removed(bench: Bench, tmp_path: Path) -> None:
    bench.write("e.yaml", alone(OF_CASSANDRA))
    with served_hosts(1, tmp_path) as served:
        result = measured(bench, served, ["n1"])
    extra = result.model_extra or {}
    assert abs(extra["clock"]["ahead_ms"]) <= 1 + extra["clock"]["error_ms"]
    (node,) = extra["hosts"]
    # The rows came from its disk or its memory, and went to the client over its network.
    assert node["sent_mb_per_s"] > 0
    assert 0 < node["busy_ratio"] <= 1


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_three_nodes_keep_three_copies(bench: Bench, tmp_path: Path) -> None:
    bench.write("e.yaml", OF_CASSANDRA)
    with served_hosts(3, tmp_path) as served:
        result = measured(bench, served, ["n1", "n2", "n3"])
    extra = result.model_extra or {}
    assert [one["host"] for one in extra["hosts"]] == ["n1", "n2", "n3"]


def test_a_cluster_that_the_hosts_cannot_be_is_refused(bench: Bench) -> None:
    bench.write("e.yaml", OF_CASSANDRA)
    err = bench.refused("--plan")
    assert "cluster.nodes: 3" in err
    assert "there are 1 (here)" in err
    wal = OF_CASSANDRA.replace("azure/P30}}", "azure/P30}, commitlog: {disks: azure/P10}}")
    bench.write("e.yaml", alone(wal))
    assert "have no volume of this name" in bench.refused("--plan")
