"""The standing matrix: which cells are rehearsed for real and predicted, bed by bed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

SCALE = 40
"""The described system is so many times larger than what is rehearsed."""

OPERATIONS_HERE = 5_000
"""Of a pass. The share of reads that find a page in memory is then known to 1.4 % (two sigma)."""

MEMORY_READS = "memory, reads"
MEMORY_MIXED = "memory, mixed"
MEMORY_ALONE = "memory, one thread"
REFERENCES = (MEMORY_READS, MEMORY_MIXED, MEMORY_ALONE)
"""Cells that never wait for a disk: they tell the CPU times of this machine, and nothing else is
taken from a rehearsal. They are not counted."""

DATA = "cluster.volumes.data"
IN_MEMORY = {"before.page_cache": "warm", "workload.working_set": "1%"}


@dataclass(frozen=True)
class Cell:
    """One cell of a bed: its name there, what it is about, and what it changes."""

    name: str
    mechanism: str
    patch: Mapping[str, Any]


@dataclass(frozen=True)
class Bed:
    """Rows that are filled once, and the cells that are measured on them."""

    name: str
    row: str
    rows_here: int
    cells: tuple[Cell, ...]
    table: Mapping[str, Any]
    settings: Mapping[str, Any]
    engine: str = "cassandra"
    scale: int = SCALE
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """Of the cluster, what it has otherwise."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=lambda: {"host_cache": "written"})
    rehearse: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None
    """Of the database; None: the usual one."""
    latency: str | None = "2020"
    """Of the data's disk: what was rehearsed first has the service times of 2020."""

    def database(self) -> dict[str, Any]:
        """Return the bed's database as a file has it."""
        found = {"engine": self.engine, "replication_factor": 1, "settings": {**self.settings}}
        if self.version is not None:
            found["version"] = self.version
        if self.engine != "cassandra":
            return {**found, "tls": False}
        return {**found, "consistency": "ONE", "table": dict(self.table)}

    def text(self) -> str:
        """Return the bed as an experiment file."""
        return yaml.safe_dump(
            {
                "title": f"Prediction and rehearsal: {self.name}",
                "cluster": {**LOCAL_LOG, **self.cluster},
                "database": self.database(),
                "dataset": {"rows": self.rows_here * self.scale, "row": self.row},
                "workload": {
                    "operations": {"read": "100%"},
                    "keys": "uniform",
                    "load": {"threads": 16},
                    "stop": {"operations": OPERATIONS_HERE * SCALE},
                    **self.workload,
                },
                "before": {"page_cache": "cold", **self.before},
                "factors": {"cell": {cell.name: dict(cell.patch) for cell in self.cells}},
                "rehearse": {"nodes": 1, "scale": f"1/{self.scale}", **self.rehearse},
            },
            sort_keys=False,
        )


HOST_CACHE_HERE_MIB = 384
"""About half the data of most beds."""

LOCAL_LOG: dict[str, Any] = {
    "nodes": 1,
    "vm": "azure/Standard_DS3_v2",
    # Less than the data: some reads find their blocks in it, others do not.
    "host_cache": f"{HOST_CACHE_HERE_MIB * SCALE}MiB",
    "volumes": {
        "data": {
            "disks": "azure/P30",
            "caching": "None",
            "filesystem": "xfs",
            "read_ahead": "64KiB",
        },
        "commitlog": {"disks": "local"},
    },
}
"""A Premium SSD for the data, and the VM's own disk for the log."""


def mixture(read: int) -> dict[str, Any]:
    """Return a mixture by its share of reads in percent."""
    return {"workload.operations": {"read": f"{read}%", "write": f"{100 - read}%"}}


def threads(count: int) -> dict[str, Any]:
    return {"workload.load": {"threads": count}}


def operations(here: int) -> dict[str, Any]:
    """Return an end after so many operations of a pass."""
    return {"workload.stop": {"operations": here * SCALE}}


def keys(kind: str) -> dict[str, Any]:
    return {"workload.keys": kind}


def read_ahead(size: str) -> dict[str, Any]:
    return {f"{DATA}.read_ahead": size}


