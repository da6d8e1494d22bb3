"""A cluster that runs already: used as it is, never started, stopped or configured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from disklab.databases import running
from disklab.databases.cassandra.configuration import CQL_PORT
from disklab.databases.cassandra.table import check_table, statements
from disklab.databases.cql import READY, Cql
from disklab.databases.protocol import Coldness, Conditions, Observation, Request
from disklab.errors import Problem, UserError

# Table options differ little between lines; what this cluster lacks, it will say itself.
NEWEST = "5.0"


class RunningCluster:
    """What CQL alone can do. Everything else is refused, with the reason."""

    def __init__(self, request: Request, host: str, port: int) -> None:
        self.request = request
        self._address = f"{host}:{port}"
        self._cql = Cql(host, port)

    @classmethod
    def of(cls, request: Request) -> RunningCluster:
        """Return the cluster at the request's address. UserError for what cannot be had of it."""
        problems = list(_check(request))
        host, port, wrong = running.address_of(request, "CQL", CQL_PORT)
        problems += wrong
        if problems:
            raise UserError(*problems)
        return cls(request, host, port)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures should know."""
        return (running.used_as_it_ran(self._address),)

    @property
    def versions(self) -> Mapping[str, str]:
        """Nothing: it runs as somebody else chose."""
        return {}

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load job finds the table."""
        return {
            "protocol": "cql",
            "contact_points": [self._address],
            "keyspace": self.request.keyspace,
            "table": self.request.table_name,
        }

    def start(self) -> None:
        """Make keyspace and tables where they are not there yet."""
        self._cql.run(*statements(self.request))

    def expect(self, connections: int) -> None:
        """Do nothing: its memory is its own."""

    def settle(self, conditions: Conditions) -> None:
        """Truncate when asked to. Flushing and waiting for compactions are refused."""
        running.refuse_settling(self._address, "CQL", conditions)
        for table in conditions.to_empty(self.request):
            self._cql.run(f"TRUNCATE {self.request.keyspace}.{table}")

    def make_cold(self) -> Coldness:
        """Refuse: the page cache is another machine's, or another's business."""
        raise running.refuse_cold(self._address)

    def stop(self) -> None:
        """Do nothing: it is not ours."""

    def observe(self) -> Observation:
        """Return nothing but that it answers."""
        self._cql.run(READY)
        return Observation((), {}, {})


def _check(request: Request) -> Iterator[Problem]:
    yield from check_table(request, NEWEST)
    yield from running.refused_settings(request)
