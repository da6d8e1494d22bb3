"""The rows workload over PostgreSQL's wire, against a real server: encrypted or not, as asked."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disklab.databases import Database
from disklab.engine import LoadDone, LoadJob, LoadProgress, LoadReady, LoadRun, run_load
from disklab.engine.load import (
    ClosedLoop,
    Generator,
    KnownVersions,
    OpenLoop,
    RowsWorkload,
    Stop,
    TpccWorkload,
    load_target,
)
from disklab.errors import UserError
from disklab.results.histogram import decode

from tests.databases.servers import asking, points_of, postgresql
from tests.databases.servers import done as last

pytestmark = pytest.mark.machine

ROWS = 1_000
OURS = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'disklab'"


@pytest.fixture(scope="module")
def plain() -> Iterator[Database]:
    with postgresql(tls=False) as database:
        fill(database)
        yield database


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Database]:
    with postgresql(tls=True) as database:
        fill(database)
        yield database


def job(database: Database, operations: dict[str, float], **changed: Any) -> LoadJob:
    target = {**database.target, **changed.pop("target", {})}
    keys = changed.pop("keys", "uniform")
    return LoadJob(
        **{
            "seed": 5,
            "target": load_target(target),
            "workload": RowsWorkload(
                rows=ROWS, columns=5, column_bytes=301, keys=keys, operations=operations
            ),
            "load": ClosedLoop(threads=16),
            "stop": Stop(operations=ROWS),
            "interval_ms": 200,
            **changed,
        }
    )


def fill(database: Database) -> None:
    for index in range(2):
        part = Generator(index=index, count=2)
        done = last(job(database, {"write": 1.0}, keys="sequential", generator=part))
        assert done.errors == {}
        assert done.operations["write"].count == ROWS // 2


def test_every_row_is_read_back_and_every_interval_adds_up(plain: Database) -> None:
    ready, *intervals, done = run_load(job(plain, {"read": 1.0}, keys="sequential"))
    assert isinstance(ready, LoadReady)
    assert (ready.slots, ready.nodes) == (16, 1)
    assert isinstance(done, LoadDone)
    assert done.errors == {}
    assert decode(done.response["read"]).total == ROWS == done.operations["read"].count
    parts = 0
    for interval in intervals:
        assert isinstance(interval, LoadProgress)
        parts += sum(decode(packed).total for packed in interval.histograms.values())
    assert parts == ROWS


def test_an_altered_and_a_lost_row_are_failures(plain: Database) -> None:
    with asking(plain) as sql:
        sql.ask("UPDATE rows SET c1 = 'x' WHERE key = 17; DELETE FROM rows WHERE key = 71")
    try:
        done = last(job(plain, {"read": 1.0}, keys="sequential"))
        assert done.errors == {"wrong_row": 1, "missing_row": 1}
        assert (done.wrong_rows, done.missing_rows) == (1, 1)
        assert done.operations["read"].count == ROWS - 2
    finally:
        # Writing again mends both: a write is there afterwards, whether or not it was before.
        assert last(job(plain, {"write": 1.0}, keys="sequential")).errors == {}
    assert last(job(plain, {"read": 1.0}, keys="sequential")).errors == {}


@pytest.mark.parametrize("keys", ["uniform", "zipfian", "latest"])
def test_an_open_loop_keeps_its_rate_and_its_mixture(plain: Database, keys: str) -> None:
    offered = OpenLoop(rate_per_s=500, arrivals="even", max_in_flight=32)
    mixed = {"read": 0.5, "write": 0.5}
    done = last(job(plain, mixed, keys=keys, load=offered, stop=Stop(duration_s=2.0)))
    assert done.errors == {}
    assert done.operations["read"].count + done.operations["write"].count + done.unsent == 1_000
    assert decode(done.lateness).total == 1_000 - done.unsent
    if keys == "latest":
        # Its writes have added rows.
        with asking(plain) as sql:
            sql.ask(f"DELETE FROM rows WHERE key >= {ROWS}")


EVERY_KIND = {
    "read": 0.3,
    "write": 0.1,
    "insert": 0.1,
    "update": 0.1,
    "delete": 0.1,
    "scan": 0.2,
    "read_modify_write": 0.1,
}


def test_every_kind_of_operation_is_done_and_its_rows_are_verified(plain: Database) -> None:
    try:
        done = last(job(plain, EVERY_KIND, stop=Stop(operations=3_000)))
        assert done.errors == {}, done.last_error
        counts = {name: one.count for name, one in done.operations.items()}
        assert counts == {name: round(share * 3_000) for name, share in EVERY_KIND.items()}
        with asking(plain) as sql:
            added = sql.ask(f"SELECT count(*) FROM rows WHERE key >= {ROWS}")
            left = sql.ask(f"SELECT count(*) FROM rows WHERE key < {ROWS}")
        assert added == [["300"]], "each insert has a key of its own"
        assert ROWS - 300 <= int(left[0][0]) < ROWS
    finally:
        with asking(plain) as sql:
            sql.ask(f"DELETE FROM rows WHERE key >= {ROWS}")
        assert last(job(plain, {"write": 1.0}, keys="sequential")).errors == {}


def test_a_scan_notices_a_row_that_is_lost_or_altered(plain: Database) -> None:
    with asking(plain) as sql:
        sql.ask("UPDATE rows SET c4 = 'x' WHERE key = 500; DELETE FROM rows WHERE key = 510")
    try:
        done = last(job(plain, {"scan": 1.0}, keys="sequential"))
        assert set(done.errors) == {"wrong_row", "missing_row"}
        assert done.operations["scan"].count > ROWS / 2
    finally:
        assert last(job(plain, {"write": 1.0}, keys="sequential")).errors == {}
    assert last(job(plain, {"scan": 1.0}, keys="sequential")).errors == {}


def test_connections_are_encrypted_just_when_asked(plain: Database, encrypted: Database) -> None:
    for database, expected in ((plain, "0"), (encrypted, "16")):
        endless = job(database, {"read": 1.0}, stop=Stop(duration_s=60.0))
        with asking(database) as sql, LoadRun(endless) as run:
            assert isinstance(next(iter(run)), LoadReady)
            assert sql.ask(f"SELECT count(*) {OURS} AND ssl") == [[expected]]
    assert last(job(encrypted, {"read": 1.0}, keys="sequential")).errors == {}


def test_nothing_else_than_what_was_asked_is_tried(plain: Database, encrypted: Database) -> None:
    for database, tls in ((plain, True), (encrypted, False)):
        with pytest.raises(UserError, match=f"with{'' if tls else 'out'} TLS"):
            last(job(database, {"read": 1.0}, target={"tls": tls}))


def test_a_server_is_held_against_the_authority_that_is_named(
    encrypted: Database, open_folder: Path
) -> None:
    # An authority that the server's certificate, which it signed itself, does not come from.
    other = open_folder / "other.crt"
    subprocess.run(
        [
            *("openssl", "req", "-new", "-x509", "-nodes", "-days", "2", "-subj", "/CN=other"),
            *("-out", str(other), "-keyout", str(open_folder / "other.key")),
        ],
        check=True,
        capture_output=True,
    )
    with pytest.raises(UserError, match="certificate"):
        last(job(encrypted, {"read": 1.0}, target={"ca_file": str(other)}))
    with pytest.raises(UserError, match=r"target\.ca_file"):
        last(job(encrypted, {"read": 1.0}, target={"ca_file": str(open_folder / "none.crt")}))


def test_lost_connections_are_counted_and_made_anew(plain: Database) -> None:
    endless = job(plain, {"read": 1.0}, stop=Stop(duration_s=3.0))
    with asking(plain) as sql, LoadRun(endless) as run:
        events = iter(run)
        assert isinstance(next(events), LoadReady)
        assert isinstance(next(events), LoadProgress)
        sql.ask(f"SELECT pg_terminate_backend(pid) {OURS}")
        *intervals, done = events
    assert isinstance(done, LoadDone)
    # Each connection ends one operation at most, and is there again for the next one.
    assert 1 <= sum(done.errors.values()) <= 16
    assert set(done.errors) <= {"57P01 admin_shutdown", "connection_lost"}
    assert done.operations["read"].failed == sum(done.errors.values())
    rates = [event.ops_per_s for event in intervals if isinstance(event, LoadProgress)]
    assert rates[-2] > 0


def test_a_statement_that_waits_too_long_is_a_failure(plain: Database) -> None:
    limited = job(
        plain, {"read": 1.0}, target={"request_timeout_ms": 300}, stop=Stop(duration_s=4.0)
    )
    with asking(plain) as sql, LoadRun(limited) as run:
        events = iter(run)
        assert isinstance(next(events), LoadReady)
        sql.ask("BEGIN; LOCK TABLE rows")
        stuck = next(event for event in events if isinstance(event, LoadProgress) and event.errors)
        sql.ask("ROLLBACK")
        *_, done = events
    assert isinstance(done, LoadDone)
    assert stuck.in_flight <= 16
    assert 1 <= done.operations["read"].failed == sum(done.errors.values())
    assert set(done.errors) <= {"client_timeout", "57014 query_canceled"}
    # What came after it is done again: nothing is lost, and no answer is taken for another's.
    assert done.operations["read"].count > stuck.operations
    assert last(job(plain, {"read": 1.0})).errors == {}


def test_what_cannot_be_is_said_in_four_parts(plain: Database) -> None:
    with pytest.raises(UserError, match="nowhere"):
        last(job(plain, {"read": 1.0}, target={"table": "nowhere"}))
    with pytest.raises(UserError, match="53300"):
        last(job(plain, {"read": 1.0}, load=ClosedLoop(threads=2_000)))
    with pytest.raises(UserError) as refused:
        last(job(plain, {"read": 1.0}, load=OpenLoop(rate_per_s=1, max_in_flight=20_000)))
    assert "each is a connection" in str(refused.value)


def test_an_update_that_was_lost_is_counted(plain: Database) -> None:
    with asking(plain) as sql:
        sql.ask("CREATE TABLE before AS SELECT * FROM rows")
    try:
        asked = job(plain, {"write": 1.0}, keys="sequential")
        versioned = {"workload": asked.workload.model_copy(update={"versions": KnownVersions()})}
        done = last(asked.model_copy(update=versioned))
        assert done.errors == {}
        assert lost(plain, done.versions.known) == 0
        with asking(plain) as sql:
            sql.ask("DELETE FROM rows WHERE key IN (3, 4)")
            sql.ask("INSERT INTO rows SELECT * FROM before WHERE key IN (3, 4)")
        assert lost(plain, done.versions.known) == 2
    finally:
        fill(plain)
        with asking(plain) as sql:
            sql.ask("DROP TABLE before")


def lost(database: Database, known: KnownVersions) -> int:
    """Read every row back; return how many are older than what was acknowledged last."""
    asked = job(database, {"read": 1.0}, keys="sequential")
    work = asked.workload.model_copy(update={"versions": known})
    done = last(asked.model_copy(update={"workload": work}))
    assert done.errors == {}
    assert done.versions.judged_reads == ROWS
    return done.versions.stale_reads


def test_the_server_that_takes_changes_is_found_along_the_list(plain: Database) -> None:
    points, password = points_of(plain.target), plain.target["password"]
    with postgresql(tls=False) as other:
        with asking(other) as sql:
            # To a client it is what a standby is: every transaction is read-only.
            sql.ask("ALTER DATABASE disklab SET default_transaction_read_only = on")
            sql.ask(f"ALTER ROLE disklab PASSWORD '{password}'")
        others = other.target["contact_points"]
        assert isinstance(others, list)
        target: dict[str, object] = {"contact_points": [*others, *points]}
        for read_write in (False, True):
            done = last(job(plain, {"write": 1.0}, target={**target, "read_write": read_write}))
            if read_write:
                assert done.errors == {}
                assert done.operations["write"].count == ROWS
            else:
                assert list(done.errors) == ["25006 sqlstate"]
        target = {"contact_points": others, "read_write": True}
        with pytest.raises(UserError, match="takes no changes: it is a standby"):
            last(job(plain, {"write": 1.0}, target=target))
        # TPC-C has connections of another kind.
        with pytest.raises(UserError, match="takes no changes: it is a standby"):
            last(check_of_tpcc(job(plain, {"write": 1.0}, target=target)))


def check_of_tpcc(asked: LoadJob) -> LoadJob:
    work = TpccWorkload(warehouses=1, stage="check")
    return asked.model_copy(update={"workload": work, "stop": Stop()})


def test_the_next_server_of_the_list_is_taken_when_one_takes_no_connections(
    plain: Database,
) -> None:
    points = points_of(plain.target)
    # Nobody listens at the first port.
    target = {"contact_points": ["127.0.0.1:1", *points]}
    done = last(job(plain, {"read": 1.0}, target=target))
    assert done.errors == {}
    assert done.operations["read"].count == ROWS
