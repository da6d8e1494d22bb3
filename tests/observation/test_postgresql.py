"""A real PostgreSQL whose load is known: what is found is what was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab import spec
from disklab.databases import Database
from disklab.databases.observing import Target
from disklab.databases.postgresql.observer import PostgresqlObserver

from tests.databases.sql import asking, postgresql
from tests.observation.command import observed
from tests.observation.servers import COLUMN_BYTES, COLUMNS, ROWS, fill, loaded

RATE, READ_RATIO = 300.0, 0.75
DEVICE = """
title: t
device: {{vm: azure/Standard_D8s_v3, volume: {{disks: azure/P30}}}}
workload: {{trace: {{file: {trace}, outside: wrap}}}}
"""
LOOK = ("--database", "disklab", "--for")


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with postgresql(tls=False, shared_preload_libraries="pg_stat_statements") as made:
        fill(made)
        with asking(made) as sql:
            sql.ask("CREATE EXTENSION pg_stat_statements")
        with loaded(made, RATE, READ_RATIO):
            time.sleep(2.0)
            yield made


def test_what_is_found_is_what_was_asked_for(database: Database, tmp_path: Path) -> None:
    trace = ("--block-trace", "2s")
    told = observed("postgresql", database, tmp_path / "o.yaml", *LOOK, "10s", *trace)
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
    database: Database,
) -> None:
    """Statistics are everybody's; the lengths of rows and the place of the data are not."""
    with asking(database) as sql:
        sql.ask("CREATE ROLE watch")
    points, secret = database.target["contact_points"], str(database.target["password"])
    assert isinstance(points, list)
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
