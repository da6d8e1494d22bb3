"""A Cassandra of three nodes in two racks that runs on hosts, loaded from a client host."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
from disklab.databases import NodePlace, Request, Sizes
from disklab.databases.cassandra import access
from disklab.databases.cassandra.access import Secrets
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import CQL_PORT, Installation
from disklab.databases.cassandra.distribution import find_java
from disklab.databases.cassandra.jolokia import STORAGE
from disklab.databases.cassandra.node import Node
from disklab.databases.cassandra.provider import distribution_of, settings_of
from disklab.databases.cassandra.sizing import plan_memory
from disklab.databases.place import write
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account, CqlQuery, server_account
from disklab.errors import MachineError

from .bench import Bench
from .emulated import CONDUCTOR, Served, served_hosts

GIB = 1 << 30
CENTER = "north"
RACKS = {"n1": "left", "n2": "left", "n3": "right"}
EXPERIMENT = """
title: How many reads does the cluster do?
cluster:
  nodes: 3
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P30}}
database: {engine: cassandra, replication_factor: 2, consistency: LOCAL_QUORUM}
dataset: {rows: 2k, row: 5 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  load: {threads: 4}
  stop: {duration: 6s}
"""
OURS = "SELECT keyspace_name, replication FROM system_schema.keyspaces"
ENDPOINTS = "getNaturalEndpointsWithPort(java.lang.String,java.lang.String,java.lang.String)"


class RackedNode(Node):
    """A node that knows in which data centre and rack it is, as those of several zones do."""

    def configure(
        self,
        own: Mapping[str, object],
        settings: Mapping[str, object],
        secrets: Secrets,
        account: Account | None,
    ) -> None:
        snitch = {"endpoint_snitch": "GossipingPropertyFileSnitch"}
        super().configure({**own, **snitch}, settings, secrets, account)
        rack = RACKS[self.files.place.name]
        text = f"dc={CENTER}\nrack={rack}\n"
        write(self.files.configuration, "cassandra-rackdc.properties", text)


@contextmanager
def running(served: Served) -> Iterator[Cassandra]:
    """Yield a cluster on the hosts' own network, that nobody of the measurement has started."""
    places = []
    for name, volume in served.volumes.items():
        for part in ("data", "log"):
            (volume / part).mkdir()
        places.append(
            NodePlace(
                name=name,
                address=served.hosts[name].address,
                volumes={"data": volume / "data"},
                run_dir=volume / "run",
                log_dir=volume / "log",
                host=ThisMachine(served.hosts[name]),
            )
        )
    # As in other tests of Cassandra: a heap that three of them have room for.
    sizes = Sizes(64 * GIB, Fraction(1, 100), nodes=3)
    slow = {"write_request_timeout": "20s", "read_request_timeout": "20s"}
    request = Request("cassandra", sizes, replication_factor=3, settings=slow)
    distribution = distribution_of(request, lambda _what: None)
    known = settings_of(request, distribution)
    installation = Installation(distribution, find_java(), known, server_account())
    cluster = Cassandra(
        request, [(one, installation) for one in places], plan_memory(sizes), RackedNode
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class Watcher:
    """Where the copies of our rows lie, looked up while the measurement runs."""

    def __init__(self, cluster: Cassandra) -> None:
        self.replication: dict[str, str] = {}
        self.owners: list[set[str]] = []
        self.refused: MachineError | None = None
        self._jolokia = cluster.nodes[0].jolokia
        self._names = {node.files.place.address: node.files.place.name for node in cluster.nodes}

    def look(self, query: CqlQuery) -> None:
        for row in query.ask(OURS):
            name, replication = str(row["keyspace_name"]), row["replication"]
            if not name.startswith("disklab_") or self.owners:
                continue
            assert isinstance(replication, dict)
            try:
                owners = [
                    self._jolokia.call(STORAGE, ENDPOINTS, name, "rows", str(key))
                    for key in range(40)
                ]
                self.replication = {str(key): str(value) for key, value in replication.items()}
                self.owners = [
                    {self._names[one.rpartition(":")[0].lstrip("/")] for one in each}
                    for each in owners
                ]
            except MachineError as error:
                # The keyspace is there before its table, and goes after it.
                self.refused = error


@pytest.mark.machine
@pytest.mark.long
def test_copies_lie_in_both_racks_and_every_client_and_node_is_told_of(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Our own nodes answer by JMX what is asked of them and nothing else.
    monkeypatch.setitem(access.CALLED, STORAGE, (*access.CALLED[STORAGE], ENDPOINTS))
    bench.write("e.yaml", EXPERIMENT)
    with (
        served_hosts(3, tmp_path, grouped=False) as served,
        served.hosts[CONDUCTOR].inside_network(),
        running(served) as cluster,
    ):
        user, password = cluster.target["user"], str(cluster.target["password"])
        points = [f"{served.hosts[name].address}:{CQL_PORT}" for name in ("n1", "n2")]
        bench.environment["BENCH_PASSWORD"] = password
        database = {"addresses": points, "user": user, "password_variable": "BENCH_PASSWORD"}
        # JSON is YAML too.
        bench.write("h.yaml", json.dumps({"database": database, **json.loads(served.text())}))
        watcher = Watcher(cluster)
        words = ("measure", "e.yaml", "--hosts", "h.yaml", "--yes", "--quick")
        with cluster.nodes[0].cql.connection() as query:
            before = {str(row["keyspace_name"]) for row in query.ask(OURS)}
            with bench.start(*words) as process:
                while process.poll() is None:
                    watcher.look(query)
                    time.sleep(0.2)
                _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert {str(row["keyspace_name"]) for row in query.ask(OURS)} == before
    bench.nothing_is_left()
    assert watcher.owners, watcher.refused
    strategy = watcher.replication.pop("class")
    assert strategy.endswith("NetworkTopologyStrategy")
    assert watcher.replication == {CENTER: "2"}
    # Two copies in two racks: one is always on the only node of the right rack.
    assert len(watcher.owners) == 40
    assert {frozenset(one) for one in watcher.owners} == {
        frozenset({"n1", "n3"}),
        frozenset({"n2", "n3"}),
    }
    (result,) = bench.whole_run().results()
    assert result.errors == {}
    assert result.ops_per_s
    more = result.model_extra or {}
    assert [one["host"] for one in more["hosts"]] == ["n1", "n2", "n3"]
    (client,) = more["clients"]
    assert client["host"] == "c1"
    assert client["operations"] > 0
    # The node that has a copy of every row had the most to send or to receive; all had something.
    assert all(one["received_mb_per_s"] > 0 for one in more["hosts"])
