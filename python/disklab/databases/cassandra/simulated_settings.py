"""The settings of cassandra.yaml that the simulator reads, in the names of every version.

3.11 and 4.0 have the unit in the name (`compaction_throughput_mb_per_sec: 128`), 4.1 and 5.0 in
the value (`compaction_throughput: 128MiB/s`), and understand the old names too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from disklab.database_settings import Setting
from disklab.databases.cassandra.sizing import FULL_KEY_CACHE
from disklab.databases.simulating import Job
from disklab.errors import Problem
from disklab.spec.model import Table

KIB, MIB = 1 << 10, 1 << 20

# The collector of a node's JVM: how much is allocated between two young collections, by how many.
#
# Which collector, heap and young generation a node has is what Cassandra's own scripts choose for
# its VM, or what a rehearsal starts it with.


G1_YOUNG_SHARE = Fraction(60, 100)
"""Of the heap. G1 lets its young generation grow as long as pauses are shorter than its aim, and
Cassandra's are: 10 to 100 ms of 200 or 300.

**Source:** HotSpot, `G1MaxNewSizePercent`, in JDK 8, 11 and 17 alike; what our own collections
found is in `campaigns/pauses`.
"""

PARNEW_BYTES_PER_CORE = 100 * MIB
PARNEW_SHARE = 4
"""A quarter of the heap at most. **Source:** cassandra-env.sh of 3.11, `HEAP_NEWSIZE`."""
PARNEW_EDEN = Fraction(8, 10)
"""The rest are two survivor spaces. **Source:** jvm.options of 3.11, `SurvivorRatio=8`."""

WHOLE_THREADS = 8
FURTHER_THREADS = Fraction(5, 8)
"""Of the cores beyond eight. **Source:** HotSpot, `ParallelGCThreads`, as jvm.options says too."""

PARNEW_VERSION = "3"
"""**Source:** jvm.options of 3.11 has `UseParNewGC` with CMS, that of Java 11 and 17 in 5.0 has
`UseG1GC`; so do the studies without a version, whose jvm.options were changed to G1."""


ALL_PERMILLE = 1000

KEY_CACHE_SHARE = 20
"""A twentieth of the heap, up to `FULL_KEY_CACHE`. **Source:** cassandra.yaml, `key_cache_size`."""


def usual_key_cache(heap_bytes: int) -> int:
    """Return the bytes of the key cache of a node that does not set it."""
    return min(heap_bytes // KEY_CACHE_SHARE, FULL_KEY_CACHE)


@dataclass(frozen=True)
class Collector:
    """What collects a JVM's garbage."""

    young_bytes: int
    """Allocated from one young collection to the next."""
    threads: int

    def job(self, new_keys_permille: int = ALL_PERMILLE) -> Job:
        """Return it as a job has it; `new_keys_permille`: reads with a key new to the key cache."""
        return {
            "young_bytes": self.young_bytes,
            "threads": self.threads,
            "new_keys_permille": new_keys_permille,
        }


def new_keys_permille(cached_keys: int, asked_rows: float) -> int:
    """Return how many reads bring a key that is new to the key cache, once that is full.

    **Divergence:** as if each row was asked for as often as any other.
    """
    return round(ALL_PERMILLE * max(0.0, 1 - cached_keys / max(asked_rows, 1)))


PARNEW = ("parnew", "cms")
"""Two names of one: ParNew collects the young generation of CMS."""


def collector_name(version: str | None, asked: str | None) -> str:
    """Return which collector a version has, unless another is asked for."""
    parnew = (version or "").partition(".")[0] == PARNEW_VERSION
    return asked or ("parnew" if parnew else "g1")


def collector_of(
    heap_bytes: int, cores: int, version: str | None, asked: str | None = None
) -> Collector:
    """Return the collector of a JVM with such a heap on so many cores."""
    if collector_name(version, asked) in PARNEW:
        young = min(PARNEW_BYTES_PER_CORE * cores, heap_bytes // PARNEW_SHARE)
        return Collector(int(young * PARNEW_EDEN), threads_on(cores))
    return Collector(int(heap_bytes * G1_YOUNG_SHARE), threads_on(cores))


def threads_on(cores: int) -> int:
    """Return how many threads collect on so many cores."""
    return min(cores, WHOLE_THREADS) + int(max(cores - WHOLE_THREADS, 0) * FURTHER_THREADS)


# Powers of what 4.1 and 5.0 write behind a number: bytes (also a second), nanoseconds.
# Source: org.apache.cassandra.config.DataStorageSpec, DataRateSpec and DurationSpec of 4.1.
_BYTES = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": 1 << 30}
_RATES = {f"{unit}/s": factor for unit, factor in _BYTES.items()}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}

_WRITTEN = re.compile(r"(\d+)\s*([A-Za-z/]+)", re.ASCII)


