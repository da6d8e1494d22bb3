"""Finding a Redis server, who runs it, and the settings that its version has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.database_settings import settings_of
from disklab.databases.place import ServerHost, closed_program
from disklab.databases.record import Needed
from disklab.databases.redis.configuration import PORTS, REDIS
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import Problem, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get

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
