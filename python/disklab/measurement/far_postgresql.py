"""PostgreSQL on a host: the provider of rehearsals, with everything done through a machine.

Nothing is installed and no user is made there: what is missing is a problem of the plan.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.databases import NodePlace, Request
from disklab.databases.postgresql.cluster import ONE_PRIMARY, PostgreSQL
from disklab.databases.postgresql.configuration import DATABASE, USER
from disklab.databases.postgresql.installation import Installation
from disklab.databases.postgresql.server import Server
from disklab.databases.postgresql.sizing import MemoryPlan
from disklab.databases.remote_host import RemoteHost, account, ran
from disklab.databases.sql import Login, Sql
from disklab.machines.protocol import Command, Machine
from disklab.measurement.far_asking import FarSql
from disklab.measurement.folders import end_processes

# The newest of Debian's and Ubuntu's, then of Fedora's and the PostgreSQL project's own packages.
_FIND = """for d in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/bin; do
  [ -x "$d/initdb" ] && [ -x "$d/postgres" ] && echo "$d $("$d/postgres" --version)"
done; true"""
_FOUND = re.compile(r"(/\S+) .*\(PostgreSQL\) (\d+)", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-fA-F:.]{2,45}", re.ASCII)


@dataclass(frozen=True)
class FarInstallation(Installation):
    """A server's programs on a host."""

    machine: Machine

    def run(self, command: list[str], variables: Mapping[str, str] | None = None) -> str:
        """Run a program there as the server's user. Raises MachineError when it fails."""
        words = self.alone(self.as_user(command))
        return ran(self.machine, *words, variables=variables, name=command[0])


def find(machine: Machine) -> FarInstallation | None:
    """Return the newest server of a host; None: it has none. Raises MachineError without a user."""
    found = [_FOUND.match(line) for line in ran(machine, "sh", "-c", _FIND).splitlines()]
    known = sorted((int(one[2]), one[1]) for one in found if one is not None)
    if not known:
        return None
    major, folder = known[-1]
    return FarInstallation(Path(folder), major, account(machine), machine)


class FarServer(Server):
    """A server on a host. Its folder there was made for it and is removed with it."""

    def __init__(  # noqa: PLR0913, PLR0917 - what `Server` takes, and where
        self,
        request: Request,
        place: NodePlace,
        installation: Installation,
        plan: MemoryPlan,
        password: str,
        machine: Machine,
    ) -> None:
        super().__init__(request, place, installation, plan, password)
        self._machine = machine
        self._clients: Sequence[str] = ()
        self._others: Sequence[str] = ()
        self._far = RemoteHost(machine)

    def let_in(self, clients: Sequence[str]) -> None:
        """Let in these IP addresses too, from the next start on."""
        self._clients = clients

    @property
    def machine(self) -> Machine:
        """The host that it is on."""
        return self._machine

    def know(self, addresses: Sequence[str]) -> None:
        """Let in the servers at these IP addresses, which may follow it; from the next start on."""
        self._others = [one for one in addresses if one != self.place.address]

    def adopt(self) -> None:
        """Use the data directory that a killed run has left, made for the same password."""
        self._made_here = True

    @property
    def is_made(self) -> bool:
        """Whether it has a data directory: its folder was new, or was adopted."""
        return self._made_here

    def drop_page_cache(self) -> None:
        """Drop what the host's page cache holds of its files, and of no others. It is stopped."""
        self.sync()
        self._far.drop_pages(list(self.place.volumes.values()))

    def sync(self) -> None:
        """Write everything back that is dirty on the file systems of its volumes."""
        self._far.sync(self.place)

    def cached_bytes(self, folder: str, names: Set[str]) -> tuple[int, int]:
        """See `Server.cached_bytes`."""
        below = PurePosixPath(self.files.data / "base" / folder)
        there = self._machine.files.names(below)
        own = [below / name for name in there if name.split(".")[0] in names]
        return self._machine.cached_bytes(own)

    def pids(self) -> Iterator[int]:
        """Yield nothing: they are numbers of another machine."""
        yield from ()

    def _put(self, name: str, text: str) -> None:
        self._far.write(self._conf(), name, text)

    def _put_secret(self, name: str, text: str) -> Path:
        return self._far.write_secret(self._conf(), name, text, self._installation.account)

    def _conf(self) -> Path:
        self._far.folder(self.files.configuration)
        return self.files.configuration

    def _remove(self, file: Path) -> None:
        self._far.remove(file)

    def _own_folder(self, folder: Path) -> None:
        self._far.own_folder(folder, self._installation.account)

    def _end_remains(self, program: str) -> list[int]:
        del program
        end_processes(self._machine, str(self.files.data))
        return []

    def _access(self) -> str:
        """Let in the host's own network, the clients, and where we come from."""
        near = super()._access()
        kind = "hostssl" if self.request.tls else "hostnossl"
        near += "".join(_entry(kind, one) for one in (*self._clients, *self._others))
        near += "".join(_entry(kind, one, "replication") for one in self._others)
        ended = self._machine.run(Command(["printenv", "SSH_CONNECTION"]))
        words = ended.stdout.decode(errors="replace").split()
        if not words or _ADDRESS.fullmatch(words[0]) is None:
            return near
        return near + _entry(kind, words[0])

    def _connect(self, login: Login) -> Sql:
        return FarSql(self._machine, self._installation, login)


def _entry(kind: str, address: str, what: str = "all") -> str:
    """Return the line of pg_hba.conf that lets our user in from an address."""
    bits = 128 if ":" in address else 32
    return f"{kind} {what} {USER} {address}/{bits} scram-sha-256\n"


class FarPostgreSQL(PostgreSQL):
    """PostgreSQL on hosts, filled and loaded from here or from client hosts.

    Of several, the first takes reads and writes, and the others confirm its commits.
    """

    def __init__(
        self,
        request: Request,
        places: Sequence[NodePlace],
        installations: Sequence[FarInstallation],
        plan: MemoryPlan,
        password: str | None = None,
    ) -> None:
        """Take what is asked for and where; `password`: of data that are there already."""
        told = password or secrets.token_urlsafe(24)
        there = {place.name: one for place, one in zip(places, installations, strict=True)}

        def make(
            request: Request, place: NodePlace, has: Installation, plan: MemoryPlan, _: str
        ) -> Server:
            del has
            own = there[place.name]
            return FarServer(request, place, own, plan, told, own.machine)

        super().__init__(request, list(places), installations[0], plan, make)
        self._password = told
        self._loaded_from: Sequence[str] = ()
        for server in self._far:
            server.know([place.address for place in places])
            if password is not None:
                server.adopt()

    @property
    def _far(self) -> list[FarServer]:
        return [server for server in self.servers if isinstance(server, FarServer)]

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts, at these IP addresses."""
        self._loaded_from = clients
        for server in self._far:
            server.let_in(addresses)

    @property
    def secret(self) -> str:
        """What the servers were made for: their password, kept beside their data."""
        return self._password

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures should know."""
        where = ", ".join(f"{one.machine.name} ({one.place.address})" for one in self._far)
        source = ", ".join(self._loaded_from) or "the machine that disklab runs on"
        told = [
            f"PostgreSQL ({DATABASE}) was built on {where}; the load came from {source}, so the "
            "way between them is in every latency"
        ]
        if self.standbys:
            told.append(ONE_PRIMARY.format(quorum=self.quorum))
        return (*told, *self.plan.reasons)
