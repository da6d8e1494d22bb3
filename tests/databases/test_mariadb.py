"""MariaDB: one server, its rows over our wire, TLS, a killed server, and what it refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

import pytest
from disklab import spec
from disklab.database_facts import facts_of
from disklab.database_settings import Setting
from disklab.databases import Conditions, Sizes
from disklab.databases.mariadb.cluster import FILLING, MariaDB
from disklab.databases.mariadb.configuration import SCHEMAS
from disklab.databases.mariadb.server import Server
from disklab.databases.mariadb.sizing import LEAST_LOG_BUFFER, LEAST_POOL, LEAST_REDO, plan_memory
from disklab.engine.load import (
    KnownVersions,
    LoadDone,
    LoadProgress,
    LoadRun,
    Stop,
    load_target,
)
from disklab.errors import UserError
from disklab.procedures.turn import workload_of
from disklab.workloads.protocol import Asked, Begin, Workload

from tests.databases.servers import GIB, ROWS, done, fill, job, mariadb
from tests.databases.suite import DatabaseSuite, Traits


@pytest.fixture(scope="module")
def served() -> Iterator[MariaDB]:
    settings: dict[str, Setting] = {
        "sync_binlog": 1,
        "innodb_log_file_size": LEAST_REDO,
        "innodb_log_buffer_size": LEAST_LOG_BUFFER,
    }
    with mariadb(settings=settings) as database:
        yield database


class TestMariaDB(DatabaseSuite):
    traits = Traits(
        engine="mariadb",
        title="MariaDB",
        grows="redo_bytes",
        stranger={"password": "another"},
        turned_away="error 1045: Access denied",
        own_setting="datadir",
        kinds={"read": 0.4, "write": 0.3, "scan": 0.3},
    )


def test_its_logs_lie_on_their_volumes(served: MariaDB) -> None:
    files = served.primary.files
    assert (files.redo / "ib_logfile0").exists()
    assert (files.binlog / "binlog.000001").exists()
    assert not (files.data / "ib_logfile0").exists()


def test_a_fill_waits_for_no_disk_and_has_a_long_redo_log(served: MariaDB) -> None:
    def settings() -> list[str]:
        sql = served.primary.connection()
        return sql.ask(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in FILLING)}")[0]

    before = settings()
    assert before == ["1", "1", str(LEAST_REDO)]
    with served.fills():
        assert settings() == list(FILLING.values())
        fill(served)
    assert settings() == before


def test_other_settings_come_with_a_restart_and_rows_stay() -> None:
    with mariadb() as database:
        fill(database)
        ask = "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.innodb_doublewrite"
        assert database.primary.connection().ask(ask) == [["1", "1"]]
        changed: dict[str, Setting] = {
            "innodb_flush_log_at_trx_commit": 2,
            "innodb_doublewrite": "off",
        }
        database.reconfigure(changed)
        database.make_cold()
        assert database.primary.connection().ask(ask) == [["2", "0"]]
        assert rows_of(database.primary) == ROWS
        assert set(changed) <= {*facts_of("mariadb").restart_settings}


def test_a_row_that_is_written_again_is_another_one(served: MariaDB) -> None:
    """InnoDB does nothing for a row that becomes what it was."""
    fill(served)
    before = served.observe().counters
    fill(served, seed=4)
    after = served.observe().counters
    assert after["redo_bytes"] - before["redo_bytes"] > ROWS * 3 * 301
    assert after["binlog_commits"] - before["binlog_commits"] == ROWS


def test_a_trial_begins_at_a_checkpoint_and_reads_pages(served: MariaDB) -> None:
    for seed in (3, 4):
        fill(served, seed=seed)
    before = served.observe()
    assert before.counters["redo_bytes"] > ROWS * 3 * 301
    assert before.counters["binlog_commits"] >= ROWS
    served.settle(Conditions(empty=False))
    # The last old versions are purged behind it.
    assert served.observe().metrics["checkpoint_age_bytes"] < 1 << 20
    served.make_cold()
    read = done(job(served, {"read": 1.0}, Stop(operations=ROWS)))
    assert read.errors == {}, read.last_error
    assert served.observe().counters["pages_read"] > 10


TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = '{}'"


def checked_tables(database: MariaDB) -> dict[str, str]:
    """Return what CHECK TABLE says of each table of each server: OK, or what is broken."""
    checked = {}
    for server in database.servers:
        sql = server.connection()
        for schema in SCHEMAS:
            for (table,) in sql.ask(TABLES.format(schema)):
                answer = sql.ask(f"CHECK TABLE `{schema}`.`{table}`")
                checked[f"{server.place.name}: {table}"] = answer[-1][-1]
    return checked


def test_a_killed_server_has_whole_tables(served: MariaDB) -> None:
    fill(served)
    served.kill_node("n1")
    served.start_node("n1")
    assert set(checked_tables(served).values()) == {"OK"}


def test_one_account_is_left(served: MariaDB) -> None:
    with served._with_the_reason() as sql:
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
    buffers = [plan.settings["innodb_log_buffer_size"] for plan in (full, small)]
    assert buffers == ["16777216", "2097152"]
    assert "innodb_buffer_pool_size 16 MiB: scaled by 1/10000" in small.reasons[0]


SYSBENCH = """
title: t
cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: azure/P20}}}
database: {engine: mariadb, replication_factor: 1, tls: false}
workload:
  sysbench: {script: SCRIPT, tables: 2, rows_per_table: 1000, threads: 4, rand_type: special}
  stop: {duration: 1s}
