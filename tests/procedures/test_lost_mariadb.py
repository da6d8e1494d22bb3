"""The VM of a MariaDB server is lost: its replica or the rest of a Galera cluster goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases.servers import need
from tests.hosts.conftest import Lab

from .rehearsed import rehearsed

EXPERIMENT = """
title: A server is lost
cluster:
  nodes: COPIES
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P10, caching: None, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_D2s_v5}
database: {engine: mariadb, replication_factor: COPIES, tls: false}
dataset: {rows: 20k, row: 10 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  keys: uniform
  load: {rate: 60/s}
  stop: {duration: 40s}
before: {page_cache: as-left}
events: [EVENTS]
rehearse: {nodes: COPIES, scale: 1, time_dilation: 1}
"""
LOST_S, PROMOTED_S = 6.0, 12.0
# A busy machine is slow to start, to answer and to take new connections.
BUSY_S = 10.0
MOST_SECONDS = 900.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
@pytest.mark.parametrize(
    ("copies", "events", "away_s"),
    [
        (
            2,
            "{at: 6s, lose: n1}, {at: 12s, promote: n2}, {at: 16s, replace: n1}",
            PROMOTED_S - LOST_S,
        ),
        # The others find out that it is gone in 5 s (evs.suspect_timeout), and go on.
        (3, "{at: 6s, lose: n1}, {at: 16s, start: n1}", 5.0),
    ],
)
def test_no_acknowledged_commit_goes_with_a_lost_vm(
    lab: Lab, tmp_path: Path, copies: int, events: str, away_s: float
) -> None:
    need("mariadb")
    file = tmp_path / "lost.yaml"
    text = EXPERIMENT.replace("COPIES", str(copies)).replace("EVENTS", events)
    file.write_text(text, encoding="utf-8")
    result, _ = rehearsed(lab, file, most_s=MOST_SECONDS)
    seen = result["recovery"]
    steps = [f"{step['kind']} {step['node']}" for step in seen["steps"]]
    assert steps[0] == "lose n1"
    assert steps[-1] in {"replace n1", "start n1"}
    assert seen["unavailable_s"] <= away_s + BUSY_S, seen
    assert seen["back_s"] is not None, seen
    assert seen["failed_operations"] > 0
    assert (seen["rows_lost"], seen["rows_wrong"], seen["rows_unread"]) == (0, 0, 0)
    assert seen["updates_lost"] == 0, seen
    assert seen["whole_s"] is not None