MEMORY = (
    Cell(MEMORY_READS, "reference", IN_MEMORY),
    Cell(MEMORY_MIXED, "reference", {**IN_MEMORY, **mixture(50)}),
    Cell(MEMORY_ALONE, "reference", {**IN_MEMORY, **threads(1)}),
)

READ_ONLY: dict[str, Any] = {f"{DATA}.caching": "ReadOnly"}
EMPTY_CACHE = {**READ_ONLY, "before.host_cache": "empty"}
AGAIN: dict[str, Any] = {"workload.warm_up": f"{2 * SCALE}s"}
"""Two seconds here of the trial's own load, uncounted, before each pass."""

COMMON = (
    Cell("read-ahead 64 KiB", "read-ahead", {}),
    Cell("read-ahead 0", "read-ahead", read_ahead("0KiB")),
    Cell("read-ahead 512 KiB", "read-ahead", read_ahead("512KiB")),
    Cell("one thread", "threads", threads(1)),
    Cell("ReadOnly, written", "caching", READ_ONLY),
    Cell("zipfian", "keys", keys("zipfian")),
    Cell("sequential", "keys", keys("sequential")),
    Cell("half writes", "mixture", mixture(50)),
    Cell("second pass", "second pass", AGAIN),
)
"""On every bed of plain tables."""

MORE = (
    Cell("read-ahead 8 KiB", "read-ahead", read_ahead("8KiB")),
    Cell("read-ahead 16 KiB", "read-ahead", read_ahead("16KiB")),
    Cell("read-ahead 128 KiB", "read-ahead", read_ahead("128KiB")),
    Cell("four threads", "threads", threads(4)),
    Cell("64 threads", "threads", threads(64)),
    Cell("ReadOnly, empty", "caching", EMPTY_CACHE),
    Cell("ReadOnly, zipfian", "caching", {**READ_ONLY, **keys("zipfian")}),
    Cell("gaussian", "keys", keys("gaussian")),
    Cell("a tenth writes", "mixture", mixture(90)),
    Cell("half writes, long", "mixture", {**mixture(50), **operations(60_000)}),
    Cell("second pass, zipfian", "second pass", {**AGAIN, **keys("zipfian")}),
)
"""On the bed of the studies' rows as well."""

FEW = (
    Cell("read-ahead 64 KiB", "read-ahead", {}),
    Cell("read-ahead 0", "read-ahead", read_ahead("0KiB")),
    Cell("zipfian", "keys", keys("zipfian")),
    Cell("ReadOnly, written", "caching", READ_ONLY),
    Cell("second pass", "second pass", AGAIN),
)
"""Where the table is stored or read in another way."""

SEVERAL = (
    *FEW,
    Cell("one thread", "threads", threads(1)),
    Cell("half writes", "mixture", mixture(50)),
)
"""Where rows have several sizes."""

POSTGRESQL = (
    *COMMON,
    Cell("64 threads", "threads", threads(64)),
    Cell("half writes, 64 threads", "mixture", {**mixture(50), **threads(64)}),
    Cell("writes, 64 threads", "mixture", {**mixture(0), **threads(64)}),
)
"""On the bed of PostgreSQL with the studies' rows."""

WRITES = (
    Cell("writes", "mixture", mixture(0)),
    Cell("writes, one thread", "mixture", {**mixture(0), **threads(1)}),
    Cell("writes, four threads", "mixture", {**mixture(0), **threads(4)}),
    Cell("writes, zipfian", "mixture", {**mixture(0), **keys("zipfian")}),
    Cell("a tenth writes", "mixture", mixture(90)),
    Cell("half writes, zipfian", "mixture", {**mixture(50), **keys("zipfian")}),
)
"""Of PostgreSQL, beside those above: what one commit writes, and what a group of them does."""

SMALL_WRITES = (
    *WRITES[:2],
    Cell("writes, 64 threads", "mixture", {**mixture(0), **threads(64)}),
    Cell("half writes, 64 threads", "mixture", {**mixture(50), **threads(64)}),
)

POOL = operations(30_000)
"""An end long after the buffer pool of MariaDB's beds is full."""


