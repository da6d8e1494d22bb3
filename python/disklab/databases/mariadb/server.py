"""One MariaDB server of ours on given volumes."""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from disklab.databases.certificate import self_signed
from disklab.databases.files import write
from disklab.databases.log import LogForm
from disklab.databases.mariadb.configuration import (
    DATABASE,
    MARIADB,
    PORT,
    PORTS,
    USER,
    MariadbLogin,
    ServerFiles,
    as_text,
    first_statements,
    schema,
    server_settings,
)
from disklab.databases.mariadb.installation import CLIENT, MAKER, SERVER, Installation, find_mariadb
from disklab.databases.mariadb.sizing import MIB, MemoryPlan, plan_memory
from disklab.databases.place import Way
from disklab.databases.protocol import (
    Coldness,
    Conditions,
    Database,
    NodePlace,
    Observation,
    Progress,
    Request,
)
from disklab.databases.sql import Sql
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.left_databases import record_group
from disklab.waiting import Wait

# 1 s on an idle machine; after a crash it applies its redo log at the speed of the disk.
READY_SECONDS = 300.0
# A shutdown writes all dirty pages.
STOP_SECONDS = 600.0
POLL_SECONDS = 0.2
# Transactions whose old versions may stay: some are always listed, such as those of statistics.
MOST_HISTORY = 100
# Random, for each time that a database is made.
SECRET_BYTES = 24
NO_GROUP = (
    "no memory group can be made here, so the page cache is not held at its scaled {mib} MiB: the "
    "binary log is cached that the full system would read from its disks"
)
LOG = LogForm(
    # 2026-11-27  5:19:30 0 [Note] InnoDB: ...
    entry=re.compile(r"\d{4}-\d\d-\d\d +\d+:\d\d:\d\d \d+ \[\w+\] "),
    bad=re.compile(r".*?\[(Warning|ERROR)\] "),
    cause=re.compile(r"(?!)"),
    error=re.compile(r".*?\[ERROR\] "),
)
_METRICS = {
    "Innodb_buffer_pool_pages_dirty": "dirty_pages",
    "Innodb_checkpoint_age": "checkpoint_age_bytes",
    "Innodb_history_list_length": "history_length",
}
_COUNTERS = {
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
_NAMES = ", ".join(f"'{name}'" for name in (*_METRICS, *_COUNTERS))
_SEEN = f"SELECT * FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ({_NAMES})"  # noqa: S608 - our own names


class MariaDB:
    """A server that disklab makes, starts and stops. See `Database` for what each promises."""

    def __init__(
        self, request: Request, place: NodePlace, installation: Installation, plan: MemoryPlan
    ) -> None:
        """Take what is asked for and where, with the programs of that place."""
        self.request = request
        self.place = place
        self.plan = plan
        self.files = ServerFiles(place)
        self.process = place.host.process("MariaDB", place, PORTS, LOG)
        self._installation = installation
        self._password = request.kept or secrets.token_urlsafe(SECRET_BYTES)
        # Data that were kept are of our password.
        self._made_here = request.kept is not None
        self._has_key = False
        self._is_away = False
        self._sql: Sql | None = None
        self._way = Way(f"MariaDB ({DATABASE})", [(place.host, place)])

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in."""
        notes = [*self._way.notes, *self.plan.reasons]
        if self.place.group is None and not self.place.host.elsewhere:
            notes.append(NO_GROUP.format(mib=self.plan.page_cache // MIB))
        return tuple(notes)

    @property
    def secret(self) -> str:
        """What the server was made for: its password."""
        return self._password

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts; the password is all that the server asks for."""
        del addresses
        self._way.let_in(clients)

    @property
    def versions(self) -> Mapping[str, str]:
        """The server's."""
        return {"MariaDB": self._installation.version}

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds it."""
        return {
            "protocol": "mysql",
            "contact_points": [f"{self.place.address}:{PORT}"],
            "database": DATABASE,
            "user": USER,
            "password": self._password,
            "tls": self.request.tls,
            "table": self.request.table_name,
        }

    def start(self) -> None:
        """Make a data directory the first time; start the server and make the schema."""
        self._is_away = False
        try:
            if not self._is_made():
                self._make()
            self._launch()
            self._wait_until_ready()
        except BaseException:
            self._kill()
            raise

    def _has_data(self) -> bool:
        return self.place.host.exists(self.files.data / "ibdata1")

    def _is_made(self) -> bool:
        if not self._made_here and self._has_data():
            raise MachineError(
                f"{self.files.data} is another start's database, whose password is gone; remove it"
            )
        return self._made_here

    def _make(self) -> None:
        self._record()
        host = self.place.host
        for folder in self.files.own:
            host.own_folder(folder, self._installation.account)
        configured = self._configure()
        first = self._put_secret("first.sql", first_statements(self._password))
        try:
            self._installation.run(
                MAKER,
                f"--defaults-file={configured}",
                f"--extra-file={first}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            )
        finally:
            host.remove(first)
        self._made_here = True

    def _record(self) -> None:
        """Note what is about to be used, so that `clean` finds it after a kill."""
        if self.place.group is not None:
            record_group(self.place.run_dir, self.place.group)

    def _launch(self) -> None:
        if self.place.group is not None:
            self.place.group.set_limit(self.plan.limit(self.request.connections))
        self._record()
        program = self._installation.programs[SERVER]
        left = self.place.host.end_remains(self.files.data, program)
        if left:
            raise self.process.failure(
                f"cannot be started: its killed processes {left} still wait for their disk"
            )
        configured = self._configure()
        self.process.launch(self._installation.as_user([program, f"--defaults-file={configured}"]))

    def _configure(self) -> str:
        host, tls = self.place.host, self.request.tls
        folder = host.open_run_dir(self.place.run_dir)
        if tls and not self._has_key:
            certificate, key = self_signed(self.place.address)
            host.write(folder, "server.crt", certificate)
            self._put_secret("server.key", key)
            self._has_key = True
        settings = server_settings(
            self.files,
            self.plan.settings,
            self.request.settings,
            connections=self.request.connections,
            tls=tls,
        )
        text = as_text(settings)
        # The configuration is part of what a run keeps.
        self.place.log_dir.mkdir(parents=True, exist_ok=True)
        write(self.place.log_dir, f"{self.place.name}-my.cnf", text)
        return str(host.write(folder, "my.cnf", text))

    def _put_secret(self, name: str, text: str) -> Path:
        """Write a file that the server alone may read; return it."""
        host = self.place.host
        folder = host.open_run_dir(self.place.run_dir)
        return host.write_secret(folder, name, text, self._installation.account)

    def _wait_until_ready(self) -> None:
        with Wait(f"{self.place.name} answers its first query", READY_SECONDS) as wait:
            while not self._try_connect():
                self.process.check()
                if wait.is_over:
                    raise self.process.failure(f"answered no query within {READY_SECONDS:.0f} s")
                wait.pause(POLL_SECONDS)

    def _try_connect(self) -> bool:
        login = MariadbLogin(
            self.place.address, PORT, USER, DATABASE, self.request.tls, self._password
        )
        installation = self._installation
        sql = self.place.host.sql(installation.programs[CLIENT], login, installation.account)
        try:
            sql.ask("SELECT 1")
        except MachineError:
            sql.close()
            return False
        try:
            tables = (self.request.table_name, *self.request.tables_beside)
            for table in tables if self.request.columns else ():
                sql.ask(schema(table, self.request.columns))
        except BaseException:
            sql.close()
            raise
        self._sql = sql
        return True

    def expect(self, connections: int) -> None:
        """Hold room in the memory group for the threads of so many clients."""
        if self.place.group is not None:
            self.place.group.set_limit(self.plan.limit(connections))

    def settle(self, conditions: Conditions) -> None:
        """Truncate, purge, write all dirty pages and a checkpoint, sync: in this order."""
        with self._with_the_reason() as sql:
            for table in conditions.to_empty(self.request):
                sql.ask(f"TRUNCATE TABLE `{table}`")
            if conditions.compacted:
                self._wait_for_purge(sql, conditions.time_limit_s)
            if conditions.flushed:
                # It writes every dirty page, and returns when the redo log is needed no more.
                sql.ask("SET GLOBAL innodb_log_checkpoint_now = ON")
                self.place.host.sync(self.place)

    def _wait_for_purge(self, sql: Sql, limit_s: float) -> None:
        """Return when no version of a row that nobody can see waits to be removed."""
        query = (
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS "
            "WHERE VARIABLE_NAME = 'Innodb_history_list_length'"
        )
        with Wait("old versions are purged", limit_s) as wait:
            # The last transactions stay listed until the next one begins.
            while int(left := sql.ask(query)[0][0]) > MOST_HISTORY:
                if wait.is_over:
                    raise MachineError(
                        f"{left} transactions were not purged within {limit_s:.0f} s"
                    )
                wait.pause(POLL_SECONDS, left)

    def make_cold(self) -> Coldness:
        """Restart without buffer pool and page cache."""
        self.process.check()
        self.stop()
        self._drop_page_cache()
        self.start()
        # The system's tables are read at every start; the user's lie in the database's own folder.
        folder = self.files.data / DATABASE
        size, cached = self.place.host.cached_bytes([folder])
        return Coldness("restart", size, cached)

    def _drop_page_cache(self) -> None:
        self.place.host.sync(self.place)
        if self.place.group is not None:
            self.place.group.reclaim()
        self.place.host.drop_pages(self.files.own)

    def stop(self) -> None:
        """Write all dirty pages, and end."""
        self._disconnect()
        self.process.end(signal.SIGTERM, STOP_SECONDS)

    def kill_node(self, name: str) -> None:
        """End the server at once."""
        del name
        self._is_away = True
        self._kill()

    def start_node(self, name: str) -> None:
        """Start a killed server; returns when it has applied its redo log and answers queries."""
        del name
        if not self._has_data():
            raise self.process.failure("cannot be started: its disks are empty")
        self._launch()
        self._wait_until_ready()
        self._is_away = False

    def restart_node(self, name: str) -> None:
        """End the server in order, drop its page cache, start it."""
        self._is_away = True
        self.stop()
        self._drop_page_cache()
        self.start_node(name)

    def replace_node(self, name: str) -> None:
        """Refuse: there is no copy of a single server."""
        del name
        raise self.process.failure("cannot be replaced: it has no copy")

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        """Ask a server that cannot be reached nothing."""
        del name
        self._is_away = not reachable

    def observe(self) -> Observation:
        """Return pages, redo log, syncs and dirty pages. Nothing while it is down."""
        sql = self._sql
        if sql is None or self.process.pid is None or self._is_away:
            return Observation((), {}, {})
        try:
            self.process.check()
            status = {name.lower(): float(value) for name, value in sql.ask(_SEEN)}
        except MachineError:
            if self._sql is None:
                return Observation((), {}, {})
            self.process.await_death()
            raise
        return Observation(
            pids=tuple(self.process.pids),
            metrics={to: status[name.lower()] for name, to in _METRICS.items()},
            counters={to: status[name.lower()] for name, to in _COUNTERS.items()},
        )

    def check_tables(self) -> Mapping[str, str]:
        """Return what CHECK TABLE says of each table, after a fault: OK, or what is broken."""
        with self._with_the_reason() as sql:
            tables = [table for (table,) in sql.ask(f"SHOW TABLES FROM {DATABASE}")]
            return {table: sql.ask(f"CHECK TABLE `{table}`")[-1][-1] for table in tables}

    @contextmanager
    def _with_the_reason(self) -> Iterator[Sql]:
        """Let the server's death be the error, and not that it no longer answers."""
        self.process.check()
        assert self._sql is not None, "a running server has a connection"
        try:
            yield self._sql
        except MachineError:
            self.process.await_death()
            raise

    def _kill(self) -> None:
        self._disconnect()
        self.process.kill()

    def _disconnect(self) -> None:
        sql, self._sql = self._sql, None
        if sql is not None:
            sql.close()


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a server that is ready to start."""
    problems = list(MARIADB.check(request, nodes))
    if len(nodes) > 1:
        rule = "disklab rehearses one MariaDB server, and no replicas yet"
        problems.append(Problem("cluster.nodes", str(len(nodes)), rule, "write nodes: 1"))
    if problems:
        raise UserError(*problems)
    (node,) = nodes
    installation = find_mariadb(node.host)
    known, version = installation.known_settings(), installation.version
    problems = MARIADB.check_settings(request.settings, known, version)
    if problems:
        raise UserError(*problems)
    if node.host.elsewhere:
        progress(f"MariaDB on {node.host.elsewhere} {version}")
    return MariaDB(request, node, installation, plan_memory(request.sizes))
