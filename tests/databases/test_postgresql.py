"""A real PostgreSQL on emulated disks: data and WAL apart, with TLS; and what is refused."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from disklab.database_facts import facts_of
from disklab.database_settings import Setting
from disklab.databases import Conditions, Database, NodePlace, Request, Sizes, provision
from disklab.databases.postgresql import cluster
from disklab.databases.postgresql import server as timing
from disklab.databases.postgresql.cluster import PostgreSQL
from disklab.databases.postgresql.configuration import (
    DATABASE,
    PORT,
    USER,
    Role,
    plan_memory,
    sample_bytes,
)
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.postgresql.server import Server
from disklab.databases.sql import Login, Sql
from disklab.errors import MachineError, UserError
from disklab.hosts.addresses import free_addresses
from disklab.hosts.control_group import marked_processes
from disklab.hosts.left_databases import remove_database

from tests.databases.conftest import GIB, node_on
from tests.databases.servers import asking, need, points_of, postgresql
from tests.databases.suite import DatabaseSuite, Traits
from tests.hosts.conftest import Lab

MIB = 1 << 20
ROWS = 2000
CLIENTS = 20
LEAST_SEGMENT_USE = 1 << 16
"""Bytes: a checkpoint and its neighbours are a few hundred, the rows of a test ten million."""
MOST_LOOKED_UP = 1
"""Blocks that a session reads to plan a read where its server knows the table; else it was 3."""
INSERT = f"""INSERT INTO rows SELECT i, v, v, v, v, v FROM generate_series(1, {ROWS}) i,
 (SELECT decode(repeat('ab', 818), 'hex') v) made"""


@pytest.fixture(autouse=True)
def _installed() -> None:
    need("postgresql")


@pytest.fixture(scope="module")
def served() -> Iterator[PostgreSQL]:
    with postgresql(tls=False) as database:
        assert isinstance(database, PostgreSQL)
        yield database


class TestPostgreSQL(DatabaseSuite):
    traits = Traits(
        engine="postgresql",
        title="PostgreSQL",
        grows="wal_bytes",
        stranger={"password": "another"},
        turned_away="password authentication failed",
        own_setting="data_directory",
        columns=5,
    )


def request(**changed: object) -> Request:
    asked = Request("postgresql", Sizes(112 * GIB, Fraction(1, 100)))
    return replace(asked, **changed)  # type: ignore[arg-type]


@pytest.fixture
def server(disk_lab: Lab) -> Iterator[PostgreSQL]:
    place = node_on(disk_lab, "postgresql", "1GiB")
    wal = disk_lab.root / "postgresql-wal"
    disk_lab.attach(
        *("azure/P30", "--host", "postgresql", "--name", "wal", "--size", "512MiB"),
        *("--mount", str(wal)),
    )
    place = replace(place, volumes={**place.volumes, "wal": wal})
    made = provision(request(tls=True, settings={"random_page_cost": 1.1}), [place])
    assert isinstance(made, PostgreSQL)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        assert place.group.remove()
        disk_lab.run("clean", "--all", "--data", "--host", "postgresql")


def insert(database: Database) -> None:
    """Write all rows of 4 KB into an empty table."""
    database.settle(Conditions(empty=True, flushed=False, compacted=False))
    with asking(database) as sql:
        sql.ask(INSERT)


def test_a_cold_server_knows_its_table(served: PostgreSQL) -> None:
    insert(served)
    served.settle(Conditions())
    served.make_cold()
    before = blocks_read(served)
    with asking(served) as sql:
        sql.ask("PREPARE one (bigint) AS SELECT c0 FROM rows WHERE key = $1")
        assert any("rows_pkey" in row[0] for row in sql.ask("EXPLAIN EXECUTE one (1)"))
    assert blocks_read(served) - before <= MOST_LOOKED_UP


def test_other_settings_come_with_a_restart(served: PostgreSQL) -> None:
    assert served.primary.connection().ask("SHOW full_page_writes") == [["on"]]
    changed: dict[str, Setting] = {"full_page_writes": "off"}
    served.reconfigure(changed)
    served.make_cold()
    assert served.primary.connection().ask("SHOW full_page_writes") == [["off"]]
    assert set(changed) <= {*facts_of("postgresql").restart_settings}


def test_a_settled_server_begins_a_segment_of_its_log(served: PostgreSQL) -> None:
    insert(served)
    served.settle(Conditions())
    offset = "SELECT file_offset FROM pg_walfile_name_offset(pg_current_wal_lsn())"
    with asking(served) as sql:
        assert int(sql.ask(offset)[0][0]) < LEAST_SEGMENT_USE


def blocks_read(database: Database) -> float:
    """Return them once all sessions have told theirs, which they do a second later."""
    for _ in range(2):
        time.sleep(1.5)
        database.observe()
    return database.observe().counters["blocks_read"]


@pytest.mark.machine
def test_a_server_on_its_volumes_through_all_its_states(server: PostgreSQL) -> None:
    place, files = server.primary.place, server.primary.files
    sql = server.primary.sql
    assert sql.ask("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [["t"]]
    assert sql.ask("SHOW random_page_cost") == [["1.1"]]
    # The log is on a volume of its own.
    assert any(files.wal.glob("0000*"))
    assert files.wal.stat().st_dev != files.data.stat().st_dev
    seen = server.observe()
    assert set(seen.pids) <= set(place.group.processes())
    sql.ask(INSERT)
    assert server.observe().counters["wal_bytes"] - seen.counters["wal_bytes"] > ROWS * 4000
    # A row of 4 KB lies in one page, and nothing of it in a table beside.
    assert sql.ask("SELECT pg_relation_size('rows') / 8192") == [[str(ROWS)]]
    server.settle(Conditions())
    cold = server.make_cold()
    assert cold.way == "restart"
    assert cold.data_bytes >= ROWS * 8192
    assert cold.left_ratio <= 0.01
    sql = server.primary.sql
    assert sql.ask("SELECT count(*) FROM rows") == [[str(ROWS)]]
    with pytest.raises(MachineError, match='relation "nothing" does not exist'):
        sql.ask("SELECT * FROM nothing")


@pytest.mark.machine
def test_backends_of_the_load_before_take_no_room_of_those_to_come(server: PostgreSQL) -> None:
    group = server.primary.place.group
    password = str(server.target["password"])
    login = Login(server.primary.place.address, PORT, USER, DATABASE, tls=True, password=password)
    program = find_postgresql().program("psql")

    def room(backends: int) -> int:
        return server.plan.limit_for(0, backends)

    def limit() -> int:
        return group.limit_bytes() or 0

    server.expect(CLIENTS)
    with ExitStack() as still_there:
        for _ in range(CLIENTS):
            client = still_there.enter_context(Sql(program, login))
            assert client.ask("SELECT count(*) FROM rows") == [["0"]]
        # They have come: no room is kept for more of them, but what they take.
        server.observe()
        assert limit() < room(CLIENTS)
        server.expect(CLIENTS)
        server.observe()
        assert limit() >= room(CLIENTS)


def mapped(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/ipc")


def is_living(pid: int) -> bool:
    try:
        # What nobody has waited for yet has no memory any more.
        return mapped(pid) != ""
    except OSError:
        return False


@pytest.mark.machine
def test_nothing_of_a_killed_server_stays_but_its_data(server: PostgreSQL) -> None:
    ((backend,),) = server.primary.connection().ask("SELECT pg_backend_pid()")
    pids = list(server.primary.pids())
    assert int(backend) in pids
    # Their shared memory ends with the last of them: it is of a namespace that is theirs alone.
    assert any("/SYSV" in mapped(pid) for pid in pids)
    assert not any("/dev/shm/" in mapped(pid) for pid in pids)
    (theirs,) = {namespace(pid) for pid in pids}
    assert theirs != namespace("self")

    # A backend that did not see the end of its server might still write.
    os.kill(int(backend), signal.SIGSTOP)
    (main,) = marked_processes(server.primary.place.run_dir)
    assert main.end(signal.SIGKILL, 10)
    server.stop()
    assert namespace(int(backend)) == theirs
    server.start()
    assert not is_living(int(backend))


@pytest.mark.machine
def test_a_killed_server_takes_along_a_backend_that_does_not_see_its_end(
    server: PostgreSQL,
) -> None:
    ((backend,),) = server.primary.connection().ask("SELECT pg_backend_pid()")
    os.kill(int(backend), signal.SIGSTOP)
    server.kill_node(server.primary.place.name)
    # Its VM may be lost with its disks now: nobody must sit on their mount.
    assert not is_living(int(backend))
    server.start_node(server.primary.place.name)


@pytest.mark.machine
def test_what_is_left_of_a_node_is_removed_with_a_backend_that_outlives_its_server(
    server: PostgreSQL,
) -> None:
    place = server.primary.place
    ((backend,),) = server.primary.connection().ask("SELECT pg_backend_pid()")
    # It shows no mark, and stopped it sees as little of its server's end as one that waits for a
    # lock.
    os.kill(int(backend), signal.SIGSTOP)
    (main,) = marked_processes(place.run_dir)
    assert main.end(signal.SIGKILL, 10)
    removed = remove_database(place.run_dir)
    assert all(one.done for one in removed), removed
    assert ("database process", backend) in {(one.kind, one.what) for one in removed}
    assert not is_living(int(backend))


@pytest.fixture
def three(disk_lab: Lab) -> Iterator[PostgreSQL]:
    """Three servers, each on its own emulated host and disk."""
    names = ("pg-n1", "pg-n2", "pg-n3")
    addresses = free_addresses(3, (PORT,))
    places = []
    for name, address in zip(names, addresses, strict=True):
        one = node_on(disk_lab, name, "1GiB")
        places.append(replace(one, name=name.removeprefix("pg-"), address=address))
    made = provision(request(tls=True, replication_factor=3, connections=4), places)
    assert isinstance(made, PostgreSQL)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        for name, one in zip(names, places, strict=True):
            assert one.group.remove()
            disk_lab.run("clean", "--all", "--data", "--host", name)


def signal_all(server: Server, sign: signal.Signals) -> None:
    for pid in server.pids():
        os.kill(pid, sign)


def watch(database: PostgreSQL, seconds: float) -> None:
    """Look at it as the telemetry does, until it raises."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        database.observe()
        time.sleep(0.5)


