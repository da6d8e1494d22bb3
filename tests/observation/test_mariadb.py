"""A real MariaDB whose load is known: what is found is what was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab import spec
from disklab.databases.mariadb.cluster import MariaDB
from disklab.databases.mariadb.observer import MariadbObserver, count_of
from disklab.databases.observing import Target

from tests.databases.mariadb import mariadb
from tests.observation.command import AsRole, observed
from tests.observation.servers import COLUMN_BYTES, COLUMNS, ROWS, fill, loaded

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
    points = database.target["contact_points"]
    assert isinstance(points, list)
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
    points = database.target["contact_points"]
    assert isinstance(points, list)
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
