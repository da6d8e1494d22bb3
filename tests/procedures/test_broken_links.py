"""Links and zones that break, and a node that falls silent: the load sees it, nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.databases.servers import need
from tests.hosts.conftest import Lab

from .rehearsed import rehearsed

EXPERIMENT = """
title: etcd on broken links
cluster:
  nodes: 3
  zones: 3
  network: azure/standard
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P10, caching: None, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_D2s_v5}
database: {engine: etcd, replication_factor: 3}
dataset: {rows: 500, row: 1 x 300B}
workload:
  operations: {read: 50%, write: 50%}
  keys: uniform
  load: {rate: 30/s}
  stop: {duration: 16s}
before: {page_cache: as-left}
events:
  - {at: 3s, cut: n2}
  - {at: 5s, join: n2}
  - {at: 6s, slow_link: n1-n3, round_trip: 20ms, bandwidth: 1MB/s}
  - {at: 7s, join: n1-n3}
  - {at: 8s, lossy: client-n3, loss: 10%}
  - {at: 9s, join: client-n3}
  - {at: 10s, lose_zone: 1}
  - {at: 12s, replace: n1}
rehearse: {scale: 1, time_dilation: 1, nodes: 3}
"""
# A busy machine takes minutes for what an idle one does in half of one.
MOST_SECONDS = 400.0


@pytest.mark.machine
@pytest.mark.alone
def test_links_and_a_zone_break_and_nothing_is_lost(lab: Lab, tmp_path: Path) -> None:
    need("etcd")
    file = tmp_path / "links.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    result, _ = rehearsed(lab, file, most_s=MOST_SECONDS)
    seen = result["recovery"]
    assert [f"{one['kind']} {one['node']}" for one in seen["steps"]] == [
        "cut n2", "join n2", "slow_link n1-n3", "join n1-n3",
        "lossy client-n3", "join client-n3", "lose_zone 1", "replace n1",
    ]  # fmt: skip
    # A third of the operations waited for a member that nobody reached.
    assert seen["lowest_ops_per_s"] < seen["ops_per_s_before"]
    assert seen["rows_checked"] == 500
    assert (seen["rows_lost"], seen["rows_wrong"], seen["updates_lost"]) == (0, 0, 0)
    # etcd's own rule is part of the answer.
    (fsync, *_) = result["rules"]
    assert (fsync["subject"], fsync["below_ms"]) == ("etcd", 10.0)
    assert 0 < fsync["found_ms"] < 5_000
    assert os.listdir(lab.run_dir / "networks") == []
    assert os.listdir(lab.run_dir / "databases") == []
    assert lab.processes() == []
    assert lab.devices() == {}


SILENT = """
title: A node falls silent
cluster:
  nodes: 3
  zones: 3
  network: azure/standard
  vm: azure/Standard_E4s_v3
  volumes: {data: {disks: azure/P30, caching: None, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_E4s_v3}
database: {engine: cassandra, replication_factor: 3, consistency: LOCAL_QUORUM}
dataset: {rows: 200k, row: 5 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  keys: uniform
  load: {rate: 60/s}
  stop: {duration: 60s}
before: {page_cache: as-left}
events: [{at: 20s, cut: n2}, {at: 45s, join: n2}]
rehearse: {nodes: 3, scale: 1/100, time_dilation: 1}
"""
NOTICED_S = 3.0
"""The client ends a connection when what it sent has not arrived for so long."""
BACK_S = 5.0
MOST_SILENT_S = 1500.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_the_living_two_have_the_rate_again(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "silent.yaml"
    file.write_text(SILENT, encoding="utf-8")
    result, _ = rehearsed(lab, file, most_s=MOST_SILENT_S)
    seen = result["recovery"]
    assert seen["back_s"] is not None, seen
    assert seen["back_s"] <= NOTICED_S + BACK_S, seen
    # Joined again, the cluster is whole: all rows are there, on all of their copies.
    whole = seen["at_all"]
    lost = [whole[name] for name in ("rows_lost", "rows_wrong", "rows_unread", "updates_lost")]
    assert lost == [0, 0, 0, 0], seen
