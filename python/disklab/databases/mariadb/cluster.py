"""A MariaDB of our own: one server; what a replica and a Galera cluster have in common with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from disklab.databases.copies import Copies, new_password
from disklab.databases.mariadb.configuration import DATABASE, PORT, USER, Role
from disklab.databases.mariadb.installation import Installation
from disklab.databases.mariadb.server import Server
from disklab.databases.mariadb.sizing import FULL_REDO, MemoryPlan
from disklab.databases.nodes import POLL_SECONDS
from disklab.databases.protocol import NodePlace, Observation, Request
from disklab.databases.sql import Sql
from disklab.errors import MachineError
from disklab.waiting import Wait

# Transactions whose old versions may stay: some are always listed, such as those of statistics.
MOST_HISTORY = 100
METRICS = {
    "Innodb_buffer_pool_pages_dirty": "dirty_pages",
    "Innodb_buffer_pool_pages_free": "free_pages",
    "Innodb_checkpoint_age": "checkpoint_age_bytes",
    "Innodb_history_list_length": "history_length",
}
COUNTERS = {
    "Innodb_buffer_pool_read_requests": "page_requests",
    "Innodb_buffer_pool_reads": "page_requests_from_disk",
    "Innodb_pages_read": "pages_read",
    "Innodb_pages_written": "pages_written",
    "Innodb_buffer_pool_pages_LRU_flushed": "pages_written_for_room",
    "Innodb_dblwr_pages_written": "doublewrite_pages",
    "Innodb_dblwr_writes": "doublewrite_writes",
    "Innodb_os_log_written": "redo_bytes",
    "Innodb_log_writes": "redo_writes",
    "Innodb_data_fsyncs": "file_syncs",
    "Innodb_deadlocks": "deadlocks",
    "Innodb_buffer_pool_wait_free": "waits_for_free_pages",
    "Binlog_commits": "binlog_commits",
    "Binlog_group_commits": "binlog_group_commits",
}


REDO_SIZE = "innodb_log_file_size"
FILLING = {
    "innodb_flush_log_at_trx_commit": "0",
    "sync_binlog": "0",
    REDO_SIZE: str(FULL_REDO),
}
"""Settings of a server while rows are written that nobody waits for."""


class MariaDB(Copies[Server]):
    """A server that disklab makes, starts and stops. See `Database` for what each promises."""

    title = "MariaDB"
    protocol = "mysql"
    port = PORT
    database = DATABASE
    user = USER
    cached = "the binary log is"
    quote = "`"
    metrics: Mapping[str, str] = METRICS
    counters: Mapping[str, str] = COUNTERS
    """What is asked of the primary once a second, and what it is called here."""

    def __init__(
        self,
        request: Request,
        nodes: Sequence[tuple[NodePlace, Installation]],
        plan: MemoryPlan,
    ) -> None:
        """Take what is asked for and where, with the programs of each place."""
        password = new_password(request)
        servers = [Server(request, *node, plan, password) for node in nodes]
        super().__init__(request, servers, password, plan.page_cache, plan.reasons)
        self.plan = plan
        self._version = nodes[0][1].version

    @property
    def versions(self) -> Mapping[str, str]:
        """The server's."""
        return {"MariaDB": self._version}

    def _bring_up(self) -> None:
        """Start every server; returns when they answer."""
        self._start_all()
        self.primary.make_schema()

    def _start_all(self) -> None:
        (server,) = self.servers
        if not server.is_made:
            server.make(self._role(server))
        server.launch(self._role(server))
        server.wait_until_ready()

    def _role(self, server: Server) -> Role:
        """Return what a server is among the others."""
        del server
        return Role()

    def wait_until_whole(self) -> None:
        """Return when every server has what the primary had written at the call."""

    def expect(self, connections: int) -> None:
        """Hold room in the memory groups for the threads of so many clients."""
        for server in self.servers:
            server.expect(connections)

    def _compact(self, sql: Sql, limit_s: float) -> None:
        del sql
        self._wait_for_purge(limit_s)

    def _flush(self, sql: Sql) -> None:
        del sql
        self.wait_until_whole()
        for server in self.servers:
            server.checkpoint()
            server.sync()

    @contextmanager
    def fills(self) -> Iterator[None]:
        """Sync the logs once a second on every server, and have a long redo log, until the end.

        With a redo log that follows the scale pages were written again and again: 200,000 rows of
        1 kB on a P20 took 86 s, and 31 s so (10.11, two cores, 2026-11-28).
        """
        there = (server for server in self.servers if server.place.name not in self._away)
        servers = [server.connection() for server in there]
        names = ", ".join(f"@@GLOBAL.{name}" for name in (*FILLING, "innodb_log_buffer_size"))
        settings = [sql.ask(f"SELECT {names}")[0] for sql in servers]
        before = [values for *values, _ in settings]
        try:
            for sql, (*_, redo, buffer) in zip(servers, settings, strict=True):
                # It can be made as short as its buffer again, and no shorter.
                grows = int(buffer) <= int(redo) < FULL_REDO
                sql.ask(_global(FILLING if grows else {**FILLING, REDO_SIZE: redo}))
            yield
        finally:
            # One that has died begins again with its own settings.
            for sql, values in zip(servers, before, strict=True):
                with suppress(MachineError):
                    sql.ask(_global(dict(zip(FILLING, values, strict=True))))

    def _wait_for_purge(self, limit_s: float) -> None:
        """Return when no version of a row that nobody can see waits to be removed."""
        listed = "Innodb_history_list_length"
        with Wait("old versions are purged", limit_s) as wait:
            # The last transactions stay listed until the next one begins.
            while (left := self.primary.status([listed])[listed]) > MOST_HISTORY:
                if wait.is_over:
                    raise MachineError(
                        f"{left:.0f} transactions were not purged within {limit_s:.0f} s"
                    )
                wait.pause(POLL_SECONDS, f"{left:.0f}")

    def _cached(self) -> list[tuple[int, int]]:
        return [server.cached_bytes() for server in self.servers]

    def stop(self) -> None:
        """End every server in order, the primary last: it has everything then."""
        for server in sorted(self.servers, key=lambda server: server is self.primary):
            server.stop()

    def _start_again(self, server: Server) -> None:
        server.launch(self._role(server))
        server.wait_until_ready()

    def replace_node(self, name: str) -> None:
        """Refuse: there is no copy of a single server."""
        raise self._named(name).process.failure("cannot be replaced: it has no copy")

    def promote_node(self, name: str) -> None:
        """Refuse: there is no primary, or no replica."""
        raise self._named(name).process.failure("cannot be promoted: it takes changes already")

    def _counts(self, sql: Sql) -> Mapping[str, float]:
        del sql
        return self.primary.status([*self.metrics, *self.counters])

    def _observation(self, counts: Mapping[str, float]) -> Observation:
        """Return pages, redo log, syncs and dirty pages of the primary."""
        return Observation(
            pids=tuple(pid for server in self.servers for pid in server.process.pids),
            metrics={to: counts[name] for name, to in self.metrics.items()},
            counters={to: counts[name] for name, to in self.counters.items()},
        )


def _global(values: Mapping[str, str]) -> str:
    return "SET " + ", ".join(f"GLOBAL {name} = {value}" for name, value in values.items())
