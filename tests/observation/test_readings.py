"""What real nodes of three lines of Cassandra answered, read as counters and latencies.

The files of `captured` are answers of 4.0.18, 4.1.10 and 5.0.6 to the questions of an observer,
five seconds apart, under 400 reads and 100 writes a second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disklab.databases.cassandra.observer import (
    LEAST,
    MOST,
    ROWS_OF_PLACE,
    TOKEN,
    Ring,
    Told,
    copies_of,
    folders_of,
    options_of,
    partitions,
    reading,
    ring_of,
    settings_of,
)
from disklab.databases.observing import Count, mean_ms
from disklab.databases.postgresql.observer import counted
from disklab.observation.machine import mount_of

LINES = ("4.0", "4.1", "5.0")
SECONDS = 5.0


def captured(line: str) -> dict[str, Any]:
    file = Path(__file__).with_name("captured") / f"cassandra-{line}.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("line", LINES)
def test_counters_of_two_readings_give_the_rate(line: str) -> None:
    answers = captured(line)
    first, last = (
        reading([Told(answers["release"], views)], at)
        for views, at in zip(answers["readings"], (0.0, SECONDS), strict=True)
    )
    assert set(last.tables) == {"disklab.rows"}, "the server's own tables are not the users'"
    grown = last.tables["disklab.rows"] - first.tables["disklab.rows"]
    # The two sets of answers are a little more than five seconds apart.
    assert grown.reads / SECONDS == pytest.approx(400, rel=0.1)
    assert grown.writes / SECONDS == pytest.approx(100, rel=0.15)
    # The views are asked one after the other while the load goes on.
    assert grown.copies_read == pytest.approx(grown.reads, rel=0.05)
    assert last.pending_compactions == 0
    (cache,) = last.caches
    assert cache.requests > cache.hits > 0
    assert cache.held > 0


@pytest.mark.parametrize("line", LINES)
def test_latencies_are_in_milliseconds_whatever_the_line_calls_them(line: str) -> None:
    """4.1 and 5.0 say a thousandth of what 4.0 says of the same load."""
    answers = captured(line)
    told = reading([Told(answers["release"], answers["readings"][-1])], 0.0)
    assert {one.operation for one in told.latencies} == {"read", "write"}
    for one in told.latencies:
        assert 0.05 <= one.p50_ms <= 5
        assert one.p50_ms <= one.p99_ms <= 1000


@pytest.mark.parametrize("line", LINES)
def test_settings_name_the_data_folder(line: str) -> None:
    told = {row["name"]: row["value"] for row in captured(line)["settings"]}
    (folder,) = folders_of(told)
    assert folder.endswith("/cassandra/data")
    assert settings_of(told) == {}
    assert settings_of({**told, "concurrent_reads": "64"}) == {"concurrent_reads": 64}


def test_nodes_are_added_up_and_the_slowest_tells_the_percentile() -> None:
    answers = captured("4.0")
    one = Told(answers["release"], answers["readings"][-1])
    alone, both = reading([one], 0.0), reading([one, one], 0.0)
    assert both.tables["disklab.rows"].reads == 2 * alone.tables["disklab.rows"].reads
    assert both.latencies == alone.latencies


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("[/var/lib/cassandra/data]", ("/var/lib/cassandra/data",)),
        ("[/a, /b]", ("/a", "/b")),
        ("['/a', '/b']", ("/a", "/b")),
        ("", ()),
    ],
)
def test_data_folders(text: str, folders: tuple[str, ...]) -> None:
    assert folders_of({"data_file_directories": text}) == folders


def test_options_of_tables_have_the_words_of_an_experiment_file() -> None:
    made = "org.apache.cassandra.io.compress.LZ4Compressor"
    compaction = {"class": "org.apache.cassandra.db.compaction.LeveledCompactionStrategy"}
    compressed = {"class": made, "chunk_length_in_kb": "16"}
    assert options_of(compaction, compressed) == {
        "compaction": "leveled",
        "compression": "lz4",
        "chunk_length": "16KiB",
    }
    assert options_of({}, {"enabled": "false"}) == {"compression": "none"}


def test_copies_of_simple_and_network_replication() -> None:
    simple = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "3"}
    assert copies_of(simple) == 3
    network = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy"}
    assert copies_of({**network, "dc1": "3", "dc2": "2"}, "dc2") == 2
    assert copies_of({"class": "LocalStrategy"}) == 1


def test_nodes_of_other_data_centres_are_left_out() -> None:
    peers = [
        {"native_address": "10.0.0.5", "native_port": 9042, "data_center": "dc1"},
        {"native_address": "10.1.0.5", "native_port": 9142, "data_center": "dc2"},
    ]
    assert ring_of("dc1", peers) == Ring("dc1", ("10.0.0.5:9042",), ("dc2",))


def test_a_restart_begins_at_nothing_again() -> None:
    assert Count(reads=5.0, writes=9.0) - Count(reads=100.0, writes=8.0) == Count(5.0, 1.0)


def test_evenly_spread_tokens_give_their_number() -> None:
    many = 1_000
    step = (MOST - LEAST) // many
    tokens = [LEAST + step * number for number in range(many)]
    found = []
    for place in (LEAST + 7, LEAST // 2, 12345):
        after = [{TOKEN: token} for token in tokens if token > place][:ROWS_OF_PLACE]
        found.append((place, after))
    assert partitions(found) == pytest.approx(many, rel=0.1)


def test_a_table_smaller_than_the_sample_is_counted_as_well() -> None:
    tokens = [LEAST // 2, 0, MOST // 2]
    found = [
        (place, [{TOKEN: token} for token in tokens if token > place])
        for place in (LEAST, LEAST // 4, MOST // 4)
    ]
    assert partitions(found) == pytest.approx(3, rel=0.5)
    assert partitions([(0, [])]) == 0


def test_index_scans_of_updates_are_no_reads() -> None:
    """Of 100 index scans 30 were asked for by updates and deletes."""
    assert counted([100, 2, 10, 20, 10]) == Count(reads=70, writes=40, scans=2)


def test_mean_times_of_statements_since_the_beginning() -> None:
    before = {"SELECT": (100.0, 1.0), "INSERT": (10.0, 1.0)}
    after = {"SELECT": (300.0, 1.4), "INSERT": (20.0, 1.1), "UPDATE": (10.0, 0.3), "BEGIN": (9, 9)}
    told = mean_ms(before, after)
    assert told["read"] == pytest.approx(2.0)
    assert told["write"] == pytest.approx((0.1 + 0.3) / 20 * 1000)


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 8:16 / /mnt/data rw,relatime shared:1 - xfs /dev/sdb rw
41 22 8:32 / /mnt/data\\0402 rw - ext4 /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("folder", "number"),
    [
        ("/mnt/data/cassandra", "8:16"),
        ("/mnt/data", "8:16"),
        ("/mnt/data 2/x", "8:32"),
        ("/mnt/database", "8:1"),
    ],
)
def test_the_deepest_mount_holds_a_folder(folder: str, number: str) -> None:
    assert mount_of(MOUNTS, folder)[0] == number
