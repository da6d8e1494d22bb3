"""A MariaDB of disklab's own on plain directories, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from disklab.database_settings import Setting
from disklab.databases import Request, Sizes
from disklab.databases.mariadb.cluster import MariaDB

from tests.databases.servers import GIB, running


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
