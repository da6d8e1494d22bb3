"""A YugabyteDB that runs already: used as it is, never started, stopped or configured."""

from __future__ import annotations

import os
from collections.abc import Mapping

from disklab.databases import running
from disklab.databases.protocol import Coldness, Conditions, Observation, Request
from disklab.databases.sql import Login, Sql
from disklab.databases.yugabytedb.table import schema
from disklab.databases.yugabytedb.ysql import DATABASE, USER, YSQL_PORT, Facts, examine
from disklab.errors import Problem, UserError
from disklab.hosts import requirements

# As psql takes it; never in an experiment file, which is stored with the results.
PASSWORD = "PGPASSWORD"  # noqa: S105 - the name of the variable


class RunningCluster:
    """What YSQL alone can do. Everything else is refused, with the reason."""

    def __init__(self, request: Request, host: str, port: int, program: str) -> None:
        self.request = request
        self._address = f"{host}:{port}"
        password = os.environ.get(PASSWORD)
        self._login = Login(host, port, USER, DATABASE, request.tls, password)
        self._program = program
        self._sql: Sql | None = None
        self.facts: Facts | None = None

    @classmethod
    def of(cls, request: Request) -> RunningCluster:
        """Return the cluster at the request's address. UserError for what cannot be had of it."""
        problems = list(running.refused_settings(request))
        host, port, wrong = running.address_of(request, "YSQL", YSQL_PORT)
        problems += wrong
        if problems:
            raise UserError(*problems)
        program = requirements.required_program("psql", "database.address")
        return cls(request, host, port, program)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures should know."""
        used = running.used_as_it_ran(self._address)
        if self.facts is None:
            return (used,)
        copies = self.facts.replication_factor
        told = f"replication factor {copies}" if copies else "a replication factor nobody told"
        servers = len(self.facts.tablet_servers)
        return (
            used,
            f"YugabyteDB {self.facts.version}, {servers} tablet servers, {told}",
        )

    @property
    def versions(self) -> Mapping[str, str]:
        """Nothing: it is asked when it has started, and then told in the notes."""
        return {}

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the tables: every tablet server takes reads and writes."""
        servers = self.facts.tablet_servers if self.facts else ()
        return {
            "protocol": "postgresql",
            "contact_points": list(servers or (self._address,)),
            "database": DATABASE,
            "user": USER,
            "tls": self.request.tls,
            "table": self.request.table_name,
            **({"password": self._login.password} if self._login.password else {}),
        }

    def start(self) -> None:
        """Look what is there; make the tables where they are not there yet.

        Raises UserError when it is not YugabyteDB, or has another replication factor than asked.
        """
        self.stop()
        self._sql = sql = Sql(self._program, self._login)
        self.facts = examine(sql, self._address)
        copies, asked = self.facts.replication_factor, self.request.replication_factor
        if copies is not None and copies != asked:
            rule = f"the cluster at {self._address} has replication factor {copies}"
            place = "database.replication_factor"
            raise UserError(Problem(place, str(asked), rule, f"write {copies}"))
        if self.request.columns:
            for table in (self.request.table_name, *self.request.tables_beside):
                sql.ask(schema(table, self.request.columns))

    def expect(self, connections: int) -> None:
        """Do nothing: its memory is its own."""

    def settle(self, conditions: Conditions) -> None:
        """Truncate when asked to. Flushing and waiting for compactions are refused."""
        running.refuse_settling(self._address, "YSQL", conditions)
        for table in conditions.to_empty(self.request):
            self._connected().ask(f"TRUNCATE {table}")

    def make_cold(self) -> Coldness:
        """Refuse: the page cache is another machine's, or another's business."""
        raise running.refuse_cold(self._address)

    def stop(self) -> None:
        """Close our connection. The cluster is not ours."""
        sql, self._sql = self._sql, None
        if sql is not None:
            sql.close()

    def observe(self) -> Observation:
        """Return how many tablet servers there are. Raises MachineError when it does not answer."""
        if self._sql is None:
            return Observation((), {}, {})
        ((count,),) = self._sql.ask("SELECT count(*) FROM yb_servers()")
        return Observation((), {"tablet_servers": float(count)}, {})

    def _connected(self) -> Sql:
        assert self._sql is not None, "start() connects"
        return self._sql
