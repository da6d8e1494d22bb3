"""A database that runs already: loaded in tables of our own, and otherwise left alone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from disklab import reading
from disklab.database_facts import facts_of, names
from disklab.databases import Coldness, Conditions, Observation, Request
from disklab.databases.cassandra.access import READY, Cql
from disklab.databases.cassandra.configuration import CQL_PORT
from disklab.databases.cassandra.settings import statements
from disklab.databases.postgresql.configuration import PORT as POSTGRESQL_PORT
from disklab.databases.postgresql.configuration import schema
from disklab.databases.protocol import Database
from disklab.databases.sql import Login, Sql
from disklab.engine import CqlLogin, CqlTls
from disklab.errors import MachineError, Problem, UserError, refuse
from disklab.hosts import requirements
from disklab.measurement.hosts_file import Endpoint, Hosts

PASSWORD = reading.Kind(
    "a file with a password", 4096, "name a file that contains only the password"
)
AUTHORITIES = reading.Kind("a file with certificates", 1 << 20, "name a PEM file")
NAMESPACE = re.compile(r"disklab_[a-z0-9_]{8,40}", re.ASCII)
"""Keyspaces and schemas of ours; only such are dropped. Cassandra's names have 48 characters."""
DATA_CENTER = "SELECT data_center FROM system.local"
"""Of the node that is asked: our rows are there, as an application's are."""


def namespace_of(run_id: str) -> str:
    """Return the name of the keyspace or schema of a run: the run's time and random part."""
    text = re.sub(r"[^a-z0-9]", "_", "_".join(run_id.lower().split("-")[-2:]))
    name = f"disklab_{text}"
    assert NAMESPACE.fullmatch(name), name
    return name


class Measured(Database, Protocol):
    """A running database in which a namespace is ours."""

    def drop(self) -> None:
        """Drop our namespace with all its tables; nothing when there is none."""
        ...


@dataclass(frozen=True)
class Access:
    """How a running database is reached; the password is read when it is needed."""

    hosts: Hosts
    endpoint: Endpoint

    def password(self) -> str | None:
        """Return the password. Raises UserError when its file or variable is missing."""
        given = self.endpoint
        if given.password_variable is not None:
            found = os.environ.get(given.password_variable)
            if found is None:
                place = self.hosts.place("database", "password_variable")
                rule = "the environment has no such variable"
                way_out = f"export {given.password_variable}=..., or name a password_file"
                raise UserError(Problem(place, given.password_variable, rule, way_out))
            return found
        if given.password_file is not None:
            place = self.hosts.place("database", "password_file")
            return reading.text(Path(given.password_file), PASSWORD, place).rstrip("\r\n")
        return None

    def authorities(self) -> bytes | None:
        """Return the certificates that the server's must come from. Raises UserError."""
        if self.endpoint.ca_file is None:
            return None
        place = self.hosts.place("database", "ca_file")
        return reading.text(Path(self.endpoint.ca_file), AUTHORITIES, place).encode()

    def points(self, port: int) -> list[str]:
        """Return the addresses, each with its port."""
        return [one if ":" in one else f"{one}:{port}" for one in self.endpoint.addresses]


def check(access: Access, engine: str) -> None:
    """Raise UserError for what cannot be had of a running database."""
    problems = []
    hosts, endpoint = access.hosts, access.endpoint
    facts = facts_of(engine)
    if not facts.measured_as_it_runs:
        able = [name for name in names() if facts_of(name).measured_as_it_runs]
        rule = f"running databases of this kind are not measured; {' and '.join(able)} are"
        problems.append(Problem(hosts.place("database"), engine, rule, "use another experiment"))
    if endpoint.ca_file is not None and not endpoint.tls:
        rule = "certificates are for TLS, which is off"
        way_out = "add tls: true, or leave the file out"
        place = hosts.place("database", "ca_file")
        problems.append(Problem(place, endpoint.ca_file, rule, way_out))
    if facts.measured_as_it_runs and facts.asks_who and endpoint.user is None:
        rule = f"{facts.title} needs to know who logs in"
        problems.append(Problem(hosts.place("database"), "(missing)", rule, "add user: NAME"))
    refuse(problems)
    access.password()


def measured(
    access: Access, request: Request, namespace: str, clients: Sequence[str] = ()
) -> Measured:
    """Return a running database, not yet connected. Raises UserError.

    `clients`: hosts that make the load; none: this machine does.
    """
    if request.engine == "cassandra":
        return RunningCassandra(access, request, namespace, clients)
    return RunningPostgresql(access, request, namespace, clients)