def mariadb(
    name: str, mechanism: str, settings: Mapping[str, Any] | None = None, **patch: Any
) -> Cell:
    """Return a cell of MariaDB: `settings` of the server, and what else it changes."""
    named = {f"database.settings.{key}": value for key, value in (settings or {}).items()}
    return Cell(name, mechanism, {**POOL, **patch, **named})


ALL_WRITES, HALF_WRITES = mixture(0), mixture(50)
BINARY_LOG = {"log_bin": "on", "sync_binlog": 1}

MARIADB = (
    mariadb("uniform", "keys"),
    mariadb("zipfian", "keys", **keys("zipfian")),
    mariadb("one thread", "threads", **operations(10_000), **threads(1)),
    mariadb("64 threads", "threads", **threads(64)),
    mariadb("ReadOnly, written", "caching", **READ_ONLY),
    mariadb("second pass", "second pass", **AGAIN),
    mariadb("a tenth writes", "mixture", **mixture(90)),
    mariadb("half writes", "mixture", **HALF_WRITES),
    mariadb("writes", "mixture", **ALL_WRITES),
    mariadb("writes, zipfian", "mixture", **ALL_WRITES, **keys("zipfian")),
    mariadb("writes, one thread", "mixture", **ALL_WRITES, **operations(10_000), **threads(1)),
    mariadb("writes, 64 threads", "mixture", **ALL_WRITES, **threads(64)),
)
"""On each bed of MariaDB, past whose page cache InnoDB reads: what its buffer pool makes of it."""

MARIADB_LOGS = (
    mariadb("writes, binary log", "mixture", BINARY_LOG, **ALL_WRITES),
    mariadb(
        "writes, binary log every 10", "mixture", {**BINARY_LOG, "sync_binlog": 10}, **ALL_WRITES
    ),
    mariadb(
        "writes, redo log once a second",
        "mixture",
        {"innodb_flush_log_at_trx_commit": 2},
        **ALL_WRITES,
    ),
    mariadb("writes, no doublewrite", "mixture", {"innodb_doublewrite": "off"}, **ALL_WRITES),
)
"""What commits wait for, and how pages are written."""

MARIADB_KINDS = tuple(
    mariadb(name, "mixture", **{"workload.operations": shares})
    for name, shares in {
        "inserts": {"insert": "100%"},
        "half inserts": {"read": "50%", "insert": "50%"},
        "a tenth deletes": {"read": "90%", "delete": "10%"},
        "half scans": {"read": "50%", "scan": "50%"},
    }.items()
)
"""Operations beside reads and writes of whole rows."""

COMPRESSED = (
    Cell("read-ahead 8 KiB", "read-ahead", read_ahead("8KiB")),
    Cell("read-ahead 16 KiB", "read-ahead", read_ahead("16KiB")),
    Cell("read-ahead 128 KiB", "read-ahead", read_ahead("128KiB")),
    Cell("read-ahead 512 KiB", "read-ahead", read_ahead("512KiB")),
    Cell("one thread", "threads", threads(1)),
    Cell("64 threads", "threads", threads(64)),
    Cell("half writes", "mixture", mixture(50)),
)
"""Of a compressed table, beside FEW: a read takes whole chunks, and read-ahead around them."""

COMPRESSED_PREAD = (
    *COMPRESSED[:2],
    Cell("read-ahead 64 KiB", "read-ahead", {}),
    *COMPRESSED[2:4],
)

PLAIN = {"compression": "none"}
LZ4 = {"compression": "lz4"}


def _bed(name: str, row: str, rows_here: int, cells: Sequence[Cell]) -> Bed:
    return Bed(name, row, rows_here, (*MEMORY, *cells), PLAIN, {})


def _postgresql(name: str, row: str, rows_here: int, cells: Sequence[Cell]) -> Bed:
    named = f"PostgreSQL, {name}"
    return Bed(named, row, rows_here, (*MEMORY, *cells), {}, {}, "postgresql")


