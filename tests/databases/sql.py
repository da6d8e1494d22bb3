"""A PostgreSQL of disklab's own on plain directories, for tests of its clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from disklab.database_settings import Setting, setting_problem
from disklab.databases import Database, Request, Sizes, installed
from disklab.databases.postgresql.configuration import DATABASE, PORT, USER
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.sql import Login, Sql
from disklab.errors import Problem

from tests.databases.servers import GIB, running


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
    points = database.target["contact_points"]
    assert isinstance(points, list)
    host = points[0].rsplit(":", 1)[0]
    tls = database.target["tls"]
    assert isinstance(tls, bool)
    login = Login(host, PORT, USER, DATABASE, tls, str(database.target["password"]))
    with Sql(find_postgresql().program("psql"), login) as sql:
        yield sql
