"""A Redis of our own: one server, all of whose rows are in memory and whose log is on its disk."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from disklab.databases.copies import Copies, CopyServer, new_password
from disklab.databases.log import LogForm, NodeLog
from disklab.databases.place import write
from disklab.databases.protocol import (
    Conditions,
    Database,
    NodePlace,
    Observation,
    Progress,
    Request,
)
from disklab.databases.redis.configuration import (
    APPEND_FSYNC,
    CLIENT,
    LOG_FOLDER,
    PORT,
    PORTS,
    REDIS,
    SAVE,
    USUAL_FSYNC,
    Installation,
    MemoryPlan,
    ServerFiles,
    as_text,
    find_redis,
    plan_memory,
    problems_of,
    server_settings,
)
from disklab.databases.sql import Sql
from disklab.errors import MachineError, refuse
from disklab.waiting import Wait

METRICS = {
    "used_memory": "used_memory_bytes",
    "instantaneous_ops_per_sec": "commands_per_s",
    "aof_current_size": "log_bytes",
    "aof_base_size": "log_bytes_rewritten",
    "aof_pending_bio_fsync": "pending_syncs",
    "aof_rewrite_in_progress": "log_rewrites_under_way",
    "rdb_bgsave_in_progress": "snapshots_under_way",
    "latest_fork_usec": "latest_fork_us",
}
COUNTERS = {
    "total_commands_processed": "commands",
    "aof_delayed_fsync": "delayed_syncs",
    "aof_rewrites": "log_rewrites",
    "rdb_saves": "snapshots",
    "total_forks": "forks",
    "evicted_keys": "evicted_keys",
    "total_error_replies": "error_replies",
}
BUSY = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
"""What forks are at work, or wait for another one to end."""
ENDED_WELL = {"aof_last_bgrewrite_status": "log", "rdb_last_bgsave_status": "snapshot"}
NEVER_COLD = (
    "Redis has all rows in memory, and reads its whole log as it starts: a page cache that was "
    "dropped changes no operation"
)
UNSLOWED = (
    "appendfsync {fsync} syncs after a second of this machine's clock, which is 1/{slow} of one of "
    "the described system's"
)


# One Redis server of ours on a given volume.

# 0.1 s on an idle machine; it reads its whole log, at the speed of the disk.
READY_SECONDS = 300.0
POLL_SECONDS = 0.1
_FAILURE = r".*?(?i:error|fail|fatal|can't|cannot|no space|out of memory|bad file|misconf)"
LOG = LogForm(
    # 30558:M 27 Nov 2026 16:28:51.854 # Server initialized
    entry=re.compile(r"\d+:[A-Z] \d\d \w{3} \d{4} "),
    # Redis marks greetings as warnings, too. What stops it at its start is marked by no time.
    bad=re.compile(r"(\d+:[A-Z] [\w :.]+ # (?!WARNING)|\*\*\* |>>> )" + _FAILURE),
    cause=re.compile(r">>> |at line "),
    error=re.compile(r"\d+:[A-Z] [\w :.]+ # (?!WARNING)" + _FAILURE),
)


class Cli(Sql):
    """Commands to one server, each by a redis-cli of its own, which would outlive its server."""

    def __init__(self, installation: Installation, address: str, password: str) -> None:
        words = [installation.client, "-e", "-h", address, "-p", str(PORT)]
        self._words = installation.as_user(words)
        self._host = installation.host
        self._secret = {"REDISCLI_AUTH": password}

    def ask(self, statement: str) -> list[list[str]]:
        """Return the lines of the answer to a command whose words have no blanks in them."""
        said = self._host.run([*self._words, *statement.split()], self._secret, CLIENT)
        return [[line] for line in said.splitlines()]

    def close(self) -> None:
        """Do nothing: no program runs."""


class Server(CopyServer):
    """A server that disklab makes, starts and stops."""

    first_file = LOG_FOLDER
    ending = signal.SIGTERM

    def __init__(
        self,
        request: Request,
        place: NodePlace,
        installation: Installation,
        plan: MemoryPlan,
        password: str,
    ) -> None:
        # It logs to its standard output.
        log = NodeLog(place.log_dir, place.name, LOG).output
        process = place.host.process("Redis", place, PORTS, LOG, lambda _: log)
        super().__init__(request, place, process, installation.account, password)
        self.files: ServerFiles = ServerFiles(place)
        self.installation = installation
        self._plan = plan

    def make(self) -> None:
        """Make an empty directory of its data."""
        self.place.host.own_folder(self.files.data, self.installation.account)
        self._made_here = True

    def launch(self) -> None:
        """Write the configuration and start; returns at once."""
        if self.place.group is not None:
            self.place.group.set_limit(self._plan.limit)
        self.record()
        self._end_forks()
        settings = server_settings(self.files, self._plan, self.request.settings)
        text = as_text(settings)
        # The configuration is part of what a run keeps.
        self.place.log_dir.mkdir(parents=True, exist_ok=True)
        write(self.place.log_dir, f"{self.place.name}-redis.conf", text)
        secret = as_text({"requirepass": self._password})
        configured = self.put_secret("redis.conf", text + secret)
        command = [self.installation.server, str(configured)]
        self.process.launch(self.installation.as_user(command))

    def _end_forks(self) -> None:
        """End what a killed server has left: a fork that rewrites the log goes on by itself."""
        left = self.place.host.end_remains(self.files.data, self.installation.server)
        if left:
            raise self.process.failure(
                f"cannot be started: its killed processes {left} still wait for their disk"
            )

    def kill(self) -> None:
        """End at once, with its forks."""
        super().kill()
        # The next start says which of them stay.
        with suppress(MachineError):
            self.place.host.end_remains(self.files.data, self.installation.server)

    def wait_until_ready(self) -> None:
        """Return when it has read its log and answers."""
        cli = Cli(self.installation, self.place.address, self._password)
        self.wait_until("has read its log", lambda: _answers(cli), READY_SECONDS)
        self.sql = cli

    def info(self) -> Mapping[str, str]:
        """Return what it says of itself. Raises MachineError when it has died."""
        rows = self.connection().ask("INFO everything")
        return {name: value for name, _, value in (row[0].partition(":") for row in rows)}


def _answers(cli: Cli) -> bool:
    try:
        return cli.ask("PING") == [["PONG"]]
    except MachineError:
        return False


class Redis(Copies[Server]):
    """A server that disklab makes, starts and stops. See `Database` for what each promises."""

    title = "Redis"
    protocol = "redis"
    port = PORT
    database = "database 0"
    user = "default"
    cached = "the log is"

    def __init__(
        self, request: Request, place: NodePlace, installation: Installation, plan: MemoryPlan
    ) -> None:
        """Take what is asked for and where, with the programs there."""
        password = new_password(request)
        server = Server(request, place, installation, plan, password)
        super().__init__(request, [server], password, plan.beside, plan.reasons)
        settings = server_settings(server.files, plan, request.settings)
        self._has_snapshots = bool(settings[SAVE])
        self._fsync = str(settings.get(APPEND_FSYNC, USUAL_FSYNC))
        self._was_cold = False

    @property
    def versions(self) -> Mapping[str, str]:
        """The server's."""
        return {"Redis": self.primary.installation.version}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in, and what a page cache is to it."""
        notes = [*super().notes]
        if self._slow > 1 and self._fsync == USUAL_FSYNC:
            notes.append(UNSLOWED.format(fsync=self._fsync, slow=self._slow))
        return (*notes, *([NEVER_COLD] if self._was_cold else []))

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the server."""
        wanted = ("protocol", "contact_points", "password", "table")
        return {name: value for name, value in super().target.items() if name in wanted}

    def _bring_up(self) -> None:
        server = self.primary
        if not server.is_made:
            server.make()
        self._start_again(server)

    def _start_again(self, server: Server) -> None:
        server.launch()
        server.wait_until_ready()

    def wait_until_whole(self) -> None:
        """Do nothing: there is one server."""

    def settle(self, conditions: Conditions) -> None:
        """Empty it, rewrite its log and write a snapshot, sync: in this order."""
        with self._with_the_reason() as cli:
            if conditions.to_empty(self.request):
                cli.ask("FLUSHALL SYNC")
            if conditions.compacted:
                self._compact(cli, conditions.time_limit_s)
            if conditions.flushed:
                self._flush(cli)

    def _compact(self, sql: Sql, limit_s: float) -> None:
        """Leave no fork at work, and none that is due: a trial begins with a log of its rows."""
        self._wait_for_forks(limit_s)
        for command in ("BGREWRITEAOF", *(["BGSAVE"] if self._has_snapshots else [])):
            sql.ask(command)
            self._wait_for_forks(limit_s)

    def _wait_for_forks(self, limit_s: float) -> None:
        with Wait("no fork of Redis writes", limit_s) as wait:
            while any(int((info := self.primary.info())[name]) for name in BUSY):
                if wait.is_over:
                    raise MachineError(f"forks of Redis have not ended within {limit_s:.0f} s")
                wait.pause(POLL_SECONDS)
        for name, what in ENDED_WELL.items():
            if info[name] != "ok":
                raise self.primary.process.failure(f"could not write its {what}")

    def _flush(self, sql: Sql) -> None:
        del sql
        self.primary.sync()

    @contextmanager
    def fills(self) -> Iterator[None]:
        """Sync nothing on purpose, and as the settings say again afterwards."""
        server = self.primary
        server.connection().ask(f"CONFIG SET {APPEND_FSYNC} no")
        try:
            yield
        finally:
            # One that has died begins again with its own settings.
            with suppress(MachineError):
                server.connection().ask(f"CONFIG SET {APPEND_FSYNC} {self._fsync}")

    def _cached(self) -> list[tuple[int, int]]:
        self._was_cold = True
        return super()._cached()

    def stop(self) -> None:
        """End the server in order: it syncs its log and, with snapshots, writes one."""
        self.primary.stop()

    def replace_node(self, name: str) -> None:
        """Refuse: there is no copy."""
        raise self._named(name).process.failure("cannot be replaced: it has no copy")

    def _counts(self, sql: Sql) -> Mapping[str, float]:
        del sql
        info = self.primary.info()
        return {name: float(info.get(name, 0)) for name in (*METRICS, *COUNTERS)}

    def _observation(self, counts: Mapping[str, float]) -> Observation:
        """Return memory, log, forks and late syncs."""
        return Observation(
            pids=tuple(pid for server in self.servers for pid in server.process.pids),
            metrics={to: counts[name] for name, to in METRICS.items()},
            counters={to: counts[name] for name, to in COUNTERS.items()},
        )


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a server that is ready to start."""
    problems = list(problems_of(request, nodes))
    refuse(problems)
    (place,) = nodes
    installation = find_redis(place.host)
    known = installation.known_settings()
    problems = REDIS.check_settings(request.settings, known, installation.version)
    refuse(problems)
    if place.host.elsewhere:
        progress(f"Redis {installation.version} on {place.host.elsewhere}")
    return Redis(request, place, installation, plan_memory(request.sizes))
