"""Real Cassandra nodes on plain folders: they know each other before anybody asks them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from disklab.databases import NodePlace, Request, Sizes, provision
from disklab.databases.cassandra.access import KEYSTORE_FILE
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import STORAGE_PORT, even_tokens, token_for_newcomer
from disklab.databases.cassandra.jolokia import STORAGE
from disklab.databases.protocol import Conditions
from disklab.engine import LoadDone, run_load
from disklab.engine.load import load_target
from disklab.hosts.addresses import free_addresses

from tests.databases.conftest import GIB, PORTS
from tests.databases.servers import count_rows, job_of_large_rows, write_rows
from tests.databases.strangers import as_nobody, handshake, pem_of

pytestmark = pytest.mark.machine

ROWS = 300
# As `job` writes them, and a third more for what is around them: the table beside has as many.
ROW_BYTES = 5 * 818 * 4 // 3


@contextmanager
def cluster(nodes: int, later: int = 0) -> Iterator[Cassandra]:
    """Yield a started cluster, as many copies as nodes, and places for those that come later."""
    with tempfile.TemporaryDirectory(prefix="disklab-test-") as folder:
        Path(folder).chmod(0o755)
        places = []
        for number, address in enumerate(free_addresses(nodes + later, PORTS), 1):
            data = Path(folder, f"data{number}")
            data.mkdir()
            places.append(
                NodePlace(
                    name=f"n{number}",
                    address=address,
                    volumes={"data": data},
                    run_dir=Path(folder, "run", f"n{number}"),
                    log_dir=Path(folder, "log"),
                    comes_later=number > nodes,
                )
            )
        sizes = Sizes(4 * GIB, nodes=nodes + later)
        asked = Request("cassandra", sizes, table={"compression": "none"})
        database = provision(
            replace(asked, replication_factor=nodes, tables_beside=("beside",)), places
        )
        assert isinstance(database, Cassandra)
        try:
            database.start()
            yield database
        finally:
            database.stop()


# Of three and a new one, the first that leaves need not be made to: Cassandra keeps three copies of
# its own tables.
@pytest.mark.long
@pytest.mark.parametrize("count", [2, 3])
def test_nodes_agree_and_another_joins_at_the_place_of_one_which_leaves(count: int) -> None:
    with cluster(count, later=1) as database:
        seen = [
            node.jolokia.read(
                (STORAGE, "LiveNodes"), (STORAGE, "SchemaVersion"), (STORAGE, "Keyspaces")
            )
            for node in database.nodes
        ]
        # What they say to each other needs the key that only they have.
        doors = [(node.files.place.address, STORAGE_PORT) for node in database.nodes]
        assert "" not in as_nobody(lambda: [handshake(door) for door in doors])
        configuration = database.nodes[0].files.configuration
        with pem_of(configuration / KEYSTORE_FILE) as pem:
            assert [handshake(door, pem) for door in doors] == [""] * count
        # Before anybody asks them: they know each other and have one schema.
        assert [len(live) for live, _, _ in seen] == [count] * count
        assert len({schema for _, schema, _ in seen}) == 1
        assert all("disklab" in keyspaces for _, _, keyspaces in seen)
        assert of_all(database, write=1.0).errors == {}
        assert count_rows(database.target) == ROWS

        # What a table beside had is gone when a node comes: it gets the rows alone.
        beside = {**database.target, "table": "beside"}
        write_rows(beside, ROWS)
        database.settle(Conditions(beside_empty=True))
        assert (count_rows(beside), count_rows(database.target)) == (0, ROWS)
        new = f"n{count + 1}"
        database.add_node(new, near="n2")
        streamed = database.streamed()[new]
        assert 0 < streamed < ROWS * ROW_BYTES, streamed
        database.decommission_node("n2")
        left = ["n1", "n3", "n4"][:count]
        assert [node.files.place.name for node in database.nodes] == left
        database.repair_node(new)
        live, mode = database.nodes[-1].jolokia.read(
            (STORAGE, "LiveNodes"), (STORAGE, "OperationMode")
        )
        assert mode == "NORMAL"
        assert len(live) == count
        # Each row is asked of all, the new one among them.
        assert of_all(database, read=1.0).errors == {}
        assert count_rows(database.target) == ROWS
        if count == 2:
            return
        # With fewer left than Cassandra keeps copies of its own tables, one must be made to leave.
        database.decommission_node("n3")
        assert [node.files.place.name for node in database.nodes] == ["n1", "n4"]
        assert count_rows(database.target) == ROWS


def of_all(database: Cassandra, **operations: float) -> LoadDone:
    """Return what became of a load whose every row each node must confirm."""
    everywhere = {"target": load_target(database.target, consistency="ALL")}
    *_, done = run_load(
        job_of_large_rows(database.target, ROWS, **operations).model_copy(update=everywhere)
    )
    assert isinstance(done, LoadDone)
    return done


def test_a_newcomer_takes_half_of_the_largest_share_or_anothers_place() -> None:
    tokens = even_tokens(3)
    assert tokens == [-(2**63), -(2**63) + 2**64 // 3, -(2**63) + 2**65 // 3]
    assert token_for_newcomer(tokens, tokens[1]) == tokens[1] - 1
    for known in (tokens, even_tokens(1), [*tokens, 2**62]):
        new = token_for_newcomer(known, None)
        assert -(2**63) <= new < 2**63
        assert new not in known
