"""Finding etcd, its version, the settings that it knows, and who runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.databases.etcd.configuration import PORTS
from disklab.databases.place import ServerHost
from disklab.databases.record import Needed
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import Problem, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get

PROGRAM = "etcd"
LEAST = (3, 4)
"""The first version whose JSON gateway answers below `/v3/`."""
TOO_OLD = "etcd 3.4 is the first whose gateway disklab speaks to"
USERS = ("disklab", "etcd")
"""Who may run a member for root: our own user, else the one that etcd's packages make."""
_VERSION = re.compile(r"etcd Version: ((\d+)\.(\d+)\S*)")
_FLAG = re.compile(r"^ {2,4}--([a-z0-9-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Installation:
    """The program, and who runs it."""

    program: str
    version: str
    account: Account | None
    """None: the user who runs disklab, or is logged in, who is not root."""
    host: ServerHost

    def command(self, arguments: list[str]) -> list[str]:
        """Return the command of a member, which gives up root first."""
        command = [self.program, *arguments]
        return command if self.account is None else self.account.command(command)

    def known_settings(self) -> frozenset[str]:
        """Return the flags of this version, without their dashes."""
        return frozenset(_FLAG.findall(self.host.said(self.program, "--help")))


def look_for_etcd(host: ServerHost) -> Installation | Problem:
    """Return the etcd of a machine, or why none can be used. Raises MachineError."""
    needed = (PROGRAM,) if host.elsewhere is None else (PROGRAM, "curl")
    programs = {name: host.program(name) for name in needed}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        rule = "the program is not installed"
        way_out = f"install it: {how_to_get(PROGRAM)}"
        if host.elsewhere is not None:
            rule = "is missing on the host; disklab installs nothing"
            way_out = "install it there: apt-get install etcd-server curl, dnf install etcd curl"
        return Problem("database.engine", ", ".join(missing), rule, way_out)
    program = str(programs[PROGRAM])
    text = host.said(program, "--version")
    version = _VERSION.search(text)
    if version is None or (int(version[2]), int(version[3])) < LEAST:
        value = (text.splitlines() or [program])[0]
        return Problem("database.engine", value, TOO_OLD, "install a newer one")
    account = host.account(USERS)
    closed = host.unreadable(account, Path(program))
    if account is not None and closed is not None:
        rule = f"etcd runs as the user {account.name}, who may not read it"
        return Problem("etcd", str(closed), rule, f"open it (chmod o+rx {closed})")
    return Installation(program, version[1], account, host)


def find_etcd(host: ServerHost | None = None) -> Installation:
    """Return the etcd of a machine, of this one. Raises UserError when none can be used."""
    return usable(look_for_etcd(ThisMachine() if host is None else host))


def needed_on(host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a member will need of a host, or what that lacks."""
    del version
    found = look_for_etcd(host)
    if isinstance(found, Problem):
        return found
    return Needed(f"an etcd {found.version} member", found.account, PORTS, by_ip=True)


def checks() -> Iterator[Check]:
    """Look for etcd: for `disklab doctor`."""
    found = look_for_etcd(ThisMachine())
    if isinstance(found, Problem):
        yield Check("etcd", found.rule, False, False, found.way_out)
    else:
        yield Check("etcd", f"{found.version}, {found.program}", True, False)
