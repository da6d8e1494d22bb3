"""A PostgreSQL of our own: one server on given volumes, and the states between trials."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from disklab.databases.log import LogForm
from disklab.databases.postgresql.configuration import (
    ServerFiles,
    access,
    as_text,
    schema,
    server_settings,
)
from disklab.databases.postgresql.installation import Installation
from disklab.databases.postgresql.sizing import MIB, MemoryPlan
from disklab.databases.postgresql.sql import DATABASE, PORT, USER, Sql
from disklab.databases.process import DatabaseProcess
from disklab.databases.protocol import Coldness, Conditions, NodePlace, Observation, Request
from disklab.errors import MachineError
from disklab.hosts import page_cache
from disklab.hosts.left_databases import record_group

# 1 s on an idle machine; after a crash it replays its WAL at the speed of the disk.
READY_SECONDS = 300.0
# A fast shutdown writes all dirty buffers.
STOP_SECONDS = 600.0
POLL_SECONDS = 0.2
VACUUM_POLL_SECONDS = 0.5
NO_GROUP = (
    "no memory group can be made here, so the page cache is not held at its scaled {mib} MiB: data "
    "are cached that the full system would read from its disks"
)
LOG = LogForm(
    # log_line_prefix "%m [%p] ", then the level.
    entry=re.compile(r"\d{4}-\d\d-\d\d .*?\[\d+\] +(?!DETAIL|HINT|CONTEXT|STATEMENT)[A-Z]+: "),
    bad=re.compile(r".*?\] +(WARNING|ERROR|FATAL|PANIC): "),
    cause=re.compile(r".*?\] +(DETAIL|HINT): "),
)
_SEEN = """SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'),
 d.blks_read, d.blks_hit, d.deadlocks, d.temp_bytes, pg_current_wal_lsn() - '0/0'
 FROM pg_stat_database d WHERE datname = current_database()"""


class PostgreSQL:
    """A server that disklab makes, starts and stops. See `Database` for what is promised."""

    def __init__(
        self, request: Request, place: NodePlace, installation: Installation, plan: MemoryPlan
    ) -> None:
        self.request = request
        self.plan = plan
        self.files = ServerFiles(place)
        self.process = DatabaseProcess("PostgreSQL", place, LOG)
        self._place = place
        self._installation = installation
        self._sql: Sql | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in."""
        if self._place.group is not None:
            return self.plan.reasons
        return (*self.plan.reasons, NO_GROUP.format(mib=self.plan.page_cache // MIB))

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the table."""
        return {
            "protocol": "postgresql",
            "contact_points": [f"{self._place.address}:{PORT}"],
            "database": DATABASE,
            "user": USER,
            "tls": self.request.tls,
            "table": self.request.table_name,
        }

    def start(self) -> None:
        """Make the data directory the first time, start, and make the tables."""
        if self._place.group is not None:
            self._place.group.set_limit(self.plan.limit)
            record_group(self._place.run_dir, self._place.group)
        try:
            if not (self.files.data / "PG_VERSION").exists():
                self._make()
            self._configure()
            self._place.log_dir.mkdir(parents=True, exist_ok=True)
            program = self._installation.program("postgres")
            self.process.launch(self._installation.as_user([program, "-D", str(self.files.data)]))
            self._wait_until_ready()
        except BaseException:
            self._disconnect()
            self.process.kill()
            raise

    def settle(self, conditions: Conditions) -> None:
        """Truncate, write a checkpoint and sync, wait for vacuums, in this order."""
        with self._with_the_reason() as sql:
            if conditions.empty:
                sql.ask(f"TRUNCATE {self.request.table_name}")
            if conditions.flushed:
                sql.ask("CHECKPOINT")
                for volume in self._place.volumes.values():
                    page_cache.sync(volume)
            if conditions.compacted:
                self._wait_for_vacuums(sql, conditions.time_limit_s)

    def make_cold(self) -> Coldness:
        """Restart without page cache: the server's own buffers are a cache too."""
        self.process.check()
        self.stop()
        page_cache.sync(self._place.volumes["data"])
        if self._place.group is not None:
            self._place.group.reclaim()
        page_cache.drop(self.files.data)
        self.start()
        # The system's tables are read at every start; the user's lie in the database's own folder.
        with self._with_the_reason() as sql:
            ((folder,),) = sql.ask("SELECT oid FROM pg_database WHERE datname = current_database()")
            ((files,),) = sql.ask(
                "SELECT string_agg(relfilenode::text, ',') FROM pg_class "
                "WHERE relnamespace = 'public'::regnamespace AND relfilenode <> 0"
            )
        # A table is cut into files of 1 GiB: 16384, 16384.1, ...
        names = set(files.split(","))
        base = self.files.data / "base" / folder
        own = [path for path in base.iterdir() if path.name.split(".")[0] in names]
        size, cached = page_cache.cached_bytes_of(own)
        return Coldness("restart", size, cached)

    def stop(self) -> None:
        """End connections, write a last checkpoint, and end."""
        self._disconnect()
        # SIGINT is PostgreSQL's fast shutdown: sessions are ended, nothing is lost.
        self.process.end(signal.SIGINT, STOP_SECONDS)

    def observe(self) -> Observation:
        """Return vacuums that run, blocks read and hit, WAL written. Nothing while it is down."""
        sql, pid = self._sql, self.process.pid
        if sql is None or pid is None:
            return Observation((), {}, {})
        try:
            self.process.check()
            ((vacuums, *counts),) = sql.ask(_SEEN)
        except MachineError:
            if self._sql is None:
                return Observation((), {}, {})
            self.process.await_death()
            raise
        names = ("blocks_read", "blocks_hit", "deadlocks", "temp_bytes", "wal_bytes")
        return Observation(
            pids=tuple(_tree(pid)),
            metrics={"running_vacuums": float(vacuums)},
            counters=dict(zip(names, map(float, counts), strict=True)),
        )

    def _make(self) -> None:
        """Make the data directory, with the write-ahead log on its own volume."""
        installation, files = self._installation, self.files
        installation.own(files.data)
        command = [installation.program("initdb"), "-D", str(files.data), "-U", USER]
        # The C locale compares bytes: no version of a locale can change an order. Authentication
        # is replaced right after by pg_hba.conf.
        command += ["--locale=C", "--encoding=UTF8", "--auth=reject"]
        if files.wal is not None:
            installation.own(files.wal)
            command += ["--waldir", str(files.wal)]
        installation.run(command)

    def _configure(self) -> None:
        files, tls = self.files, self.request.tls
        if tls and not files.certificate.exists():
            self._installation.run(
                [
                    *("openssl", "req", "-new", "-x509", "-nodes", "-days", "365"),
                    *(
                        "-subj",
                        "/CN=disklab",
                        "-addext",
                        f"subjectAltName=IP:{self._place.address}",
                    ),
                    *("-out", str(files.certificate), "-keyout", str(files.key)),
                ]
            )
        settings = server_settings(files, self.plan.settings, self.request.settings, tls=tls)
        text = as_text(settings)
        (files.data / "postgresql.conf").write_text(text, encoding="utf-8")
        (files.data / "pg_hba.conf").write_text(access(tls=tls), encoding="utf-8")
        # The configuration is part of what a run keeps.
        self._place.log_dir.mkdir(parents=True, exist_ok=True)
        kept = self._place.log_dir / f"{self._place.name}-postgresql.conf"
        kept.write_text(text, encoding="utf-8")

    def _wait_until_ready(self) -> None:
        """Connect, make database and tables; returns when the first query is answered."""
        deadline = time.monotonic() + READY_SECONDS
        while not self._try_connect():
            self.process.check()
            if time.monotonic() > deadline:
                raise self.process.failure(f"answered no query within {READY_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _try_connect(self) -> bool:
        address, tls = self._place.address, self.request.tls
        try:
            with Sql(self._installation, address, tls=tls, database="postgres") as first:
                if [DATABASE] not in first.ask("SELECT datname FROM pg_database"):
                    first.ask(f"CREATE DATABASE {DATABASE}")
        except MachineError:
            return False
        sql = Sql(self._installation, address, tls=tls)
        try:
            for table in (self.request.table_name, *self.request.tables_beside):
                sql.ask(schema(table, self.request.columns))
        except BaseException:
            sql.close()
            raise
        self._sql = sql
        return True

    def _disconnect(self) -> None:
        sql, self._sql = self._sql, None
        if sql is not None:
            sql.close()

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

    def _wait_for_vacuums(self, sql: Sql, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        query = "SELECT relid::regclass, phase FROM pg_stat_progress_vacuum"
        while running := sql.ask(query):
            if time.monotonic() > deadline:
                shown = "; ".join(" ".join(row) for row in running)
                raise MachineError(f"vacuums did not end within {limit_s:.0f} s: {shown}")
            time.sleep(VACUUM_POLL_SECONDS)


def _tree(pid: int) -> Iterator[int]:
    """Yield the server and its backends: each connection is a process."""
    yield pid
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            yield from map(int, file.read().split())
    except OSError:
        return
