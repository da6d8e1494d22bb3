"""Servers each of which has all rows: what is alike in databases that copy them whole.

One server takes what the load asks, and the others confirm it; MariaDB and PostgreSQL say how.
"""

from __future__ import annotations

import secrets
import signal
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from disklab.database_settings import Setting
from disklab.databases.nodes import Node, Nodes
from disklab.databases.place import ServerProcess
from disklab.databases.protocol import Conditions, NodePlace, Observation, Request
from disklab.databases.sql import Sql
from disklab.databases.this_machine import ThisMachine
from disklab.engine import Account
from disklab.errors import MachineError

# A shutdown writes all dirty pages.
STOP_SECONDS = 600.0
# Random, for each time that a database is made.
SECRET_BYTES = 24
NOTHING = Observation((), {}, {})


def new_password(request: Request) -> str:
    """Return what a database is made for: that of data which are there already, or a new one."""
    return request.kept or secrets.token_urlsafe(SECRET_BYTES)


class ServerFiles(Protocol):
    """Where a server's own files are."""

    @property
    def data(self) -> Path:
        """The data directory."""

    @property
    def own(self) -> list[Path]:
        """The folders that are the server's alone."""


class CopyServer(Node):
    """A server on given volumes, of whatever database: its data, its process, its connection."""

    first_file: ClassVar[str]
    """Of a data directory, by which one is known."""

    def __init__(
        self,
        request: Request,
        place: NodePlace,
        process: ServerProcess,
        account: Account | None,
        password: str,
    ) -> None:
        """Take where it is to be. `account`: who runs it."""
        self.request = request
        self.place = place
        self.process = process
        self.sql: Sql | None = None
        self._account = account
        self._password = password
        # Data that were kept are of our password.
        self._made_here = request.kept is not None

    files: ServerFiles

    @property
    def own(self) -> Sequence[Path]:
        """The folders that are the server's alone."""
        return self.files.own

    @property
    def is_made(self) -> bool:
        """Whether it has a data directory.

        Raises MachineError for one that was made for another password than ours.
        """
        if not self._made_here and self.has_data():
            raise MachineError(
                f"{self.files.data} is another start's database, whose password is gone; remove it"
            )
        return self._made_here

    def has_data(self) -> bool:
        """Return whether its disks hold a data directory."""
        return self.place.host.exists(self.files.data / self.first_file)

    def copied_bytes(self) -> int:
        """Return the size of its data."""
        return self.place.host.cached_bytes([self.files.data])[0]

    def connection(self) -> Sql:
        """Return the connection that is kept. Raises MachineError when the server has died."""
        self.process.check()
        assert self.sql is not None, "a running server has a connection"
        return self.sql

    def stop(self) -> None:
        """Write all dirty pages, and end."""
        self.disconnect()
        self.process.end(self.ending, STOP_SECONDS)

    ending: ClassVar[signal.Signals]
    """Ends it in order."""

    def kill(self) -> None:
        """End at once."""
        self.disconnect()
        self.process.kill()

    def disconnect(self) -> None:
        """Let go of the connection that is kept."""
        sql, self.sql = self.sql, None
        if sql is not None:
            sql.close()

    def put_secret(self, name: str, text: str) -> Path:
        """Write a file of its configuration that it alone may read; return it."""
        host = self.place.host
        folder = host.open_run_dir(self.place.run_dir)
        return host.write_secret(folder, name, text, self._account)


S = TypeVar("S", bound=CopyServer)


