"""What is read out of Cassandra's log and the JVM's, also as the parts of a step."""

from __future__ import annotations

import os
import tracemalloc
from datetime import datetime
from pathlib import Path

import pytest
from disklab.databases.cassandra.compactions import parts, parts_in
from disklab.databases.cassandra.node import LOG, PIECE_BYTES, GcLog
from disklab.databases.etcd.cluster import LOG as ETCD
from disklab.databases.log import FirstErrors, LogForm, NodeLog, watched
from disklab.databases.postgresql.server import LOG as POSTGRESQL
from disklab.errors import MachineError
from disklab.procedures import outcome

STOP = (
    '[2026-11-21T11:24:57.098+0000][15078277554ns] Safepoint "{name}", Time since last: '
    "1011550039 ns, Reaching safepoint: 55897096 ns, Cleanup: 47875 ns, At safepoint: 203359 ns, "
    "Total: {total} ns\n"
)


def test_stops_are_counted_and_collections_among_them(tmp_path: Path) -> None:
    path = tmp_path / "gc.log"
    log = GcLog(path)
    log.advance(0.0)
    assert log.pauses == 0
    collection = STOP.format(name="G1CollectForAllocation", total=2_000_000)
    path.write_text(STOP.format(name="Cleanup", total=5_000_000) + collection)
    log.advance(1.0)
    assert (log.pauses, log.pause_s, log.stopped_s) == (1, 0.002, 0.007)
    assert log.longest_s() == 0.005
    with path.open("a") as more:
        # A line that is being written is read when it is whole.
        more.write(collection + collection[:40])
    log.advance(2.5)
    assert log.pauses == 2
    with path.open("a") as more:
        more.write(collection[40:])
    log.advance(3.0)
    assert log.pauses == 3
    # The long stop was read more than a second ago.
    assert log.longest_s() == 0.002


def test_what_was_allocated_lies_between_two_collections(tmp_path: Path) -> None:
    path = tmp_path / "gc.log"
    young = "[2026-11-25T21:18:45.206+0000][652841935ns] GC({n}) Pause Young (Normal) "
    young += "(G1 Evacuation Pause) {found}M->{left}M(1024M) 6.057ms\n"
    path.write_text(young.format(n=0, found=52, left=9) + young.format(n=1, found=309, left=20))
    log = GcLog(path)
    log.advance(0.0)
    assert log.allocated_bytes == 300 << 20
    with path.open("a") as more:
        # A concurrent cycle may have freed more than was allocated; that is not told.
        more.write("[x][1ns] GC(2) Pause Remark 17M->16M(1024M) 5.5ms\n")
        more.write("[x][2ns] GC(3) Pause Young (Concurrent Start) (Metadata) 26M->13M(1024M) 5ms\n")
        more.write("[x][3ns] GC(4) Pause Full (System.gc()) 113M->13M(1024M) 50ms\n")
    log.advance(1.0)
    assert log.allocated_bytes == (300 + 10 + 100) << 20


def test_a_log_of_any_length_is_read_in_pieces(tmp_path: Path) -> None:
    """The user of the database writes it, and root's part reads it."""
    path = tmp_path / "gc.log"
    stop = STOP.format(name="Cleanup", total=1_000_000).encode()
    hostile = b'Safepoint "a",' * (PIECE_BYTES // 14)
    digits = STOP.format(name="Cleanup", total="9" * 5000).encode()
    with path.open("wb") as file:
        # A line without an end, one with a number that is none, and more than a turn reads.
        file.write(stop + hostile + hostile + b"\n" + digits + stop)
        file.truncate(20 * PIECE_BYTES)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + stop)
    log = GcLog(path)
    tracemalloc.start()
    try:
        log.advance(0.0)
        seen = log.stopped_s
        log.advance(1.0)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (round(seen, 6), round(log.stopped_s, 6)) == (0.002, 0.003)
    # The piece, and its lines.
    assert most_bytes < 4 * PIECE_BYTES


def node_log(folder: Path) -> NodeLog:
    return NodeLog(folder, "n1", LOG)


def test_an_excerpt_has_warnings_errors_and_causes(tmp_path: Path) -> None:
    seen = node_log(tmp_path)
    seen.log.write_text(
        "INFO  [main] started\n"
        "ERROR [main] Exception in thread\n"
        "java.lang.RuntimeException: wrapped\n"
        "\tat org.apache.cassandra.Some.method(Some.java:1)\n"
        "Caused by: java.io.IOException: broken\n"
        "INFO  [main] going on\n"
        "not a cause\n"
    )
    lines = seen.excerpt().splitlines()
    assert lines[:3] == [
        "ERROR [main] Exception in thread",
        "java.lang.RuntimeException: wrapped",
        "Caused by: java.io.IOException: broken",
    ]
    assert lines[3:] == [f"(the whole log: {seen.log})"]


def test_a_node_that_dies_before_it_logs_says_why_on_its_output(tmp_path: Path) -> None:
    seen = node_log(tmp_path)
    seen.output.write_text("Error: Could not find or load main class\n")
    assert "Could not find" in seen.excerpt()


def test_a_full_disk_is_said_in_plain_words(tmp_path: Path) -> None:
    seen = node_log(tmp_path)
    seen.log.write_text(
        "ERROR [x] FSWriteError\nCaused by: java.io.IOException: No space left on device\n"
    )
    assert seen.is_full()
    assert seen.excerpt().startswith("a volume of the node is full")