@pytest.mark.machine
@pytest.mark.long
def test_three_servers_confirm_commits_by_quorum(three: PostgreSQL) -> None:
    sql = three.primary.connection()
    asked = "SELECT application_name, sync_state FROM pg_stat_replication ORDER BY 1"
    assert sql.ask(asked) == [["n2", "quorum"], ["n3", "quorum"]]
    sql.ask("SET synchronous_commit = on")
    sql.ask(INSERT)
    assert three.observe().metrics["streaming_standbys"] == 2
    three.settle(Conditions())
    for standby in three.standbys:
        assert standby.connection().ask("SELECT count(*) FROM rows") == [[str(ROWS)]]
        assert standby.files.data.stat().st_dev != three.primary.files.data.stat().st_dev
    cold = three.make_cold()
    assert cold.data_bytes >= 3 * ROWS * 8192, "the pages of every server count"
    assert cold.left_ratio <= 0.01
    assert three.primary.connection().ask(asked) == [["n2", "quorum"], ["n3", "quorum"]]

    # One standby that hangs is no loss; with two, no commit ends, and that is soon an error.
    for standby in three.standbys:
        signal_all(standby, signal.SIGSTOP)
    try:
        with pytest.raises(MachineError, match="no commit was confirmed for 10 s: 0 of the 1"):
            watch(three, 40)
    finally:
        for standby in three.standbys:
            signal_all(standby, signal.SIGCONT)
    (killed, _) = three.standbys
    os.kill(killed.process.pid, signal.SIGKILL)
    with pytest.raises(MachineError, match=r"node n2 .* was killed by SIGKILL"):
        watch(three, 5)


