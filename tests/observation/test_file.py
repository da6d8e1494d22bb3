"""From readings to the experiment file: what it says, asks for and admits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import yaml
from disklab import spec
from disklab.advice.question import question_of
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from disklab.databases.observing import (
    CacheSeen,
    Count,
    Latency,
    NodeSeen,
    Reading,
    Shape,
    TableSeen,
)
from disklab.machines.local import LocalMachine
from disklab.observation import machine
from disklab.observation.file import Stated, assumed, file_of, row_of
from disklab.observation.found import Found, busy, found_of
from disklab.observation.machine import Disk, DiskReading, MachineSeen, Window
from disklab.prediction.cells import prepare
from hypothesis import example, given, settings
from hypothesis import strategies as st

NODES = tuple(NodeSeen(f"10.0.0.{number}:9042") for number in (4, 5, 6))
USERS = TableSeen("shop.users", 3, 2e6, 400.0, 4, 3e9, {"compaction": "leveled"})
EVENTS = TableSeen("shop.events", 3, None, 1000.0, 5, 70.2e9)
OLD = TableSeen("shop.old", 3, None, None, 0, 35.1e9)
HARDWARE = Stated("azure/Standard_E16s_v5", "4 x azure/P30")


def window(rates: list[tuple[float, float]], *latencies: Latency) -> Window:
    """Return a window of intervals of ten seconds with so many reads and writes a second."""
    readings = [Reading(0.0, {"shop.users": Count(), "shop.events": Count(), "shop.old": Count()})]
    for number, (reads, writes) in enumerate(rates, 1):
        before = readings[-1].tables
        # Users are read, events are written; a read asks two copies.
        users = before["shop.users"] + Count(reads=reads * 10, copies_read=reads * 20)
        events = before["shop.events"] + Count(writes=writes * 10)
        tables = {**before, "shop.users": users, "shop.events": events}
        readings.append(Reading(number * 10.0, tables, (), latencies, 2.0))
    return Window(readings, [{} for _ in readings], 1_790_000_000.0, interrupted=False)


def found(looked: Window, *, unseen: tuple[str, ...] = ()) -> Found:
    shape = Shape(
        "Cassandra 5.0.6", NODES, (USERS, EVENTS, OLD), {"concurrent_reads": 64}, {}, unseen
    )
    machine = MachineSeen("10.0.0.4:9042", 16, 128 << 30, 90 << 30, None)
    return found_of("cassandra", looked, shape, [machine])


RATES = [(1000.0, 400.0), (1800.0, 600.0), (800.0, 200.0)]


def test_the_file_asks_for_the_busiest_interval_and_loads_it() -> None:
    told = found(window(RATES))
    assert told.reads_per_s == pytest.approx(1200)
    assert told.writes_per_s == pytest.approx(400)
    assert told.busiest_per_s == pytest.approx(2400)
    cell = parsed(told).cells[0].spec
    assert cell.require.rate_per_s == 2400
    assert cell.workload.load.rate_per_s == 2400
    assert cell.workload.operations.read == pytest.approx(0.75)
    assert cell.database.version == "5.0"
    assert cell.database.replication_factor == 3
    assert cell.database.consistency == "LOCAL_QUORUM"
    assert cell.database.settings == {"concurrent_reads": 64}
    assert cell.database.table.compaction == "leveled"
    assert cell.cluster.nodes == 3


def test_tables_become_one_with_rows_as_operations_ask_for_and_all_data() -> None:
    told = found(window(RATES))
    assert busy(told.window) == ["shop.users", "shop.events"]
    # Three quarters of the operations are of 400 B, a quarter of 1000 B.
    assert told.row_bytes == pytest.approx(0.75 * 400 + 0.25 * 1000)
    values = 2e6 * 400 + (70.2e9 + 35.1e9) / 3 / 1.17
    assert told.data_bytes == pytest.approx(values)
    assert told.rows == pytest.approx(values / 550, rel=0.001)


@pytest.mark.parametrize(("writes", "is_told"), [(1.0, True), (0.9, False)])
def test_a_table_with_a_hundredth_of_the_operations_is_told(writes: float, is_told: bool) -> None:
    names = [name for name, _ in found(window([(99.0, writes)])).facts()]
    assert ("table shop.events" in names) is is_told


def test_the_promise_is_now_and_a_step_of_a_histogram() -> None:
    slow = Latency("shop.users", "read", 2.0, 31.0), Latency("shop.events", "write", 1.0, 9.0)
    told = found(window(RATES, *slow))
    assert bounds(told, HARDWARE) == {"read": {"p99": 38.0}, "write": {"p99": 38.0}}
    assert bounds(told, Stated(p99_ms=25.0)) == {"read": {"p99": 25.0}, "write": {"p99": 25.0}}
    assert bounds(found(window(RATES)), HARDWARE)["read"] == {"p99": 10.0}


def test_a_table_with_few_operations_does_not_set_the_percentile() -> None:
    told = found(window(RATES, Latency("shop.old", "read", 50.0, 900.0)))
    assert told.p99_ms == {}


def test_what_was_assumed_is_said_in_the_file_and_beside_it() -> None:
    told = found(window(RATES), unseen=("the moon was not seen",))
    text = file_of(told, Stated())
    said = assumed(told, Stated())
    assert "The moon was not seen." in said
    assert any(one.startswith("VM size and disks were not given") for one in said)
    assert "The moon was not seen." in text
    assert "hardware: assumed" in text
    assert not any("were not given" in one for one in assumed(told, HARDWARE))
    assert "hardware: stated" in file_of(told, HARDWARE)


def test_the_working_set_is_taken_at_its_cautious_end() -> None:
    before = window(RATES)
    caches = [
        CacheSeen("key cache", "rows", 600_000.0, True, hits, requests)
        for hits, requests in ((0.0, 0.0), (50_000.0, 100_000.0))
    ]
    ends = {0: caches[0], len(before.readings) - 1: caches[1]}
    readings = [
        Reading(one.at_s, one.tables, (ends[n],) if n in ends else ())
        for n, one in enumerate(before.readings)
    ]
    looked = Window(readings, before.disks, before.started_at, interrupted=False)
    told = found(looked)
    # 600,000 of 6,000,000 copies answer half of the reads: as if of a fifth, 10 to 40 %.
    assert told.asked.ratio == pytest.approx(0.2)
    assert parsed(told).cells[0].spec.workload.working_set_ratio == pytest.approx(0.4)


def test_the_page_cache_tells_where_every_machine_is_seen() -> None:
    """Of 24,000 copies asked for in ten seconds, disks read 12,000; they hold 108.3 GB."""
    before = window([(1200.0, 400.0)])
    machines, first, last = [], {}, {}
    for node in (one.address for one in NODES):
        disk = Disk(node, LocalMachine("here", "127.0.0.1"), "8:16", "/data", "xfs", 1 << 40, 4096)
        machines.append(MachineSeen(node, 16, 16 << 30, 3_610_000_000, disk))
        first[node] = DiskReading(1e6, 0.0, 0.0, 0.0)
        last[node] = DiskReading(1e6 + 4_000, 0.0, 0.0, 0.0)
    looked = Window(before.readings, [first, last], before.started_at, interrupted=False)
    told = found_of("cassandra", looked, Shape("x", NODES, (USERS, EVENTS, OLD)), machines)
    # A tenth of the data answers half of the reads.
    assert told.asked.ratio == pytest.approx(0.2, rel=0.01)
    assert "page cache" in told.asked.why
    without = found_of("cassandra", looked, Shape("x", NODES, (USERS, EVENTS)), machines[:2])
    assert without.asked is None


def test_a_database_that_nobody_asks_still_makes_a_file() -> None:
    told = found(window([(0.0, 0.0)]))
    assert told.sentence().startswith("3 nodes of Cassandra 5.0.6 serve 0 reads")
    assert parsed(told).cells[0].spec.workload.kind == "rows"


def test_the_answer_is_one_sentence() -> None:
    slow = Latency("shop.users", "read", 2.0, 7.2), Latency("shop.events", "write", 1.0, 3.0)
    assert found(window(RATES, *slow)).sentence() == (
        "3 nodes of Cassandra 5.0.6 serve 1,200 reads and 400 writes a second of rows of 550 B; "
        "p99 7.2 ms (reads) and 3 ms (writes); 28.68 GiB of data in 3 copies."
    )


def parsed(told: Found, stated: Stated = HARDWARE) -> spec.Experiment:
    return spec.parse(file_of(told, stated), Path("observed.yaml"))


def bounds(told: Found, stated: Stated) -> dict[str, dict[str, float]]:
    return parsed(told, stated).cells[0].spec.require.latencies()


@settings(max_examples=60)
@example(1.0, 1.0, 1 / 3)
@given(st.floats(0.1, 1e9), st.floats(0.1, 1e9), st.floats(0.001, 1e6))
def test_what_is_written_is_read_back(reads: float, writes: float, p99_ms: float) -> None:
    slow = Latency("shop.users", "read", p99_ms / 2, p99_ms)
    told = found(window([(reads, writes)], slow))
    load = parsed(told).cells[0].spec.workload.load
    assert load.rate_per_s == pytest.approx(max(1.0, reads + writes), rel=1e-3)
    assert parsed(told, Stated(p99_ms=p99_ms))


def test_a_shop_of_twenty_commits_is_written_and_asked_about_as_such() -> None:
    """Four writes a transaction: eighty writes a second are twenty commits."""
    readings = [Reading(0.0, {"shop.users": Count()}, commits=0.0)]
    readings.append(Reading(10.0, {"shop.users": Count(reads=3_000, writes=800)}, commits=200.0))
    settings_ = {"log_bin": "ON", "innodb_buffer_pool_size": "268435456"}
    shape = Shape("MariaDB 10.11.6", NODES[:1], (replace(USERS, copies=1, options={}),), settings_)
    told = found_of(
        "mariadb", Window(readings, [{}, {}], 1_790_000_000.0, interrupted=False), shape, []
    )
    assert (told.commits_per_s, told.writes_per_commit) == (20, 4)
    cell = parsed(told).cells[0].spec
    assert cell.database.version == "10.11"
    assert cell.database.settings == {"log_bin": "ON", "innodb_buffer_pool_size": 268435456}
    assert cell.workload.writes_per_commit == 4
    assert cell.workload.load.rate_per_s == 320
    assert cell.workload.operations.write == pytest.approx(20 / 320, abs=1e-3)
    asked = question_of(parsed(told))
    assert asked.rate_per_s == 320
    calibration = calibration_for("mariadb")
    for trial in asked.experiment({}).trials("predict"):
        job = prepare(trial, load_catalog(), calibration, "observed.yaml").needed()
        (write,) = (
            one for one in job["mariadb"]["workload"]["transactions"] if one["name"] == "write"
        )
        assert [(one["times"], one["commits"]) for one in write["statements"]] == [
            (3, False),
            (1, True),
        ]


def test_a_setting_of_a_server_is_no_line_of_the_file() -> None:
    told = found(window(RATES))
    hostile = {"concurrent_reads": "300}}\rtitle: INJECTED", "a": "x, b: y", "c": "\u2028- d"}
    text = file_of(replace(told, shape=replace(told.shape, settings=hostile)), HARDWARE)
    assert yaml.safe_load(text)["database"]["settings"] == hostile


def test_the_window_of_many_tables_is_summed_once() -> None:
    """A shop with a schema for each customer has thousands of tables."""
    tables = [f"shop.t{number}" for number in range(3000)]
    readings = [
        Reading(at * 10.0, {name: Count(reads=100.0 * at) for name in tables}, (), (), 2.0)
        for at in range(4)
    ]
    looked = Window(readings, [{} for _ in readings], 1_790_000_000.0, interrupted=False)
    with mock.patch.object(machine, "interval", wraps=machine.interval) as made:
        assert len(busy(looked)) <= len(tables)
        told = found_of("cassandra", looked, Shape("x", NODES, (USERS,)), [])
        assert told.as_json()
    assert made.call_count == len(readings) - 1


def test_a_row_is_of_equal_columns_where_these_make_the_whole() -> None:
    told = found(window(RATES))
    rows = [row_of(replace(told, columns=5, row_bytes=size)) for size in (1000.0, 1001.0)]
    assert rows == ["5 x 200B", "1 x 1001B"]
