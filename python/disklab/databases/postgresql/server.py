"""One PostgreSQL server of ours on given volumes: a primary, or a standby that follows it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path

from disklab.database_settings import Setting
from disklab.databases.copies import CopyServer, self_signed
from disklab.databases.log import LogForm
from disklab.databases.place import write
from disklab.databases.postgresql.configuration import (
    DATABASE,
    PORT,
    PORTS,
    USER,
    MemoryPlan,
    Role,
    ServerFiles,
    access,
    as_text,
    entry,
    schema,
    server_settings,
)
from disklab.databases.postgresql.installation import Installation
from disklab.databases.protocol import NodePlace, Request
from disklab.databases.sql import Login, Sql
from disklab.errors import MachineError
from disklab.hosts.control_group import MARK, ControlGroup

# PostgreSQL's own periods under time dilation: its clock is this machine's.
#
# A second of the described system takes longer here, so a checkpoint that comes each five minutes
# there must come more rarely here, or its writes would weigh more than they do.

# What the server does without a setting, in ms of the described system. Source: PostgreSQL 15,
# documentation chapter 20 (defaults).
USUAL_MS = {
    "checkpoint_timeout": 300_000,
    "wal_writer_delay": 200,
    "bgwriter_delay": 200,
    "autovacuum_naptime": 60_000,
    "deadlock_timeout": 1_000,
    "wal_sender_timeout": 60_000,
    "wal_receiver_timeout": 60_000,
    "wal_retrieve_retry_interval": 5_000,
}
# The largest that the server takes of each, in ms; beyond it the period stays shorter than asked.
MOST_MS = {"checkpoint_timeout": 86_400_000, "wal_writer_delay": 10_000, "bgwriter_delay": 10_000}

_DURATION = re.compile(r"(\d+)\s*(us|ms|s|min|h|d)", re.ASCII)


def usual_timing(dilation: int) -> dict[str, Setting]:
    """Return the server's own periods as they must be here; nothing when time is not dilated."""
    if dilation == 1:
        return {}
    return {
        name: f"{min(ms * dilation, MOST_MS.get(name, ms * dilation))}ms"
        for name, ms in USUAL_MS.items()
    }


def dilated_timing(settings: Mapping[str, Setting], dilation: int) -> dict[str, Setting]:
    """Return a user's settings, of the described system, as they must be here.

    A time is what has a unit, such as `5min`: a bare number's unit hangs on its setting.
    """
    found: dict[str, Setting] = {}
    for name, value in settings.items():
        time = _DURATION.fullmatch(value) if isinstance(value, str) else None
        found[name] = value if time is None else f"{int(time[1]) * dilation}{time[2]}"
    return found


# 1 s on an idle machine; after a crash it replays its WAL at the speed of the disk.
READY_SECONDS = 300.0
# A copy of the primary's data is bound by disks, and is as small as what this machine can hold.
COPY_SECONDS = 1800.0
# All of the log that it has received is replayed first, which max_wal_size bounds.
PROMOTE_SECONDS = 300.0

LOG = LogForm(
    # log_line_prefix "%m [%p] ", then the level.
    entry=re.compile(r"\d{4}-\d\d-\d\d .*?\[\d+\] +(?!DETAIL|HINT|CONTEXT|STATEMENT)[A-Z]+: "),
    bad=re.compile(r".*?\] +(WARNING|ERROR|FATAL|PANIC): "),
    cause=re.compile(r".*?\] +(DETAIL|HINT): "),
    # Whoever asks while it starts or stops, and whoever gives up, is told so in this way.
    error=re.compile(
        r".*?\] +(ERROR|FATAL|PANIC):  (?!the database system is |terminating connection due to "
        r"administrator|canceling |sorry, too many clients)"
    ),
)


