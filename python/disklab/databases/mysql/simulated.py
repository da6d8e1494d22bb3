"""From a trial of MySQL to a job of the simulator: MariaDB's, with what MySQL does otherwise.

Both have InnoDB, and the simulator has one model of it. MySQL's own are the size of a batch of the
doublewrite buffer, syncs that write down when a file has changed, pages that are written before the
log asks for it, a binary log by rows, and other usual values; they differ by release.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from disklab.catalog import Catalog
from disklab.database_settings import SWITCHES
from disklab.databases.calibration import Calibration
from disklab.databases.mariadb import simulated as mariadb
from disklab.databases.mariadb.sizing import MIB
from disklab.databases.simulating import (
    JOURNAL_WRITES,
    Job,
    ServerJobs,
    Simulated,
)
from disklab.databases.statements import Json
from disklab.errors import Problem
from disklab.setting_kinds import parts_of
from disklab.spec import ClusterTrial
from disklab.spec.model import Database


@dataclass(frozen=True)
class Usual:
    """Values that a release has where nobody sets them.

    **Source:** the reference manuals of 5.7, 8.0, 8.4 and 9.7, "InnoDB Startup Options and System
    Variables"; of 9.7.4 its own `performance_schema.variables_info`.
    """

    flush_method: str = "fsync"
    fdatasync: str = "off"
    batch_pages: int | None = None
    """None: `innodb_write_io_threads`."""
    page_cleaners: int | None = 4
    """Of those whose batches go side by side; None: as many as parts of the pool; 0: one batch goes
    after the other, whichever thread makes it."""
    dirty_pct: int = 10
    change_buffering: str = "all"
    io_capacity: int = 200
    log_bin: str = "on"
    redo_bytes: int = 100 * MIB
    """Of `innodb_redo_log_capacity`, or before that of two files of 48 MiB."""


USUAL = {
    "5.7": Usual(batch_pages=120, page_cleaners=0, dirty_pct=0, log_bin="off", redo_bytes=96 * MIB),
    "8.0": Usual(batch_pages=120, page_cleaners=0, redo_bytes=96 * MIB),
    "8.0.20": Usual(redo_bytes=96 * MIB),
    "8.0.30": Usual(),
    "8.4": Usual(
        flush_method="O_DIRECT",
        fdatasync="on",
        batch_pages=128,
        page_cleaners=None,
        change_buffering="none",
        io_capacity=10_000,
    ),
}
"""By the first release that has them. A batch of 5.7 has 120 pages (`innodb_doublewrite_batch_size`
in its source). From 8.0.20 on each part of the pool has a batch of its own, which a cleaner makes.
It is synced unless the files are opened with O_DIRECT, and makes room for the next one before its
pages are synced in their places: with fsync, when Linux has them in its page cache.
**Source:** buf0dblwr.cc of 8.0 (`instance`, `is_fsync_required`, `write_complete`)."""

NEWEST = "8.4"
"""Where a file says nothing: the long-term release."""

WRITE_IO_THREADS = 4
MOST_BATCH_PAGES, MOST_BATCHES = 128, 64
"""What the simulator's doublewrite buffer holds; larger batches are simulated as these."""
POOL_INSTANCES, LARGE_POOL = 8, 1 << 30
"""Parts of a pool of a GiB or more, of which each keeps its own pages free; of a smaller one: 1."""
SCAN_DEPTH = 1024
LOG_FILE, LOG_FILES = 48 * MIB, 2
"""Of the two settings that `innodb_redo_log_capacity` follows, the one that nobody set."""

METHODS = ("fsync", "O_DIRECT")
ONLY: mariadb.Only = {
    **mariadb.ONLY,
    "innodb_flush_method": (METHODS, "only these flush methods are simulated"),
}
READ = (mariadb.READ - {"wsrep_slave_threads"}) | {
    "innodb_buffer_pool_instances",
    "innodb_change_buffering",
    "innodb_doublewrite_pages",
    "innodb_log_files_in_group",
    "innodb_max_dirty_pages_pct_lwm",
    "innodb_page_cleaners",
    "innodb_redo_log_capacity",
    "innodb_use_fdatasync",
    "innodb_write_io_threads",
}
"""Settings that a prediction follows."""

CACHED = (
    "innodb_flush_method: fsync has Linux keep pages of the tables in its page cache, too, which "
    "is not simulated: with a pool much smaller than memory take the rate as a lower bound"
)


def usual(version: str | None) -> Usual:
    """Return the usual values of a release, such as 8.0.36; None: of the long-term one."""
    release = parts_of(version or NEWEST)
    return next(USUAL[first] for first in reversed(USUAL) if release >= parts_of(first))


