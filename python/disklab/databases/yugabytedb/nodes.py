"""`yugabyted` nodes of our own, data directories on the volumes.

What is below was written after the vendor's documentation of 2.18 and has never met a real
`yugabyted`: no registry has one. Tests run it against a program of the same name that starts
PostgreSQL; docs/databases.md says so.
"""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.databases.files import open_run_dir, own_folder
from disklab.databases.log import LogForm
from disklab.databases.process import DatabaseProcess
from disklab.databases.protocol import Coldness, Conditions, NodePlace, Observation, Request
from disklab.databases.sql import Login, Sql
from disklab.databases.yugabytedb.table import schema
from disklab.databases.yugabytedb.ysql import DATABASE, PORTS, USER, YSQL_PORT, Facts, examine
from disklab.engine import Account
from disklab.errors import MachineError
from disklab.hosts import page_cache
from disklab.hosts.left_databases import record_group
from disklab.waiting import Wait

# The vendor: a node is ready within a minute; the first one makes its system tables, on our disks.
READY_SECONDS = 600.0
STOP_SECONDS = 120.0
POLL_SECONDS = 1.0
# Where yugabyted looks for the password of the user yugabyte. Source: docs.yugabyte.com, yugabyted,
# environment variables.
PASSWORD = "YSQL_PASSWORD"  # noqa: S105 - the name of the variable
# The vendor's default: the tablet server takes 85 % of the memory that it is given; the rest of a
# node's memory is page cache for its files.
TSERVER_SHARE = 0.5
LEAST_TSERVER_BYTES = 512 << 20
LEAST_GROUP_BYTES = 1 << 30
GLOG = LogForm(
    # I0925 12:34:56.789012  1234 file.cc:56] text
    entry=re.compile(r"[IWEF]\d{4} \d\d:"),
    bad=re.compile(r"[WEF]\d{4} \d\d:"),
    cause=re.compile(r"(?!)"),
)


# Random, for each time that a database is made.
SECRET_BYTES = 24


@dataclass(frozen=True)
class Program:
    """What nodes are run with."""

    yugabyted: str
    psql: str
    account: Account | None
    """Who runs them; None: the user who runs disklab, who is not root."""