INNODB = {"innodb_buffer_pool_size": "128M", "innodb_log_file_size": "96M"}
"""Of MariaDB's beds, as they are rehearsed: a third of the rows, and the usual redo log."""


def _mariadb(name: str, row: str, rows_here: int, cells: Sequence[Cell]) -> Bed:
    *many, alone = MEMORY
    # What it asks for comes into an empty pool page by page, at some 400 a second.
    filled = {**alone.patch, "workload.warm_up": f"{20 * SCALE}s"}
    memory = (*many, replace(alone, patch=filled))
    return Bed(f"MariaDB, {name}", row, rows_here, (*memory, *cells), {}, INNODB, "mariadb")


POOLS_MIB = {2: 8, 5: 20, 10: 40, 20: 80, 50: 200, 100: 440}
"""By percent of 240,000 rows of 1,000 B, which take some 390 MiB of leaves and what is above."""

POOL_LOADS = {
    "updates": {"write": "100%"},
    "four reads to an update": {"read": "80%", "write": "20%"},
    "inserts": {"insert": "100%"},
}


def _pools(disk: str, disks: str, slow: int) -> Bed:
    """Return the bed of one disk for everything, whose cells have pools of all sizes."""
    cells = tuple(
        Cell(
            f"pool of {percent} %, {name}",
            "pool",
            {
                "workload.operations": operations,
                "workload.stop": {"duration": "60s"},
                "before.page_cache": "warm",
                "database.settings.innodb_buffer_pool_size": f"{mib}M",
            },
        )
        for name, operations in POOL_LOADS.items()
        for percent, mib in POOLS_MIB.items()
    )
    bed = _mariadb(f"a pool, {disk}", "10 x 100B", 240_000, cells)
    data = {"disks": disks, "caching": "None", "filesystem": "xfs"}
    cluster = {"vm": "azure/Standard_D4s_v5", "volumes": {"data": data}}
    memory = tuple(
        replace(cell, patch={**cell.patch, "workload.warm_up": "10s"}) for cell in bed.cells[:3]
    )
    return replace(
        bed,
        cells=(*memory, *bed.cells[3:]),
        scale=1,
        cluster={**cluster, "nodes": 1, "host_cache": None},
        rehearse={"time_dilation": slow},
        latency=None,
    )


SLOW_LOADS = {
    "a fifth updates": {"read": "80%", "write": "20%"},
    "half updates": {"read": "50%", "write": "50%"},
    "updates": {"write": "100%"},
    "inserts": {"insert": "100%"},
}


def _slow(name: str, vm: str, data: Mapping[str, Any], slow: int) -> Bed:
    """Return PostgreSQL's bed of a slow disk for everything, log and all.

    A quick pass is 15 s of this machine at most, in slow motion as much less of the described time.
    """
    cells = tuple(
        Cell(load, "mixture", {"workload.operations": operations})
        for load, operations in SLOW_LOADS.items()
    )
    bed = _postgresql(name, "10 x 100B", 400_000, cells)
    memory = tuple(
        replace(cell, patch={**cell.patch, "workload.warm_up": "10s"}) for cell in bed.cells[:3]
    )
    return replace(
        bed,
        cells=(*memory, *cells),
        settings={"shared_buffers": "128MB"},
        scale=1,
        cluster={"vm": vm, "host_cache": None, "volumes": {"data": {**data, "filesystem": "xfs"}}},
        workload={"stop": {"duration": "20s"}},
        before={"credits": "0%"},
        rehearse={"time_dilation": slow},
        latency=None,
    )


INSERTING = (
    Cell("reads", "beside inserts", {}),
    Cell(
        "a tenth inserts",
        "beside inserts",
        {"workload.operations": {"read": "90%", "insert": "10%"}},
    ),
    Cell(
        "half inserts", "beside inserts", {"workload.operations": {"read": "50%", "insert": "50%"}}
    ),
    Cell("sequential", "keys", keys("sequential")),
)


