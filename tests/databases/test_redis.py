"""Redis: one server, its rows over our wire, a killed server, its log's syncs, what it refuses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from disklab import spec
from disklab.database_settings import Setting, settings_of
from disklab.databases import Conditions, NodePlace, Request, Sizes
from disklab.databases.redis.cluster import COUNTERS, LOG, METRICS, Redis
from disklab.databases.redis.configuration import (
    LEAST_DATA,
    PORT,
    ServerFiles,
    as_text,
    plan_memory,
    server_settings,
)
from disklab.databases.sql import Sql
from disklab.errors import MachineError, UserError

from tests.databases.servers import COLUMN_BYTES, GIB, ROWS, fill, running
from tests.databases.suite import DatabaseSuite, Traits

ROW_BYTES = 3 * COLUMN_BYTES


@pytest.fixture(scope="module")
def served() -> Iterator[Redis]:
    """A server whose volume has a name for a shell to stumble on."""
    settings: dict[str, Setting] = {"appendfsync": "always", "io-threads": 1, "save": False}
    asked = Request("redis", Sizes(GIB), columns=3, settings=settings)
    with running(asked, "data", folder='data" \\ #') as database:
        assert isinstance(database, Redis)
        yield database


class TestRedis(DatabaseSuite):
    traits = Traits(
        engine="redis",
        title="Redis",
        grows="commands",
        stranger={"password": None},
        turned_away="Redis cannot be reached: NOAUTH",
        own_setting="dir",
        kinds={"read": 0.4, "write": 0.2, "update": 0.2, "delete": 0.1, "insert": 0.1},
        is_all_read=True,
    )


def test_a_trial_begins_with_a_log_of_its_rows_alone(served: Redis) -> None:
    for _ in range(3):
        fill(served)
    before = served.observe().metrics["log_bytes"]
    assert before > 3 * ROWS * ROW_BYTES
    served.settle(Conditions())
    seen = served.observe()
    assert ROWS * ROW_BYTES < seen.metrics["log_bytes"] < before
    assert (seen.metrics["log_rewrites_under_way"], seen.metrics["snapshots_under_way"]) == (0, 0)
    assert seen.metrics.keys() == set(METRICS.values())
    assert seen.counters.keys() == set(COUNTERS.values())
    assert seen.counters["log_rewrites"] >= 1


def test_the_log_is_not_synced_while_the_table_is_filled(served: Redis) -> None:
    def fsync() -> list[list[str]]:
        return served.primary.connection().ask("CONFIG GET appendfsync")[1:]

    with served.fills():
        assert fsync() == [["no"]]
        fill(served)
    assert fsync() == [["always"]]


def test_nobody_without_the_password_is_answered(served: Redis) -> None:
    place = served.primary.place
    with socket.create_connection((place.address, PORT), 20.0) as stranger:
        for command in (b"PING\r\n", b"CONFIG GET dir\r\n", b"AUTH guess\r\n"):
            stranger.sendall(command)
            assert stranger.recv(4096).startswith((b"-NOAUTH", b"-WRONGPASS"))
    configured = place.run_dir / "conf" / "redis.conf"
    assert configured.stat().st_mode & 0o077 == 0
    assert served.secret in configured.read_text()
    assert served.secret not in (place.log_dir / "n1-redis.conf").read_text()
    pid = served.primary.process.pid
    assert served.secret not in Path(f"/proc/{pid}/cmdline").read_text()
    assert f"DISKLAB_NODE={place.run_dir}" in Path(f"/proc/{pid}/environ").read_text()


def test_the_list_of_settings_is_the_servers_own(served: Redis) -> None:
    cli = served.primary.connection()
    names = {row[0] for row in cli.ask("CONFIG GET *")[::2]}
    listed = settings_of("redis")
    told = {*listed.settings, *listed.reasons, *listed.dangers}
    assert listed.settings.keys() <= names
    # What else this server has is told from a slip.
    assert names <= told or not served.versions["Redis"].startswith("7.0.")
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


def test_a_volume_of_its_own_for_the_log_is_refused_by_the_file_s_reader() -> None:
    text = (
        "{title: x, cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: "
        "azure/P20}, wal: {disks: azure/P1}}}, database: {engine: redis}, dataset: {rows: 1k, row: "
        "1 x 100B}, workload: {operations: {write: 100%}, load: {threads: 8}}}"
    )
    with pytest.raises(UserError, match="does not use it: it uses data; leave it out"):
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