class Yugabyted:
    """A cluster that disklab starts and stops. See `Database` for what each method promises."""

    def __init__(self, request: Request, places: list[NodePlace], program: Program) -> None:
        self.request = request
        self.places = places
        self.processes = [DatabaseProcess("YugabyteDB", place, PORTS, GLOG) for place in places]
        self.facts: Facts | None = None
        self._program = program
        self._password = secrets.token_urlsafe(SECRET_BYTES)
        self._sql: Sql | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """That nobody has seen this work."""
        told = "disklab's starting of yugabyted was never tried against a real one"
        version = () if self.facts is None else (f"YugabyteDB {self.facts.version}",)
        return (*version, told)

    @property
    def versions(self) -> Mapping[str, str]:
        """Nothing: it is asked when it has started, and then told in the notes."""
        return {}

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the tables: every node takes reads and writes."""
        return {
            "protocol": "postgresql",
            "contact_points": [f"{place.address}:{YSQL_PORT}" for place in self.places],
            "database": DATABASE,
            "user": USER,
            "password": self._password,
            "tls": False,
            "table": self.request.table_name,
        }

    def start(self) -> None:
        """Start the first node, then the others, which join it one by one; make the tables."""
        try:
            for place, process in zip(self.places, self.processes, strict=True):
                place.log_dir.mkdir(parents=True, exist_ok=True)
                if place.group is not None:
                    record_group(place.run_dir, place.group)
                    place.group.set_limit(self.memory_bytes)
                open_run_dir(place.run_dir)
                own_folder(self.folder(place), self._program.account)
                # By its environment, which its user alone may read.
                process.launch(self.command(place), variables={PASSWORD: self._password})
                self._wait_until_ready(place, process)
            sql = self._connect(self.places[0])
            self._sql = sql
            self.facts = examine(sql, f"{self.places[0].address}:{YSQL_PORT}")
            if self.request.columns:
                for table in (self.request.table_name, *self.request.tables_beside):
                    sql.ask(schema(table, self.request.columns))
        except BaseException:
            self._disconnect()
            for process in self.processes:
                process.kill()
            raise

    @property
    def memory_bytes(self) -> int:
        """Memory of a node at the scale, page cache included."""
        sizes = self.request.sizes
        return max(int(sizes.memory_bytes * sizes.scale), LEAST_GROUP_BYTES)

    def command(self, place: NodePlace) -> list[str]:
        """Return the command that runs a node in the foreground."""
        tserver = max(int(self.memory_bytes * TSERVER_SHARE), LEAST_TSERVER_BYTES)
        flags = {
            "memory_limit_hard_bytes": tserver,
            # Nobody here speaks YCQL, and it would let everybody in.
            "start_cql_proxy": "false",
            **self.request.settings,
        }
        base = self.folder(place)
        command = [self._program.yugabyted, "start", "--background=false", "--ui=false"]
        command += [f"--base_dir={base}", f"--data_dir={base / 'data'}"]
        command += [f"--log_dir={base / 'logs'}", f"--advertise_address={place.address}"]
        # Without TLS; but whoever asks tells a password.
        command += ["--insecure", "--ysql_enable_auth=true"]
        command += [f"--tserver_flags={','.join(f'{name}={flags[name]}' for name in flags)}"]
        if place is not self.places[0]:
            command.append(f"--join={self.places[0].address}")
        account = self._program.account
        return command if account is None else account.command(command)

    def folder(self, place: NodePlace) -> Path:
        """Return the folder of everything that a node keeps."""
        return place.volumes["data"] / "yugabyted"

    def expect(self, connections: int) -> None:
        """Do nothing: its groups have room for them all."""

    def settle(self, conditions: Conditions) -> None:
        """Truncate and sync. YSQL has no flush and no wait for compactions: time is given."""
        for table in conditions.to_empty(self.request):
            self._connected().ask(f"TRUNCATE {table}")
        if conditions.flushed:
            for place in self.places:
                for volume in place.volumes.values():
                    page_cache.sync(volume)

    def make_cold(self) -> Coldness:
        """Restart without page cache: block caches are inside the servers."""
        self.stop()
        folders = [self.folder(place) for place in self.places]
        for place, folder in zip(self.places, folders, strict=True):
            page_cache.sync(folder)
            if place.group is not None:
                place.group.reclaim()
            page_cache.drop(folder)
        self.start()
        found = [page_cache.cached_bytes(folder) for folder in folders if folder.exists()]
        return Coldness("restart", sum(one[0] for one in found), sum(one[1] for one in found))

    def stop(self) -> None:
        """End every node, the first one last."""
        self._disconnect()
        for process in reversed(self.processes):
            process.end(signal.SIGTERM, STOP_SECONDS)

    def observe(self) -> Observation:
        """Return the processes and how many tablet servers there are."""
        if self._sql is None:
            return Observation((), {}, {})
        for process in self.processes:
            process.check()
        ((count,),) = self._sql.ask("SELECT count(*) FROM yb_servers()")
        pids = tuple(pid for process in self.processes for pid in tree(process.pid))
        return Observation(pids, {"tablet_servers": float(count)}, {})

    def _wait_until_ready(self, place: NodePlace, process: DatabaseProcess) -> None:
        with Wait(f"{place.name} answers its first query", READY_SECONDS) as wait:
            while True:
                process.check()
                try:
                    with self._connect(place) as sql:
                        sql.ask("SELECT 1")
                    return
                except MachineError:
                    if wait.is_over:
                        raise process.failure(
                            f"answered no query in {READY_SECONDS:.0f} s"
                        ) from None
                wait.pause(POLL_SECONDS)

    def _connect(self, place: NodePlace) -> Sql:
        password = self._password
        login = Login(place.address, YSQL_PORT, USER, DATABASE, tls=False, password=password)
        return Sql(self._program.psql, login, self._program.account)

    def _connected(self) -> Sql:
        assert self._sql is not None, "start() connects"
        return self._sql

    def _disconnect(self) -> None:
        sql, self._sql = self._sql, None
        if sql is not None:
            sql.close()


def tree(pid: int | None) -> list[int]:
    """Return a process and everything below it: yugabyted starts master and tablet server."""
    found: list[int] = []
    waiting = [] if pid is None else [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text(encoding="ascii")
        except OSError:
            continue
        waiting += map(int, children.split())
    return found
