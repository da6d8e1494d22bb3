"""A MariaDB of disklab's own on plain directories, for tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from disklab.database_settings import Setting
from disklab.databases import NodePlace, Request, Sizes, provision
from disklab.databases.mariadb.cluster import MariaDB
from disklab.databases.mariadb.configuration import PORTS
from disklab.databases.mariadb.installation import find_mariadb
from disklab.errors import UserError
from disklab.hosts.addresses import free_addresses

from tests.conftest import IN_CI

GIB = 1 << 30


def need_mariadb() -> None:
    """Skip where no server is installed; in CI there is one."""
    try:
        find_mariadb()
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise


@contextmanager
def mariadb(
    *,
    copies: int = 1,
    tls: bool = False,
    columns: int = 3,
    settings: Mapping[str, Setting] | None = None,
) -> Iterator[MariaDB]:
    """Yield running servers on plain directories: data, redo log and binary log."""
    need_mariadb()
    root = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server is run by a user who may not look into a folder of root's alone.
    root.chmod(0o755)
    places = []
    for number, address in enumerate(free_addresses(copies, PORTS), 1):
        own = root / f"n{number}"
        volumes = {name: own / name for name in ("data", "log", "binlog")}
        for volume in volumes.values():
            volume.mkdir(parents=True)
        places.append(NodePlace(own.name, address, volumes, own / "run", own / "logs"))
    asked = Request(
        "mariadb",
        Sizes(GIB),
        replication_factor=copies,
        tls=tls,
        columns=columns,
        settings=settings or {},
    )
    database = provision(asked, places)
    assert isinstance(database, MariaDB)
    try:
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(root)