class _Running:
    """What running databases have in common: a namespace of ours, and nothing else is changed."""

    port: ClassVar[int]
    differs: ClassVar[str]
    """What its figures do not have that those of a database of ours have."""

    def __init__(
        self, access: Access, request: Request, namespace: str, clients: Sequence[str] = ()
    ) -> None:
        self.request = request
        self._clients = clients
        self._points = access.points(self.port)
        self._access = access
        self._namespace = namespace

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures should know."""
        source = ", ".join(self._clients) or "this machine"
        return (
            f"{', '.join(self._points)} was measured as it ran: settings, disks, memory and caches "
            f"are its own, the load came from {source}, and {self.differs}",
        )

    @property
    def versions(self) -> Mapping[str, str]:
        """Nothing: it runs as somebody else chose."""
        return {}

    def expect(self, connections: int) -> None:
        """Do nothing: its memory is its own."""

    def make_cold(self) -> Coldness:
        """Raise: the page cache is another machine's."""
        raise MachineError("the page cache of a running database is not dropped")


class RunningPostgresql(_Running):
    """A PostgreSQL server that runs; our tables lie in a schema of their own."""

    port = POSTGRESQL_PORT
    differs = "a fill ends with VACUUM, not with a checkpoint"

    def __init__(
        self, access: Access, request: Request, namespace: str, clients: Sequence[str] = ()
    ) -> None:
        super().__init__(access, request, namespace, clients)
        self._sql: Sql | None = None
        self._program = requirements.required_program("psql", "database.addresses")

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load job finds the tables."""
        given = self._access.endpoint
        password = self._access.password()
        return {
            "protocol": "postgresql",
            "contact_points": self._points,
            "database": given.database,
            "user": given.user,
            "tls": given.tls,
            "table": self.request.table_name,
            "settings": {"search_path": self._namespace},
            **({"ca_file": given.ca_file} if given.ca_file is not None else {}),
            **({"password": password} if password is not None else {}),
        }

    def start(self) -> None:
        """Make our schema and its tables where they are not there yet."""
        self._sql = sql = self._connect()
        sql.ask(f"CREATE SCHEMA IF NOT EXISTS {self._namespace}")
        for table in (self.request.table_name, *self.request.tables_beside):
            sql.ask(schema(table, self.request.columns))

    def _connect(self) -> Sql:
        given = self._access.endpoint
        host, _, port = self._points[0].rpartition(":")
        login = Login(
            host,
            int(port),
            str(given.user),
            given.database,
            given.tls,
            self._access.password(),
            options=f"-c search_path={self._namespace}",
            ca_file=given.ca_file,
            is_guarded=True,
        )
        return Sql(self._program, login)

    def settle(self, conditions: Conditions) -> None:
        """Truncate, and vacuum and analyse, as asked; a checkpoint is the server's business."""
        tables = (self.request.table_name, *self.request.tables_beside)
        for table in conditions.to_empty(self.request):
            self._connected().ask(f"TRUNCATE {table}")
        if conditions.compacted:
            for table in tables:
                self._connected().ask(f"VACUUM (ANALYZE) {table}")

    def observe(self) -> Observation:
        """Return nothing but that it answers."""
        self._connected().ask("SELECT 1")
        return Observation((), {}, {})

    def stop(self) -> None:
        """Close our connection. The server is not ours."""
        sql, self._sql = self._sql, None
        if sql is not None:
            sql.close()

    def drop(self) -> None:
        """Drop our schema."""
        with self._connect() as sql:
            sql.ask(f"DROP SCHEMA IF EXISTS {self._namespace} CASCADE")

    def _connected(self) -> Sql:
        assert self._sql is not None, "start() connects"
        return self._sql


class RunningCassandra(_Running):
    """A Cassandra cluster that runs; our tables lie in a keyspace of their own."""

    port = CQL_PORT
    differs = (
        "CQL cannot flush memtables or tell whether compactions have ended: what follows a "
        "fill or writes may be slowed by them"
    )

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load job finds the table."""
        login = self._login()
        given = self._access.endpoint
        return {
            "protocol": "cql",
            "contact_points": self._points,
            "keyspace": self._namespace,
            "table": self.request.table_name,
            "tls": given.tls,
            **({"ca_file": given.ca_file} if given.ca_file is not None else {}),
            **({"user": login.user, "password": login.password} if login is not None else {}),
        }

    def start(self) -> None:
        """Make our keyspace and its tables where they are not there yet."""
        cql = self._cql()
        ((local,),) = cql.run(DATA_CENTER)
        cql.run(*statements(self.request, str(local["data_center"])))

    def settle(self, conditions: Conditions) -> None:
        """Truncate when asked to; the rest is the cluster's business."""
        for table in conditions.to_empty(self.request):
            self._cql().run(f"TRUNCATE {self._namespace}.{table}")

    def observe(self) -> Observation:
        """Return nothing but that it answers."""
        self._cql().run(READY)
        return Observation((), {}, {})

    def stop(self) -> None:
        """Do nothing: it is not ours."""

    def drop(self) -> None:
        """Drop our keyspace."""
        self._cql().run(f"DROP KEYSPACE IF EXISTS {self._namespace}")

    def _login(self) -> CqlLogin | None:
        user = self._access.endpoint.user
        return None if user is None else CqlLogin(user, self._access.password() or "")

    def _cql(self) -> Cql:
        host, _, port = self._points[0].rpartition(":")
        given = self._access.endpoint
        tls = CqlTls(given.ca_file) if given.tls else None
        return Cql(host, int(port), self._login(), tls)