@pytest.mark.machine
def test_a_lost_standby_is_replaced_by_a_copy_of_its_primary(three: PostgreSQL) -> None:
    sql = three.primary.connection()
    sql.ask(INSERT)
    three.kill_node("n2")
    lost = next(one for one in three.servers if one.place.name == "n2")
    shutil.rmtree(lost.files.data)
    with pytest.raises(MachineError, match="it is the primary, and standbys are copies of it"):
        three.replace_node("n1")
    before, begun = dict(three.streamed()), time.time()
    three.replace_node("n2")
    three.wait_until_whole()
    assert lost.connection().ask("SELECT count(*) FROM rows") == [[str(ROWS)]]
    asked = "SELECT application_name, sync_state FROM pg_stat_replication ORDER BY 1"
    assert sql.ask(asked) == [["n2", "quorum"], ["n3", "quorum"]]
    assert three.streamed()["n2"] - before["n2"] > ROWS * 8192
    assert three.streamed()["n3"] == before["n3"]
    parts = three.parts(begun)
    assert set(parts) == {"stream", "finish"}
    assert parts["stream"] > 0
    assert three.parts(begun) == {}, "each copy is told once"
    # A copy that is ended says so, and the server stays away.
    other = three.servers[2]
    three.kill_node("n3")

    def end() -> None:
        while other.process.pid is None:
            time.sleep(0.01)
        three.kill_node("n3")

    ender = threading.Thread(target=end)
    ender.start()
    with pytest.raises(MachineError, match=r"node n3 .* was killed by SIGKILL"):
        three.replace_node("n3")
    ender.join()


