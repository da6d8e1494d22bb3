"""The files that a server starts with: my.cnf, its first accounts, a certificate for TLS."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disklab.database_settings import SWITCHES, Setting
from disklab.databases.installed import WAL_VOLUMES, Installed
from disklab.databases.protocol import NodePlace
from disklab.databases.sql import CONNECT_SECONDS, Login

PORT = 3306
GROUP_PORT, CHANGES_PORT, COPY_PORT = 4567, 4568, 4444
"""Of Galera: its group, what a node has missed, whole copies; those of a replica come there too."""
PORTS = (PORT, GROUP_PORT, CHANGES_PORT, COPY_PORT)
CONFIRM_SECONDS = 10
"""How long a commit waits for the replica before the primary goes on alone.

**Source:** the default of `rpl_semi_sync_master_timeout`."""
PERIODS = {
    "gmcast.peer_timeout": 3,
    "evs.inactive_check_period": 1,
    "evs.suspect_timeout": 5,
    "evs.inactive_timeout": 15,
    "evs.install_timeout": 8,
}
"""Seconds after which nodes take each other for gone, at their usual values; those of the described
system. **Source:** Galera's documentation, "Galera Parameters". Not `evs.keepalive_period`: nodes
that say more often that they live change nothing, and one that joins waits for such a message."""
USER = DATABASE = "disklab"

SCHEMAS = (DATABASE, "disklab_tpcc")
"""Where tables of a load are; TPC-C's have a schema of their own."""

REDO_VOLUMES = ("log", *WAL_VOLUMES)
BINLOG_VOLUME = "binlog"
# What a server takes at least: a fill, a check, and an open loop have more clients than a trial's
# threads.
LEAST_CONNECTIONS = 300
# Sessions beside those of the load.
SPARE_CONNECTIONS = 40

MARIADB = Installed(
    engine="mariadb",
    title="MariaDB",
    node="each MariaDB server holds all rows",
    data="tables",
    chosen="MariaDB",
    option="option of a table",
    setting="setting",
    listing="mariadbd --no-defaults --verbose --help",
)


@dataclass(frozen=True)
class ServerFiles:
    """Where a server's own files are."""

    place: NodePlace

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.place.volumes["data"] / "mariadb"

    @property
    def temporary(self) -> Path:
        """Sorts and temporary tables that do not fit memory."""
        return self.place.volumes["data"] / "mariadb-tmp"

    @property
    def redo(self) -> Path | None:
        """The directory of the redo log; None: the data directory."""
        for name in REDO_VOLUMES:
            if name in self.place.volumes:
                return self.place.volumes[name] / "mariadb-redo"
        return None

    @property
    def binlog(self) -> Path:
        """The directory of the binary log, if there is one."""
        above = self.place.volumes.get(BINLOG_VOLUME, self.place.volumes["data"])
        return above / "mariadb-binlog"

    @property
    def own(self) -> list[Path]:
        """The folders that are the server's alone."""
        redo = [] if self.redo is None else [self.redo]
        return [self.data, self.temporary, *redo, self.binlog]

    @property
    def configuration(self) -> Path:
        """The folder of the generated files, which are not the server's to change."""
        return self.place.run_dir / "conf"


