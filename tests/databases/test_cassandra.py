"""A real Cassandra on an emulated disk, one start for what works; several nodes on folders."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disklab.database_settings import Setting
from disklab.databases import Conditions, Database, NodePlace, Request, Sizes, provision
from disklab.databases.cassandra.access import KEYSTORE_FILE
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.compactions import activity
from disklab.databases.cassandra.configuration import STORAGE_PORT, even_tokens, token_for_newcomer
from disklab.databases.cassandra.jolokia import STORAGE
from disklab.databases.cassandra.settings import statements
from disklab.engine import LoadDone, run_load
from disklab.engine.load import Stop, load_target
from disklab.errors import DisklabError, MachineError
from disklab.hosts.addresses import free_addresses
from disklab.hosts.control_group import marked_processes
from disklab.telemetry import DatabaseWatch, Memory, ProcessCpu, Sampler, Source

from tests.databases.conftest import GIB, PORTS, OnDisk, node_on, request
from tests.databases.servers import asking_cql, count_rows, done, job, job_of_large_rows, write_rows
from tests.databases.strangers import as_nobody, handshake, pem_of
from tests.databases.suite import DatabaseSuite, Traits
from tests.hosts.conftest import Lab
from tests.programs import wait_until

pytestmark = pytest.mark.machine

ROWS = 500
MIB = 1 << 20
THROUGHPUT = "CompactionThroughputMbPerSec"


@pytest.fixture(scope="module")
def served(cassandra: OnDisk) -> Database:
    return cassandra.database


class TestCassandra(DatabaseSuite):
    traits = Traits(
        engine="cassandra",
        title="Apache Cassandra",
        grows="stopped_s",
        stranger={"password": "another"},
        turned_away="cannot be reached",
        own_setting="cluster_name",
        columns=5,
        way="group reclaim",
        kinds={
            **{"read": 0.4, "write": 0.1, "insert": 0.1, "update": 0.1, "scan": 0.2},
            **{"read_modify_write": 0.1},
        },
    )

    def test_deletes_are_done_beside_all_others(self, served: Database) -> None:
        """An update of a row that is gone makes one of its column alone: no row is compared."""
        self.fill(served)
        kinds = {**self.traits.kinds, "read": 0.3, "delete": 0.1}
        ran = done(job(served, kinds, Stop(operations=2_000), columns=self.traits.columns))
        assert ran.errors == {}, ran.last_error
        assert ran.operations["delete"].count == pytest.approx(200, abs=60)

    def name_of_node(self, served: Any) -> str:
        name: str = served.nodes[0].place.name
        return name

    def pid_of(self, served: Any) -> int:
        pid: int = served.nodes[0].process.pid
        return pid

    # A start takes ten seconds of a processor. In CI: the other databases.
    @pytest.mark.long
    def test_a_kill_loses_nothing_that_was_acknowledged(self, served: Database) -> None:
        super().test_a_kill_loses_nothing_that_was_acknowledged(served)

    @pytest.mark.long
    def test_a_server_that_dies_is_the_end_and_starts_again(self, served: Database) -> None:
        super().test_a_server_that_dies_is_the_end_and_starts_again(served)


def device_of(folder: Path) -> int:
    return folder.stat().st_dev


def test_it_serves_inside_its_group_with_data_on_the_volume(cassandra: OnDisk) -> None:
    database, place = cassandra.database, cassandra.place
    assert isinstance(database, Cassandra)
    assert database.target["contact_points"] == [f"{place.address}:9042"]
    seen = database.observe()
    assert list(seen.pids) == place.group.processes()
    # A node that has just made its schema may still compact the system's own tables.
    wait_until(lambda: database.observe().metrics["pending_compactions"] == 0)
    files = database.nodes[0].files
    assert device_of(files.sstables) == device_of(place.volumes["data"])
    assert any(files.commitlog.glob("CommitLog-*.log"))
    assert "listening for CQL" in files.log.read_text()
    assert (place.log_dir / f"{place.name}-cassandra.yaml").exists()


def test_settling_flushes_and_cold_means_nothing_is_cached(cassandra: OnDisk) -> None:
    database, place = cassandra.database, cassandra.place
    assert isinstance(database, Cassandra)
    with asking_cql(database.target) as query:
        query.ask(f"TRUNCATE {database.target['keyspace']}.{database.target['table']}")
    write_rows(database.target, ROWS)
    tables = database.nodes[0].files.sstables / "disklab"
    assert not list(tables.rglob("*-Data.db")), "the rows are in the memtable still"
    database.settle(Conditions())
    assert sum(path.stat().st_size for path in tables.rglob("*-Data.db")) > ROWS * 4000
    assert count_rows(database.target) == ROWS
    cold = database.make_cold()
    assert cold.way == "group reclaim"
    assert cold.data_bytes > ROWS * 4000
    assert cold.left_ratio <= 0.01
    # The limit leaves the page cache its share, beside what the JVM takes.
    limit = place.group.limit_bytes()
    assert limit == pytest.approx(
        place.group.use().anonymous + 32 * MIB + database.plan.page_cache, abs=64 * MIB
    )


def test_a_table_has_the_compression_and_the_chunks_that_were_asked_for(cassandra: OnDisk) -> None:
    options: dict[str, Setting] = {"compression": "zstd", "chunk_length": 4096}
    asked = replace(cassandra.request, table_name="chunked", table=options)
    said = "compression['class'] AS class, compression['chunk_length_in_kb'] AS kib"
    with asking_cql(cassandra.database.target) as query:
        for statement in statements(asked):
            query.ask(statement)
        where = "keyspace_name = 'disklab' AND table_name = 'chunked'"
        (made,) = query.ask(f"SELECT {said} FROM system_schema.tables WHERE {where}")
        query.ask("DROP TABLE disklab.chunked")
    assert made == {"class": "org.apache.cassandra.io.compress.ZstdCompressor", "kib": "4"}


def test_telemetry_sees_the_database(cassandra: OnDisk) -> None:
    rows: list[tuple[str, float, str, str, float]] = []
    watch = DatabaseWatch(cassandra.database)
    sources: list[Source] = [
        watch,
        ProcessCpu("server", lambda: watch.pids),
        Memory("n1", cassandra.place.group),
    ]
    with Sampler(sources, lambda *row: rows.append(row)) as sampler:
        sampler.enter("measure")
        write_rows(cassandra.database.target, ROWS)
        time.sleep(2.5)
    assert not sampler.failures
    assert sampler.mean("measure", "cpu server", "cores") > 0
    assert sampler.course("measure", "memory n1", "anonymous_bytes").last > 1 << 30
    metrics = {metric for _, _, source, metric, _ in rows if source == "database"}
    assert {
        "pending_compactions",
        "dropped_messages",
        "gc_pause_s",
        "gc_allocated_bytes",
        "longest_stop_s",
    } <= metrics


def test_a_write_of_a_fill_may_take_a_minute(cassandra: OnDisk) -> None:
    database = cassandra.database
    assert isinstance(database, Cassandra)

    def timeout_ms() -> int:
        (found,) = database.nodes[0].jolokia.read((STORAGE, "WriteRpcTimeout"))
        return int(found)

    before = timeout_ms()
    with database.fills():
        assert timeout_ms() == 60_000
    assert timeout_ms() == before < 60_000


def test_settling_ends_though_nobody_asks_a_truncated_table_for_its_estimate(
    cassandra: OnDisk,
) -> None:
    """Cassandra renews it only at its own look at all tables, which comes every five minutes."""
    database = cassandra.database
    assert isinstance(database, Cassandra)
    (node,) = database.nodes
    target = {**database.target, "table": "beside"}
    beside = replace(cassandra.request, table_name="beside")
    (before,) = node.jolokia.read((STORAGE, THROUGHPUT))
    with asking_cql(target) as query:
        for statement in statements(beside):
            query.ask(statement)
        node.jolokia.write(STORAGE, THROUGHPUT, 1)
        # As many files of one size as Cassandra compacts into one, which now takes seconds.
        for _ in range(4):
            write_rows(target, 2 * ROWS)
            database.settle(Conditions(compacted=False))
        wait_until(lambda: activity([("n1", node.jolokia)]).running)
        query.ask("TRUNCATE disklab.beside")
        node.jolokia.write(STORAGE, THROUGHPUT, before)
        wait_until(lambda: not activity([("n1", node.jolokia)]).running)
        assert activity([("n1", node.jolokia)]).pending, "its last estimate stays"
        begun = time.monotonic()
        database.settle(Conditions())
        assert time.monotonic() - begun < 60.0
        query.ask("DROP TABLE disklab.beside")


@pytest.mark.long
def test_full_disk_death_and_cleaning(disk_lab: Lab) -> None:
    """A node fills its disk, dies and says why; starts again; is cold by a restart; is cleaned."""
    place = node_on(disk_lab, "full", "512MiB", group=False)
    database = provision(replace(request(), settings={"concurrent_reads": 16}), [place])
    database.start()
    write_rows(database.target, ROWS)
    failures: list[DisklabError] = []
    ballast = place.volumes["data"] / "ballast"
    with Sampler([DatabaseWatch(database)], lambda *_: None, failures.append) as sampler:
        sampler.enter("measure")
        fill_up(ballast)
        with pytest.raises(MachineError, match="a volume of the node is full"):
            # The flush fails, and with disk_failure_policy die the node ends.
            database.settle(Conditions())
        wait_until(lambda: failures)
    with pytest.raises(MachineError, match="a volume of the node is full") as died:
        database.observe()
    assert "No space left on device" in str(died.value)
    ballast.unlink()
    # Stopping what has died does nothing; starting again replays the commit log.
    database.stop()
    database.start()
    assert count_rows(database.target) == ROWS
    database.settle(Conditions())
    assert any("no memory group" in note for note in database.notes)
    cold = database.make_cold()
    assert cold.way == "restart", "without a group, mapped pages go only with the process"
    assert cold.left_ratio < 0.5
    (process,) = marked_processes(place.run_dir)
    removed = disk_lab.run("clean", "--all", "--host", "full").stdout
    assert f"removed database process {process.pid}" in removed
    assert not process.is_ours()
    assert not place.run_dir.exists()


def fill_up(file: Path) -> None:
    """Write until the disk is full, to the last block."""
    with file.open("wb", buffering=0) as opened:
        for chunk in (MIB, 4096):
            with suppress(OSError):
                while opened.write(bytes(chunk)) == chunk:
                    pass
            # What was only promised until now has its place.
            os.fsync(opened.fileno())


ROWS_OF_NODES = 300
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
        assert count_rows(database.target) == ROWS_OF_NODES

        # What a table beside had is gone when a node comes: it gets the rows alone.
        beside = {**database.target, "table": "beside"}
        write_rows(beside, ROWS_OF_NODES)
        database.settle(Conditions(beside_empty=True))
        assert (count_rows(beside), count_rows(database.target)) == (0, ROWS_OF_NODES)
        new = f"n{count + 1}"
        database.add_node(new, near="n2")
        streamed = database.streamed()[new]
        assert 0 < streamed < ROWS_OF_NODES * ROW_BYTES, streamed
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
        assert count_rows(database.target) == ROWS_OF_NODES
        if count == 2:
            return
        # With fewer left than Cassandra keeps copies of its own tables, one must be made to leave.
        database.decommission_node("n3")
        assert [node.files.place.name for node in database.nodes] == ["n1", "n4"]
        assert count_rows(database.target) == ROWS_OF_NODES


def of_all(database: Cassandra, **operations: float) -> LoadDone:
    """Return what became of a load whose every row each node must confirm."""
    everywhere = {"target": load_target(database.target, consistency="ALL")}
    *_, done = run_load(
        job_of_large_rows(database.target, ROWS_OF_NODES, **operations).model_copy(
            update=everywhere
        )
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
