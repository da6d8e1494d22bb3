"""A cluster from its file to an empty subscription, through the fake resource manager.

It makes emulated hosts with emulated disks; a real Cassandra is built on them over SSH.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from disklab import spec
from disklab.cli.cloud_options import CloudOptions
from disklab.cli.measuring_in_cloud import planned_new
from disklab.errors import UserError
from disklab.hosts.namespaces import HostWish
from disklab.measurement.preparation import Options
from disklab.results import Run

from .test_whole_chain import MEASURE, Cloud, cloud_of

EXPERIMENT = """
title: Does host caching pay for reads?
cluster:
  nodes: 1
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/P4}}
database:
  engine: cassandra
  # Machines that test have other things to do as well.
  settings: {write_request_timeout: 20s, read_request_timeout: 20s}
dataset: {rows: 2k, row: 5 x 100B}
workload:
  operations: {read: 100%}
  load: {threads: 4}
  stop: {duration: 2s}
factors:
  cluster.volumes.data.caching: [None, ReadOnly]
"""
OPTIONS = CloudOptions("azure", "eastus", 5.0, "10.77.0.2", None, None)


def test_each_level_that_a_vm_keeps_has_nodes_of_its_own() -> None:
    text = EXPERIMENT.replace("nodes: 1", "nodes: 3").replace("4}}\ndata", "4}}\n  zones: 3\ndata")
    planned = planned_new(spec.parse(text), Options(), OPTIONS)
    assert [host.name for host in planned.layout.hosts] == [f"n{n}" for n in range(1, 7)] + ["c1"]
    assert [host.zone for host in planned.layout.hosts] == [0, 1, 2, 0, 1, 2, 0]
    spots = planned.wanted.placed.spots
    assert [[str(spot) for spot in spots[index]] for index in (0, 1)] == [
        ["n1/data", "n2/data", "n3/data"],
        ["n4/data", "n5/data", "n6/data"],
    ]
    assert planned.wanted.names == [host.name for host in planned.layout.hosts]


def test_fresh_hosts_are_whole_sets_of_nodes() -> None:
    text = EXPERIMENT.replace("nodes: 1", "nodes: 3").replace("4}}\ndata", "4}}\n  zones: 3\ndata")
    options = replace(OPTIONS, fresh_hosts=2)
    planned = planned_new(spec.parse(text), Options(repeats=4), options)
    assert [host.zone for host in planned.layout.hosts] == [0, 1, 2] * 4 + [0]
    spots = planned.wanted.placed.spots
    assert [[str(spot) for spot in spots[index]] for index in (0, 1)] == [
        [f"n{number}/data" for number in range(1, 7)],
        [f"n{number}/data" for number in range(7, 13)],
    ]
    with pytest.raises(UserError, match="each time on one of 2; give --repeat 2 or more"):
        planned_new(spec.parse(text), Options(repeats=1), options)


def of(engine: str) -> str:
    """Return the experiment with another database."""
    text = EXPERIMENT.replace("cassandra", engine)
    return text.replace("{write_request_timeout: 20s, read_request_timeout: 20s}", "{}")


def test_a_database_that_is_built_on_no_host_is_refused() -> None:
    with pytest.raises(UserError, match="builds cassandra, etcd, postgresql only"):
        planned_new(spec.parse(of("yugabytedb")), Options(), OPTIONS)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    # A node's mounts are its own; the conductor's network is that of the client's machine.
    wishes = [HostWish("n1", memory_bytes=2 << 30), HostWish("c1")]
    with cloud_of(wishes, tmp_path, monkeypatch) as made:
        (tmp_path / "e.yaml").write_text(EXPERIMENT, encoding="utf-8")
        yield made


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql", "cassandra"])
def test_a_cluster_is_measured_in_azure_and_nothing_is_left(cloud: Cloud, engine: str) -> None:
    if engine != "cassandra":
        (cloud.folder / "e.yaml").write_text(of(engine), encoding="utf-8")
    only = ("--only", "cluster.volumes.data.caching=None")
    with cloud.start(*MEASURE, "--max-usd", "5", *only) as process:
        out, err = process.communicate(timeout=500)
    assert process.returncode == 0, (out, err, cloud.arm.invalid)
    assert "bill: " in err
    cloud.nothing_is_left()
    (folder,) = (cloud.folder / "disklab-runs").iterdir()
    run = Run.open(folder)
    (result,) = run.results()
    assert result.status in ("ok", "invalid"), result
    assert result.errors == {}
    extra = result.model_extra or {}
    assert extra["host"] == "n1/data"
    assert [one["host"] for one in extra["clients"]] == ["c1"]
    bill = [row[0] for row in (run.info.model_extra or {})["cloud"]["bill"]]
    assert bill[0] == "2 x azure/Standard_E8ds_v4"
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"PRIVATE KEY" not in path.read_bytes(), path
