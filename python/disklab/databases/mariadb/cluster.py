"""A MariaDB of our own: one server; what a replica and a Galera cluster have in common with it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from disklab.databases.mariadb.configuration import DATABASE, PORT, USER, Role
from disklab.databases.mariadb.installation import Installation
from disklab.databases.mariadb.server import POLL_SECONDS, Server
from disklab.databases.mariadb.sizing import MIB, MemoryPlan
from disklab.databases.place import Way
from disklab.databases.protocol import Coldness, Conditions, NodePlace, Observation, Request
from disklab.databases.sql import Sql
from disklab.errors import MachineError
from disklab.waiting import Wait

# Transactions whose old versions may stay: some are always listed, such as those of statistics.
MOST_HISTORY = 100
# Random, for each time that a database is made.
SECRET_BYTES = 24
NO_GROUP = (
    "no memory group can be made here, so the page cache is not held at its scaled {mib} MiB: the "
    "binary log is cached that the full system would read from its disks"
)
METRICS = {
    "Innodb_buffer_pool_pages_dirty": "dirty_pages",
    "Innodb_checkpoint_age": "checkpoint_age_bytes",
    "Innodb_history_list_length": "history_length",
}
COUNTERS = {
    "Innodb_buffer_pool_read_requests": "page_requests",
    "Innodb_buffer_pool_reads": "page_requests_from_disk",
    "Innodb_pages_read": "pages_read",
    "Innodb_pages_written": "pages_written",
    "Innodb_dblwr_pages_written": "doublewrite_pages",
    "Innodb_os_log_written": "redo_bytes",
    "Innodb_log_writes": "redo_writes",
    "Innodb_data_fsyncs": "file_syncs",
    "Innodb_deadlocks": "deadlocks",
    "Innodb_buffer_pool_wait_free": "waits_for_free_pages",
    "Binlog_commits": "binlog_commits",
    "Binlog_group_commits": "binlog_group_commits",
}


SYNCS = ("innodb_flush_log_at_trx_commit", "sync_binlog")
"""What makes a commit wait for a disk; both are a server's, and no session's."""


class MariaDB:
    """A server that disklab makes, starts and stops. See `Database` for what each promises."""

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
        self.request = request
        self.plan = plan
        self._password = request.kept or secrets.token_urlsafe(SECRET_BYTES)
        self.servers = [Server(request, *node, plan, self._password) for node in nodes]
        self._primary = self.servers[0]
        self._version = nodes[0][1].version
        self._way = Way(f"MariaDB ({DATABASE})", [(place.host, place) for place, _ in nodes])
        self._away: set[str] = set()
        """Servers that were taken away: that they do not answer is no failure."""
        self._copied_bytes = dict.fromkeys((server.place.name for server in self.servers), 0)
        """What whole copies of another one's data have brought to each."""
        self._copied_s = 0.0
        """How long the last one took; zero: there was none, or it is told."""

    @property
    def primary(self) -> Server:
        """The server that takes reads and writes."""
        return self._primary

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in."""
        notes = [*self._way.notes, *self.plan.reasons]
        here = [server.place for server in self.servers if not server.place.host.elsewhere]
        if any(place.group is None for place in here):
            notes.append(NO_GROUP.format(mib=self.plan.page_cache // MIB))
        return tuple(notes)

    @property
    def secret(self) -> str:
        """What the servers were made for: their password."""
        return self._password

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts; the password is all that a server asks for."""
        del addresses
        self._way.let_in(clients)

    @property
    def versions(self) -> Mapping[str, str]:
        """The server's."""
        return {"MariaDB": self._version}

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the primary: it looks for it along a list of all servers."""
        listed = sorted(self.servers, key=lambda server: server is not self.primary)
        return {
            "protocol": "mysql",
            "contact_points": [f"{server.place.address}:{PORT}" for server in listed],
            "read_write": len(listed) > 1,
            "database": DATABASE,
            "user": USER,
            "password": self._password,
            "tls": self.request.tls,
            "table": self.request.table_name,
        }

    def start(self) -> None:
        """Make data directories the first time; start every server and make the schema."""
        self._away.clear()
        try:
            self._bring_up()
            self.primary.make_schema()
            self.wait_until_whole()
        except BaseException:
            for server in self.servers:
                server.kill()
            raise

    def _bring_up(self) -> None:
        """Start every server; returns when they answer."""
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

    def settle(self, conditions: Conditions) -> None:
        """Truncate, purge, write all dirty pages and a checkpoint, sync: in this order."""
        with self._with_the_reason() as sql:
            for table in conditions.to_empty(self.request):
                sql.ask(f"TRUNCATE TABLE `{table}`")
            if conditions.compacted:
                self._wait_for_purge(conditions.time_limit_s)
            if conditions.flushed:
                self.wait_until_whole()
                for server in self.servers:
                    server.checkpoint()
                    server.sync()

    @contextmanager
    def fills(self) -> Iterator[None]:
        """Write the logs once a second on every server, as its settings say again afterwards."""
        servers = [server.connection() for server in self.servers]
        names = ", ".join(f"@@GLOBAL.{name}" for name in SYNCS)
        before = [sql.ask(f"SELECT {names}")[0] for sql in servers]
        try:
            for sql in servers:
                sql.ask(_global(dict.fromkeys(SYNCS, "0")))
            yield
        finally:
            # One that has died begins again with its own settings.
            for sql, values in zip(servers, before, strict=True):
                with suppress(MachineError):
                    sql.ask(_global(dict(zip(SYNCS, values, strict=True))))

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

    def make_cold(self) -> Coldness:
        """Restart without buffer pool and page cache."""
        for server in self.servers:
            server.process.check()
        self.stop()
        for server in self.servers:
            server.drop_page_cache()
        self.start()
        sizes = [server.cached_bytes() for server in self.servers]
        size, cached = (sum(each) for each in zip(*sizes, strict=True))
        return Coldness("restart", size, cached)

    def stop(self) -> None:
        """End every server in order, the primary last: it has everything then."""
        for server in sorted(self.servers, key=lambda server: server is self.primary):
            server.stop()

    def kill_node(self, name: str) -> None:
        """End a server at once."""
        self._away.add(name)
        self._named(name).kill()

    def start_node(self, name: str) -> None:
        """Start a killed server; returns when it has applied its redo log and answers queries."""
        server = self._named(name)
        if not server.has_data():
            raise server.process.failure("cannot be started: its disks are empty")
        self._start_again(server)
        self._away.discard(name)

    def _start_again(self, server: Server) -> None:
        server.launch(self._role(server))
        server.wait_until_ready()

    def restart_node(self, name: str) -> None:
        """End a server in order, drop its page cache, start it."""
        self._away.add(name)
        server = self._named(name)
        server.stop()
        server.drop_page_cache()
        self.start_node(name)

    def replace_node(self, name: str) -> None:
        """Refuse: there is no copy of a single server."""
        raise self._named(name).process.failure("cannot be replaced: it has no copy")

    def promote_node(self, name: str) -> None:
        """Refuse: there is no primary, or no replica."""
        raise self._named(name).process.failure("cannot be promoted: it takes changes already")

    def _note_copy(self, server: Server, seconds: float) -> None:
        """Count a whole copy that a server got."""
        self._copied_s = seconds
        size, _ = server.place.host.cached_bytes([server.files.data])
        self._copied_bytes[server.place.name] += size

    def streamed(self) -> Mapping[str, int]:
        """Return what each server has got by whole copies."""
        return dict(self._copied_bytes)

    def parts(self, begun_unix: float) -> Mapping[str, float]:
        """Return how long the copy of a server that came took, and its start behind it."""
        copied_s, self._copied_s = self._copied_s, 0.0
        if not copied_s:
            return {}
        return {"stream": copied_s, "finish": time.time() - begun_unix - copied_s}

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        """Ask a server that cannot be reached nothing."""
        change = self._away.discard if reachable else self._away.add
        change(name)

    def _named(self, name: str) -> Server:
        return next(server for server in self.servers if server.place.name == name)

    def observe(self) -> Observation:
        """Return pages, redo log, syncs and dirty pages of the primary. Nothing while it is down.

        Raises MachineError when a server has died.
        """
        primary = self.primary
        if primary.sql is None or primary.process.pid is None:
            return Observation((), {}, {})
        if primary.place.name in self._away:
            return Observation((), {}, {})
        try:
            for server in self.servers:
                if server.place.name not in self._away:
                    server.process.check()
            status = primary.status([*self.metrics, *self.counters])
        except MachineError:
            if primary.sql is None:
                return Observation((), {}, {})
            primary.process.await_death()
            raise
        return Observation(
            pids=tuple(pid for server in self.servers for pid in server.process.pids),
            metrics={to: status[name] for name, to in self.metrics.items()},
            counters={to: status[name] for name, to in self.counters.items()},
        )

    def check_tables(self) -> Mapping[str, str]:
        """Return what CHECK TABLE says of each table, after a fault: OK, or what is broken.

        Of every server, with its name where there are several.
        """
        found = {}
        for server in self.servers:
            sql = server.connection()
            prefix = f"{server.place.name}: " if len(self.servers) > 1 else ""
            for (table,) in sql.ask(f"SHOW TABLES FROM {DATABASE}"):
                found[prefix + table] = sql.ask(f"CHECK TABLE `{table}`")[-1][-1]
        return found

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


def _global(values: Mapping[str, str]) -> str:
    return "SET " + ", ".join(f"GLOBAL {name} = {value}" for name, value in values.items())
