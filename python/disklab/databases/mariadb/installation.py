"""Finding a MariaDB server, the user that runs it, and the settings that it knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.databases.mariadb.configuration import PORTS
from disklab.databases.place import ServerHost, closed_program
from disklab.databases.record import Needed
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import Problem, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get

SERVER, CLIENT, MAKER = "mariadbd", "mariadb", "mariadb-install-db"
PROGRAMS = (SERVER, CLIENT, MAKER)
GALERA = "galera"
"""Of an installation's programs: the library that a server replicates with."""
LIBRARIES = ("/usr/lib/galera", "/usr/lib64/galera-4", "/usr/lib64/galera")
COPIERS = ("mariadb-backup", "mbstream", "socat")
"""What makes a whole copy of another server's data."""
USERS = ("disklab", "mysql")
"""Who may run a server for root: our own user, else the one that MariaDB's packages make."""
LEAST = (10, 11)
"""The first release whose settings disklab knows: 10.6 has another redo log."""
MOST_REPLICATED = 2
"""Servers of a primary and its replica; with more copies they are a Galera cluster."""
_VERSION = re.compile(r"Ver ((\d+)\.(\d+)\.\d+)-MariaDB")
_NAME = re.compile(r"^([a-z][a-z0-9-]*) ", re.MULTILINE)
_TABLE = "Variables (--variable-name=value)"


@dataclass(frozen=True)
class Installation:
    """A server's programs, and who runs them."""

    programs: dict[str, str]
    version: str
    account: Account | None
    """None: the user who runs disklab, or is logged in, who is not root."""
    host: ServerHost

    def as_user(self, command: list[str]) -> list[str]:
        """Return the command that gives up root first."""
        return command if self.account is None else self.account.command(command)

    def run(self, program: str, *words: str) -> str:
        """Run a program as the server's user and return what it wrote. MachineError if it fails."""
        return self.host.run(self.as_user([self.programs[program], *words]), None, program)

    def lacks(self, copies: int) -> Iterator[Problem]:
        """Yield what is missing for so many servers."""
        missing = [name for name in COPIERS if copies > 1 and self.host.program(name) is None]
        if copies > MOST_REPLICATED and GALERA not in self.programs:
            missing.append("libgalera_smm.so")
        if missing:
            rule = "is missing, which copies of MariaDB's data need"
            way_out = "install it: apt-get install mariadb-backup galera-4 socat"
            yield Problem("database.replication_factor", ", ".join(missing), rule, way_out)

    def known_settings(self) -> frozenset[str]:
        """Return the settings of this version that it takes when it starts."""
        text = self.host.said(self.programs[SERVER], "--no-defaults", "--verbose", "--help")
        names = _NAME.findall(text.partition(_TABLE)[2])
        return frozenset(name.replace("-", "_") for name in names)


def look_for_mariadb(host: ServerHost) -> Installation | Problem:
    """Return the server of a machine, or why none can be used. Raises MachineError."""
    programs = {name: host.program(name) for name in PROGRAMS}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        rule, way_out = "no MariaDB server is installed", f"install it: {how_to_get(SERVER)}"
        if host.elsewhere is not None:
            rule = "is missing on the host; disklab installs nothing"
            way_out = "install it there: apt-get install mariadb-server, dnf install mariadb-server"
        return Problem("database.engine", ", ".join(missing), rule, way_out)
    text = host.said(str(programs[SERVER]), "--no-defaults", "--version")
    version = _VERSION.search(text)
    if version is None or (int(version[2]), int(version[3])) < LEAST:
        value = (text.splitlines() or [SERVER])[0]
        rule = "MariaDB 10.11 is the first whose settings disklab knows"
        return Problem("database.engine", value, rule, "install a newer one")
    paths = {name: str(path) for name, path in programs.items()}
    for folder in LIBRARIES:
        if host.exists(library := Path(folder) / "libgalera_smm.so"):
            paths[GALERA] = str(library)
    account = host.account(USERS)
    closed = closed_program(host, account, "MariaDB", SERVER, Path(paths[SERVER]))
    if closed is not None:
        return closed
    return Installation(paths, version[1], account, host)


def find_mariadb(host: ServerHost | None = None) -> Installation:
    """Return the server of a machine, of this one. Raises UserError when there is none."""
    return usable(look_for_mariadb(ThisMachine() if host is None else host))


def needed_on(host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a server will need of a host, or what that lacks."""
    del version
    installation = look_for_mariadb(host)
    if isinstance(installation, Problem):
        return installation
    return Needed(f"a MariaDB {installation.version} server", installation.account, PORTS)


def checks() -> Iterator[Check]:
    """Look for a server: for `disklab doctor`."""
    installation = look_for_mariadb(ThisMachine())
    if isinstance(installation, Problem):
        yield Check("MariaDB", installation.rule, False, False, installation.way_out)
    else:
        shown = f"{installation.version}, {installation.programs[SERVER]}"
        yield Check("MariaDB", shown, True, False)