def test_what_an_earlier_start_said_is_left_out(tmp_path: Path) -> None:
    before = node_log(tmp_path)
    before.log.write_text("ERROR [x] No space left on device\n")
    now = before.from_now()
    with now.log.open("a") as more:
        more.write("WARN  [y] something else\n")
    assert not now.is_full()
    assert now.excerpt().splitlines()[0] == "WARN  [y] something else"


# PostgreSQL 15.18 on a full disk, with lines for those that asked too early and too late; etcd 3.4
# without a folder; entries in the form of Cassandra 5.0.6 with the exception of docs/upstream.
LOGS = Path(__file__).with_name("logs")


@pytest.mark.parametrize(
    ("form", "name", "first", "lines"),
    [
        (POSTGRESQL, "postgresql", 'PANIC:  could not write to file "pg_wal/xlogtemp.8108"', 1),
        (ETCD, "etcd", '"msg":"discovery failed"', 1),
        (LOG, "cassandra", "Cannot open nb-1-big", 3),
    ],
)
def test_the_first_error_is_the_cause(
    tmp_path: Path, form: LogForm, name: str, first: str, lines: int
) -> None:
    log = NodeLog(tmp_path, "n1", form)
    log.output.write_text((LOGS / f"{name}.log").read_text())
    found = log.first_error()
    assert first in found[0]
    assert len(found) == lines


def test_a_failure_says_what_the_server_logged_first(tmp_path: Path) -> None:
    log = watched(NodeLog(tmp_path, "n1", POSTGRESQL))
    log.output.write_text("2026-11-27 02:00:00.000 UTC [1] ERROR:  of an earlier turn\n")
    errors = FirstErrors()
    heard = MachineError("server closed the connection unexpectedly\nbefore or while processing")
    assert outcome.explained(heard, errors.lines()) is heard
    with log.output.open("a") as more:
        more.write((LOGS / "postgresql.log").read_text())
    told = str(outcome.explained(heard, errors.lines())).splitlines()
    assert told[0].startswith("server closed the connection unexpectedly; n1 logged: 2026-11-27")
    assert told[0].endswith("No space left on device")
    assert told[-1] == "before or while processing"
    # Who says it already does not say it twice.
    whole = MachineError(f"n1 ended by itself\n{log.excerpt()}")
    assert outcome.explained(whole, errors.lines()) is whole


SERVICE = "StorageService.java:2047"
# Of our own rehearsal of 2026-11-25, Cassandra 5.0.6: a node that migrated.
NEW = f"""\
INFO  [main] 2026-11-25 14:41:41,421 YamlConfigurationLoader.java:103 - Configuration location: x
INFO  [main] 2026-11-25 14:43:16,364 {SERVICE} - JOINING: waiting for ring information
INFO  [main] 2026-11-25 14:43:25,835 {SERVICE} - JOINING: schema complete, ready to bootstrap
INFO  [main] 2026-11-25 14:43:31,818 {SERVICE} - JOINING: Starting to bootstrap...
WARN  [main] 2026-11-25 14:43:32,000 Some.java:1 - JOINING: something else
not a line of the log
INFO  [main] 2026-11-25 14:44:19,324 StorageService.java:2216 - Bootstrap completed for tokens [1]
INFO  [main] 2026-11-25 14:44:25,126 CassandraDaemon.java:744 - Startup complete
"""
OLD = f"""\
INFO  [main] 2026-11-25 14:30:00,000 {SERVICE} - JOINING: waiting for ring information
INFO  [jolokia-0] 2026-11-25 14:44:31,104 {SERVICE} - LEAVING: sleeping 8000 ms for batches
INFO  [jolokia-0] 2026-11-25 14:44:39,114 {SERVICE} - LEAVING: replaying batch log and streaming
INFO  [jolokia-0] 2026-11-25 14:44:50,022 {SERVICE} - Announcing that I have left the ring for 5 s
"""


def test_a_migration_is_told_part_by_part() -> None:
    begun, ended = datetime(2026, 11, 25, 14, 41, 36), datetime(2026, 11, 25, 14, 44, 58)
    told = parts([*OLD.splitlines(), *NEW.splitlines()], begun, ended)
    assert told == pytest.approx(
        {
            "process": 100.364,
            "join": 15.454,
            "stream": 47.506,
            "finish": 11.78,
            "announce": 8.01,
            "stream back": 10.908,
            "leave": 7.978,
        }
    )
    assert sum(told.values()) == pytest.approx((ended - begun).total_seconds())


def test_one_that_leaves_alone_has_no_finish_and_one_that_restarts_no_parts(tmp_path: Path) -> None:
    begun, ended = datetime(2026, 11, 25, 14, 44, 31), datetime(2026, 11, 25, 14, 44, 58)
    told = parts(OLD.splitlines(), begun, ended)
    assert list(told) == ["announce", "stream back", "leave"]
    assert parts(NEW.splitlines(), begun, ended) == {}
    log = tmp_path / "system.log"
    log.write_text(OLD)
    found = parts_in([log, tmp_path / "none.log"], begun.timestamp(), ended.timestamp())
    assert found == told
