"""Databases of ours on plain directories, for what is measured of a client."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disklab.databases import Database, NodePlace, Request, provision, record_of
from disklab.hosts.addresses import free_addresses

GIB = 1 << 30


@contextmanager
def served(asked: Request) -> Iterator[Database]:
    """Yield a started database of one node."""
    # The server is run by a user who may not look into a folder of root's alone.
    with tempfile.TemporaryDirectory(prefix="disklab-bench-") as folder:
        os.chmod(folder, 0o755)
        data = Path(folder, "data")
        data.mkdir()
        place = NodePlace(
            name=f"bench-{os.getpid()}",
            address=free_addresses(1, record_of(asked.engine).ports)[0],
            volumes={"data": data},
            run_dir=Path(folder, "run"),
            log_dir=Path(folder, "log"),
        )
        database = provision(asked, [place])
        try:
            database.start()
            yield database
        finally:
            database.stop()
