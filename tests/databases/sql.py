"""A PostgreSQL of disklab's own on plain directories, for tests of its clients."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from disklab.database_settings import Setting, setting_problem
from disklab.databases import Database, NodePlace, Request, Sizes, installed, provision
from disklab.databases.postgresql.configuration import DATABASE, PORT, USER
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.sql import Login, Sql
from disklab.errors import Problem, UserError
from disklab.hosts.addresses import free_addresses

from tests.conftest import IN_CI

GIB = 1 << 30


def need_postgresql() -> None:
    """Skip where no server is installed; in CI there is one."""
    try:
        find_postgresql()
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise


@contextmanager
def postgresql(*, tls: bool, **owners: str) -> Iterator[Database]:
    """Yield a running server without tables but `rows` of five columns.

    `owners`: settings that a server's owner may have made, and no experiment.
    """

    def problem(engine: str, name: str, value: Setting, place: str) -> Problem | None:
        return None if name in owners else setting_problem(engine, name, value, place)

    with mock.patch.object(installed, "setting_problem", problem):
        yield from _postgresql(tls=tls, settings=owners)


def _postgresql(*, tls: bool, settings: Mapping[str, str]) -> Iterator[Database]:
    need_postgresql()
    root = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server is run by a user who may not look into a folder of root's alone.
    root.chmod(0o755)
    data = root / "data"
    data.mkdir()
    place = NodePlace(
        name=f"sql-{os.getpid()}",
        address=free_addresses(1, (PORT,))[0],
        volumes={"data": data},
        run_dir=root / "run",
        log_dir=root / "log",
    )
    database = provision(Request("postgresql", Sizes(GIB), tls=tls, settings=settings), [place])
    try:
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(root)


@contextmanager
def asking(database: Database) -> Iterator[Sql]:
    """Yield a connection of psql to it."""
    points = database.target["contact_points"]
    assert isinstance(points, list)
    host = points[0].rsplit(":", 1)[0]
    tls = database.target["tls"]
    assert isinstance(tls, bool)
    login = Login(host, PORT, USER, DATABASE, tls, str(database.target["password"]))
    with Sql(find_postgresql().program("psql"), login) as sql:
        yield sql