"""


def sysbench(script: str) -> Workload:
    text = SYSBENCH.replace("SCRIPT", script)
    return workload_of(spec.parse(text).trials("rehearse")[0].here, 1)


def ended(begin: Begin) -> LoadDone:
    with begin() as load:
        *_, last = load
    assert isinstance(last, LoadDone)
    return last


def test_sysbench_s_scripts_run(served: MariaDB) -> None:
    for begin in sysbench("oltp_read").fill(served.target):
        ended(begin)
    for script in (
        *("oltp_point_select", "oltp_read", "oltp_read_only"),
        *("oltp_read_write", "oltp_write_only", "oltp_insert"),
        "oltp_read_write, statements: {point_selects: 2, order_ranges: 0, delete_inserts: 0}",
    ):
        run = sysbench(script).run(served.target, Asked(Stop(operations=200), stream=1))
        transactions = ended(run).operations["transaction"]
        assert transactions.count == 200, script
        assert transactions.failed == 0 or "write" in script, "rows are locked by others"


def test_pgbench_s_tpcb_keeps_its_sums(served: MariaDB) -> None:
    for begin in sysbench("tpcb").fill(served.target):
        ended(begin)
    run = sysbench("tpcb").run(served.target, Asked(Stop(operations=200), stream=1))
    transactions = ended(run).operations["transaction"]
    assert (transactions.count, transactions.failed) == (200, 0)
    (server,) = served.servers
    sums = " UNION ALL ".join(
        f"SELECT count(*), sum({column}) FROM {table}{number}"
        for number in (1, 2)
        for table, column in [
            *(("accounts", "abalance"), ("tellers", "tbalance")),
            *(("branches", "bbalance"), ("history", "delta")),
        ]
    )
    rows = [(int(count), int(total or 0)) for count, total in server.connection().ask(sums)]
    for of_table in (rows[:4], rows[4:]):
        assert [count for count, _ in of_table[:3]] == [1000, 2560, 256]
        assert len({total for _, total in of_table}) == 1
    assert rows[3][0] + rows[7][0] == 200


def position(server: Server) -> str:
    """Return the last change of a server, as a GTID."""
    ((gtid,),) = server.connection().ask("SELECT @@gtid_current_pos")
    return gtid


def rows_of(server: Server) -> int:
    ((count,),) = server.connection().ask("SELECT count(*) FROM `rows`")
    return int(count)


def test_a_replica_confirms_commits_is_replaced_and_promoted() -> None:
    with mariadb(copies=2, tls=True) as database:
        n1, n2 = database.servers
        fill(database)
        database.settle(Conditions(empty=False))
        assert rows_of(n2) == ROWS
        seen = database.observe()
        assert seen.metrics["confirming_replicas"] == 1
        assert seen.counters["confirmed_commits"] >= ROWS
        database.kill_node("n2")
        database.start_node("n2")
        database.kill_node("n2")
        begun = time.time()
        database.replace_node("n2")
        assert database.parts(begun)["stream"] > 0
        assert database.streamed()["n2"] > ROWS * 3 * 301
        fill(database, seed=4)
        # What it has confirmed is there, applied or not.
        last = position(n1)
        database.kill_node("n1")
        database.promote_node("n2")
        assert database.primary is n2
        assert position(n2) == last
        known = done(job(database, {"write": 1.0}, Stop(operations=50)))
        assert known.errors == {}, known.last_error
        # The former one comes back as a copy.
        database.replace_node("n1")
        database.wait_until_whole()
        assert set(checked_tables(database).values()) == {"OK"}
        assert len(checked_tables(database)) == 2


@pytest.mark.long
def test_a_galera_cluster_loses_nodes_and_no_commit() -> None:
    with mariadb(copies=3) as database:
        n1, n2, n3 = database.servers
        with database.fills():
            assert database.observe().metrics["members"] == 1
            assert (n2.process.pid, n3.process.pid) == (None, None)
            fill(database)
        # The others have begun with its files, and nobody had to send a whole copy.
        assert [rows_of(server) for server in database.servers] == [ROWS] * 3
        assert database.observe().metrics["members"] == 3
        writes = job(database, {"write": 1.0}, Stop(duration_s=6.0), versions=KnownVersions())
        with LoadRun(writes) as run:
            events = iter(run)
            for event in events:
                if isinstance(event, LoadProgress) and event.operations > 100:
                    break
            database.kill_node("n1")
            *_, last = events
        assert isinstance(last, LoadDone)
        assert database.primary is database.servers[1]
        database.start_node("n1")
        assert database.primary is n1
        known = last.versions.known
        back = done(job(database, {"read": 1.0}, Stop(operations=4 * ROWS), versions=known))
        assert back.errors == {}, back.last_error
        assert back.versions.stale_reads == 0
        database.kill_node("n3")
        database.replace_node("n3")
        assert database.streamed()["n3"] > ROWS * 3 * 301
        assert rows_of(n3) == ROWS
        assert set(checked_tables(database).values()) == {"OK"}
