"""The VM of a server is lost, and another takes its place: PostgreSQL, MariaDB and Galera."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases.servers import need
from tests.hosts.conftest import Lab

from .rehearsed import rehearsed

EXPERIMENT = """
title: A standby takes over
cluster:
  nodes: 3
  zones: 3
  network: azure/standard
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P10, caching: None, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_D2s_v5}
database: {engine: postgresql, replication_factor: 3, tls: false}
dataset: {rows: 20k, row: 10 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  keys: uniform
  load: {rate: 60/s}
  stop: {duration: 50s}
before: {page_cache: as-left}
events:
  - {at: 6s, cut: n1-n2}
  - {at: 6s, cut: n1-n3}
  - {at: 10s, lose: n1}
  - {at: 14s, join: n1-n2}
  - {at: 14s, join: n1-n3}
  - {at: 18s, promote: n2}
  - {at: 20s, replace: n1}
factors:
  commits:
    quorum: {}
    primary alone: {database.settings: {synchronous_commit: local}}
rehearse: {nodes: 3, scale: 1, time_dilation: 1}
"""
CUT_S, LOST_S, PROMOTED_S = 6.0, 10.0, 18.0
# Half of the rate; a row that is written again later has a newer version than the lost one.
UPDATES_PER_S = 30.0
# The link of the lost host is dead, and its standbys are told of the new primary: clients try each
# server of their list once a second at most.
RETRY_S = 1.0
# A busy machine is slow to start, to answer and to take new connections.
BUSY_S = 8.0
MOST_SECONDS = 900.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
@pytest.mark.parametrize("commits", ["quorum", "primary alone"])
def test_clients_follow_a_promoted_standby(lab: Lab, tmp_path: Path, commits: str) -> None:
    need("postgresql")
    file = tmp_path / "promotion.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    result, _ = rehearsed(lab, file, "--only", f"commits={commits}", most_s=MOST_SECONDS)
    seen = result["recovery"]
    steps = [f"{one['kind']} {one['node']}" for one in seen["steps"]]
    assert steps[2:] == ["lose n1", "join n1-n2", "join n1-n3", "promote n2", "replace n1"]
    # Nobody takes a change in between, and soon after everybody finds who does.
    down_s = PROMOTED_S - LOST_S
    assert down_s - 2 <= seen["unavailable_s"] <= down_s + RETRY_S + BUSY_S, seen
    assert seen["back_s"] is not None, seen
    assert seen["failed_operations"] > 0
    assert seen["rows_lost"] == 0
    assert seen["rows_wrong"] == 0
    assert seen["rows_unread"] == 0
    # For 4 s no standby hears of an update: with a quorum nobody is told that one was done.
    unheard = (LOST_S - CUT_S) * UPDATES_PER_S
    if commits == "quorum":
        assert seen["updates_lost"] == 0, seen
    else:
        assert unheard / 2 <= seen["updates_lost"] <= 1.5 * unheard, seen
    # The old primary is a copy of the new one, and got all rows.
    replaced = seen["steps"][-1]
    assert replaced["streamed_bytes"] > 20_000 * 1000
    assert seen["whole_s"] is not None


MARIADB = """
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
MARIADB_LOST_S, MARIADB_PROMOTED_S = 6.0, 12.0
# A busy machine is slow to start, to answer and to take new connections.
MARIADB_BUSY_S = 10.0


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
@pytest.mark.parametrize(
    ("copies", "events", "away_s"),
    [
        (
            2,
            "{at: 6s, lose: n1}, {at: 12s, promote: n2}, {at: 16s, replace: n1}",
            MARIADB_PROMOTED_S - MARIADB_LOST_S,
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
    text = MARIADB.replace("COPIES", str(copies)).replace("EVENTS", events)
    file.write_text(text, encoding="utf-8")
    result, _ = rehearsed(lab, file, most_s=MOST_SECONDS)
    seen = result["recovery"]
    steps = [f"{step['kind']} {step['node']}" for step in seen["steps"]]
    assert steps[0] == "lose n1"
    assert steps[-1] in {"replace n1", "start n1"}
    assert seen["unavailable_s"] <= away_s + MARIADB_BUSY_S, seen
    assert seen["back_s"] is not None, seen
    assert seen["failed_operations"] > 0
    assert (seen["rows_lost"], seen["rows_wrong"], seen["rows_unread"]) == (0, 0, 0)
    assert seen["updates_lost"] == 0, seen
    assert seen["whole_s"] is not None