class Server(CopyServer):
    """A server that disklab makes, starts and stops."""

    first_file = "PG_VERSION"
    # PostgreSQL's fast shutdown: sessions are ended, nothing is lost.
    ending = signal.SIGINT

    def __init__(
        self,
        request: Request,
        place: NodePlace,
        installation: Installation,
        plan: MemoryPlan,
        password: str,
    ) -> None:
        process = place.host.process("PostgreSQL", place, PORTS, LOG)
        super().__init__(request, place, process, installation.account, password)
        self.files: ServerFiles = ServerFiles(place)
        self._clients: Sequence[str] = ()
        self._others: Sequence[str] = ()
        self._has_key = False
        self._plan = plan
        self._installation = installation
        self._most_anonymous = 0
        self._most_backends = 0
        self._expected = 0
        self._there_before: frozenset[int] = frozenset()

    def know(self, addresses: Sequence[str]) -> None:
        """Let in the servers at these IP addresses, which may follow it; from the next start on."""
        self._others = [one for one in addresses if one != self.place.address]

    def let_in(self, clients: Sequence[str]) -> None:
        """Let in clients at these IP addresses too, from the next start on."""
        self._clients = clients

    def make(self) -> None:
        """Make an empty data directory, with the write-ahead log on its own volume."""
        self.record()
        secret = self.put_secret("first", self._password)
        files = self.files
        # The C locale compares bytes: no version of a locale can change an order.
        command = ["initdb", "-D", str(files.data), "-U", USER, "--locale=C", "--encoding=UTF8"]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}"]
        try:
            self._make_with(command, {})
        finally:
            self.place.host.remove(secret)

    def make_copy_of(self, primary: Server) -> None:
        """Copy the primary's data directory; it must run."""
        self.record()
        command, variables = self._copying(primary)
        self._make_with(command, variables)
        self._follow()

    def replace_by_copy_of(self, primary: Server) -> None:
        """Empty the data directory of a server that is away, and copy the primary's into it.

        The copy is made in the server's own memory group, as on a machine of its own: what it has
        not yet written to the disk counts there. Killing the server ends it.
        """
        self.kill()
        self.record()
        for folder in self.files.own:
            self.place.host.remove(folder)
        (name, *rest), variables = self._copying(primary)
        command = [self._installation.program(name), *self._with_folders(rest)]
        self.process.launch(self._installation.as_user(command), variables=variables)
        self.process.finish(COPY_SECONDS * self.request.sizes.time_dilation)
        self._follow()

    def _copying(self, primary: Server) -> tuple[list[str], dict[str, str]]:
        """Return the command that copies the primary's data, and its variables."""
        command = ["pg_basebackup", "-D", str(self.files.data)]
        command += ["-h", primary.place.address, "-p", str(PORT), "-U", USER]
        # A slot of its own, so that the primary keeps what this one has not seen yet; without it
        # a standby that was away for a checkpoint could never come back.
        command += ["-X", "stream", "--checkpoint=fast", "-C", "-S", self.place.name]
        mode = "require" if self.request.tls else "disable"
        return command, {"PGSSLMODE": mode, "PGPASSWORD": self._password}

    def _follow(self) -> None:
        """Have it follow a primary when it starts."""
        self._installation.run(["touch", str(self.files.data / "standby.signal")])

    def _make_with(self, command: list[str], variables: Mapping[str, str]) -> None:
        """Let a program make the data directory, with the write-ahead log on its own volume."""
        installation = self._installation
        program, *rest = self._with_folders(command)
        marked = {**variables, MARK: str(self.place.run_dir)}
        installation.run([installation.program(program), *rest], marked)
        self._made_here = True

    def _with_folders(self, command: list[str]) -> list[str]:
        """Make the folders of the data and of the log; return the command that uses them."""
        for folder in self.files.own:
            self.place.host.own_folder(folder, self._installation.account)
        wal = self.files.wal
        return command if wal is None else [*command, "--waldir", str(wal)]

    def launch(self, role: Role) -> None:
        """Write the configuration and start; returns at once."""
        if self.place.group is not None:
            self.place.group.set_limit(self._plan.first_limit(role.connections))
        self.record()
        program = self._installation.program("postgres")
        left = self._end_remains(program)
        if left:
            told = f"its killed processes {left} still wait for their disk"
            raise self.process.failure(f"cannot be started: {told}")
        self._configure(role)
        configuration = self.files.configuration / "postgresql.conf"
        command = [program, "-D", str(self.files.data), "-c", f"config_file={configuration}"]
        command = self._installation.as_user(command)
        self.process.launch(self._installation.alone(command))

    def reconfigure(self, role: Role) -> None:
        """Give a running server another role among the others; it takes that as it runs."""
        self._configure(role)
        self.connection().ask("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Have a standby end its recovery; returns when it takes changes.

        **Source:** PostgreSQL's manual, 9.27.4: `pg_promote`, which is `pg_ctl promote` by SQL.
        """
        seconds = round(PROMOTE_SECONDS * self.request.sizes.time_dilation)
        ((done,),) = self.connection().ask(f"SELECT pg_promote(true, {seconds})")
        if done != "t":
            raise self.process.failure(f"was not promoted within {seconds} s")

    def received(self) -> str:
        """Return up to where a standby has the log: what it has on its disk counts."""
        # Behind a restart it knows of nothing received, and has replayed what it had.
        asked = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"
        ((place,),) = self.connection().ask(asked)
        return place

    def wait_until_ready(self, *, makes_schema: bool) -> None:
        """Return when the first query is answered, from a connection that is kept."""
        connect = partial(self._try_connect, makes_schema=makes_schema)
        self.wait_until("answers its first query", connect, READY_SECONDS)

    def kill(self) -> None:
        """End at once, with every backend.

        One that waits for another one's lock does not see that its server is gone: in a rehearsal
        ours sat on the mount of a VM that was lost. Those that hang on their disk stay, and the
        next start says so.
        """
        ran = self.process.pid is not None
        super().kill()
        if ran:
            self._end_remains(self._installation.program("postgres"))

    def cached_bytes(self, folder: str, names: Set[str]) -> tuple[int, int]:
        """Return the size of the tables' files, and how much of it the page cache holds.

        `folder`: the database's own below `base`; `names`: of the files, without their numbers.
        """
        # A table is cut into files of 1 GiB: 16384, 16384.1, ...
        below = self.files.data / "base" / folder
        host = self.place.host
        own = [below / name for name in host.names(below) if name.split(".")[0] in names]
        return host.cached_bytes(own)

    def expect(self, connections: int) -> None:
        """Keep room for the backends of so many clients, and none for those of loads before."""
        self._expected, self._most_anonymous, self._most_backends = connections, 0, 0
        # Backends of the load before may still be ending. They are none of the expected ones:
        # counted as such, they left the new ones no room, and the kernel killed the server.
        self._there_before = frozenset(self.pids())
        if self.place.group is not None:
            self._fit(self.place.group, self.place.group.use().anonymous)

    def fit_group(self) -> None:
        """Hold buffers and page cache at their planned size, whatever the backends need beside.

        Room is kept for those of the expected connections that have not come yet.
        """
        group = self.place.group
        if group is None:
            return
        self._most_anonymous = max(self._most_anonymous, group.use().anonymous)
        come = len(set(self.pids()) - self._there_before)
        self._most_backends = max(self._most_backends, come)
        self._fit(group, self._most_anonymous)

    def _fit(self, group: ControlGroup, anonymous: int) -> None:
        missing = max(self._expected - self._most_backends, 0)
        # The page cache may be full of what the room for connections let in: that goes.
        with suppress(MachineError):
            group.set_limit(self._plan.limit_for(anonymous, missing))

    def pids(self) -> Iterator[int]:
        """Yield the server and its backends: each connection is a process."""
        for pid in self.process.pids:
            yield pid
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children")
                yield from map(int, children.read_text(encoding="ascii").split())

    def _configure(self, role: Role) -> None:
        files, tls = self.files, self.request.tls
        if tls and not self._has_key:
            certificate, key = self_signed(self.place.address)
            self._put(files.certificate.name, certificate)
            self.put_secret(files.key.name, key)
            self._has_key = True
        if role.is_standby:
            told = f"*:*:*:{USER}:{self._password}\n"
            self.put_secret(files.passwords.name, told)
        slow = self.request.sizes.time_dilation
        planned = {**usual_timing(slow), **self._plan.settings, **role.settings(tls=tls)}
        user = dilated_timing(self.request.settings, slow)
        text = as_text(server_settings(files, planned, user, tls=tls))
        self._put("postgresql.conf", text)
        self._put("pg_hba.conf", self._access())
        # The configuration is part of what a run keeps.
        self.place.log_dir.mkdir(parents=True, exist_ok=True)
        write(self.place.log_dir, f"{self.place.name}-postgresql.conf", text)

    def _try_connect(self, *, makes_schema: bool) -> bool:
        try:
            with self._sql("postgres") as first:
                known = [DATABASE] in first.ask("SELECT datname FROM pg_database")
                if not known and makes_schema:
                    first.ask(f"CREATE DATABASE {DATABASE}")
        except MachineError:
            return False
        if not known and not makes_schema:
            return False
        sql = self._sql(DATABASE)
        try:
            tables = (self.request.table_name, *self.request.tables_beside)
            for table in tables if self.request.columns and makes_schema else ():
                sql.ask(schema(table, self.request.columns))
            sql.ask("SELECT 1")
        except BaseException:
            sql.close()
            raise
        self.sql = sql
        return True

    def _sql(self, database: str) -> Sql:
        # Ours never wait for standbys: with none, such a commit would never end.
        own = "-c synchronous_commit=local"
        tls, password = self.request.tls, self._password
        login = Login(self.place.address, PORT, USER, database, tls, password, options=own)
        return self._connect(login)

    def _put(self, name: str, text: str) -> None:
        """Write a file of the configuration."""
        host = self.place.host
        host.write(host.open_run_dir(self.place.run_dir), name, text)

    def _end_remains(self, program: str) -> list[int]:
        """End what a killed server has left on the data directory; return what stays."""
        return self.place.host.end_remains(self.files.data, program)

    def _access(self) -> str:
        """Let in the nodes' own network; elsewhere the other servers, clients and us as well."""
        host, tls = self.place.host, self.request.tls
        text = access(tls=tls, has_network=host.has_network)
        if host.elsewhere is None:
            return text
        guests = [*self._clients, *self._others, *host.visitors()]
        text += "".join(entry(one, tls=tls) for one in guests)
        return text + "".join(entry(one, "replication", tls=tls) for one in self._others)

    def _connect(self, login: Login) -> Sql:
        installation = self._installation
        return self.place.host.sql(installation.program("psql"), login, installation.account)