def _inserting(version: str, vm: str, data: Mapping[str, Any], rows_here: int) -> Bed:
    """Return Cassandra's bed of a slow disk for everything, with five times as much as memory."""
    name = f"Cassandra {version}, {data['disks'].partition('/')[2].partition('(')[0]}"
    bed = _bed(name, "5 x 818B", rows_here, INSERTING)
    volumes = {"data": {**data, "filesystem": "xfs", "read_ahead": "64KiB"}}
    return replace(
        bed,
        version=version,
        # Half as many rows fill such a disk in half the time.
        scale=2 * SCALE,
        cluster={"vm": vm, "host_cache": None, "volumes": volumes},
        workload={"stop": {"operations": 8_000 * SCALE}},
        before={"credits": "0%"},
        rehearse={"time_dilation": 2},
        latency=None,
    )


S10: tuple[str, dict[str, Any]] = (
    "azure/Standard_DS3_v2",
    {"disks": "azure/S10", "caching": "None"},
)
GP2: tuple[str, dict[str, Any]] = ("aws/m5.xlarge", {"disks": "aws/gp2(100GiB)"})


# 200 MiB to 800 MiB of data here beside a page cache of about 260 MiB: with the smallest rows all
# of it fits, with the others a third does. Fills take half a minute.
STUDY = _bed("rows of 4,090 B", "5 x 818B", 180_000, (*COMMON, *MORE))
OTHERWISE = _bed("", "5 x 818B", 180_000, FEW)
BEDS = (
    STUDY,
    _bed("rows of 200 B", "5 x 40B", 500_000, COMMON),
    _bed("rows of 32 KiB", "5 x 6553B", 24_000, COMMON),
    _bed("rows of 1 KiB", "5 x 205B", 400_000, COMMON),
    _bed("rows of 16 KiB", "5 x 3277B", 48_000, COMMON),
    replace(_bed("rows of 4,090 B, lz4", "5 x 818B", 180_000, (*FEW, *COMPRESSED)), table=LZ4),
    replace(
        _bed("rows of 4,090 B, lz4 read by pread", "5 x 818B", 180_000, COMPRESSED_PREAD),
        table=LZ4,
        settings={"disk_access_mode": "mmap_index_only"},
    ),
    replace(
        OTHERWISE,
        name="rows of 4,090 B, read by pread",
        settings={"disk_access_mode": "mmap_index_only"},
    ),
    _bed(
        "rows of two sizes and a few large ones",
        "1 x 60% 200B + 30% 4KiB + 10% 32KiB",
        160_000,
        SEVERAL,
    ),
    _bed("lognormal rows", "1 x lognormal median 1KiB p95 8KiB", 300_000, SEVERAL),
    _postgresql("rows of 4,090 B", "5 x 818B", 90_000, (*POSTGRESQL, *WRITES)),
    _postgresql("rows of 1 KiB", "5 x 205B", 400_000, (*COMMON, *SMALL_WRITES)),
    _postgresql("rows of two sizes", "1 x 60% 200B + 40% 4KiB", 300_000, SEVERAL),
    _postgresql("rows of 200 B", "5 x 40B", 1_500_000, (*FEW, *SMALL_WRITES[:2])),
    _mariadb("rows of 4,090 B", "5 x 818B", 90_000, (*MARIADB, *MARIADB_LOGS, *MARIADB_KINDS)),
    _mariadb("rows of 1 KiB", "5 x 205B", 400_000, (*MARIADB[:2], *MARIADB[5:11], *MARIADB_KINDS)),
    _pools("S10", "azure/S10", 1),
    _pools("Premium SSD v2", "azure/PremiumV2(64GiB, 3000 IOPS, 125 MB/s)", 2),
    _slow("S10", "azure/Standard_D4s_v5", S10[1], 3),
    _slow("gp2 without credits", *GP2, 1),
    *(
        _inserting(version, *disk, rows)
        for version in ("4.0", "5.0")
        for disk, rows in ((S10, 165_000), (GP2, 155_000))
    ),
)


def key_of(bed: Bed, cell: Cell) -> str:
    """Return what names a cell in the state file and on the page."""
    return f"{bed.name}: {cell.name}"


def size() -> int:
    """Return how many cells are predicted, references left out."""
    return sum(cell.name not in REFERENCES for bed in BEDS for cell in bed.cells)