@dataclass(frozen=True)
class Amount:
    """A setting with a unit."""

    name: str
    """Its name since 4.1."""
    old: str
    """Its name before."""
    old_unit: int
    """What one of the old name's unit is, in bytes or nanoseconds."""
    units: Mapping[str, int]
    """The units that the new name takes."""

    def read(self, settings: Mapping[str, Setting]) -> int | None:
        """Return what the settings say, in bytes or nanoseconds; None: nothing.

        Raises ValueError for what is no amount.
        """
        if self.old in settings:
            return int(str(settings[self.old])) * self.old_unit
        if self.name not in settings:
            return None
        found = _WRITTEN.fullmatch(str(settings[self.name]).strip())
        if found is None or found[2] not in self.units:
            raise ValueError
        return int(found[1]) * self.units[found[2]]


SYNC_PERIOD = Amount("commitlog_sync_period", "commitlog_sync_period_in_ms", 10**6, _TIMES)
SEGMENT = Amount("commitlog_segment_size", "commitlog_segment_size_in_mb", MIB, _BYTES)
COMPACTION = Amount("compaction_throughput", "compaction_throughput_mb_per_sec", MIB, _RATES)
TRICKLE = Amount("trickle_fsync_interval", "trickle_fsync_interval_in_kb", KIB, _BYTES)
STREAMS = Amount(
    "stream_throughput_outbound",
    "stream_throughput_outbound_megabits_per_sec",
    MIB // 8,
    {**_RATES, "Mbps": 10**6 // 8},
)
"""**Source:** a megabit is 2^20 bits before 4.1 (StreamManager.StreamRateLimiter)."""
READ_TIMEOUT = Amount("read_request_timeout", "read_request_timeout_in_ms", 10**6, _TIMES)
WRITE_TIMEOUT = Amount("write_request_timeout", "write_request_timeout_in_ms", 10**6, _TIMES)
AMOUNTS = (SYNC_PERIOD, SEGMENT, COMPACTION, TRICKLE, STREAMS, READ_TIMEOUT, WRITE_TIMEOUT)

COUNTS = ("concurrent_reads", "concurrent_writes")

SNITCH = "endpoint_snitch"
BADNESS = "dynamic_snitch_badness_threshold"
FLAT_SNITCH = "simplesnitch"
"""Knows no distances: even a coordinator's own copy has no advantage. **Source:** SimpleSnitch."""

CHOICES = {
    "commitlog_sync": ("periodic",),
    "disk_access_mode": ("auto", "mmap", "mmap_index_only", "standard"),
    "trickle_fsync": ("false", "true"),
}
"""Settings with few values: those that the simulator knows, Cassandra's default first."""

READ = {
    *COUNTS,
    SNITCH,
    BADNESS,
    *CHOICES,
    *(name for one in AMOUNTS for name in (one.name, one.old)),
}
"""Settings that change a prediction; others are named in a warning."""

ACCESS = {
    "auto": "mmap",
    "mmap": "mmap",
    "mmap_index_only": "mmap_index_only",
    "standard": "standard",
}

# Source: Config of 3.11, 4.0, 4.1 and 5.0. Without a version as the studies of 2019, `auto`.
USUAL_ACCESS = {"5": "mmap_index_only"}
# Source: cassandra.yaml and Config of 3.11, and of 4.0, 4.1 and 5.0.
USUAL_COMPACTION_MIB_PER_S = {"3": 16}
NEWER_COMPACTION_MIB_PER_S = 64
# Source: cassandra.yaml of 3.11 and 4.0 (200 megabits a second), of 4.1 and 5.0 (24MiB/s).
USUAL_STREAMS_BYTES_PER_S = {"3": 25 * MIB}
NEWER_STREAMS_BYTES_PER_S = 24 * MIB
# Source: cassandra.yaml, all versions.
USUAL_READ_TIMEOUT_NS = 5 * 10**9
USUAL_WRITE_TIMEOUT_NS = 2 * 10**9
# Source: org.apache.cassandra.schema.CompressionParams of the same, DEFAULT_CHUNK_LENGTH.
USUAL_CHUNK_BYTES = {"3": 64 * KIB}
NEWER_CHUNK_BYTES = 16 * KIB
# Source: the same; all versions.
USUAL_TRICKLE_BYTES = 10 * MIB
# Source: Config of 3.11, and of 4.0, 4.1 and 5.0.
USUAL_BADNESS = {"3": 0.1}
NEWER_BADNESS = 1.0


def problems(settings: Mapping[str, Setting], place: str) -> Iterator[Problem]:
    """Yield what of the settings the simulator cannot take."""
    for name, known in CHOICES.items():
        value = str(settings.get(name, known[0])).lower()
        if value not in known:
            rule = f"the simulator knows {', '.join(known)}"
            yield Problem(f"{place}: database.settings.{name}", value, rule, "rehearse it")


def storage_settings(settings: Mapping[str, Setting], version: str | None) -> dict[str, object]:
    """Return what a job of the simulator says of logs, tables and compaction.

    What the settings leave out is the default of the version; None: of 4.0 and later, which a
    rehearsal takes then too.
    """
    access = settings.get("disk_access_mode", USUAL_ACCESS.get(_major(version), "auto"))
    job: dict[str, object] = {
        "access": ACCESS[str(access).lower()],
        "compaction_bytes_per_s": _or(COMPACTION.read(settings), _usual_compaction(version)),
    }
    for name, amount in (
        ("commitlog_sync_period_ns", SYNC_PERIOD),
        ("commitlog_segment_bytes", SEGMENT),
    ):
        given = amount.read(settings)
        if given is not None:
            job[name] = given
    if str(settings.get("trickle_fsync", "false")).lower() == "true":
        job["trickle_fsync_bytes"] = _or(TRICKLE.read(settings), USUAL_TRICKLE_BYTES)
    return job


def replica_settings(
    settings: Mapping[str, Setting], version: str | None, read_repair_ppm: int
) -> dict[str, object]:
    """Return what a job says of which replicas a read asks.

    `read_repair_ppm`: of the versions before 4.0, which has no read repair by chance. Without
    `endpoint_snitch` a snitch that knows distances, as clusters of several VMs have; without a
    version as the studies of 2019, which ran 3.11.
    """
    major = _major(version) or "3"
    usual = USUAL_BADNESS.get(major, NEWER_BADNESS)
    snitch = str(settings.get(SNITCH, "")).rpartition(".")[2].lower()
    return {
        "read_repair_ppm": read_repair_ppm if major in USUAL_BADNESS else 0,
        "near_first": snitch != FLAT_SNITCH,
        "snitch_badness_permille": round(float(str(settings.get(BADNESS, usual))) * 1000),
    }


def _or(given: int | None, usual: int) -> int:
    return usual if given is None else given


def chunk_bytes(table: Table, version: str | None) -> int | None:
    """Return the plain bytes of a table's chunks; None: it is not compressed."""
    if table.compression == "none":
        return None
    usual = USUAL_CHUNK_BYTES.get(_major(version), NEWER_CHUNK_BYTES)
    return _or(table.chunk_length_bytes, usual)


PAGE_BYTES = 4096
MOST_BUFFER_BYTES = 64 * KIB
CROSS_CHANCE = 0.1
"""A buffer has one more page where a partition crosses a page more often than this.

**Source:** cassandra.yaml, `disk_optimization_page_cross_chance`.
"""


BUFFER_SHARE = Fraction(95, 100)
"""The share of the rows that one buffer holds. **Source:** cassandra.yaml,
`disk_optimization_estimate_percentile`."""


def buffer_bytes(stored_row_bytes: int) -> int:
    """Return how much a table that is not mapped is read by, at least: a power of two, aligned.

    `stored_row_bytes`: of a row that is larger than `BUFFER_SHARE` of all.

    **Source:** Cassandra's SsdDiskOptimizationStrategy (the 95th percentile of partitions, as their
    histogram has it, and a page more where they cross one) and ChunkCache.roundForCaching (the
    power of two below). Rehearsed rows of 4,090 B are read by 8 KiB so, and cost 3.0 I/Os of a
    page without read-ahead, where their own pages would be 2.1.
    """
    told = 1
    while told < stored_row_bytes:
        told = max(told + 1, round(told * 1.2))
    if told % PAGE_BYTES / PAGE_BYTES >= CROSS_CHANCE:
        told += PAGE_BYTES
    pages = -(-told // PAGE_BYTES)
    return min(PAGE_BYTES << (pages.bit_length() - 1), MOST_BUFFER_BYTES)


def _usual_compaction(version: str | None) -> int:
    return USUAL_COMPACTION_MIB_PER_S.get(_major(version), NEWER_COMPACTION_MIB_PER_S) * MIB


def fault_settings(settings: Mapping[str, Setting], version: str | None) -> dict[str, int]:
    """Return what a job of the simulator says of time-outs, streams and repairs.

    `compaction_throughput` bounds what a repair reads in 3.x alone. **Source:** the scanners of
    3.0 and 3.11 take its limiter (AbstractCompactionStrategy.getScanners); of what 5.0.6 has for
    validation nothing asks for it, although cassandra.yaml says so (ValidationManager,
    CassandraValidationIterator, SSTableScanner).
    """
    compaction = _or(COMPACTION.read(settings), _usual_compaction(version))
    streams = USUAL_STREAMS_BYTES_PER_S.get(_major(version), NEWER_STREAMS_BYTES_PER_S)
    return {
        "read_timeout_ns": _or(READ_TIMEOUT.read(settings), USUAL_READ_TIMEOUT_NS),
        "write_timeout_ns": _or(WRITE_TIMEOUT.read(settings), USUAL_WRITE_TIMEOUT_NS),
        "stream_bytes_per_s": _or(STREAMS.read(settings), streams),
        "validate_bytes_per_s": compaction if _major(version) == "3" else 0,
    }


def _major(version: str | None) -> str:
    return (version or "").partition(".")[0]
