"""Servers that a cold condition has restarted: their work is theirs, not other programs'."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from disklab.results import Run

from tests.databases.servers import need
from tests.hosts.conftest import Lab

from .rehearsed import rehearsed

EXPERIMENT = """
title: Servers that begin anew
cluster:
  nodes: 3
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P30, caching: None, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_D2s_v5}
database: {engine: mariadb, replication_factor: 3, tls: false}
dataset: {rows: 20k, row: 10 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  keys: uniform
  load: {threads: 8}
  stop: {duration: 6s}
before: {page_cache: cold}
rehearse: {nodes: 3, scale: 1, time_dilation: 1}
"""
MOST_SECONDS = 600.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
def test_servers_are_watched_when_a_condition_has_restarted_them(lab: Lab, tmp_path: Path) -> None:
    need("mariadb")
    file = tmp_path / "cold.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    result, folder = rehearsed(lab, file, most_s=MOST_SECONDS)
    # Three servers that commit all the time do more than the one client that asks them.
    ratio = result["telemetry"]["cpu_ratio"]
    assert ratio["server"] > ratio["client"] > 0, result
    rows = Run.open(folder).telemetry(0, result["repeat"]).collect()
    measured = rows.filter(pl.col("phase") == "measure")
    assert {"database", "cpu server"} <= set(measured["source"])
