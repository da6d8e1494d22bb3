"""Databases of disklab's own on plain directories, their rows, and what asks them, for tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from disklab.database_settings import Setting, setting_problem
from disklab.databases import Database, NodePlace, Request, Sizes, installed, provision
from disklab.databases.etcd.installation import find_etcd
from disklab.databases.mariadb.cluster import MariaDB
from disklab.databases.mariadb.installation import find_mariadb
from disklab.databases.postgresql.configuration import DATABASE, PORT, USER
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.redis.configuration import find_redis
from disklab.databases.registry import record_of
from disklab.databases.sql import Login, Sql
from disklab.engine import CqlLogin, CqlQuery, run_load
from disklab.engine.load import (
    ClosedLoop,
    KnownVersions,
    LoadDone,
    LoadJob,
    LoadRun,
    RowsWorkload,
    Stop,
    load_target,
)
from disklab.errors import Problem, UserError
from disklab.hosts.addresses import free_addresses

from tests.conftest import IN_CI

GIB = 1 << 30
ROWS = 400
COLUMN_BYTES = 301
FOUND: Mapping[str, Callable[..., object]] = {
    "etcd": find_etcd,
    "mariadb": find_mariadb,
    "postgresql": find_postgresql,
    "redis": find_redis,
}


def need(engine: str, **version: str | None) -> None:
    """Skip where no such server is installed; in CI there is one. Cassandra is fetched."""
    try:
        if engine in FOUND:
            FOUND[engine](**version)
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise


@contextmanager
def running(asked: Request, *volumes: str, folder: str = "") -> Iterator[Database]:
    """Yield a running database whose nodes have these volumes; `folder`: below one of that name."""
    if asked.engine in ("etcd", "postgresql"):
        need(asked.engine, version=asked.version)
    else:
        need(asked.engine)
    root = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server is run by a user who may not look into a folder of root's alone.
    root.chmod(0o755)
    places = []
    addresses = free_addresses(asked.replication_factor, record_of(asked.engine).ports)
    for number, address in enumerate(addresses, 1):
        own = root / f"n{number}"
        paths = {name: own / folder / name for name in volumes}
        for path in paths.values():
            path.mkdir(parents=True)
        places.append(NodePlace(own.name, address, paths, own / "run", own / "logs"))
    database = provision(asked, places)
    try:
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(root)


def job(  # noqa: PLR0913 - each is a part of a job
    database: Database,
    operations: dict[str, float],
    stop: Stop,
    *,
    versions: KnownVersions | None = None,
    seed: int = 3,
    content_seed: int = 3,
    rows: int = ROWS,
    columns: int = 3,
) -> LoadJob:
    """Return a load of small rows; what only writes does so row by row."""
    return LoadJob(
        seed=seed,
        target=load_target(database.target),
        workload=RowsWorkload(
            rows=rows,
            columns=columns,
            column_bytes=COLUMN_BYTES,
            keys="sequential" if operations == {"write": 1.0} else "uniform",
            operations=operations,
            content_seed=content_seed,
            scan_rows=7,
            versions=versions,
        ),
        load=ClosedLoop(threads=16),
        stop=stop,
        interval_ms=200,
    )


def done(asked: LoadJob) -> LoadDone:
    """Run a job to its end."""
    with LoadRun(asked) as run:
        *_, last = run
    assert isinstance(last, LoadDone)
    return last


def fill(database: Database, *, seed: int = 3, columns: int = 3) -> None:
    """Write all rows; with another seed it changes those that are there."""
    asked = job(database, {"write": 1.0}, Stop(operations=ROWS), seed=seed, columns=columns)
    filled = done(asked)
    assert filled.operations["write"].count == ROWS, filled.last_error


THREADS = 16
# Counting reads the whole table.
COUNT_MS = 30_000


def job_of_large_rows(target: Mapping[str, object], rows: int, **operations: float) -> LoadJob:
    """Return a job_of_large_rows of as many operations as there are rows of 5 x 818 bytes."""
    return LoadJob(
        seed=1,
        target=load_target(target, consistency="ONE"),
        workload=RowsWorkload(
            rows=rows, columns=5, column_bytes=818, keys="sequential", operations=operations
        ),
        load=ClosedLoop(threads=THREADS),
        stop=Stop(operations=rows),
    )


def write_rows(target: Mapping[str, object], rows: int) -> None:
    *_, done = run_load(job_of_large_rows(target, rows, write=1.0))
    assert isinstance(done, LoadDone)
    assert done.errors == {}


def points_of(target: Mapping[str, object]) -> list[str]:
    """Return the addresses of a target."""
    points = target["contact_points"]
    assert isinstance(points, list)
    return points


def asking_cql(target: Mapping[str, object], timeout_ms: int = COUNT_MS) -> CqlQuery:
    """Return a connection to the nodes of a target, by its own user."""
    points = points_of(target)
    login = CqlLogin(str(target["user"]), str(target["password"]))
    return CqlQuery(points, timeout_ms=timeout_ms, consistency="ONE", login=login)


def count_rows(target: Mapping[str, object]) -> int:
    with asking_cql(target) as query:
        (row,) = query.ask(f"SELECT count(*) FROM {target['keyspace']}.{target['table']}")
    return int(row["count"])


@contextmanager
def postgresql(*, tls: bool, **owners: str) -> Iterator[Database]:
    """Yield a running server without tables but `rows` of five columns.

    `owners`: settings that a server's owner may have made, and no experiment.
    """

    def problem(engine: str, name: str, value: Setting, place: str) -> Problem | None:
        return None if name in owners else setting_problem(engine, name, value, place)

    with mock.patch.object(installed, "setting_problem", problem):
        asked = Request("postgresql", Sizes(GIB), tls=tls, settings=owners)
        with running(asked, "data") as database:
            yield database


@contextmanager
def asking(database: Database) -> Iterator[Sql]:
    """Yield a connection of psql to it."""
    points = points_of(database.target)
    host = points[0].rsplit(":", 1)[0]
    tls = database.target["tls"]
    assert isinstance(tls, bool)
    login = Login(host, PORT, USER, DATABASE, tls, str(database.target["password"]))
    with Sql(find_postgresql().program("psql"), login) as sql:
        yield sql


@contextmanager
def mariadb(
    *,
    copies: int = 1,
    tls: bool = False,
    columns: int = 3,
    settings: Mapping[str, Setting] | None = None,
) -> Iterator[MariaDB]:
    """Yield running servers on plain directories: data, redo log and binary log."""
    asked = Request(
        "mariadb",
        Sizes(GIB),
        replication_factor=copies,
        tls=tls,
        columns=columns,
        settings=settings or {},
    )
    with running(asked, "data", "log", "binlog") as database:
        assert isinstance(database, MariaDB)
        yield database
