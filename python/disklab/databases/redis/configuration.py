"""What a server is started with, and how much memory it gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.database_settings import SWITCHES, Setting, settings_of
from disklab.databases.installed import Installed
from disklab.databases.place import ServerHost, closed_program
from disklab.databases.protocol import NodePlace, Request, Sizes
from disklab.databases.record import Needed
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import Problem, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get

PORT = 6379
PORTS = (PORT,)
SAVE = "save"
APPEND_FSYNC = "appendfsync"
USUAL_FSYNC = "everysec"
LOG_FOLDER = "appendonlydir"

MIB = 1 << 20
# **Source:** ElastiCache keeps a quarter of a node's memory from the data (its
# reserved-memory-percent), for what a fork copies and for buffers; the log's page cache is in it.
DATA_SHARE = 0.75
LEAST_DATA = 64 * MIB
LEAST_BESIDE = 64 * MIB
# Code, buffers and connections of an empty server (13 MB of 7.0.15), and as much for its forks.
SERVER_BYTES = 64 * MIB
# **Source:** the defaults of auto-aof-rewrite-min-size and of save: seconds, and changes in them.
FULL_REWRITE = 64 * MIB
LEAST_REWRITE = MIB
FULL_SAVE = ((3600, 1), (300, 100), (60, 10_000))

REDIS = Installed(
    engine="redis",
    title="Redis",
    node="each Redis server holds all rows",
    data="log and snapshots",
    chosen="Redis",
    option="option of a table",
    setting="setting",
    listing="redis-cli CONFIG GET '*'",
)


def problems_of(request: Request, nodes: list[NodePlace]) -> Iterator[Problem]:
    """Yield why a request cannot be had, as far as it is known without an installation."""
    yield from REDIS.check(request, nodes)
    if len(nodes) > 1:
        rule = "Redis is rehearsed and measured as one server so far"
        yield Problem("cluster.nodes", str(len(nodes)), rule, "write nodes: 1")
    if request.tls:
        rule = "Redis is rehearsed and measured without TLS so far"
        yield Problem("database.tls", "true", rule, "leave it out")


@dataclass(frozen=True)
class ServerFiles:
    """Where a server's own files are."""

    place: NodePlace

    @property
    def data(self) -> Path:
        """The directory of the log and the snapshots."""
        return self.place.volumes["data"] / "redis"

    @property
    def own(self) -> list[Path]:
        """The folders that are the server's alone."""
        return [self.data]


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one server, in bytes, and what else follows the scale."""

    data: int
    beside: int
    """For what a fork copies and for the page cache of the log."""
    settings: Mapping[str, Setting]
    reasons: tuple[str, ...]

    @property
    def limit(self) -> int:
        """Return the limit of the server's memory group."""
        return self.data + SERVER_BYTES + self.beside


def plan_memory(sizes: Sizes) -> MemoryPlan:
    """Plan one server: its data and what lies beside them follow the scale, and so does the log."""
    whole = int(sizes.memory_bytes * sizes.scale)
    wanted = int(whole * DATA_SHARE)
    page_cache = whole - wanted - SERVER_BYTES
    parts = [("maxmemory", wanted, LEAST_DATA), ("page cache", page_cache, LEAST_BESIDE)]
    data = max(wanted, LEAST_DATA)
    points = (
        f"{seconds * sizes.time_dilation} {max(int(changes * sizes.scale), 1)}"
        for seconds, changes in FULL_SAVE
    )
    return MemoryPlan(
        data=data,
        beside=max(page_cache, LEAST_BESIDE),
        settings={
            "maxmemory": data,
            "auto-aof-rewrite-min-size": max(int(FULL_REWRITE * sizes.scale), LEAST_REWRITE),
            SAVE: " ".join(points),
        },
        reasons=tuple(sizes.too_small(parts)),
    )


