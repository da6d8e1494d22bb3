"""CQL statements for schema and readiness, through the engine: no driver in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disklab.databases.place import ServerHost
from disklab.engine import CqlLogin, CqlQuery, CqlTls, QueryError
from disklab.errors import MachineError

READY = "SELECT release_version FROM system.local"
# A schema change waits for every node, and TRUNCATE for a flush at the speed of a slow disk.
ANSWER_MS = 120_000
# A node that is being started refuses at once; a deaf one is asked again soon.
READY_MS = 3_000


@dataclass(frozen=True)
class Cql:
    """The CQL port of one node."""

    host: str
    port: int
    login: CqlLogin | None = None
    tls: CqlTls | None = None
    server: ServerHost | None = None
    """The machine that it is on, which asks it; None: this one asks."""

    def run(self, *statements: str) -> list[list[dict[str, Any]]]:
        """Run statements in order; return the rows of each. MachineError when one fails."""
        try:
            with self.connection(ANSWER_MS) as query:
                return [query.ask(statement) for statement in statements]
        except QueryError as error:
            raise MachineError(f"{self.host}:{self.port}: {error}") from error

    def connection(self, timeout_ms: int = READY_MS) -> CqlQuery:
        """Return a connection for several questions, to be used as a context manager."""
        if self.server is not None:
            return self.server.query(f"{self.host}:{self.port}", timeout_ms, self.login)
        points = [f"{self.host}:{self.port}"]
        return CqlQuery(points, timeout_ms=timeout_ms, login=self.login, tls=self.tls)
