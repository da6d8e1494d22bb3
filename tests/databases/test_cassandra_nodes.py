"""Three real Cassandra nodes on plain folders: they know each other before anybody asks them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from disklab.databases import NodePlace, Request, Sizes, provision
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.jolokia import STORAGE
from disklab.engine import LoadDone, run_load
from disklab.engine.load import load_target
from disklab.hosts.addresses import free_addresses

from tests.databases.conftest import GIB, PORTS
from tests.databases.rows import count_rows, job

pytestmark = pytest.mark.machine

NODES = 3
ROWS = 300


@pytest.fixture
def three() -> Iterator[Cassandra]:
    with tempfile.TemporaryDirectory(prefix="disklab-test-") as folder:
        Path(folder).chmod(0o755)
        places = []
        for number, address in enumerate(free_addresses(NODES, PORTS), 1):
            data = Path(folder, f"data{number}")
            data.mkdir()
            places.append(
                NodePlace(
                    name=f"n{number}",
                    address=address,
                    volumes={"data": data},
                    run_dir=Path(folder, "run", f"n{number}"),
                    log_dir=Path(folder, "log"),
                )
            )
        asked = Request("cassandra", Sizes(4 * GIB, nodes=NODES), table={"compression": "none"})
        database = provision(
            replace(asked, replication_factor=NODES, tables_beside=("beside",)), places
        )
        assert isinstance(database, Cassandra)
        try:
            database.start()
            yield database
        finally:
            database.stop()


def test_nodes_agree_on_members_and_schema_before_they_are_asked(three: Cassandra) -> None:
    seen = [
        node.jolokia.read(
            (STORAGE, "LiveNodes"), (STORAGE, "SchemaVersion"), (STORAGE, "Keyspaces")
        )
        for node in three.nodes
    ]
    assert [len(live) for live, _, _ in seen] == [NODES] * NODES
    assert len({schema for _, schema, _ in seen}) == 1
    assert all("disklab" in keyspaces for _, _, keyspaces in seen)
    everywhere = {"target": load_target(three.target, consistency="ALL")}
    *_, done = run_load(job(three.target, ROWS, write=1.0).model_copy(update=everywhere))
    assert isinstance(done, LoadDone)
    assert done.errors == {}
    assert count_rows(three.target) == ROWS
