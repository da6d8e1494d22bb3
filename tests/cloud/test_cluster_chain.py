"""A cluster that is made in a cloud: which hosts there are, and which of them are its nodes."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.cli.cloud_options import CloudOptions
from disklab.cli.measuring_in_cloud import planned_new
from disklab.errors import UserError
from disklab.measurement.preparation import Options

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


def test_what_is_asked_from_here_is_refused() -> None:
    text = EXPERIMENT.replace("cassandra", "postgresql")
    text = text.replace("{write_request_timeout: 20s, read_request_timeout: 20s}", "{}")
    with pytest.raises(UserError, match="builds cassandra only"):
        planned_new(spec.parse(text), Options(), OPTIONS)
