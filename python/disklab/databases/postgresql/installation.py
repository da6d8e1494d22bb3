"""Finding a PostgreSQL server, the user that runs it, and the settings that it knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.databases.place import ServerHost
from disklab.databases.postgresql.configuration import PORTS
from disklab.databases.record import Needed
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import Problem, usable
from disklab.hosts.doctor import Check
from disklab.hosts.requirements import how_to_get

# The newest of Debian's and Ubuntu's, then of Fedora's and the PostgreSQL project's own packages.
_FIND = """for d in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/bin; do
  for p in initdb postgres psql pg_basebackup; do [ -x "$d/$p" ] || continue 2; done
  echo "$d $("$d/postgres" --version)"
done; true"""
_FOUND = re.compile(r"(/\S+) .*\(PostgreSQL\) (\d+)", re.ASCII)
USERS = ("disklab", "postgres")
"""Who may run a server for root: our own user, else the one that PostgreSQL's packages make."""


@dataclass(frozen=True)
class Installation:
    """A server's programs, and who runs them."""

    folder: Path
    major: int
    account: Account | None
    """None: the user who runs disklab, or is logged in, who is not root."""
    host: ServerHost

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return str(self.folder / name)

    def as_user(self, command: list[str]) -> list[str]:
        """Return the command that gives up root first."""
        return command if self.account is None else self.account.command(command)

    def alone(self, command: list[str]) -> list[str]:
        """Return the command with System V shared memory that ends when its processes have.

        Without root there is no such namespace, and what a killed server leaves stays until its
        data directory is used again.
        """
        return command if self.account is None else ["unshare", "--ipc", "--", *command]

    def run(self, command: list[str], variables: Mapping[str, str] | None = None) -> str:
        """Run a program as the server's user and return what it wrote. MachineError if it fails."""
        words = self.alone(self.as_user(command))
        return self.host.run(words, variables, Path(command[0]).name)

    def known_settings(self) -> frozenset[str]:
        """Return the settings of this version, without those that are fixed when it is built."""
        lines = self.run([self.program("postgres"), "--describe-config"]).splitlines()
        return frozenset(line.split("\t")[0] for line in lines)


def look_for_postgresql(host: ServerHost) -> Installation | Problem:
    """Return the newest server of a machine, or that it has none. Raises MachineError."""
    known = [_FOUND.match(line) for line in host.run(["sh", "-c", _FIND]).splitlines()]
    found = sorted((int(one[2]), one[1]) for one in known if one is not None)
    if found:
        major, folder = found[-1]
        return Installation(Path(folder), major, host.account(USERS), host)
    if host.elsewhere is None:
        rule = "no PostgreSQL server is installed"
        return Problem("postgres", "not found", rule, f"install it: {how_to_get('postgres')}")
    rule = "the package is missing on the host; disklab installs nothing"
    way_out = "install it there: apt-get install postgresql, dnf install postgresql-server"
    return Problem("", "postgresql", rule, way_out)


def find_postgresql(host: ServerHost | None = None) -> Installation:
    """Return the newest server of a machine, of this one. Raises UserError when there is none."""
    return usable(look_for_postgresql(ThisMachine() if host is None else host))


def needed_on(host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a server will need of a host, or what that lacks."""
    del version
    found = look_for_postgresql(host)
    if isinstance(found, Problem):
        return found
    return Needed(f"a PostgreSQL {found.major} server", found.account, PORTS)


def checks() -> Iterator[Check]:
    """Look for a server: for `disklab doctor`."""
    found = look_for_postgresql(ThisMachine())
    if isinstance(found, Problem):
        yield Check("PostgreSQL", found.rule, False, False, found.way_out)
    else:
        yield Check("PostgreSQL", f"{found.major} in {found.folder}", True, False)
