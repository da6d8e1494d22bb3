"""Databases of disklab's own on plain directories, and loads on their rows, for tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from disklab.databases import Database, NodePlace, Request, provision
from disklab.databases.etcd.installation import find_etcd
from disklab.databases.mariadb.installation import find_mariadb
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.redis.configuration import find_redis
from disklab.databases.registry import record_of
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
from disklab.errors import UserError
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
