"""Predicted timetables of PostgreSQL: what a server that is killed or lost takes to come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.prediction.cells import prepare
from disklab.prediction.rehearsed import prepare_rehearsed

from .test_faults import predicted, recovery

ROOT = Path(__file__).parents[2]

TEXT = """\
title: killed
cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: azure/P10}}}
client: {nodes: 1, vm: azure/Standard_D4s_v5}
database: {engine: postgresql, replication_factor: 1, tls: false}
dataset: {rows: 2M, row: 10 x 100B}
workload:
  operations: {read: 20%, write: 80%}
  keys: uniform
  load: {rate: 300/s}
  stop: {duration: 60s}
events: [{at: 20s, kill: n1}, {at: 25s, start: n1}]
"""

LOST = TEXT.replace("kill:", "lose:")
QUORUM = TEXT.replace("cluster: {nodes: 1", "cluster: {nodes: 3").replace(
    "replication_factor: 1", "replication_factor: 3"
)


def test_a_killed_server_is_away_until_it_has_replayed_its_log(tmp_path: Path) -> None:
    found = recovery(TEXT, tmp_path)
    (rebuild,) = found.rebuilds
    assert (rebuild.kind, rebuild.node) == ("replay", "n1")
    # 4,800 updates in 20 s. Nearly each has the image of a page of rows (7.4 kB), which has no room
    # for another version, so that the row goes elsewhere (1.1 kB) and its leaf (5 kB) changes, too.
    assert rebuild.size_bytes == pytest.approx(4800 * 13_400, rel=0.1)
    assert found.whole_s == pytest.approx(5.1 + rebuild.seconds, abs=0.3)
    assert found.rows_lost == 0
    assert found.whole_s is not None
    # Each operation that is due fails at once, until a client's next try.
    assert found.failed_operations == pytest.approx(300 * found.whole_s, abs=350)


def test_a_lost_machine_has_its_log_on_the_disk_alone(tmp_path: Path) -> None:
    killed = recovery(TEXT, tmp_path / "killed")
    lost = recovery(LOST, tmp_path / "lost")
    assert lost.rebuilds[0].seconds > killed.rebuilds[0].seconds
    # Its clients wait for their time-outs, or for the machine that is back: nothing fails at once.
    assert lost.failed_operations < killed.failed_operations / 2


def test_what_limits_the_replay_has_a_lever_of_the_log(tmp_path: Path) -> None:
    slow = TEXT.replace("azure/P10", "azure/S4").replace("60s", "300s")
    found = recovery(slow, tmp_path)
    (rebuild,) = found.rebuilds
    assert "IOPS" in rebuild.bound.resource
    assert rebuild.lever.endswith("leaves less log to replay")


def test_a_standby_less_costs_no_operation_and_a_primary_all_of_them(tmp_path: Path) -> None:
    (standby,) = predicted(QUORUM.replace("n1", "n2"), tmp_path / "standby")
    assert standby.recovery is not None
    assert standby.recovery.failed_operations == 0
    primary = recovery(QUORUM, tmp_path / "primary")
    assert primary.failed_operations > 1000


def test_events_that_the_simulator_does_not_know_are_refused_with_those_it_knows() -> None:
    text = QUORUM.replace("{nodes: 3", "{network: azure/standard, nodes: 3").replace(
        "[{at: 20s, kill: n1}, {at: 25s, start: n1}]", "[{at: 20s, cut: n2}, {at: 30s, join: n2}]"
    )
    (trial,) = spec.parse(text, "x.yaml").trials("predict")
    found = prepare(trial, load_catalog([]), calibration_for("postgresql"), "x.yaml")
    assert found.job is None
    assert [reason.value for reason in found.reasons] == ["cut", "join"]
    assert "kill, lose, start, restart" in found.reasons[0].rule


def test_a_setting_of_the_replay_has_an_effect_where_there_is_one() -> None:
    given = TEXT.replace("tls: false", "tls: false, settings: {maintenance_io_concurrency: 32}")
    calibration = calibration_for("postgresql")
    for text, told in ((given, False), (given.partition("events:")[0], True)):
        (trial,) = spec.parse(text, "x.yaml").trials("predict")
        found = prepare(trial, load_catalog([]), calibration, "x.yaml")
        assert any("maintenance_io_concurrency" in one for one in found.warnings) is told


def test_a_rehearsals_lost_server_is_killed_and_starts_at_its_own_pace() -> None:
    (trial,) = spec.parse(LOST + "rehearse: {time_dilation: 2}\n", "x.yaml").trials("rehearse")
    calibration = calibration_for("postgresql")
    assert calibration is not None
    job = prepare_rehearsed(trial, load_catalog([]), calibration, "x.yaml").job
    assert job is not None
    faults = job["postgresql"]["faults"]
    assert faults["vanishes"] is False
    assert faults["start_ns"] == 50_000_000


def test_the_experiment_of_the_disks_of_a_log_is_answered(tmp_path: Path) -> None:
    text = (ROOT / "experiments" / "postgresql-failover-disks.yaml").read_text()
    results = predicted(text.replace("120s", "100s"), tmp_path)
    assert [result.status for result in results] == ["ok"] * 6
    whole = {
        (result.factors["data disks"], result.factors["event"]): result.recovery.whole_s
        for result in results
        if result.recovery is not None
    }
    killed = [whole[disk, "process killed"] for disk in ("P30", "P10", "HDD")]
    assert None not in killed
    assert killed == sorted(killed, key=lambda one: one or 0.0)
    assert (killed[2] or 0.0) > 2 * (killed[0] or 0.0)
