"""One of three nodes falls silent under load: the living two have the rate again in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.conftest import Lab

from .rehearsed import rehearsed

EXPERIMENT = """
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
MOST_SECONDS = 1500.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_the_living_two_have_the_rate_again(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "silent.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    result, _ = rehearsed(lab, file, most_s=MOST_SECONDS)
    seen = result["recovery"]
    assert seen["back_s"] is not None, seen
    assert seen["back_s"] <= NOTICED_S + BACK_S, seen
    # Joined again, the cluster is whole: all rows are there, on all of their copies.
    whole = seen["at_all"]
    lost = [whole[name] for name in ("rows_lost", "rows_wrong", "rows_unread", "updates_lost")]
    assert lost == [0, 0, 0, 0], seen