def server_settings(
    files: ServerFiles, plan: MemoryPlan, user: Mapping[str, Setting]
) -> dict[str, Setting]:
    """Return all settings of a server but its password."""
    settings: dict[str, Setting] = {
        "bind": files.place.address,
        "port": PORT,
        "dir": str(files.data),
        "appendonly": True,
        "appenddirname": LOG_FOLDER,
        # It would be written over the environment, by which a process of ours is known.
        "set-proc-title": False,
        **plan.settings,
        **{name: _as_redis_writes(name, value) for name, value in user.items()},
    }
    if user.get(SAVE) is not None:
        settings[SAVE] = plan.settings[SAVE] if settings[SAVE] == "yes" else ""
    return settings


def _as_redis_writes(name: str, value: Setting) -> Setting:
    """Return a value of an experiment, which may have another word for yes or no."""
    kind = settings_of(REDIS.engine).settings[name]
    text = str(value).lower()
    if kind.type not in ("boolean", "choice") or text in kind.values:
        return value
    return "yes" if text in SWITCHES[True] else "no"


def as_text(settings: Mapping[str, Setting]) -> str:
    """Return settings in the form of redis.conf."""
    return "".join(f"{name} {_quoted(value)}\n" for name, value in settings.items())


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}"
        for byte in str(value).encode()
    )
    return f'"{"".join(plain)}"'


# Finding a Redis server, who runs it, and the settings that its version has.

SERVER, CLIENT = "redis-server", "redis-cli"
USERS = ("disklab", "redis")
"""Who may run a server for root: our own user, else the one that Redis's packages make."""
LEAST = (7, 0)
"""The first release that keeps its log in a folder of several files."""
_VERSION = re.compile(r"Redis server v=((\d+)\.(\d+)\.\d+)")


@dataclass(frozen=True)
class Installation:
    """A server's programs, and who runs them."""

    server: str
    client: str
    version: str
    account: Account | None
    """None: the user who runs disklab, or is logged in, who is not root."""
    host: ServerHost

    def as_user(self, command: list[str]) -> list[str]:
        """Return the command that gives up root first."""
        return command if self.account is None else self.account.command(command)

    def known_settings(self) -> frozenset[str]:
        """Return the listed settings that this version has: no program lists them."""
        listed = settings_of(REDIS.engine).settings
        return frozenset(name for name, kind in listed.items() if kind.has(self.version))


def look_for_redis(host: ServerHost) -> Installation | Problem:
    """Return the server of a machine, or why none can be used. Raises MachineError."""
    programs = {name: host.program(name) for name in (SERVER, CLIENT)}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        rule, way_out = "no Redis server is installed", f"install it: {how_to_get(SERVER)}"
        if host.elsewhere is not None:
            rule = "is missing on the host; disklab installs nothing"
            way_out = "install it there: apt-get install redis-server, dnf install redis"
        return Problem("database.engine", ", ".join(missing), rule, way_out)
    text = host.said(str(programs[SERVER]), "--version")
    version = _VERSION.search(text)
    if version is None or (int(version[2]), int(version[3])) < LEAST:
        value = (text.splitlines() or [SERVER])[0]
        rule = "Redis 7.0 is the first that disklab runs"
        return Problem("database.engine", value, rule, "install a newer one")
    account = host.account(USERS)
    closed = closed_program(host, account, "Redis", SERVER, Path(str(programs[SERVER])))
    if closed is not None:
        return closed
    return Installation(str(programs[SERVER]), str(programs[CLIENT]), version[1], account, host)


def find_redis(host: ServerHost | None = None) -> Installation:
    """Return the server of a machine, of this one. Raises UserError when there is none."""
    return usable(look_for_redis(ThisMachine() if host is None else host))


def needed_on(host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a server will need of a host, or what that lacks."""
    del version
    installation = look_for_redis(host)
    if isinstance(installation, Problem):
        return installation
    return Needed(f"a Redis {installation.version} server", installation.account, PORTS)


def checks() -> Iterator[Check]:
    """Look for a server: for `disklab doctor`."""
    installation = look_for_redis(ThisMachine())
    if isinstance(installation, Problem):
        yield Check("Redis", installation.rule, False, False, installation.way_out)
    else:
        yield Check("Redis", f"{installation.version}, {installation.server}", True, False)
