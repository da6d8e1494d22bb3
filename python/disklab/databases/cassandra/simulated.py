"""From a trial of Cassandra to a job of the simulator, and from a rehearsal of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from disklab.catalog import Catalog
from disklab.catalog.facts import GIB
from disklab.databases.calibration import Calibration, carried, is_cpu_time, page_cache_bytes
from disklab.databases.cassandra import simulated_settings
from disklab.databases.cassandra.simulated_faults import (
    BREAKING,
    DELAYS,
    REHEARSED,
    faults_job,
    load_kept_s,
)
from disklab.databases.cassandra.simulated_settings import (
    ALL_PERMILLE,
    collector_of,
    new_keys_permille,
    usual_key_cache,
)
from disklab.databases.cassandra.sizing import (
    MEMTABLE_SHARE,
    PROGRAM_PAGES,
    MemoryPlan,
    full_heap_bytes,
    plan_memory,
)
from disklab.databases.protocol import Sizes
from disklab.databases.simulating import (
    HOST_CACHE,
    KERNEL_READ_AHEAD_BYTES,
    NS_PER_S,
    PPM,
    REHEARSE,
    Delays,
    Job,
    Rehearsed,
    Simulated,
    clients,
    delays,
    host_profile,
    left_caches,
    load_of,
    moves_of,
    network,
    outside,
    with_sizes,
)
from disklab.errors import Problem
from disklab.spec import ClusterTrial
from disklab.spec.feasible import stored_row_bytes
from disklab.spec.model import Database, Workload
from disklab.spec.share import Share
from disklab.spec.timetable import cluster_on

# Which tables a fill leaves: memtables that were flushed one after the other, then compacted.
#
# What decides it are the bytes of heap that a memtable takes before it is flushed, those that a row
# takes in it, and the rules of size-tiered compaction. **Divergence:** compactions keep up with the
# fill here. Where they fall behind, each merges more tables at a time, and the last tables are
# others: a rehearsed fill of 744 MB left 303, 75, 152 and 214 MB, where 317, 317, 79 and two of
# 20 MB
# are predicted.

MIB = 1 << 20

LEAST_TABLE_BYTES = 50 * MIB
"""Tables below this size are all alike. **Source:** `min_sstable_size` of
SizeTieredCompactionStrategyOptions (50 MiB), as are the next four."""
BUCKET_LOW = 0.5
BUCKET_HIGH = 1.5
LEAST_MERGED = 4
MOST_MERGED = 32

ROW_HEAP_BYTES = 380
COLUMN_HEAP_BYTES = 112
"""What a memtable's row takes beside its values: of itself, and of each column.

**Source:** our own fills of 2026-11-25, Cassandra 5.0.6: with a third of 64 MiB, flushed tables had
18.5 MB or a little more of rows of 4,135 B and 4.72 MB of rows of 248 B, each of five columns: 910
and 975 B a row. A cell is an object of 48 B and a buffer of 64 B; the rest is the row's.
"""


def heap_bytes(columns: int, column_bytes: int) -> int:
    """Return what a row takes in a memtable."""
    return ROW_HEAP_BYTES + columns * (COLUMN_HEAP_BYTES + column_bytes)


@dataclass(frozen=True)
class Table:
    """Rows that were written one after the other."""

    rows: int
    bytes: int


def tables_of_fill(rows: int, stored_bytes: int, heap_bytes: int, flushed_bytes: int) -> list[int]:
    """Return the rows of each table that a fill leaves, in the order in which they were written.

    `stored_bytes`, `heap_bytes`: of a row in a table file and in a memtable. `flushed_bytes`: of
    heap, with which a memtable is flushed.
    """
    each = max(1, flushed_bytes // heap_bytes)
    tables: list[Table] = []
    left = rows
    while left > 0:
        count = min(each, left)
        left -= count
        tables.append(Table(count, count * stored_bytes))
        while (merged := _last_bucket(tables)) >= LEAST_MERGED:
            last = tables[-merged:]
            whole = Table(sum(one.rows for one in last), sum(one.bytes for one in last))
            tables[-merged:] = [whole]
    return [table.rows for table in tables]


def _last_bucket(tables: list[Table]) -> int:
    """Return how many of the last tables are of one size, as compaction has it."""
    count, total = 1, tables[-1].bytes
    for table in reversed(tables[:-1]):
        mean = total / count
        near = BUCKET_LOW * mean < table.bytes < BUCKET_HIGH * mean
        small = table.bytes < LEAST_TABLE_BYTES and mean < LEAST_TABLE_BYTES
        if not (near or small) or count == MOST_MERGED:
            break
        count, total = count + 1, total + table.bytes
    return count


SCAN_ROW_CPU_NS = 0
"""CPU of a replica for each further row of a scan, beside that for its bytes.

