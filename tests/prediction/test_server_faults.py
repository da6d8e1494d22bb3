"""Predicted timetables of PostgreSQL: what a server that is killed or lost takes to come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.databases.postgresql.simulated import SIMULATED
from disklab.errors import UserError
from disklab.prediction.cells import prepare
from disklab.prediction.counted import prepare_rehearsed

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
    job = prepare_rehearsed(trial, load_catalog([]), calibration_for("postgresql"), "x.yaml").job
    faults = job["postgresql"]["faults"]
    assert faults["vanishes"] is False
    assert faults["start_ns"] == 50_000_000


STREAMED = QUORUM.replace(
    "[{at: 20s, kill: n1}, {at: 25s, start: n1}]", "[{at: 10s, lose: n2}, {at: 15s, replace: n2}]"
)


def test_a_replaced_standby_gets_all_of_the_primary_and_then_its_log(tmp_path: Path) -> None:
    found = recovery(STREAMED.replace("60s", "200s"), tmp_path)
    (stream, replay) = found.rebuilds
    assert (stream.kind, stream.node, stream.sources) == ("stream", "n2", 1)
    # 2M rows, seven in a page, and an index; beside them some 60 s of log (13.4 kB an update, 240 a
    # second; less behind the first change of each page) and as many new pages as fill.
    assert 2e6 / 7 * 8192 < stream.size_bytes < 2e6 / 7 * 8192 + 300e6
    assert (replay.kind, replay.node) == ("replay", "n2")
    # Before it the checkpoint, which a copy waits for, writes what 15 s of updates have changed.
    assert 0.5 < found.whole_s - 5 - stream.seconds - replay.seconds < 10
    assert found.failed_operations == 0
    assert found.updates_lost is None
    # A P10 writes 100 MB/s at most.
    assert stream.bytes_per_s < 101e6


def test_the_lever_of_a_copy_is_that_of_what_bounds_it() -> None:
    lever_of = SIMULATED.breaking.lever_of
    assert "read_ahead" in lever_of("reads of the copy", "stream")
    assert "disk IOPS" in lever_of("vm uncached MB/s", "stream")
    assert lever_of("data disk write MB/s", "stream") == "larger disks, or more of them"
    assert "log to replay" in lever_of("data disk write MB/s", "replay")


def test_a_promoted_standby_loses_what_no_commit_waited_for(tmp_path: Path) -> None:
    text = QUORUM.replace(
        "[{at: 20s, kill: n1}, {at: 25s, start: n1}]",
        "[{at: 20s, kill: n1}, {at: 30s, promote: n2}]",
    )
    off = text.replace("tls: false", "tls: false, settings: {synchronous_commit: 'off'}")
    safe, lost = recovery(text, tmp_path / "safe"), recovery(off, tmp_path / "lost")
    for found in (safe, lost):
        assert found.unavailable_s == pytest.approx(10, abs=1.5)
        assert found.rows_lost == 0
    assert safe.updates_lost == 0
    # Of 240 updates a second; the log's writer comes by every 200 ms.
    assert 0 < lost.updates_lost <= 80


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (
            "{at: 1s, lose: n1}, {at: 2s, replace: n1}",
            "a standby is a copy of the primary, and n1 is",
        ),
        ("{at: 1s, promote: n2}", "the primary n1 is up, and there would be two"),
        (
            "{at: 1s, kill: n1}, {at: 2s, kill: n2}, {at: 3s, replace: n2}",
            "n1, of which it is a copy",
        ),
        (
            "{at: 1s, kill: n1}, {at: 2s, promote: n2}, {at: 3s, start: n1}",
            "n1 was the primary: its log may have something that the log of n2 does not",
        ),
    ],
)
def test_what_a_primary_and_its_standbys_cannot_do_is_refused(events: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        spec.parse(QUORUM.partition("events:")[0] + f"events: [{events}]\n", "x.yaml")


def test_a_promotion_is_predicted_and_rehearsed_and_no_host_is_asked_for_it() -> None:
    events = "events: [{at: 1s, kill: n1}, {at: 2s, promote: n2}, {at: 3s, replace: n1}]\n"
    found = spec.parse(QUORUM.partition("events:")[0] + events, "x.yaml")
    for mode in ("predict", "rehearse"):
        (trial,) = found.trials(mode, nodes=3)
        assert trial.refused is None, mode
    (measured,) = found.trials("measure")
    assert measured.refused.way_out == "use `disklab rehearse`"


def test_commits_that_wait_for_the_primary_alone_wait_for_no_standby() -> None:
    local = QUORUM.replace("tls: false", "tls: false, settings: {synchronous_commit: local}")
    for text, standbys in ((QUORUM, 1), (local, 0)):
        (trial,) = spec.parse(text, "x.yaml").trials("predict")
        job = prepare(trial, load_catalog([]), calibration_for("postgresql"), "x.yaml").job
        database = job["postgresql"]["database"]
        assert (database["synchronous_standbys"], database["synchronous_commit"]) == (
            standbys,
            True,
        )


def test_the_experiment_of_a_lost_server_is_answered(tmp_path: Path) -> None:
    text = (ROOT / "experiments" / "postgresql-lost-server.yaml").read_text()
    results = predicted(text.replace("10M", "2M"), tmp_path)
    assert [result.status for result in results] == ["ok"] * 10
    found = {
        (str(result.factors["lost"]), str(result.factors["commits"])): result.recovery
        for result in results
        if result.recovery is not None
    }
    attached, local = (
        found[f"standby, {disks} disks", "quorum"] for disks in ("attached", "local")
    )
    assert (attached.whole_s or 0) < (local.whole_s or 0)
    assert attached.failed_operations == local.failed_operations == 0
    waited, promoted = (
        found[f"primary, attached disks, {what}", "quorum"] for what in ("waited for", "promoted")
    )
    # A promotion waits for its time-out of 30 s, the next VM is there after 15.
    assert (waited.unavailable_s or 0) < (promoted.unavailable_s or 0)
    assert promoted.updates_lost == 0


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