@dataclass(frozen=True)
class Role:
    """What a server is among others; nothing for one that is alone."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    sections: str = ""
    """Further sections of its my.cnf."""
    secret: str = ""
    """The same, which the server alone may read."""
    believed: Sequence[str] = ()
    """The certificates of all servers, where they speak TLS with each other."""


def server_settings(
    files: ServerFiles,
    sized: Mapping[str, Setting],
    user: Mapping[str, Setting],
    *,
    connections: int,
    tls: bool,
) -> dict[str, Setting]:
    """Return all settings of a server."""
    wanted = {**sized, **user}
    has_binlog = wanted.pop("log_bin", BINLOG_VOLUME in files.place.volumes)
    if str(has_binlog).lower() in SWITCHES[True]:
        wanted["log_bin"] = str(files.binlog / "binlog")
    configuration = files.configuration
    return {
        "datadir": str(files.data),
        "tmpdir": str(files.temporary),
        "innodb_log_group_home_dir": str(files.redo or files.data),
        "bind_address": files.place.address,
        "port": PORT,
        # Clients come by TCP, as on the full system; no socket file is left anywhere.
        "socket": "",
        "skip_name_resolve": True,
        "pid_file": str(files.data / "mariadb.pid"),
        # Twice: the next load connects while the server still says goodbye to the last one's.
        "max_connections": max(2 * connections + SPARE_CONNECTIONS, LEAST_CONNECTIONS),
        "max_prepared_stmt_count": 1_000_000,
        # A cold trial begins without pages; a warm one reads its own.
        "innodb_buffer_pool_dump_at_shutdown": False,
        "innodb_buffer_pool_load_at_startup": False,
        **(
            {
                "ssl_cert": str(configuration / "server.crt"),
                "ssl_key": str(configuration / "server.key"),
                "require_secure_transport": True,
            }
            if tls
            else {}
        ),
        **wanted,
    }


def as_text(settings: Mapping[str, Setting]) -> str:
    """Return settings in the form of my.cnf."""
    lines = (f"{name} = {_quoted(value)}\n" for name, value in sorted(settings.items()))
    return "[mariadbd]\n" + "".join(lines)


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def first_statements(password: str) -> str:
    """Return the SQL that leaves one account, which has a password, before the server listens."""
    once = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    kept = hashlib.sha1(once, usedforsecurity=False).hexdigest().upper()
    return (
        "DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys';\nFLUSH PRIVILEGES;\n"  # noqa: S608 - our own names
        f"CREATE USER '{USER}'@'%' IDENTIFIED VIA mysql_native_password USING '*{kept}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        + "".join(f"CREATE DATABASE {schema};\n" for schema in SCHEMAS)
    )


def schema(table: str, columns: int) -> str:
    """Return the SQL that makes a table of the rows workload where it is not there yet."""
    values = "".join(f", c{number} LONGBLOB NOT NULL" for number in range(columns))
    return (
        f"CREATE TABLE IF NOT EXISTS `{table}` (`key` BIGINT PRIMARY KEY{values}) "
        "ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
    )


NO_FOLDER = "/nonexistent"


class MariadbLogin(Login):
    """Where a server is, and who comes to it by MariaDB's own client."""

    def words(self, program: str) -> list[str]:
        """Return the command of a client that answers statements with plain rows."""
        command = [program, "--no-defaults", "--batch", "--raw", "--skip-column-names"]
        # Nothing is kept until an answer is whole, and no file of ours is sent because one asks.
        command += ["--quick", "--local-infile=0"]
        if self.is_guarded and not self.tls:
            # Of what logs in, the one that shows no password is built in; others are files there.
            command.append(f"--plugin-dir={NO_FOLDER}")
        # Each answer is written at once; nobody is there to type a password.
        command += ["--unbuffered", "--protocol=tcp", f"--host={self.host}", f"--port={self.port}"]
        command += [f"--user={self.user}", f"--connect-timeout={CONNECT_SECONDS}"]
        if self.tls:
            command.append("--ssl")
            if self.ca_file is not None:
                command += [f"--ssl-ca={self.ca_file}", "--ssl-verify-server-cert"]
        else:
            command.append("--skip-ssl")
        return [*command, self.database]

    def refusal(self, program: str) -> str | None:  # noqa: ARG002 - see there
        """See `Login.refusal`: without plugins there is none that sends it in clear."""
        return None

    def variables(self) -> dict[str, str]:
        """Return what the client reads from the environment."""
        return {} if self.password is None else {"MYSQL_PWD": self.password}

    def echo(self, text: str) -> str:
        """Return what has the client say something."""
        return f"SELECT '{text}';\n"
