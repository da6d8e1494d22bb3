"""What a server is started with, and how much memory it gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.database_settings import SWITCHES, Setting, settings_of
from disklab.databases.installed import Installed
from disklab.databases.protocol import NodePlace, Request, Sizes
from disklab.errors import Problem

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
    wanted = {"maxmemory": int(whole * DATA_SHARE)}
    wanted["page cache"] = whole - wanted["maxmemory"] - SERVER_BYTES
    least = {"maxmemory": LEAST_DATA, "page cache": LEAST_BESIDE}
    reasons = tuple(
        f"{name} {least[name] // MIB} MiB: scaled by {sizes.scale} it would be "
        f"{max(value, 0) / MIB:.1f} MiB, too little to work with"
        for name, value in wanted.items()
        if value < least[name]
    )
    data = max(wanted["maxmemory"], LEAST_DATA)
    points = (
        f"{seconds * sizes.time_dilation} {max(int(changes * sizes.scale), 1)}"
        for seconds, changes in FULL_SAVE
    )
    return MemoryPlan(
        data=data,
        beside=max(wanted["page cache"], LEAST_BESIDE),
        settings={
            "maxmemory": data,
            "auto-aof-rewrite-min-size": max(int(FULL_REWRITE * sizes.scale), LEAST_REWRITE),
            SAVE: " ".join(points),
        },
        reasons=reasons,
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
