"""A real MariaDB and PostgreSQL whose load is known: what is found is what was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab import spec
from disklab.databases import Database
from disklab.databases.mariadb.cluster import MariaDB
from disklab.databases.mariadb.observer import MariadbObserver, count_of
from disklab.databases.observing import Target
from disklab.databases.postgresql.observer import PostgresqlObserver

from tests.databases.servers import asking, mariadb, points_of, postgresql
from tests.observation.servers import COLUMN_BYTES, COLUMNS, ROWS, AsRole, fill, loaded, observed

RATE, READ_RATIO = 300.0, 0.75
SETTINGS = {"performance_schema": True, "userstat": True, "sync_binlog": 1}
WATCH, SECRET = "watch", "observes-alone"


@pytest.fixture(scope="module")
def database() -> Iterator[MariaDB]:
    with mariadb(columns=COLUMNS, settings=SETTINGS) as made:
        fill(made)
        for rights in ("SELECT ON disklab.*", "SELECT ON performance_schema.*"):
            made.primary.connection().ask(f"GRANT {rights} TO {WATCH} IDENTIFIED BY '{SECRET}'")
        with loaded(made, RATE, READ_RATIO):
            time.sleep(2.0)
            yield made


def test_what_is_found_is_what_was_asked_for(database: MariaDB, tmp_path: Path) -> None:
    out = tmp_path / "o.yaml"
    told = observed("mariadb", AsRole(database, WATCH, SECRET), out, "--for", "10s")
    assert told["reads_per_s"] == pytest.approx(RATE * READ_RATIO, rel=0.1)
    assert told["writes_per_s"] == pytest.approx(RATE * (1 - READ_RATIO), rel=0.1)
    assert told["row_bytes"] == pytest.approx(COLUMNS * COLUMN_BYTES, rel=0.1)
    # A guess of the server's from twenty pages.
    assert told["rows"] == pytest.approx(ROWS, rel=0.3)
    # Each write commits by itself, and the binary log counts it.
    assert told["commits_per_s"] == pytest.approx(told["writes_per_s"], rel=0.1)
    assert told["settings"].pop("innodb_buffer_pool_size").isdecimal()
    assert told["settings"] == {"sync_binlog": "1", "log_bin": "ON"}
    assert told["next"].startswith("disklab advise")
    (cell,) = spec.load(out).cells
    assert cell.spec.database.engine == "mariadb"
    assert cell.spec.database.settings["sync_binlog"] == 1
    assert cell.spec.database.version is not None
    assert cell.spec.workload.writes_per_commit is None


def test_the_mean_of_statements_is_told_where_the_server_keeps_it(database: MariaDB) -> None:
    points = points_of(database.target)
    observer = MariadbObserver.connect(Target(tuple(points), WATCH, SECRET))
    sql = database.primary.connection()
    try:
        for statement in ("SELECT SLEEP(0.5)", "DELETE FROM `rows` WHERE `key` < 0"):
            sql.ask(statement)
        mean_ms = observer.shape([]).mean_ms
    finally:
        observer.close()
    assert set(mean_ms) == {"read", "write"}
    # One that sleeps takes longer than one that finds no row.
    assert mean_ms["read"] > mean_ms["write"] > 0


def test_who_may_not_read_a_table_is_told_so(database: MariaDB) -> None:
    sql = database.primary.connection()
    sql.ask("CREATE USER blind IDENTIFIED BY 'sees-nothing'")
    sql.ask("GRANT INSERT ON disklab.* TO blind")
    points = points_of(database.target)
    observer = MariadbObserver.connect(Target(tuple(points), "blind", "sees-nothing"))
    try:
        shape = observer.shape(["disklab.rows"])
    finally:
        observer.close()
    (table,) = [one for one in shape.tables if one.name == "disklab.rows"]
    assert table.row_bytes is None
    assert any("blind@% may not read it" in reason for reason in shape.unseen)


def test_a_lookup_that_a_write_needed_is_no_read_and_a_row_put_in_again_is_one_write() -> None:
    status = {
        "Handler_read_key": "100",
        "Handler_write": "17",
        "Handler_update": "20",
        "Handler_delete": "5",
        "Com_update": "12",
        "Com_update_multi": "0",
        "Com_insert": "14",
        "Com_replace": "0",
    }
    count = count_of(status)
    # Eight of the seventeen rows were there already.
    assert (count.reads, count.writes) == (75.0, 34.0)


DEVICE = """
title: t
device: {{vm: azure/Standard_D8s_v3, volume: {{disks: azure/P30}}}}
workload: {{trace: {{file: {trace}, outside: wrap}}}}
"""
LOOK = ("--database", "disklab", "--for")


@pytest.fixture(scope="module")
def of_postgresql() -> Iterator[Database]:
    with postgresql(tls=False, shared_preload_libraries="pg_stat_statements") as made:
        fill(made)
        with asking(made) as sql:
            sql.ask("CREATE EXTENSION pg_stat_statements")
        with loaded(made, RATE, READ_RATIO):
            time.sleep(2.0)
            yield made


def test_what_is_found_of_postgresql(of_postgresql: Database, tmp_path: Path) -> None:
    trace = ("--block-trace", "2s")
    told = observed("postgresql", of_postgresql, tmp_path / "o.yaml", *LOOK, "10s", *trace)
    assert told["reads_per_s"] == pytest.approx(RATE * READ_RATIO, rel=0.1)
    assert told["writes_per_s"] == pytest.approx(RATE * (1 - READ_RATIO), rel=0.1)
    assert told["read_ratio"] == pytest.approx(READ_RATIO, rel=0.1)
    assert told["row_bytes"] == pytest.approx(COLUMNS * COLUMN_BYTES, rel=0.1)
    assert told["rows"] == pytest.approx(ROWS, rel=0.1)
    # What a statement takes in the server itself, without the network.
    assert set(told["mean_ms"]) == {"read", "write"}
    assert all(0 < mean < 20 for mean in told["mean_ms"].values())
    assert told["next"].startswith("disklab advise")
    (traced,) = told["block_traces"]
    assert traced["file"] == str(tmp_path / "o.blkparse.txt")
    # Commits reach the disk: each is a write and a flush of the log.
    assert traced["writes"]["per_s"] > 10
    assert 0 < traced["writes"]["latency_ms"]["p50"] <= traced["writes"]["latency_ms"]["p99"]
    device = DEVICE.format(trace="o.blkparse.txt")
    (tmp_path / "device.yaml").write_text(device)
    (trial,) = spec.load(tmp_path / "device.yaml").trials("predict")
    assert trial.refused is None
    # Its rows are in memory: a direction that nobody used is not told.
    sides = [side for side in (traced["reads"], traced["writes"]) if side is not None]
    assert len(trial.replay.placed.trace) == sum(side["ios"] for side in sides)


def test_a_role_that_may_read_nothing_sees_the_load_and_is_told_what_it_misses(
    of_postgresql: Database,
) -> None:
    """Statistics are everybody's; the lengths of rows and the place of the data are not."""
    with asking(of_postgresql) as sql:
        sql.ask("CREATE ROLE watch")
    points, secret = points_of(of_postgresql.target), str(of_postgresql.target["password"])
    observer = PostgresqlObserver.connect(Target(tuple(points), "disklab", secret, "disklab"))
    try:
        observer.sql.ask("SET ROLE watch")
        first = observer.read()
        time.sleep(3.0)
        grown = observer.read().tables["public.rows"] - first.tables["public.rows"]
        shape = observer.shape(["public.rows"])
    finally:
        observer.close()
    assert grown.reads > grown.writes > 0
    (table,) = shape.tables
    assert table.rows == pytest.approx(ROWS, rel=0.1)
    assert table.row_bytes is None
    assert shape.nodes[0].folders == ()
    assert any("watch may not read it" in one for one in shape.unseen)
