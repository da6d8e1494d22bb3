"""One MariaDB server of ours on given volumes: alone, a primary, its replica, a node of Galera."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence

from disklab.databases.copies import CopyServer, self_signed
from disklab.databases.log import LogForm
from disklab.databases.mariadb.configuration import (
    DATABASE,
    PORT,
    PORTS,
    SCHEMAS,
    USER,
    MariadbLogin,
    Role,
    ServerFiles,
    as_text,
    first_statements,
    schema,
    server_settings,
)
from disklab.databases.mariadb.installation import CLIENT, MAKER, SERVER, Installation
from disklab.databases.mariadb.sizing import MemoryPlan
from disklab.databases.place import write
from disklab.databases.protocol import NodePlace, Request
from disklab.errors import MachineError
from disklab.hosts.control_group import MARK

# 1 s on an idle machine; after a crash it applies its redo log at the speed of the disk, and what
# joins a cluster gets a whole copy first.
READY_SECONDS = 300.0
LOG = LogForm(
    # 2026-11-27  5:19:30 0 [Note] InnoDB: ...
    entry=re.compile(r"\d{4}-\d\d-\d\d +\d+:\d\d:\d\d \d+ \[\w+\] "),
    bad=re.compile(r".*?\[(Warning|ERROR)\] "),
    cause=re.compile(r"(?!)"),
    error=re.compile(r".*?\[ERROR\] "),
)
_RECOVERED = re.compile(r"WSREP: Recovered position:? *([0-9a-f-]+:-?\d+)")


class Server(CopyServer):
    """A server that disklab makes, starts and stops."""

    first_file = "ibdata1"
    ending = signal.SIGTERM

    def __init__(
        self,
        request: Request,
        place: NodePlace,
        installation: Installation,
        plan: MemoryPlan,
        password: str,
    ) -> None:
        process = place.host.process("MariaDB", place, PORTS, LOG)
        super().__init__(request, place, process, installation.account, password)
        self.files: ServerFiles = ServerFiles(place)
        self.installation = installation
        self._plan = plan
        self._pair: tuple[str, str] | None = None

    @property
    def certificate(self) -> str:
        """What it shows clients and other servers (PEM)."""
        return self._certified()[0]

    def make(self, role: Role) -> None:
        """Make an empty data directory, with our account alone."""
        self.record()
        self.make_folders()
        configured = self.configure(role)
        first = self.put_secret("first.sql", first_statements(self._password))
        try:
            self.run(
                MAKER,
                f"--defaults-file={configured}",
                f"--extra-file={first}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            )
        finally:
            self.place.host.remove(first)
        self._made_here = True

    def make_folders(self) -> None:
        """Make the folders of the data and the logs, where they are not there yet."""
        for folder in self.files.own:
            self.place.host.own_folder(folder, self.installation.account)

    def empty(self) -> None:
        """Remove what its disks hold; it must be away."""
        for folder in self.files.own:
            self.place.host.remove(folder)
        self.make_folders()
        self._made_here = True

    def seed(self, other: Server) -> None:
        """Begin with the files of a server that has just been made and stopped, where it is here.

        Elsewhere with empty disks, to which Galera brings a whole copy by itself.
        """
        self.empty()
        if self.place.host.elsewhere or other.place.host.elsewhere:
            return
        pairs = [(other.files.data, self.files.data)]
        if other.files.redo is not None and self.files.redo is not None:
            pairs.append((other.files.redo, self.files.redo))
        for source, target in pairs:
            self.run("cp", "-a", f"{source}/.", str(target))

    def run(self, program: str, *words: str, variables: Mapping[str, str] | None = None) -> str:
        """Run a program of the server's to its end, as its user, and return what it wrote."""
        installation = self.installation
        command = installation.as_user([installation.programs.get(program, program), *words])
        marked = {MARK: str(self.place.run_dir), **(variables or {})}
        return self.place.host.run(command, marked, program)

    def launch(self, role: Role, *words: str) -> None:
        """Write the configuration and start; returns at once."""
        if self.place.group is not None:
            self.place.group.set_limit(self._plan.limit(self.request.connections))
        self.record()
        program = self.installation.programs[SERVER]
        left = self.place.host.end_remains(self.files.data, program)
        if left:
            raise self.process.failure(
                f"cannot be started: its killed processes {left} still wait for their disk"
            )
        command = [program, f"--defaults-file={self.configure(role)}", *words]
        self.process.launch(self.installation.as_user(command))

    def recovered(self, role: Role) -> str | None:
        """Return up to where a killed node of Galera has the cluster's changes; None: nowhere.

        It applies its redo log for that, and ends. **Source:** MariaDB's `galera_recovery`.
        """
        said = self.files.data / "recovered.err"
        configured = f"--defaults-file={self.configure(role)}"
        self.run(SERVER, configured, "--wsrep-recover", f"--log-error={said}")
        positions = _RECOVERED.findall(self.place.host.said("cat", str(said)))
        self.place.host.remove(said)
        return positions[-1] if positions else None

    def configure(self, role: Role) -> str:
        """Write its files; return that of its settings."""
        host = self.place.host
        folder = host.open_run_dir(self.place.run_dir)
        tls = self.request.tls or bool(role.believed)
        if tls:
            certificate, key = self._certified()
            host.write(folder, "server.crt", certificate)
            self.put_secret("server.key", key)
        if role.believed:
            host.write(folder, "believed.crt", "".join(role.believed))
        settings = server_settings(
            self.files,
            {**self._plan.settings, **role.settings},
            self.request.settings,
            connections=self.request.connections,
            tls=self.request.tls,
        )
        text = as_text(settings) + role.sections
        # The configuration is part of what a run keeps.
        self.place.log_dir.mkdir(parents=True, exist_ok=True)
        write(self.place.log_dir, f"{self.place.name}-my.cnf", text)
        if role.secret:
            text += f"!include {self.put_secret('secret.cnf', role.secret)}\n"
        return str(host.write(folder, "my.cnf", text))

    def _certified(self) -> tuple[str, str]:
        if self._pair is None:
            self._pair = self_signed(self.place.address)
        return self._pair

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        """Return when the first query is answered, from a connection that is kept."""
        self.wait_until("answers its first query", self._try_connect, seconds)

    def _try_connect(self) -> bool:
        login = MariadbLogin(
            self.place.address, PORT, USER, DATABASE, self.request.tls, self._password
        )
        installation = self.installation
        sql = self.place.host.sql(installation.programs[CLIENT], login, installation.account)
        try:
            # A node of Galera that is not in its cluster refuses this.
            sql.ask("SELECT 1 FROM mysql.global_priv LIMIT 1")
        except MachineError:
            sql.close()
            return False
        self.sql = sql
        return True

    def make_schema(self) -> None:
        """Make the tables of rows where they are not there yet."""
        tables = (self.request.table_name, *self.request.tables_beside)
        for table in tables if self.request.columns else ():
            self.connection().ask(schema(table, self.request.columns))

    def status(self, names: Sequence[str]) -> Mapping[str, float]:
        """Return these of its status variables; those that are no numbers are zero."""
        listed = ", ".join(f"'{name}'" for name in names)
        rows = self.connection().ask(
            f"SELECT * FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ({listed})"  # noqa: S608 - our own names
        )
        values = {name.lower(): value for name, value in rows}
        return {name: _number(values.get(name.lower(), "0")) for name in names}

    def checkpoint(self) -> None:
        """Write every dirty page; returns when the redo log is needed no more."""
        self.connection().ask("SET GLOBAL innodb_log_checkpoint_now = ON")

    def cached_bytes(self) -> tuple[int, int]:
        """Return the size of the tables' files, and how much of it the page cache holds."""
        # The system's tables are read at every start; the user's lie in the database's own folder.
        return self.place.host.cached_bytes([self.files.data / schema for schema in SCHEMAS])

    def expect(self, connections: int) -> None:
        """Hold room in the memory group for the threads of so many clients."""
        if self.place.group is not None:
            self.place.group.set_limit(self._plan.limit(connections))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
