"""Redis: one server, its rows over our wire, a killed server, its log's syncs, what it refuses."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from disklab import spec
from disklab.database_settings import Setting, settings_of
from disklab.databases import Conditions, NodePlace, Request, Sizes, provision
from disklab.databases.redis.cluster import COUNTERS, LOG, METRICS, NEVER_COLD, Redis
from disklab.databases.redis.configuration import (
    LEAST_DATA,
    PORT,
    PORTS,
    ServerFiles,
    as_text,
    find_redis,
    plan_memory,
    server_settings,
)
from disklab.databases.sql import Sql
from disklab.engine.load import (
    ClosedLoop,
    KnownVersions,
    LoadDone,
    LoadJob,
    LoadProgress,
    LoadRun,
    RowsWorkload,
    Stop,
    load_target,
)
from disklab.errors import MachineError, UserError
from disklab.hosts.addresses import free_addresses

from tests.conftest import IN_CI

GIB = 1 << 30
ROWS = 400
ROW_BYTES = 3 * 301


def need_redis() -> None:
    """Skip where no server is installed; in CI there is one."""
    try:
        find_redis()
    except UserError as error:
        if not IN_CI:
            pytest.skip(str(error))
        raise


@contextmanager
def redis(**settings: Setting) -> Iterator[Redis]:
    """Yield a running server on a plain directory, whose name is one for a shell to stumble on."""
    need_redis()
    root = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server is run by a user who may not look into a folder of root's alone.
    root.chmod(0o755)
    (address,) = free_addresses(1, PORTS)
    volume = root / 'data" \\ #'
    volume.mkdir()
    place = NodePlace("n1", address, {"data": volume}, root / "run", root / "logs")
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    database = provision(Request("redis", Sizes(GIB), columns=3, settings=named), [place])
    assert isinstance(database, Redis)
    try:
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with redis(appendfsync="always", io_threads=1, save=False) as database:
        yield database


def job(
    database: Redis,
    operations: dict[str, float],
    stop: Stop,
    versions: KnownVersions | None = None,
) -> LoadJob:
    return LoadJob(
        seed=3,
        target=load_target(database.target),
        workload=RowsWorkload(
            rows=ROWS,
            columns=3,
            column_bytes=301,
            keys="sequential" if operations == {"write": 1.0} else "uniform",
            operations=operations,
            content_seed=3,
            versions=versions,
        ),
        load=ClosedLoop(threads=16),
        stop=stop,
        interval_ms=200,
    )


def done(asked: LoadJob) -> LoadDone:
    with LoadRun(asked) as run:
        *_, last = run
    assert isinstance(last, LoadDone)
    return last


def fill(database: Redis) -> None:
    filled = done(job(database, {"write": 1.0}, Stop(operations=ROWS)))
    assert filled.operations["write"].count == ROWS, filled.last_error


def test_rows_are_read_back_as_they_were_written(server: Redis) -> None:
    fill(server)
    shares = {"read": 0.4, "write": 0.2, "update": 0.2, "delete": 0.1, "insert": 0.1}
    ran = done(job(server, shares, Stop(operations=2_000)))
    assert (ran.errors, ran.wrong_rows, ran.missing_rows) == ({}, 0, 0), ran.last_error
    assert all(ran.operations[name].count for name in shares)
    fill(server)
    other = job(server, {"read": 1.0}, Stop(operations=100))
    assert isinstance(other.workload, RowsWorkload)
    wrong = other.workload.model_copy(update={"content_seed": 4})
    assert done(other.model_copy(update={"workload": wrong})).wrong_rows == 100
    more = other.workload.model_copy(update={"rows": 100 * ROWS})
    assert done(other.model_copy(update={"workload": more})).missing_rows > 70


def test_a_kill_loses_nothing_that_was_acknowledged(server: Redis) -> None:
    fill(server)
    writes = job(server, {"write": 1.0}, Stop(duration_s=1.5), KnownVersions())
    with LoadRun(writes) as run:
        events = iter(run)
        for event in events:
            if isinstance(event, LoadProgress) and event.operations > 100:
                break
        server.kill_node("n1")
        assert server.observe().pids == ()
        server.start_node("n1")
        *_, last = events
    assert isinstance(last, LoadDone)
    assert last.versions is not None
    assert last.errors
    back = done(job(server, {"read": 1.0}, Stop(operations=4 * ROWS), last.versions.known))
    assert back.errors == {}, back.last_error
    assert back.versions is not None
    assert back.versions.judged_reads > 0
    assert back.versions.stale_reads == 0


def test_a_trial_begins_with_a_log_of_its_rows_alone(server: Redis) -> None:
    for _ in range(3):
        fill(server)
    before = server.observe().metrics["log_bytes"]
    assert before > 3 * ROWS * ROW_BYTES
    server.settle(Conditions())
    seen = server.observe()
    assert ROWS * ROW_BYTES < seen.metrics["log_bytes"] < before
    assert (seen.metrics["log_rewrites_under_way"], seen.metrics["snapshots_under_way"]) == (0, 0)
    assert seen.metrics.keys() == set(METRICS.values())
    assert seen.counters.keys() == set(COUNTERS.values())
    assert seen.counters["log_rewrites"] >= 1
    cold = server.make_cold()
    assert (cold.way, cold.data_bytes > ROWS * ROW_BYTES) == ("restart", True)
    assert NEVER_COLD in server.notes
    assert not done(job(server, {"read": 1.0}, Stop(operations=ROWS))).errors
    server.settle(Conditions(empty=True, flushed=False, compacted=False))
    assert done(job(server, {"read": 1.0}, Stop(operations=50, give_up_s=1.0))).missing_rows == 50


def test_the_log_is_not_synced_while_the_table_is_filled(server: Redis) -> None:
    def fsync() -> list[list[str]]:
        return server.primary.connection().ask("CONFIG GET appendfsync")[1:]

    with server.fills():
        assert fsync() == [["no"]]
        fill(server)
    assert fsync() == [["always"]]


def test_nobody_without_the_password_is_answered(server: Redis) -> None:
    place = server.primary.place
    with socket.create_connection((place.address, PORT), 20.0) as stranger:
        for command in (b"PING\r\n", b"CONFIG GET dir\r\n", b"AUTH guess\r\n"):
            stranger.sendall(command)
            assert stranger.recv(4096).startswith((b"-NOAUTH", b"-WRONGPASS"))
    configured = place.run_dir / "conf" / "redis.conf"
    assert configured.stat().st_mode & 0o077 == 0
    assert server.secret in configured.read_text()
    assert server.secret not in (place.log_dir / "n1-redis.conf").read_text()
    pid = server.primary.process.pid
    assert server.secret not in Path(f"/proc/{pid}/cmdline").read_text()
    assert f"DISKLAB_NODE={place.run_dir}" in Path(f"/proc/{pid}/environ").read_text()
    asked = job(server, {"read": 1.0}, Stop(operations=10))
    assert server.secret not in repr(asked)
    bare = {name: value for name, value in server.target.items() if name != "password"}
    with pytest.raises(UserError, match="Redis cannot be reached: NOAUTH"):
        done(asked.model_copy(update={"target": load_target(bare)}))


def test_the_list_of_settings_is_the_servers_own(server: Redis) -> None:
    cli = server.primary.connection()
    names = {row[0] for row in cli.ask("CONFIG GET *")[::2]}
    listed = settings_of("redis")
    told = {*listed.settings, *listed.reasons, *listed.dangers}
    assert listed.settings.keys() <= names
    # What else this server has is told from a slip.
    assert names <= told or not server.versions["Redis"].startswith("7.0.")
    for name, kind in listed.settings.items():
        usual = cli.ask(f"CONFIG GET {name}")[1][0]
        # Ours is a switch; others are for the start alone.
        if name == "save" or not _is_taken(cli, name, usual):
            continue
        for bound in (*kind.values, kind.least, kind.most):
            assert bound is None or _is_taken(cli, name, bound), (name, bound)
        assert _is_taken(cli, name, usual)


def _is_taken(cli: Sql, name: str, value: Setting) -> bool:
    """Return whether a running server takes a value."""
    try:
        return cli.ask(f"CONFIG SET {name} {value}") == [["OK"]]
    except MachineError:
        return False


def test_a_server_that_dies_is_the_end_and_starts_again(server: Redis) -> None:
    pid = server.primary.process.pid
    assert pid is not None
    os.kill(pid, 9)
    with pytest.raises(MachineError, match="was killed by SIGKILL"):
        server.observe()
    server.stop()
    server.start()
    assert server.observe().pids


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Request("redis", Sizes(GIB), replication_factor=3), "as many copies as nodes"),
        (Request("redis", Sizes(GIB), tls=True), "without TLS so far"),
        (Request("redis", Sizes(GIB), settings={"dir": "/etc"}), "disklab sets this itself"),
        (Request("redis", Sizes(GIB), settings={"loadmodule": "/x.so"}), "it names a file"),
        (Request("redis", Sizes(GIB), table={"compression": "lz4"}), "no such option"),
        (Request("redis", Sizes(GIB), version="8.0"), "runs the Redis that is installed"),
    ],
)
def test_what_cannot_be(asked: Request, message: str) -> None:
    folder = Path("/nonexistent")
    place = NodePlace("n1", "127.0.0.1", {"data": folder}, folder, folder)
    with pytest.raises(UserError, match=message):
        provision(asked, [place])
    if asked.replication_factor == 3:
        with pytest.raises(UserError, match="as one server so far"):
            provision(asked, [replace(place, name=f"n{number}") for number in range(3)])


def test_a_volume_of_its_own_for_the_log_is_refused_by_the_file_s_reader() -> None:
    text = (
        "{title: x, cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: "
        "azure/P20}, wal: {disks: azure/P1}}}, database: {engine: redis}, dataset: {rows: 1k, row: "
        "1 x 100B}, workload: {operations: {write: 100%}, load: {threads: 8}}}"
    )
    with pytest.raises(UserError, match="puts nothing on it: it uses data; leave it out"):
        spec.parse(text).trials("rehearse")


def test_a_configuration_has_a_line_for_each_setting_whatever_a_folder_is_called() -> None:
    folder = Path('/x"\nrequirepass ""\n\\é')
    place = NodePlace("n1", "127.0.0.1", {"data": folder}, folder, folder)
    asked: dict[str, Setting] = {"appendfsync": False, "save": "off", "activedefrag": "On"}
    settings = server_settings(ServerFiles(place), plan_memory(Sizes(GIB)), asked)
    lines = as_text(settings).splitlines()
    assert len(lines) == len(settings)
    assert 'dir "/x\\x22\\x0arequirepass \\x22\\x22\\x0a\\x5c\\xc3\\xa9/redis"' in lines
    assert {'appendfsync "no"', 'save ""', 'activedefrag "yes"', "appendonly yes"} <= set(lines)


def test_data_log_and_snapshots_follow_the_scale() -> None:
    full = plan_memory(Sizes(8 * GIB))
    assert full.data == 6 * GIB
    assert full.limit == 8 * GIB
    assert full.settings["save"] == "3600 1 300 100 60 10000"
    small = plan_memory(Sizes(8 * GIB, scale=Fraction(1, 200), time_dilation=3))
    assert (small.data, len(small.reasons)) == (LEAST_DATA, 2)
    assert small.settings["save"] == "10800 1 900 1 180 50"
    assert small.settings["auto-aof-rewrite-min-size"] == 1 << 20


@pytest.mark.parametrize(
    ("line", "is_error"),
    [
        ("7:M 27 Nov 2026 16:28:51.855 # Server initialized", False),
        (
            "7:M 27 Nov 2026 16:28:51.855 # WARNING Memory overcommit must be enabled! ...fail",
            False,
        ),
        ("7:M 27 Nov 2026 16:28:51.855 * Background saving started by pid 9", False),
        ("7:M 27 Nov 2026 16:28:51.855 # Error writing to the AOF file: No space left on", True),
        ("7:C 27 Nov 2026 16:28:51.855 # Write error saving DB on disk: Input/output error", True),
        ("7:M 27 Nov 2026 16:28:51.855 # Can't recover from AOF write error when ...", True),
    ],
)
def test_errors_of_its_log_are_told_from_greetings(line: str, *, is_error: bool) -> None:
    assert LOG.entry.match(line)
    assert bool(LOG.error.match(line)) == is_error
    assert bool(LOG.bad.match(line)) == is_error
