"""MariaDB: one server, its rows over our wire, TLS, a killed server, and what it refuses."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
from disklab.database_settings import Setting
from disklab.databases import Conditions, NodePlace, Request, Sizes, provision
from disklab.databases.mariadb.configuration import PORTS
from disklab.databases.mariadb.installation import find_mariadb
from disklab.databases.mariadb.server import MariaDB
from disklab.databases.mariadb.sizing import LEAST_POOL, LEAST_REDO, plan_memory
from disklab.engine.load import (
    ClosedLoop,
    KnownVersions,
    LoadDone,
    LoadJob,
    LoadProgress,
    LoadRun,
    RowsWorkload,
    Stop,
    load_target,
)
from disklab.errors import UserError
from disklab.hosts.addresses import free_addresses

from tests.conftest import IN_CI

GIB = 1 << 30
ROWS = 400


@contextmanager
def mariadb(
    *, tls: bool = False, settings: Mapping[str, Setting] | None = None
) -> Iterator[MariaDB]:
    """Yield a running server on plain directories: data, redo log and binary log."""
    try:
        find_mariadb()
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise
    root = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server is run by a user who may not look into a folder of root's alone.
    root.chmod(0o755)
    volumes = {name: root / name for name in ("data", "log", "binlog")}
    for volume in volumes.values():
        volume.mkdir()
    (address,) = free_addresses(1, PORTS)
    place = NodePlace("n1", address, volumes, root / "run", root / "logs")
    asked = Request("mariadb", Sizes(GIB), tls=tls, columns=3, settings=settings or {})
    database = provision(asked, [place])
    assert isinstance(database, MariaDB)
    try:
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    with mariadb(settings={"sync_binlog": 1}) as database:
        yield database


def job(
    database: MariaDB,
    operations: dict[str, float],
    stop: Stop,
    versions: KnownVersions | None = None,
) -> LoadJob:
    return LoadJob(
        seed=3,
        target=load_target(database.target),
        workload=RowsWorkload(
            rows=ROWS,
            columns=3,
            column_bytes=301,
            keys="sequential" if "write" in operations and len(operations) == 1 else "uniform",
            operations=operations,
            content_seed=3,
            scan_rows=7,
            versions=versions,
        ),
        load=ClosedLoop(threads=16),
        stop=stop,
        interval_ms=200,
    )


def done(asked: LoadJob) -> LoadDone:
    with LoadRun(asked) as run:
        *_, last = run
    assert isinstance(last, LoadDone)
    return last


def fill(database: MariaDB) -> None:
    filled = done(job(database, {"write": 1.0}, Stop(operations=ROWS)))
    assert filled.operations["write"].count == ROWS, filled.last_error


def test_rows_are_read_back_as_they_were_written(server: MariaDB) -> None:
    fill(server)
    shares = {"read": 0.4, "write": 0.3, "scan": 0.3}
    ran = done(job(server, shares, Stop(operations=2_000)))
    assert (ran.errors, ran.wrong_rows, ran.missing_rows) == ({}, 0, 0), ran.last_error
    assert all(ran.operations[name].count for name in shares)
    files = server.files
    assert files.redo is not None
    assert (files.redo / "ib_logfile0").exists()
    assert (files.binlog / "binlog.000001").exists()
    assert not (files.data / "ib_logfile0").exists()


def test_a_row_that_is_written_again_is_another_one(server: MariaDB) -> None:
    """InnoDB does nothing for a row that becomes what it was."""
    fill(server)
    before = server.observe().counters
    fill(server)
    after = server.observe().counters
    assert after["redo_bytes"] - before["redo_bytes"] > ROWS * 3 * 301
    assert after["binlog_commits"] - before["binlog_commits"] == ROWS


def test_a_trial_begins_clean_and_cold(server: MariaDB) -> None:
    fill(server)
    before = server.observe()
    assert before.counters["redo_bytes"] > ROWS * 3 * 301
    assert before.counters["binlog_commits"] >= ROWS
    server.settle(Conditions(empty=False))
    # The last old versions are purged behind it.
    assert server.observe().metrics["checkpoint_age_bytes"] < 1 << 20
    cold = server.make_cold()
    assert cold.way == "restart"
    assert cold.data_bytes > ROWS * 3 * 301
    assert cold.left_ratio < 0.1
    read = done(job(server, {"read": 1.0}, Stop(operations=ROWS)))
    assert read.errors == {}, read.last_error
    assert server.observe().counters["pages_read"] > 10
    server.settle(Conditions(empty=True))
    gone = done(job(server, {"read": 1.0}, Stop(operations=50, give_up_s=1.0)))
    assert gone.missing_rows == 50


def test_no_acknowledged_commit_is_lost_by_a_kill(server: MariaDB) -> None:
    fill(server)
    writes = job(server, {"write": 1.0}, Stop(duration_s=1.5), KnownVersions())
    with LoadRun(writes) as run:
        events = iter(run)
        for event in events:
            if isinstance(event, LoadProgress) and event.operations > 100:
                break
        server.kill_node("n1")
        assert server.observe().pids == ()
        server.start_node("n1")
        *_, last = events
    assert isinstance(last, LoadDone)
    assert last.versions is not None
    assert last.errors
    known = last.versions.known
    back = done(job(server, {"read": 1.0}, Stop(operations=4 * ROWS), known))
    assert back.errors == {}, back.last_error
    assert back.versions is not None
    assert back.versions.judged_reads > ROWS
    assert back.versions.stale_reads == 0
    assert set(server.check_tables().values()) == {"OK"}


def test_one_account_is_left_and_it_has_a_password(server: MariaDB) -> None:
    with pytest.raises(UserError, match=r"error 1045: Access denied"):
        done(
            LoadJob.model_validate(
                job(server, {"read": 1.0}, Stop(operations=1)).model_dump()
                | {"target": {**server.target, "password": "another"}}
            )
        )
    with server._with_the_reason() as sql:
        users = sql.ask("SELECT User, Host FROM mysql.global_priv ORDER BY User")
    assert users == [["disklab", "%"], ["mariadb.sys", "localhost"]]


def test_tls_is_what_was_asked_for() -> None:
    with mariadb(tls=True) as database:
        fill(database)
        read = done(job(database, {"read": 1.0}, Stop(operations=ROWS)))
        assert read.errors == {}
        plain = {**database.target, "tls": False}
        refused = job(database, {"read": 1.0}, Stop(operations=1))
        refused = refused.model_copy(update={"target": load_target(plain)})
        with pytest.raises(UserError, match="cannot be reached without TLS"):
            done(refused)


def test_memory_and_redo_log_follow_the_scale() -> None:
    full = plan_memory(Sizes(64 * GIB))
    assert full.pool == pytest.approx(0.7 * 64 * GIB, rel=0.001)
    assert full.redo == 96 << 20
    assert not full.reasons
    small = plan_memory(Sizes(64 * GIB, Fraction(1, 10_000)))
    assert (small.pool, small.redo) == (LEAST_POOL, LEAST_REDO)
    assert "innodb_buffer_pool_size 16 MiB: scaled by 1/10000" in small.reasons[0]


def test_what_one_server_cannot_do_is_refused(tmp_path: Path) -> None:
    places = [
        NodePlace(f"n{n}", "127.64.0.1", {"data": tmp_path}, tmp_path, tmp_path) for n in "12"
    ]
    with pytest.raises(UserError, match="no replicas yet"):
        provision(Request("mariadb", Sizes(GIB), replication_factor=2), places)
