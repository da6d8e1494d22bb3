"""Predicted timetables: what a lost node costs, told as a rehearsal tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.prediction.faults import lever_of
from disklab.prediction.run import Options, predict
from disklab.results import Recovery, TrialResult
from disklab.results.timetable import in_words

TEXT = """\
title: lost
cluster:
  nodes: 3
  vm: azure/Standard_DS14_v2
  volumes: {data: {disks: local}}
client: {nodes: 1, vm: azure/Standard_DS14_v2}
database: {engine: cassandra, replication_factor: 3, consistency: LOCAL_QUORUM}
dataset: {rows: 500k, row: 5 x 818B}
workload:
  operations: {read: 50%, write: 50%}
  keys: uniform
  load: {rate: 300/s}
  stop: {duration: 120s}
events: [{at: 20s, lose: n2}, {at: 30s, replace: n2}]
"""


def predicted(text: str, folder: Path) -> list[TrialResult]:
    path = folder / "x.yaml"
    path.write_text(text)
    run = predict(spec.load(path), Options(out=folder / "runs"), lambda _: None)
    return list(run.results())


def recovery(text: str, folder: Path) -> Recovery:
    (result,) = predicted(text, folder)
    assert result.status == "ok", result.reason
    assert result.recovery is not None
    return result.recovery


def test_a_replaced_node_is_whole_after_its_delays_and_its_streams(tmp_path: Path) -> None:
    found = recovery(TEXT, tmp_path)
    (rebuild,) = found.rebuilds
    # 500,000 rows of 4255 bytes from two nodes at 24 MiB/s each.
    seconds = 500_000 * 4255 / (2 * 24 * 2**20)
    assert rebuild.seconds == pytest.approx(seconds, rel=0.02)
    assert (rebuild.sources, rebuild.bound.resource) == (2, "stream throughput")
    assert "stream_throughput_outbound" in rebuild.lever
    # Ten seconds until it is replaced, 12.3 until the process answers, 5.9 for the schema, 30 of
    # ring delay.
    assert found.whole_s == pytest.approx(10 + 12.3 + 35.9 + seconds, abs=1.5)
    assert found.rows_lost == 0
    assert found.ops_per_s_before == pytest.approx(300, rel=0.05)
    # Clients wait 12 s for a machine that has vanished: a third of 300 a second.
    assert found.failed_operations == pytest.approx(1200, rel=0.1)
    assert found.degraded_ms["p50"] > 0
    words = in_words(found)
    assert "GB come back at 50 MB/s in 42 s, bound by stream throughput (100% used)" in words


def test_a_rebuild_that_outlasts_the_load_goes_on_at_its_rate(tmp_path: Path) -> None:
    found = recovery(TEXT.replace("rows: 500k", "rows: 5M"), tmp_path)
    (rebuild,) = found.rebuilds
    assert found.extrapolated
    assert rebuild.seen_bytes < rebuild.size_bytes / 4
    assert rebuild.seconds == pytest.approx(5_000_000 * 4255 / (2 * 24 * 2**20), rel=0.02)
    assert "beyond the load, at the rate seen in it" in in_words(found)


def test_one_copy_on_a_lost_disk_is_lost(tmp_path: Path) -> None:
    one = TEXT.replace("replication_factor: 3", "replication_factor: 1")
    found = recovery(one, tmp_path)
    assert found.rows_lost == pytest.approx(500_000 / 3, rel=0.1)
    assert found.rebuilds == []


def test_disks_that_stay_need_no_stream(tmp_path: Path) -> None:
    attached = TEXT.replace("disks: local", "disks: 4 x azure/P30").replace("replace:", "start:")
    found = recovery(attached, tmp_path)
    assert [one.kind for one in found.rebuilds] == ["replay"]
    assert found.rows_lost == 0
    assert found.whole_s is not None
    # Its log has no more than 30 s of 150 writes a second.
    assert found.whole_s < 10 + 12.3 + 3


def test_a_faster_throttle_shows_the_next_limit(tmp_path: Path) -> None:
    setting = "settings: {stream_throughput_outbound: 10000MiB/s}"
    fast = TEXT.replace("LOCAL_QUORUM}", f"LOCAL_QUORUM, {setting}}}")
    (rebuild,) = recovery(fast, tmp_path).rebuilds
    assert rebuild.bound.resource != "stream throughput"
    assert rebuild.lever == lever_of(rebuild.bound.resource)
    assert rebuild.seconds < 42 / 2


def test_without_a_timetable_nothing_is_told_of_faults(tmp_path: Path) -> None:
    (result,) = predicted(TEXT.partition("events:")[0], tmp_path)
    assert result.recovery is None
    told: dict[str, Any] = json.loads(result.model_dump_json())
    assert told["recovery"] is None


ATTACHED = TEXT.replace("disks: local", "disks: 4 x azure/P30, caching: ReadOnly")


def with_events(text: str, events: str) -> str:
    return f"{text.partition('events:')[0]}events: [{events}]\n"


def test_a_migrated_node_comes_from_the_old_one_and_serves_from_its_own_disks(
    tmp_path: Path,
) -> None:
    events = "{at: 10s, migrate: n2, host: {vm: azure/Standard_L8s, disks: local, caching: None}}"
    found = recovery(with_events(ATTACHED, events), tmp_path)
    (rebuild,) = found.rebuilds
    # One source, which has all of it and sends 24 MiB/s.
    seconds = 500_000 * 4255 / (24 * 2**20)
    assert rebuild.seconds == pytest.approx(seconds, rel=0.02)
    assert (rebuild.sources, rebuild.node) == (1, "n2")
    (step,) = found.steps
    assert (step.kind, step.node) == ("migrate", "n2")
    # The new process, its schema and ring delay; then the old node leaves in two ring delays.
    assert found.whole_s == pytest.approx(12.3 + 35.9 + seconds + 60, abs=1.5)
    assert (found.failed_operations, found.rows_lost) == (0, 0)


def test_a_move_takes_what_the_process_takes(tmp_path: Path) -> None:
    events = "{at: 20s, move: n2, host: {vm: azure/Standard_E8s_v3}}"
    found = recovery(with_events(ATTACHED, events), tmp_path)
    assert found.rebuilds == []
    assert found.whole_s == pytest.approx(12.3, abs=3)
    assert found.rows_lost == 0


def test_a_lost_zone_is_all_its_nodes(tmp_path: Path) -> None:
    zones = TEXT.replace("nodes: 3\n", "nodes: 3\n  zones: 3\n")
    lost = recovery(with_events(zones, "{at: 20s, lose_zone: 2}, {at: 40s, replace: n2}"), tmp_path)
    node = recovery(with_events(zones, "{at: 20s, lose: n2}, {at: 40s, replace: n2}"), tmp_path)
    assert [(one.kind, one.node) for one in lost.steps] == [("lose_zone", "2"), ("replace", "n2")]
    assert lost.rebuilds == node.rebuilds


def test_a_cut_node_fails_what_it_coordinates_until_clients_notice(tmp_path: Path) -> None:
    wide = TEXT.replace("nodes: 3\n", "nodes: 3\n  network: azure/standard\n")
    found = recovery(with_events(wide, "{at: 20s, cut: n2}, {at: 60s, join: n2}"), tmp_path)
    # A third of 300 a second, for 12 s.
    assert found.failed_operations == pytest.approx(1200, rel=0.1)
    assert found.rebuilds == []
    (cut, joined) = found.steps
    assert cut.ended_s == cut.begun_s
    assert joined.ended_s == pytest.approx(61, abs=0.1)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("{at: 20s, repair: n2}", "the simulator does not know repair"),
        ("{at: 20s, cut: n1-n2}", "the simulator does not know cut of a link between two"),
    ],
)
def test_what_the_simulator_does_not_know_is_refused(event: str, said: str, tmp_path: Path) -> None:
    wide = TEXT.replace("nodes: 3\n", "nodes: 3\n  network: azure/standard\n")
    (result,) = predicted(with_events(wide, event), tmp_path)
    assert result.status == "refused"
    assert said in str(result.reason)