class Copies(Nodes[S]):
    """Servers that disklab makes, starts and stops. See `Database` for what each promises."""

    title: ClassVar[str]
    protocol: ClassVar[str]
    """Of a load job."""
    port: ClassVar[int]
    database: ClassVar[str]
    user: ClassVar[str]
    cached: ClassVar[str]
    """What is cached too much where no memory group can be made."""
    quote: ClassVar[str] = ""
    """Around names of tables."""

    def __init__(
        self,
        request: Request,
        servers: Sequence[S],
        password: str,
        page_cache_bytes: int,
        reasons: Sequence[str],
    ) -> None:
        """Take what is asked for, and its servers; the first of them is the primary.

        `reasons`: why memory is not what the scale asks for.
        """
        super().__init__(f"{self.title} ({self.database})", [server.place for server in servers])
        self.request = request
        self.nodes = self.servers = list(servers)
        self._page_cache_bytes, self._reasons = page_cache_bytes, reasons
        self._password = password
        self._primary = self.servers[0]
        self._slow = request.sizes.time_dilation
        self._copied_bytes = {server.place.name: 0 for server in servers}
        """What whole copies of another one's data have brought to each."""
        self._copied_s = 0.0
        """How long those took that were not told yet."""

    @property
    def primary(self) -> S:
        """The server that takes reads and writes."""
        return self._primary

    @property
    def others(self) -> list[S]:
        """The servers that confirm commits."""
        return [server for server in self.servers if server is not self.primary]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in."""
        return tuple(self._scale_notes(self._reasons, self._page_cache_bytes, self.cached))

    def reconfigure(self, settings: Mapping[str, Setting]) -> None:
        """Have these settings from the next restart on: each start writes its configuration."""
        self.request = replace(self.request, settings=settings)
        for server in self.servers:
            server.request = self.request

    @property
    def secret(self) -> str:
        """What the servers were made for: their password."""
        return self._password

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the primary: it looks for it along a list of all servers."""
        listed = [self.primary, *self.others]
        return {
            "protocol": self.protocol,
            "contact_points": [f"{server.place.address}:{self.port}" for server in listed],
            "read_write": len(listed) > 1,
            "database": self.database,
            "user": self.user,
            "password": self._password,
            "tls": self.request.tls,
            "table": self.request.table_name,
        }

    @abstractmethod
    def wait_until_whole(self) -> None:
        """Return when every server has what the primary had written at the call."""

    def settle(self, conditions: Conditions) -> None:
        """Truncate, remove old versions, write everything and a checkpoint, sync: in this order."""
        with self._with_the_reason() as sql:
            for table in conditions.to_empty(self.request):
                sql.ask(f"TRUNCATE TABLE {self.quote}{table}{self.quote}")
            if conditions.compacted:
                self._compact(sql, conditions.time_limit_s)
            if conditions.flushed:
                self._flush(sql)

    @abstractmethod
    def _compact(self, sql: Sql, limit_s: float) -> None:
        """Remove the versions of rows that nobody can see."""

    @abstractmethod
    def _flush(self, sql: Sql) -> None:
        """Have every server write what it holds, and a checkpoint, and sync."""

    def _note_copy(self, server: S, begun_s: float) -> None:
        """Count a whole copy that a server got, begun at this moment of `time.monotonic`."""
        self._copied_s += time.monotonic() - begun_s
        self._copied_bytes[server.place.name] += server.copied_bytes()

    def streamed(self) -> Mapping[str, int]:
        """Return what each server has got by whole copies."""
        return dict(self._copied_bytes)

    def parts(self, begun_unix: float) -> Mapping[str, float]:
        """Return how long the copy of a server that came took, and its start behind it."""
        copied_s, self._copied_s = self._copied_s, 0.0
        if not copied_s:
            return {}
        return {"stream": copied_s, "finish": time.time() - begun_unix - copied_s}

    def observe(self) -> Observation:
        """Return what the primary counts. Nothing while it is down.

        Raises MachineError when a server has died.
        """
        primary = self.primary
        if primary.sql is None or primary.process.pid is None:
            return NOTHING
        if primary.place.name in self._away:
            return self._observed_away()
        try:
            self._check()
            counts = self._counts(primary.sql)
        except MachineError:
            if primary.sql is None:
                return NOTHING
            primary.process.await_death()
            raise
        return self._observation(counts)

    def _observed_away(self) -> Observation:
        """Return what is known while the primary cannot be asked."""
        return NOTHING

    @abstractmethod
    def _counts(self, sql: Sql) -> Mapping[str, float]:
        """Ask the primary for its counts, by its own names."""

    @abstractmethod
    def _observation(self, counts: Mapping[str, float]) -> Observation:
        """Return what the counts say."""

    @contextmanager
    def _with_the_reason(self) -> Iterator[Sql]:
        """Let a server's death be the error, and not that it no longer answers."""
        sql = self.primary.connection()
        try:
            yield sql
        except MachineError:
            for server in self.servers:
                server.process.await_death()
            raise


# A certificate that a server of ours shows: it vouches for itself.


def self_signed(address: str) -> tuple[str, str]:
    """Return a new certificate for an address, and its key (PEM)."""
    made = ThisMachine().run(
        [
            *("openssl", "req", "-new", "-x509", "-nodes", "-days", "365"),
            *("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"),
            # A client may name it as the authority; some refuse an authority's own as a
            # server's.
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-out", "/dev/stdout", "-keyout", "/dev/stdout"),
        ],
    )
    begin = made.index("-----BEGIN CERTIFICATE-----")
    end = "-----END CERTIFICATE-----\n"
    certificate = made[begin : made.index(end) + len(end)]
    return certificate, made.replace(certificate, "")