class PrimarysLogin(Login):
    """One that looks for the primary along the list of hosts."""

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "PGTARGETSESSIONATTRS": "read-write"}


def changed(database: PostgreSQL, first: int, last: int, *, confirmed: bool) -> None:
    """Update rows by a client that looks for the primary along the list of hosts."""
    points = points_of(database.target)
    hosts = ",".join(point.rpartition(":")[0] for point in points)
    login = PrimarysLogin(hosts, PORT, USER, DATABASE, tls=True, password=database._password)
    with Sql(find_postgresql().program("psql"), login, find_postgresql().account) as sql:
        sql.ask(f"SET synchronous_commit = {'on' if confirmed else 'local'}")
        sql.ask(f"UPDATE rows SET c0 = 'new' WHERE key BETWEEN {first} AND {last}")


NEW = "SELECT count(*) FROM rows WHERE c0 = 'new'"
FOLLOWS = "SELECT application_name, sync_state FROM pg_stat_replication ORDER BY 1"


def await_rows(server: Server, wanted: list[list[str]], question: str) -> None:
    deadline = time.monotonic() + 30
    while (seen := server.connection().ask(question)) != wanted:
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)


@pytest.mark.machine
def test_a_promoted_standby_has_all_that_a_quorum_confirmed(three: PostgreSQL) -> None:
    n1, n2, n3 = three.servers
    three.primary.connection().ask(INSERT)
    with pytest.raises(MachineError, match="n1 is the primary, and there would be two"):
        three.promote_node("n2")
    three.wait_until_whole()
    # Its receiver hangs: what is confirmed from now on is on the other standby alone.
    ((receiver,),) = n2.connection().ask("SELECT pid FROM pg_stat_wal_receiver")
    os.kill(int(receiver), signal.SIGSTOP)
    try:
        changed(three, 1, 500, confirmed=True)
    finally:
        three.kill_node("n1")
        os.kill(int(receiver), signal.SIGCONT)
    three.promote_node("n2")
    assert three.primary is n2
    assert n2.connection().ask(NEW) == [["500"]]
    await_rows(n2, [["n3", "quorum"]], FOLLOWS)
    changed(three, 501, 600, confirmed=True)
    await_rows(n3, [["600"]], NEW)
    # The old primary comes back as a copy of the new one.
    three.replace_node("n1")
    await_rows(n2, [["n1", "quorum"], ["n3", "quorum"]], FOLLOWS)
    assert n1.connection().ask(NEW) == [["600"]]
    assert three.observe().metrics["streaming_standbys"] == 2


