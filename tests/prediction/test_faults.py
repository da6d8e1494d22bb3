"""Predicted timetables: what a lost node costs, told as a rehearsal tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.databases.cassandra.simulated_faults import lever_of
from disklab.prediction.run import Options, predict
from disklab.results import Recovery, TrialResult
from disklab.results.timetable import in_time, in_words

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
    folder.mkdir(exist_ok=True)
    path = folder / "x.yaml"
    path.write_text(text)
    run = predict(spec.load(path), Options(out=folder / "runs"), lambda _: None)
    return list(run.results())


def recovery(text: str, folder: Path) -> Recovery:
    (result,) = predicted(text, folder)
    assert result.status == "ok", result.reason
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
    assert "GB are streamed at 50 MB/s in 42 s, limited by stream throughput (100% used)" in words


def test_a_rebuild_that_outlasts_the_load_goes_on_at_its_rate(tmp_path: Path) -> None:
    found = recovery(TEXT.replace("rows: 500k", "rows: 5M"), tmp_path)
    (rebuild,) = found.rebuilds
    assert found.extrapolated
    assert rebuild.seen_bytes < rebuild.size_bytes / 4
    assert rebuild.seconds == pytest.approx(5_000_000 * 4255 / (2 * 24 * 2**20), rel=0.02)
    assert "beyond the load, at the rate seen in it" in in_words(found)


@pytest.mark.parametrize("load", ["120s", "32s"])
def test_one_copy_on_a_lost_disk_is_lost_however_short_the_load(load: str, tmp_path: Path) -> None:
    one = TEXT.replace("replication_factor: 3", "replication_factor: 1").replace("120s", load)
    found = recovery(one, tmp_path)
    assert found.rows_lost == pytest.approx(500_000 / 3, rel=0.1)
    assert found.rebuilds == []


def test_disks_that_stay_need_no_stream(tmp_path: Path) -> None:
    attached = TEXT.replace("disks: local", "disks: 4 x azure/P30").replace("replace:", "start:")
    found = recovery(attached, tmp_path)
    assert [one.kind for one in found.rebuilds] == ["replay"]
    assert found.rows_lost == 0
    # Its log has no more than 30 s of 150 writes a second.
    assert found.whole_s < 10 + 12.3 + 3


def test_a_faster_throttle_shows_the_next_limit(tmp_path: Path) -> None:
    setting = "settings: {stream_throughput_outbound: 10000MiB/s}"
    fast = TEXT.replace("LOCAL_QUORUM}", f"LOCAL_QUORUM, {setting}}}")
    (rebuild,) = recovery(fast, tmp_path).rebuilds
    assert rebuild.bound.resource != "stream throughput"
    assert rebuild.lever == lever_of(rebuild.bound.resource, rebuild.kind)
    assert rebuild.seconds < 42 / 2


def test_without_a_timetable_nothing_is_told_of_faults(tmp_path: Path) -> None:
    (result,) = predicted(TEXT.partition("events:")[0], tmp_path)
    assert result.recovery is None
    told: dict[str, Any] = json.loads(result.model_dump_json())
    assert told["recovery"] is None


ATTACHED = TEXT.replace("disks: local", "disks: 4 x azure/P30, caching: ReadOnly")


def with_events(text: str, events: str) -> str:
    return f"{text.partition('events:')[0]}events: [{events}]\n"


def test_a_migrated_node_comes_from_all_copies_and_the_old_one_gives_two_thirds_back(
    tmp_path: Path,
) -> None:
    events = "{at: 10s, migrate: n2, host: {vm: azure/Standard_L8s, disks: local, caching: None}}"
    text = with_events(ATTACHED.replace("120s", "200s"), events)
    found = recovery(text.replace("rows: 500k", "rows: 300k"), tmp_path)
    comes, goes = found.rebuilds
    # Three nodes send a third each at 24 MiB/s, and one of them sends two thirds at that rate.
    seconds = 300_000 * 4255 / (24 * 2**20)
    assert comes.seconds == pytest.approx(seconds / 3, rel=0.03)
    assert (comes.sources, comes.node) == (3, "n2")
    assert goes.seconds == pytest.approx(seconds * 2 / 3, rel=0.03)
    assert (goes.sources, goes.node) == (1, "n2")
    (step,) = found.steps
    assert (step.kind, step.node) == ("migrate", "n2")
    # The new process, its schema and ring delay; then the old node leaves in two ring delays.
    assert found.whole_s == pytest.approx(12.3 + 35.9 + seconds + 60, abs=1.5)
    assert (found.failed_operations, found.rows_lost) == (0, 0)


def test_a_node_more_takes_its_share_and_one_less_leaves_its_own(tmp_path: Path) -> None:
    events = "{at: 5s, add: n4}, {at: 90s, decommission: n1}"
    text = with_events(TEXT.replace("120s", "240s"), events)
    found = recovery(text.replace("rows: 500k", "rows: 300k"), tmp_path)
    comes, goes = found.rebuilds
    # Three of four copies that each node had, from three nodes; then three quarters of all rows.
    seconds = 300_000 * 4255 * 3 / 4 / (24 * 2**20)
    assert comes.seconds == pytest.approx(seconds / 3, rel=0.03)
    assert (comes.sources, comes.node, comes.bound.resource) == (3, "n4", "stream throughput")
    assert goes.seconds == pytest.approx(seconds, rel=0.03)
    assert (goes.sources, goes.node) == (1, "n1")
    add, leave = found.steps
    assert (add.kind, add.node, leave.kind, leave.node) == ("add", "n4", "decommission", "n1")
    assert add.ended_s - add.begun_s == pytest.approx(12.3 + 35.9 + seconds / 3, abs=1)
    assert leave.ended_s - leave.begun_s == pytest.approx(60 + seconds, abs=1)
    assert (found.failed_operations, found.rows_lost, found.extrapolated) == (0, 0, False)
    assert f"GB are streamed at {comes.bytes_per_s / 1e6:.0f} MB/s" in in_words(found)


def test_a_repair_reads_all_copies_and_3_throttles_it(tmp_path: Path) -> None:
    repaired = with_events(ATTACHED, "{at: 10s, repair: n2}")
    (slow,) = recovery(
        repaired.replace("LOCAL_QUORUM}", "LOCAL_QUORUM, version: '3.11'}"), tmp_path
    ).rebuilds
    assert (slow.kind, slow.sources) == ("validation", 3)
    assert slow.size_bytes == pytest.approx(3 * 500_000 * 4255, rel=0.01)
    # 16 MiB/s a node.
    assert slow.bound.resource == "compaction throughput"
    assert slow.seconds == pytest.approx(500_000 * 4255 / (16 * 2**20), rel=0.02)
    assert "nodetool setcompactionthroughput" in slow.lever
    found = recovery(repaired, tmp_path)
    (free,) = found.rebuilds
    assert free.bound.resource != "compaction throughput"
    assert free.seconds < slow.seconds / 2
    assert f"{free.size_bytes / 1e9:.3g} GB are compared at" in in_words(found)
    assert found.whole_s == pytest.approx(free.seconds, abs=0.1)


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


WIDE = TEXT.replace("nodes: 3\n", "nodes: 3\n  network: azure/standard\n")


def test_a_way_that_is_cut_between_two_swallows_what_needs_both(tmp_path: Path) -> None:
    events = "{at: 20s, cut: n1-n3}, {at: 50s, join: n1-n3}"
    quorum = recovery(with_events(WIDE, events), tmp_path)
    assert [(one.kind, one.node) for one in quorum.steps] == [("cut", "n1-n3"), ("join", "n1-n3")]
    # Reads of n1 and n3 ask n2 in the end; nobody is convicted, for n2 tells each of the other.
    assert quorum.failed_operations < 300 * 30 * 0.05
    every = WIDE.replace("LOCAL_QUORUM", "ALL").replace("read: 50%, write: 50%", "write: 100%")
    found = recovery(with_events(every, events), tmp_path)
    # Two of three coordinators miss the other, for 28 of 30 s: what is written last still comes.
    assert found.failed_operations == pytest.approx(300 * 30 * 2 / 3, rel=0.1)


def test_a_client_turns_from_a_node_that_it_is_cut_off_from(tmp_path: Path) -> None:
    found = recovery(with_events(WIDE, "{at: 20s, cut: client-n2}"), tmp_path)
    # A third of 300 a second, for 12 s.
    assert found.failed_operations == pytest.approx(1200, rel=0.1)
    assert found.steps[0].node == "client-n2"


@pytest.mark.parametrize(
    ("event", "slower_ms"),
    [
        # Every operation goes to a second copy; a third of them is coordinated by n1 itself.
        ("{at: 1s, slow_link: n1, round_trip: 40ms}", 40),
        ("{at: 1s, lossy: n1, loss: 20%}", 40),
    ],
)
def test_a_slow_or_lossy_link_is_paid_by_who_goes_over_it(
    event: str, slower_ms: float, tmp_path: Path
) -> None:
    (plain,) = predicted(WIDE.partition("events:")[0], tmp_path / "plain")
    (slow,) = predicted(with_events(WIDE, event), tmp_path / "slow")
    assert slow.recovery.failed_operations == 0
    assert slow.latency_ms["p99"] > plain.latency_ms["p99"] + 0.9 * slower_ms


def test_a_rebuild_over_a_long_link_names_the_link(tmp_path: Path) -> None:
    events = (
        "{at: 5s, slow_link: n2, round_trip: 300ms}, {at: 20s, lose: n2}, {at: 30s, replace: n2}"
    )
    (rebuild,) = recovery(with_events(WIDE, events), tmp_path).rebuilds
    assert rebuild.bound.resource == "link"
    # A window of 3 MiB each 300 ms from each of two nodes, less than their throttles.
    assert rebuild.bytes_per_s == pytest.approx(2 * 3 * 2**20 / 0.3, rel=0.05)
    assert "round trip" in rebuild.lever


def test_what_the_load_is_too_short_for_is_said(tmp_path: Path) -> None:
    # Changes of the ring come one after the other, and the first ends at 80 s.
    events = "{at: 20s, add: n4}, {at: 25s, add: n5}, {at: 30s, decommission: n1}"
    few = TEXT.replace("120s", "40s").replace("rows: 500k", "rows: 300k")
    (result,) = predicted(with_events(few, events), tmp_path)
    said = "\n".join(result.warnings)
    assert "add n5 had streamed nothing when the load ended" in said
    assert "decommission n1 had not begun when the load ended" in said
    assert result.recovery.whole_s is None


def test_a_stream_is_seen_however_short_the_load(tmp_path: Path) -> None:
    whole = recovery(TEXT, tmp_path / "whole")
    (result,) = predicted(TEXT.replace("120s", "32s"), tmp_path / "short")
    assert "the load is kept up for 93 s instead of 32" in "\n".join(result.warnings)
    assert result.recovery.extrapolated
    assert result.recovery.whole_s == pytest.approx(whole.whole_s, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (599.4, "599 s"),
        (600, "10 min"),
        (5400, "1.5 h"),
        (250_000, "69.4 h"),
        (2.295e8, "2,656 days"),
    ],
)
def test_a_time_is_told_in_the_unit_that_people_count_it_in(seconds: float, words: str) -> None:
    assert in_time(seconds) == words