def _unmodelled(spec: ClusterTrial, place: str) -> Iterator[Problem]:
    if spec.cluster.nodes > 1:
        rule = "one MySQL server is simulated: what a replica or a group costs is not"
        yield Problem(f"{place}: cluster.nodes", str(spec.cluster.nodes), rule, "write nodes: 1")
        return
    version = spec.database.version
    if version is not None and parts_of(version) < parts_of(next(iter(USUAL))):
        rule = f"MySQL is simulated from {next(iter(USUAL))} on"
        yield Problem(f"{place}: database.version", version, rule, "write 5.7 or a later release")
        return
    yield from mariadb.unmodelled(spec, place, ONLY, mariadb.DISKS)


def _warnings(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    yield from mariadb.warnings(READ, spec, catalog, calibration)
    method = spec.database.settings.get(
        "innodb_flush_method", usual(spec.database.version).flush_method
    )
    if method == "fsync":
        yield CACHED


def _loaded(spec: ClusterTrial, catalog: Catalog, calibration: Calibration, scale: Fraction) -> Job:
    """Return the job of MySQL under a load. `scale`: of memory, disks' caches and the log."""
    job = mariadb.loaded(spec, catalog, calibration, scale)
    pool_bytes = job["database"]["buffer_pool_bytes"]
    journal_writes = JOURNAL_WRITES[spec.cluster.volumes["data"].filesystem]
    job["database"] |= _settings(spec.database, pool_bytes, journal_writes)
    job["database"]["log_file_bytes"] = _redo_bytes(spec.database, scale)
    return job


def _settings(database: Database, pool_bytes: int, journal_writes: int) -> Json:
    """Return MySQL's own settings as the engine takes them, but for the size of the redo log.

    `journal_writes`: of a sync that changes metadata.
    """
    given, of_release = database.settings, usual(database.version)

    def value(name: str, ordinary: int) -> int:
        return mariadb.amount(name, given.get(name, ordinary))

    def is_on(name: str, ordinary: str) -> bool:
        return str(given.get(name, ordinary)).lower() in SWITCHES[True]

    capacity = value("innodb_io_capacity", of_release.io_capacity)
    instances = value(
        "innodb_buffer_pool_instances", POOL_INSTANCES if pool_bytes >= LARGE_POOL else 1
    )
    cleaners = of_release.page_cleaners
    if cleaners != 0:
        cleaners = value("innodb_page_cleaners", instances if cleaners is None else cleaners)
    batch = of_release.batch_pages or value("innodb_write_io_threads", WRITE_IO_THREADS)
    has_log = is_on("log_bin", of_release.log_bin)
    method = given.get("innodb_flush_method", of_release.flush_method)
    doublewrite = str(given.get("innodb_doublewrite", "on")).lower()
    fdatasync = is_on("innodb_use_fdatasync", of_release.fdatasync)
    until = ("cached" if method == "fsync" else "placed") if cleaners else "synced"
    return {
        "doublewrite": doublewrite in (*SWITCHES[True], "detect_and_recover"),
        "doublewrite_pages": min(value("innodb_doublewrite_pages", batch), MOST_BATCH_PAGES),
        "doublewrite_batches": min(max(min(cleaners, instances), 1), MOST_BATCHES),
        "doublewrite_until": until,
        "lru_passes": False,
        "time_journal_writes": 0 if fdatasync else journal_writes,
        "splits_exclude_searches": False,
        "dirty_pages_pct_lwm": int(
            float(given.get("innodb_max_dirty_pages_pct_lwm", of_release.dirty_pct))
        ),
        "change_buffering": given.get("innodb_change_buffering", of_release.change_buffering)
        in {"inserts", "changes", "all"},
        "io_capacity": capacity,
        "io_capacity_max": value("innodb_io_capacity_max", max(2 * capacity, 2000)),
        "lru_scan_depth": value("innodb_lru_scan_depth", SCAN_DEPTH) * max(instances, 1),
        "writes_binlog": has_log,
        "sync_binlog": value("sync_binlog", 1) if has_log else 0,
        "binlog_rows": str(given.get("binlog_format", "ROW")) != "STATEMENT",
    }


def _redo_bytes(database: Database, scale: Fraction) -> int:
    """Return the size of the redo log."""
    given = database.settings
    if (capacity := given.get("innodb_redo_log_capacity")) is not None:
        return mariadb.amount("innodb_redo_log_capacity", capacity)
    size = given.get("innodb_log_file_size")
    if size is None and "innodb_log_files_in_group" not in given:
        return int(usual(database.version).redo_bytes * scale)
    files = int(given.get("innodb_log_files_in_group", LOG_FILES))
    return files * mariadb.amount("innodb_log_file_size", LOG_FILE if size is None else size)


JOBS = ServerJobs(_loaded, mariadb.own_faults, mariadb.DELAYS)
SIMULATED = Simulated("mariadb", _unmodelled, _warnings, JOBS.described, without=("client_cpu",))