**Source:** our own Cassandra 5.0, 2026-11-25, rows of 4,090 B in memory, other work beside: a scan
of 1 row took its process 73 to 75 us, of 25.5 rows 339 to 441 us: 11 to 15 us a further row, and
the calibration's times of its bytes alone are 22.
"""

DECOMPRESS_MB_PER_S = {"lz4": 3850, "snappy": 1500, "zstd": 1660, "deflate": 390}
"""Of one core.

**Source:** lzbench on the Silesia corpus, README of zstd 1.5.7 (lz4 1.10, snappy 1.2.1, zlib 1.3.1)
and of zstd 1.4.5 (zstd -1), both on a desktop processor. **Divergence:** a VM's core is slower, and
random rows, which are stored as they are, open faster.
"""

COMPACTION = {"size-tiered": "size-tiered", "leveled": "leveled", "unified": "size-tiered"}
"""**Source:** unified compaction's default, `T4`, is tiered by four tables (Cassandra 5.0)."""

WHOLE_PERMILLE = 1000
"""Of a chunk that is stored as it is."""

COPIES = {"EACH_QUORUM": "QUORUM"}
"""The cluster has one data centre."""

FLUSHED_SHARE = 3
"""A third of the memtables' space is flushed at a time, as in the simulator's own default.

**Source:** Cassandra's `memtable_cleanup_threshold`, 1 / (1 + two flush writers).
"""

USUAL_FLUSHED_BYTES = (8 << 30) // 4 // FLUSHED_SHARE
"""As the simulator's own default: a third of the memtables' space, a quarter of a heap of 8 GiB."""

ROW_OVERHEAD_BYTES = 46
"""Of a row in a table file, beside its values.

**Source:** our own rehearsals of 2026-11-24, Cassandra 5.0.6: 248.0 bytes for 5 x 40, 4135.0 for
5 x 818 and 16431.6 for 5 x 3277. The study's tables of 3.11 have 165 for 5 x 818.
"""

INDEX_ENTRY_BYTES = 15
"""Of a row: a key of 8 bytes with its length, position and size. **Source:** as above, 15.0 to 15.1
bytes; the study's keys are longer."""

STORED_PERMILLE = 1004
"""Of a compressed table's chunk whose rows are random bytes, as the load's are: it grows.

**Source:** `LZ4_compressBound`, 64 to 80 bytes for 16 KiB, and Cassandra's length and checksum of
4 bytes each. So a chunk begins anywhere in a page and takes five of them, not four: rehearsals of
2026-11-24 had 1.65 I/Os a read where whole pages would have had 1.02.
"""

KERNEL_OF_GROUP_BYTES = 11 << 20
"""What the kernel itself takes of a node's memory group: page tables, sockets, inodes.

**Source:** our own rehearsals of 2026-11-24: groups that were allowed 259 MiB and `PROGRAM_PAGES`
held 280 MiB of pages when they were full (Cassandra 5.0.6, 800 MiB of tables mapped).
"""

KEY_BYTES = "key_bytes"
"""The fact that says what an entry of the key cache takes."""

