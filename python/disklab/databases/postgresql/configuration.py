"""The files that a server starts with: postgresql.conf, pg_hba.conf, a certificate for TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.database_settings import Setting
from disklab.databases.installed import WAL_VOLUMES, Installed
from disklab.databases.protocol import NodePlace

PORT = 5432
PORTS = (PORT,)
USER = DATABASE = "disklab"

# The largest value of toast_tuple_target: a row that fills a page of 8 KiB.
LARGEST_ROW = 8160

POSTGRESQL = Installed(
    engine="postgresql",
    title="PostgreSQL",
    node="each PostgreSQL server holds all rows",
    data="tables",
    chosen="newest PostgreSQL",
    option="option of a table",
    setting="setting",
    listing="postgres --describe-config",
)


@dataclass(frozen=True)
class ServerFiles:
    """Where a server's own files are."""

    place: NodePlace

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.place.volumes["data"] / "postgresql"

    @property
    def wal(self) -> Path | None:
        """The directory of the write-ahead log; None: inside the data directory."""
        for name in WAL_VOLUMES:
            if name in self.place.volumes:
                return self.place.volumes[name] / "postgresql-wal"
        return None

    @property
    def own(self) -> list[Path]:
        """The folders that are the server's alone."""
        return [self.data, *([] if self.wal is None else [self.wal])]

    @property
    def configuration(self) -> Path:
        """The folder of the generated files, which are not the server's to change."""
        return self.place.run_dir / "conf"

    @property
    def certificate(self) -> Path:
        """The certificate; its key lies beside it."""
        return self.configuration / "server.crt"

    @property
    def key(self) -> Path:
        """The certificate's key."""
        return self.configuration / "server.key"

    @property
    def passwords(self) -> Path:
        """What a standby tells its primary, in libpq's form."""
        return self.configuration / "pgpass"


# What a standby may be behind before the primary drops the log that it needs: a bound, so that a
# dead standby cannot fill the primary's disk.
MOST_SLOT_WAL = "1GB"
# What a server takes at least: a fill, a check, and an open loop have more clients than a trial's
# threads. One that nobody uses costs a few hundred bytes.
LEAST_CONNECTIONS = 300
# Sessions beside those of the load: ours, and a superuser's three.
SPARE_CONNECTIONS = 40


@dataclass(frozen=True)
class Role:
    """What a server is among the others."""

    connections: int
    """Clients at once."""
    quorum: str = ""
    """Of a primary: `synchronous_standby_names`."""
    follows: str | None = None
    """Of a standby: the primary's address."""
    name: str = ""
    """Of a standby: what the primary calls it, and its slot there."""
    has_slot: bool = True
    """Of a standby: whether the one that it follows keeps log for it."""
    passwords: Path = Path()
    """Of a standby: the file with the password that it tells."""

    @property
    def is_standby(self) -> bool:
        """Whether it follows another."""
        return self.follows is not None

    def settings(self, *, tls: bool) -> dict[str, Setting]:
        """Return what the role asks for."""
        found: dict[str, Setting] = {
            # Twice: the next load connects while the server still says goodbye to the last one's.
            "max_connections": max(2 * self.connections + SPARE_CONNECTIONS, LEAST_CONNECTIONS),
            "max_slot_wal_keep_size": MOST_SLOT_WAL,
        }
        if self.follows is None:
            return {**found, "synchronous_standby_names": self.quorum}
        mode = "require" if tls else "disable"
        found["primary_conninfo"] = (
            f"host={self.follows} port={PORT} user={USER} application_name={self.name} "
            f"sslmode={mode} passfile={libpq_quoted(str(self.passwords))}"
        )
        # So that the primary knows within seconds that a standby hangs.
        found["wal_receiver_status_interval"] = "1s"
        return {**found, "primary_slot_name": self.name if self.has_slot else ""}


def server_settings(
    files: ServerFiles, sized: Mapping[str, Setting], user: Mapping[str, Setting], *, tls: bool
) -> dict[str, Setting]:
    """Return all settings of a server."""
    return {
        "listen_addresses": files.place.address,
        "port": PORT,
        # Clients come by TCP, as on the full system; no socket file is left anywhere.
        "unix_socket_directories": "",
        "hba_file": str(files.configuration / "pg_hba.conf"),
        "password_encryption": "scram-sha-256",
        "ssl": tls,
        "ssl_cert_file": str(files.certificate),
        "ssl_key_file": str(files.key),
        # The server's log goes to standard error, which is a file of the run.
        "logging_collector": False,
        "log_line_prefix": "%m [%p] ",
        "log_timezone": "UTC",
        # The server starts in an IPC namespace of its own (`Installation.alone`), with which memory
        # of this kind ends. Files in /dev/shm (posix, the default) outlive a killed server, and
        # those of mmap are written to the very disk that is measured: statistics live there.
        # Source: PostgreSQL 15's manual, 20.4.1.
        "dynamic_shared_memory_type": "sysv",
        **sized,
        **user,
    }


def as_text(settings: Mapping[str, Setting]) -> str:
    """Return settings in the form of postgresql.conf."""
    return "".join(f"{name} = {_quoted(value)}\n" for name, value in sorted(settings.items()))


def access(*, tls: bool, has_network: bool = False) -> str:
    """Return pg_hba.conf: from the nodes' own network, who knows the password. Standbys too.

    The network is this machine's loopback, or that of the emulated host that the server is on.
    """
    kind = "hostssl" if tls else "hostnossl"
    network = "127.0.0.0/8" if not has_network else "samenet"
    allowed = f"{USER} {network} scram-sha-256\n"
    return "".join(f"{kind} {what} {allowed}" for what in ("all", "replication"))


def entry(address: str, what: str = "all", *, tls: bool) -> str:
    """Return the line of pg_hba.conf that lets our user in from an address."""
    bits = 128 if ":" in address else 32
    kind = "hostssl" if tls else "hostnossl"
    return f"{kind} {what} {USER} {address}/{bits} scram-sha-256\n"


def libpq_quoted(value: str) -> str:
    """Return a value as libpq takes it in a connection string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def schema(table: str, columns: int) -> str:
    """Return the SQL that makes a table of the rows workload where it is not there yet.

    Values are neither compressed nor, while a row fits a page, moved to a table beside (TOAST):
    reading a row of a few KB is reading one page.
    """
    names = [f"c{number}" for number in range(columns)]
    values = "".join(f", {name} bytea" for name in names)
    external = "".join(f", ALTER COLUMN {name} SET STORAGE EXTERNAL" for name in names)
    return (
        f"CREATE TABLE IF NOT EXISTS {table} (key bigint PRIMARY KEY{values}); "
        f"ALTER TABLE {table} SET (toast_tuple_target = {LARGEST_ROW}){external}"
    )


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"
