"""The files that a server starts with: postgresql.conf, pg_hba.conf, a certificate for TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab.database_settings import Setting
from disklab.databases.installed import WAL_VOLUMES, Installed
from disklab.databases.protocol import NodePlace, Sizes

# How much memory a server gets, and why.

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Source: PostgreSQL's documentation, 20.4.1: "a reasonable starting value for shared_buffers is 25%
# of the memory in your system".
BUFFERS_SHARE = 4
# Source: 20.7.2, effective_cache_size: what "is available for disk caching"; 3/4 is customary.
CACHE_SHARE = 0.75
# Thirty backends pin up to some hundred buffers each; the server's own default is 128 MiB.
LEAST_BUFFERS = 16 * MIB
# Source: 20.5.2, max_wal_size: 1 GB, whatever the memory.
FULL_WAL = 1 * GIB
# The server refuses less than two segments of 16 MiB; checkpoints would follow one another.
LEAST_WAL = 64 * MIB
# Anonymous memory beside the buffers: backends and work areas of thirty of them; of the full
# system, and here before it was seen how much they really take.
SERVER_OVERHEAD = 128 * MIB
# A backend with TLS and a prepared statement for each of thirty tables (our measurement of 2026-11:
# 2 to 5 MiB); this much is kept free for each that may come.
BACKEND_BYTES = 6 * MIB
# Beside what was seen: the kernel's own of the group, and what a backend needs in passing.
SPARE_BYTES = 24 * MIB
LEAST_PAGE_CACHE = 32 * MIB
# ANALYZE keeps so many rows in its own memory for each step of `default_statistics_target`, which
# is 100 unless somebody says otherwise. Source: `std_typanalyze` of analyze.c.
ROWS_A_STEP = 300
USUAL_TARGET = 100
# A row in memory beside its values: two headers and the alignment of each value; and its piece of
# memory is a power of two up to 8 KiB. Source: htup.h, aset.c. Measured (PostgreSQL 15, rows of
# 2,045 B, the usual target): a backend of 3 MiB had 122 MiB, which is 4 KiB a row.
ROW_IN_MEMORY = 96
LARGEST_PIECE = 8 * KIB
# A row of sysbench has 190 bytes, the longest of TPC-C 670.
OWN_TABLES_ROW = 670


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one server, in bytes."""

    buffers: int
    wal: int
    page_cache: int
    statistics_target: int
    """How much ANALYZE looks at: what it keeps must not push the server over its memory's limit."""
    reasons: tuple[str, ...]

    def first_limit(self, connections: int) -> int:
        """Return the limit of the server's memory group before its clients have come.

        Buffers are shared memory and charged to it.
        """
        return self.buffers + SERVER_OVERHEAD + connections * BACKEND_BYTES + self.page_cache

    def limit_for(self, anonymous: int, missing: int = 0) -> int:
        """Return the limit with which buffers and page cache have their planned size.

        `anonymous`: what was seen of the rest; `missing`: backends that may still come.
        """
        rest = anonymous + missing * BACKEND_BYTES + SPARE_BYTES
        return self.buffers + self.page_cache + rest

    @property
    def settings(self) -> dict[str, str]:
        """What follows the scale, as settings."""
        cache = int(CACHE_SHARE * (self.buffers + self.page_cache))
        return {
            "shared_buffers": f"{self.buffers // KIB}kB",
            "effective_cache_size": f"{cache // KIB}kB",
            "max_wal_size": f"{self.wal // MIB}MB",
            "min_wal_size": f"{LEAST_WAL // 2 // MIB}MB",
            "default_statistics_target": str(self.statistics_target),
        }


def sample_bytes(row_bytes: int, target: int) -> int:
    """Return the memory that ANALYZE takes for its sample of rows with so many bytes of values."""
    piece: int = 1 << (min(row_bytes + ROW_IN_MEMORY, LARGEST_PIECE) - 1).bit_length()
    return ROWS_A_STEP * target * piece


def plan_memory(sizes: Sizes, row_bytes: int = 0) -> MemoryPlan:
    """Plan one server: buffers, page cache and the WAL between checkpoints follow the scale.

    `row_bytes`: of the values of a row, on average; 0: tables of sysbench or TPC-C.
    """
    full = sizes.memory_bytes // BUFFERS_SHARE
    buffers = int(full * sizes.scale)
    page_cache = int((sizes.memory_bytes - full - SERVER_OVERHEAD) * sizes.scale)
    wal = int(FULL_WAL * sizes.scale)
    reasons = sizes.too_small(
        (
            ("shared_buffers", buffers, LEAST_BUFFERS),
            ("page cache", page_cache, LEAST_PAGE_CACHE),
            ("max_wal_size", wal, LEAST_WAL),
        )
    )
    page_cache = max(page_cache, LEAST_PAGE_CACHE)
    # Two at a time: our own, and one of autovacuum, each in half of what the page cache can give.
    row_bytes = row_bytes or OWN_TABLES_ROW
    target = min(USUAL_TARGET, max(1, page_cache // 4 // sample_bytes(row_bytes, 1)))
    if target < USUAL_TARGET:
        reasons.append(
            f"default_statistics_target {target}: with the usual {USUAL_TARGET}, ANALYZE would "
            f"keep {sample_bytes(row_bytes, USUAL_TARGET) / MIB:.0f} MiB of rows beside a page "
            f"cache of {page_cache // MIB} MiB"
        )
    return MemoryPlan(
        buffers=max(buffers, LEAST_BUFFERS),
        wal=max(wal, LEAST_WAL) // MIB * MIB,
        page_cache=page_cache,
        statistics_target=target,
        reasons=tuple(reasons),
    )


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