TOKENS = "tokens_per_node"
"""The fact that says how evenly a ring is shared out, as the engine has it."""

ANY_MEMORY = 1 << 50
"""The rehearsal's machine had enough, or there would be no result."""


def job_of(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Job:
    """Return the job of a trial, with what breaks in it."""

    def on(other: ClusterTrial) -> Job:
        return _cluster(other, catalog, calibration)

    return database_job(spec, catalog, calibration) | timetable(spec, DELAYS, on)


def timetable(spec: ClusterTrial, waits: Delays, on: Callable[[ClusterTrial], Job]) -> Job:
    """Return what breaks in a trial, as a part of its database's job; empty: nothing.

    `on`: the cluster of a trial as a job has it, for the hosts that nodes move to.
    """
    database, cluster = spec.database, spec.cluster
    if not spec.events:
        return {}
    hosts = [
        on(spec.model_copy(update={"cluster": cluster_on(cluster, event.host)}))
        for event in moves_of(spec.events)
    ]
    return {"faults": faults_job(spec.events, database, waits, cluster, hosts)}


def unmodelled(spec: ClusterTrial, place: str) -> Iterator[Problem]:
    """Yield what of a trial the simulator does not model."""
    work, database = spec.workload, spec.database
    if work.kind != "rows":
        rule = "the simulator models reads and writes of rows so far"
        yield Problem(f"{place}: workload", work.kind, rule, REHEARSE)
    else:
        if work.writes_per_commit is not None:
            rule = "Cassandra has no transactions of several writes"
            way_out = "leave it out: each write is an operation of its own"
            yield Problem(
                f"{place}: workload.writes_per_commit", str(work.writes_per_commit), rule, way_out
            )
        yield from _unmodelled_database(database, place)
    yield from left_caches(spec, place)


def _unmodelled_database(database: Database, place: str) -> Iterator[Problem]:
    if database.tls:
        rule = "what TLS costs Cassandra is not calibrated"
        yield Problem(f"{place}: database.tls", "true", rule, REHEARSE)
    if database.consistency == "ANY":
        rule = "a write at ANY may be only a hint, and hints are not modelled"
        yield Problem(f"{place}: database.consistency", "ANY", rule, "use ONE")
    if database.jvm.collector == "shenandoah":
        rule = "the cost of Shenandoah's pauses and of its concurrent work is not calibrated"
        way_out = f"choose g1 or zgc, or {REHEARSE}"
        yield Problem(f"{place}: database.jvm.collector", "shenandoah", rule, way_out)
    yield from simulated_settings.problems(database.settings, place)


def _warnings(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    if beyond := outside(spec, catalog, calibration):
        yield f"outside the calibrated range: {'; '.join(beyond)}"
    settings = spec.database.settings
    unread = [name for name in settings if name not in simulated_settings.READ]
    if unread:
        yield f"not modelled, and without effect on the prediction: {', '.join(unread)}"
    if spec.database.table.compression != "none":
        yield (
            "a compressed table is read in whole chunks; its rows are random bytes, which do not "
            "compress"
        )
    if spec.database.jvm.collector in calibration.concurrent:
        yield (
            f"{spec.database.jvm.collector}: requests that wait for memory because they allocate "
            "faster than it frees are not modelled; give it a large enough heap"
        )
    yield from _kept_longer(spec)


def _kept_longer(spec: ClusterTrial) -> Iterator[str]:
    kept_s, stop = load_kept_s(spec), spec.workload.stop
    if kept_s is not None and stop is not None and stop.duration_s != kept_s:
        yield (
            f"the load is kept up for {kept_s:.0f} s instead of {stop.duration_s:.0f}, "
            "so that what is streamed is seen"
        )


def database_job(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Job:
    """Return the job of a database under load."""
    calibration = calibration.of_version(spec.database.version)
    calibration = calibration.with_collector(spec.database.jvm.collector)
    job: Job = {
        "cluster": _cluster(spec, catalog, calibration),
        "client": clients(spec, catalog),
        "network": delays(spec, catalog, calibration),
        "database": _database(spec, calibration),
        "dataset": _dataset(spec),
        "workload": _workload(spec, calibration),
        "before": _before(spec),
        "parameters": carried(_parameters(spec, calibration), spec, catalog, calibration),
    }
    if spec.database.jvm.heap_bytes is not None:
        flushed = spec.database.jvm.heap_bytes // MEMTABLE_SHARE // FLUSHED_SHARE
        job["database"]["memtable_bytes"] = flushed
    work, data = spec.workload, spec.dataset
    if work.keys == "sequential" and spec.before.dataset != "empty" and data is not None:
        # Other keys meet rows of all tables alike, so one table answers for them.
        stored = stored_row_bytes(spec.database.engine, data)
        job["dataset"] |= _tables(spec, job, stored, USUAL_FLUSHED_BYTES)
    return job


def _cluster(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Job:
    cluster = spec.cluster
    vm = catalog.vms[cluster.vm].facts
    data = cluster.device_of("data")
    log = cluster.device_of("commitlog") if "commitlog" in cluster.volumes else data
    read_ahead = cluster.volumes["data"].read_ahead_bytes
    heap = spec.database.jvm.heap_bytes or full_heap_bytes(int((vm.mem_gib or 0) * GIB))
    shares = calibration.physical["ownership_ppm"].value
    same_size = isinstance(shares, list) and len(shares) == cluster.nodes
    return {
        "nodes": cluster.nodes,
        "host": host_profile(spec),
        "cores": vm.vcpu,
        "page_cache_bytes": page_cache_bytes(vm.mem_gib, calibration, spec.database.jvm.heap_bytes),
        "collector": _collector(spec, calibration, heap, vm.vcpu),
        "network_bytes_per_s": network(vm.net_mbit_per_s),
        **({"zones": cluster.zones} if cluster.zones > 1 else {}),
        "data_volume": data,
        "commitlog_volume": None if log == data else log,
        "read_ahead_bytes": KERNEL_READ_AHEAD_BYTES if read_ahead is None else read_ahead,
        **({"ownership_ppm": shares} if same_size else {}),
        **_tokens(calibration),
    }


def _tokens(calibration: Calibration) -> Job:
    """Return how evenly a ring is shared out; empty: as by 256 random tokens of each node."""
    if TOKENS not in calibration.physical:
        return {}
    return {TOKENS: calibration.fact(TOKENS)}


def _collector(spec: ClusterTrial, calibration: Calibration, heap: int, cores: int) -> Job:
    asked = spec.database.jvm.collector
    job = collector_of(heap, cores, spec.database.version, asked).job(
        _new_keys(spec, calibration, usual_key_cache(heap))
    )
    if asked in calibration.concurrent:
        # It does not stop the program for longer with fewer threads.
        job["threads"] = calibration.fact("at_collector_threads")
    return job


def _parameters(spec: ClusterTrial, calibration: Calibration) -> Job:
    """Return the costs, those of a node's processor with what a concurrent collector takes."""
    costs = calibration.values()
    concurrent = calibration.concurrent.get(spec.database.jvm.collector or "")
    if concurrent is None:
        return costs
    permille = int(str(concurrent.cpu_permille.value))
    dearer = {
        name: cost * permille // WHOLE_PERMILLE
        for name, cost in costs.items()
        if is_cpu_time(name, of_client=False)
    }
    return {**costs, **dearer}


def _new_keys(spec: ClusterTrial, calibration: Calibration, key_cache_bytes: int) -> int:
    """Return how many reads of a thousand bring a key that is new to the key cache.

    All, where the calibration does not say what a key takes: it was fitted on such reads then.
    """
    dataset, database = spec.dataset, spec.database
    if KEY_BYTES not in calibration.physical or dataset is None:
        return ALL_PERMILLE
    asked = spec.workload.asked_of(dataset.rows or 0) or dataset.rows or 0
    of_node = asked * database.replication_factor / spec.cluster.nodes
    return new_keys_permille(key_cache_bytes // calibration.fact(KEY_BYTES), of_node)


def _database(spec: ClusterTrial, calibration: Calibration) -> Job:
    database = spec.database
    settings = database.settings
    job: Job = {
        "engine": "cassandra",
        "replication_factor": database.replication_factor,
        "consistency": COPIES.get(database.consistency, database.consistency),
        "compaction": COMPACTION[database.table.compaction],
        "table_write_bytes_per_s": calibration.fact("table_write_bytes_per_s"),
        **simulated_settings.storage_settings(settings, database.version),
        **simulated_settings.replica_settings(
            settings, database.version, calibration.fact("read_repair_ppm")
        ),
    }
    for name in simulated_settings.COUNTS:
        job[name] = int(settings.get(name, calibration.fact(name)))
    chunk_bytes = simulated_settings.chunk_bytes(database.table, database.version)
    if chunk_bytes is not None:
        job["chunk_bytes"] = chunk_bytes
        job["compressed_permille"] = calibration.fact("compressed_permille")
        # 10^12 ps a second, 10^6 bytes a MB.
        job["decompress_byte_ps"] = 10**6 // DECOMPRESS_MB_PER_S[database.table.compression]
    elif job["access"] != "mmap":
        # Whole buffers are read, as compressed chunks are, and nothing is opened.
        shape = spec.the_dataset.shape
        stored = stored_row_bytes(spec.database.engine, spec.the_dataset)
        beside = stored - shape.columns * shape.column_bytes
        large = shape.columns * shape.bytes_at(simulated_settings.BUFFER_SHARE)
        job["chunk_bytes"] = simulated_settings.buffer_bytes(large + beside)
        job["compressed_permille"] = WHOLE_PERMILLE
    return job


def _dataset(spec: ClusterTrial) -> Job:
    dataset = spec.the_dataset
    sizes = dataset.shape.of_a_million()
    return {
        "rows": dataset.rows,
        "columns": dataset.columns,
        "column_bytes": dataset.column_bytes,
        **({"sizes": sizes} if sizes else {}),
    }


def _workload(spec: ClusterTrial, calibration: Calibration) -> Job:
    work = spec.workload
    duration_s = load_kept_s(spec)
    # The simulator's duration counts from the start; ours from the end of the warm-up.
    whole_s = None if duration_s is None else duration_s + work.warm_up_s
    return {
        "read_ppm": round(work.the_operations.read * PPM),
        **_other_operations(work),
        "keys": work.keys,
        "asked_rows": work.asked_of(spec.dataset.rows or 0) if spec.dataset is not None else None,
        "load": load_of(spec, calibration),
        "stop": {
            "operations": work.the_stop.operations,
            "duration_ns": None if whole_s is None else round(whole_s * NS_PER_S),
        },
        "warm_up_ns": round(work.warm_up_s * NS_PER_S),
    }


def _other_operations(work: Workload) -> Job:
    """Return the shares of operations beside reads and writes; empty: there are none."""
    others = {
        f"{name}_ppm": round(share * PPM)
        for name, share in work.the_operations.shares.items()
        if name not in ("read", "write")
    }
    if not others:
        return {}
    beside = {"scan_rows": work.scan_rows, "scan_row_cpu_ns": SCAN_ROW_CPU_NS}
    return {"others": {**others, **beside}}


def _before(spec: ClusterTrial) -> Job:
    before = spec.before
    return {
        "page_cache": before.page_cache,
        "host_cache": HOST_CACHE[before.host_cache],
        "empty": before.dataset == "empty",
    }


def rehearsed_job(
    spec: ClusterTrial, catalog: Catalog, calibration: Calibration, there: Rehearsed
) -> Job:
    """Return the job of what was rehearsed."""
    calibration = calibration.newest()
    job = database_job(spec, catalog, calibration)
    job["cluster"] |= _here(spec, catalog, calibration, there)
    # CPU times of the newest versions are of this machine, or of one like it.
    job["parameters"] = _parameters(spec, calibration.with_collector(spec.database.jvm.collector))
    flushed = _memory(spec, catalog, there.share).memtable // FLUSHED_SHARE
    job["database"]["memtable_bytes"] = flushed
    job["dataset"] |= {
        "stored_row_bytes": _values_bytes(spec) + ROW_OVERHEAD_BYTES,
        "index_entry_bytes": INDEX_ENTRY_BYTES,
    }
    if spec.database.table.compression != "none":
        job["database"]["compressed_permille"] = STORED_PERMILLE
    job["dataset"] |= _tables(spec, job, _values_bytes(spec) + ROW_OVERHEAD_BYTES, flushed)
    job["workload"] |= there.course

    def on(other: ClusterTrial) -> Job:
        found: Job = database_job(other, catalog, calibration)["cluster"]
        return found | _here(other, catalog, calibration, there)

    job |= timetable(spec, REHEARSED.dilated(there.share.time_dilation), on)
    if spec.cluster.network is None:
        job["network"] = there.network
    return job


def _tables(spec: ClusterTrial, job: Job, stored_bytes: int, flushed: int) -> Job:
    """Return the tables that a fill leaves, as a part of a job's data; empty: one, or not known.

    `stored_bytes`: of a row. `flushed`: bytes of heap with which a memtable is flushed.
    """
    database = spec.database
    if job["database"]["compaction"] != "size-tiered" or "others" in job["workload"]:
        return {}
    data = job["dataset"]
    rows = data["rows"] * database.replication_factor // job["cluster"]["nodes"]
    heap = heap_bytes(data["columns"], data["column_bytes"])
    tables = tables_of_fill(rows, stored_bytes, heap, flushed)
    if len(tables) == 1:
        return {}
    ends = [sum(tables[: number + 1]) * PPM // rows for number in range(len(tables))]
    ends[-1] = PPM
    shares = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    return {"tables_ppm": shares}


def _memory(spec: ClusterTrial, catalog: Catalog, share: Share) -> MemoryPlan:
    memory = int((catalog.vms[spec.cluster.vm].facts.mem_gib or 0) * GIB)
    scale = Fraction(share.scale)
    sizes = Sizes(memory, scale, spec.cluster.nodes, heap_bytes=spec.database.jvm.heap_bytes)
    return plan_memory(sizes, ANY_MEMORY)


def _here(spec: ClusterTrial, catalog: Catalog, calibration: Calibration, there: Rehearsed) -> Job:
    """Return what of a cluster's hosts is that of the rehearsal."""
    plan = _memory(spec, catalog, there.share)
    # A rehearsal has G1, whatever the version, unless the file says another, and the cores that its
    # machine has.
    asked = spec.database.jvm.collector
    collector = collector_of(plan.heap, os.cpu_count() or 1, None, asked)
    new_keys = _new_keys(spec, calibration, plan.key_cache)
    # In slow motion a pause is as much shorter in the time of the described system.
    threads = collector.threads * there.share.time_dilation
    if asked in calibration.concurrent:
        threads = calibration.fact("at_collector_threads") * there.share.time_dilation
    return {
        "host": host_profile(with_sizes(spec, there.share), Fraction(there.share.scale)),
        "page_cache_bytes": plan.page_cache + PROGRAM_PAGES - KERNEL_OF_GROUP_BYTES,
        "collector": {**collector.job(new_keys), "threads": threads},
        "kernel": there.kernel,
        "pages_counted_every_ns": there.pages_counted_every_ns,
    }


def _values_bytes(spec: ClusterTrial) -> int:
    """Return the bytes of a row's values."""
    return spec.the_dataset.columns * spec.the_dataset.column_bytes


SIMULATED = Simulated(
    "database",
    unmodelled,
    _warnings,
    job_of,
    rehearsed=rehearsed_job,
    without=("client_cpu", "client_warm_up"),
    breaking=BREAKING,
)