@pytest.mark.machine
@pytest.mark.long
def test_what_no_standby_had_is_lost_and_lies_on_the_disk_of_the_old_primary(
    three: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, _, n3 = three.servers
    three.primary.connection().ask(INSERT)
    changed(three, 1, 300, confirmed=True)
    three.wait_until_whole()
    for name in ("n2", "n3"):
        three.kill_node(name)
    changed(three, 301, 345, confirmed=False)
    three.kill_node("n1")
    for name in ("n2", "n3"):
        three.start_node(name)
    three.promote_node("n3")
    assert n3.connection().ask(NEW) == [["300"]]
    await_rows(n3, [["n2", "quorum"]], FOLLOWS)
    # As it was, alone, the old one has them all: it must not come back on what its disk holds.
    n1.launch(Role(three.request.connections))
    n1.wait_until_ready(makes_schema=False)
    assert n1.connection().ask(NEW) == [["345"]]
    n1.kill()
    # It would go on from a place in the log that the new primary has never had.
    n1._follow()
    monkeypatch.setattr(cluster, "RETURN_SECONDS", 15.0)
    with pytest.raises(MachineError, match=r"node n1 .*did not follow n3 .* to be replaced"):
        three.start_node("n1")
    three.kill_node("n1")
    three.replace_node("n1")
    assert n1.connection().ask(NEW) == [["300"]]


def place(tmp_path: Path) -> NodePlace:
    return NodePlace("n1", "127.64.0.1", {"data": tmp_path}, tmp_path / "run", tmp_path / "log")


def test_settings_are_those_of_the_installed_version(tmp_path: Path) -> None:
    asked = request(settings={"shared_bufers": "1GB", "port": 1})
    with pytest.raises(UserError) as refused:
        provision(asked, [place(tmp_path)])
    unknown, ours = refused.value.problems
    assert "shared_buffers" in unknown.way_out
    assert "has an address of this machine" in ours.rule
    assert list(tmp_path.iterdir()) == []


def test_what_one_server_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    asked = request(replication_factor=3, table={"compression": "lz4"})
    with pytest.raises(UserError) as refused:
        provision(asked, [place(tmp_path)])
    places = [problem.place for problem in refused.value.problems]
    assert places == ["cluster.nodes", "database.table.compression"]


def test_memory_follows_the_scale() -> None:
    plan = plan_memory(Sizes(112 * GIB, Fraction(1, 100)))
    assert plan.buffers == pytest.approx(112 * GIB / 4 / 100, rel=1e-6)
    assert plan.page_cache == pytest.approx((112 * GIB * 3 / 4 - 128 * MIB) / 100, rel=1e-6)
    assert plan.limit_for(MIB) > plan.buffers + plan.page_cache
    assert plan.first_limit(60) > plan.limit_for(60 * 4 * MIB), "there is room for clients to come"
    (reason,) = plan.reasons
    assert reason.startswith("max_wal_size 64 MiB")


def test_the_sample_of_analyze_fits_beside_a_small_page_cache() -> None:
    """With rows of 2 KiB at 1/500 the server was killed by its memory group before."""
    small = plan_memory(Sizes(14 * GIB, Fraction(1, 500)), row_bytes=2_045)
    assert small.page_cache == 32 * MIB
    kept = sample_bytes(2_045, small.statistics_target)
    assert 2 * kept < small.page_cache < sample_bytes(2_045, 100)
    assert small.settings["default_statistics_target"] == str(small.statistics_target)
    assert any(f"default_statistics_target {small.statistics_target}:" in r for r in small.reasons)
    full = plan_memory(Sizes(14 * GIB), row_bytes=2_045)
    assert full.settings["default_statistics_target"] == "100"
    assert full.reasons == ()
    # A server of PostgreSQL 15 took 122 MiB for 30,000 such rows, 3 MiB of them its own.
    assert sample_bytes(2_045, 100) / MIB == pytest.approx(119, rel=0.05)


def test_periods_follow_the_time_dilation() -> None:
    assert timing.usual_timing(1) == {}
    slow = timing.usual_timing(12)
    assert slow["checkpoint_timeout"] == f"{12 * 300_000}ms"
    assert timing.usual_timing(100)["wal_writer_delay"] == "10000ms"
    asked: dict[str, Setting] = {"checkpoint_timeout": "5min", "wal_level": "replica", "jit": False}
    assert timing.dilated_timing(asked, 12) == {**asked, "checkpoint_timeout": "60min"}
