"""From a trial to a job of the simulator: `crates/disklab-sim/src/job.rs`, field by field.

What the simulator does not model is refused with the reason, never guessed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from disklab.catalog import Catalog
from disklab.catalog.facts import GIB, RoundTripFacts
from disklab.catalog.profile import Profile
from disklab.database_facts import facts_of, simulated
from disklab.errors import Problem
from disklab.prediction import cassandra_yaml
from disklab.prediction.calibration import Calibration, page_cache_bytes
from disklab.prediction.faults import Delays, faults_job, moves_of
from disklab.spec import Trial, TrialSpec, resolve_volumes
from disklab.spec.feasible import stored_row_bytes
from disklab.spec.model import Database, Workload
from disklab.spec.replay import Replay
from disklab.spec.share import threads_of
from disklab.spec.timetable import cluster_on

Job = dict[str, Any]

PPM = 1_000_000
FULL = Fraction(1)
NS_PER_S = 1_000_000_000

# Linux's own read-ahead where nobody sets one: 128 KiB (mm.h, VM_READAHEAD_PAGES).
KERNEL_READ_AHEAD_BYTES = 128 << 10

FIO_FILE_BYTES = 5 * GIB
"""Each job's file. **Source:** the same: 5g a job under the deep queue, 5g to 30g at depth 1."""

FIO_SUBMIT_NS = 4_000
"""A job's own time for each I/O: it submits and reaps one after the other.

Assumed: fio 3 with libaio reaches about 250,000 I/Os a second and job on a null device.
"""

REHEARSE = "rehearse it"

SCAN_ROW_CPU_NS = 0
"""CPU of a replica for each further row of a scan, beside that for its bytes.

**Source:** our own Cassandra 5.0, 2026-11-25, rows of 4,090 B in memory, other work beside: a scan
of 1 row took its process 73 to 75 us, of 25.5 rows 339 to 441 us: 11 to 15 us a further row, and
the calibration's times of its bytes alone are 22.
"""

AS_LEFT = "as-left"

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


@dataclass(frozen=True)
class Prepared:
    """A job, or why there is none."""

    job: Job | None
    reasons: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def prepare(
    trial: Trial, catalog: Catalog, calibration: Calibration | None, place: str
) -> Prepared:
    """Return the job of a trial. `place`: the file, for the reasons."""
    reasons = [*unmodelled(trial.spec, place)]
    if reasons:
        return Prepared(None, tuple(reasons))
    if trial.spec.device is not None:
        if trial.replay is not None:
            notes = tuple(trial.replay.notes())
            return Prepared({"device": trace_job(trial.spec, trial.replay)}, (), notes)
        return Prepared({"device": device_job(trial.spec)})
    assert calibration is not None
    warnings = [*_warnings(trial, catalog, calibration)]
    job = database_job(trial.spec, catalog, calibration)

    def on(other: TrialSpec) -> Job:
        return _cluster(other, catalog, calibration)

    faults = timetable(trial.spec, Delays(), on)
    return Prepared({"database": job | faults}, (), tuple(warnings))


def timetable(spec: TrialSpec, delays: Delays, on: Callable[[TrialSpec], Job]) -> Job:
    """Return what breaks in a trial, as a part of its database's job; empty: nothing.

    `on`: the cluster of a trial as a job has it, for the hosts that nodes move to.
    """
    database, cluster = spec.database, spec.cluster
    if not spec.events or database is None or cluster is None:
        return {}
    hosts = [
        on(spec.model_copy(update={"cluster": cluster_on(cluster, event.host)}))
        for event in moves_of(spec.events)
    ]
    return {"faults": faults_job(spec.events, database, delays, cluster, hosts)}


def unmodelled(spec: TrialSpec, place: str) -> Iterator[Problem]:
    """Yield what of a trial the simulator does not model."""
    work, database, before = spec.workload, spec.database, spec.before
    if database is not None and facts_of(database.engine).simulator != "cassandra":
        rule = f"the simulator models {simulated()} so far"
        yield Problem(f"{place}: database.engine", database.engine, rule, REHEARSE)
    elif spec.device is None and work.kind != "rows":
        rule = "the simulator models reads and writes of rows so far"
        yield Problem(f"{place}: workload", work.kind, rule, REHEARSE)
    elif database is not None:
        yield from _unmodelled_database(database, place)
    if AS_LEFT in (before.page_cache, before.host_cache):
        procedure = spec.procedure
        if spec.device is not None or (procedure is not None and procedure.variable is not None):
            rule = "only trials of rows at a stated load leave their caches to the next one"
            way_out = "say cold or warm, and empty, written or warm"
            yield Problem(f"{place}: before", AS_LEFT, rule, way_out)


def _unmodelled_database(database: Database, place: str) -> Iterator[Problem]:
    if database.tls:
        rule = "what TLS costs Cassandra is not calibrated"
        yield Problem(f"{place}: database.tls", "true", rule, REHEARSE)
    if database.consistency == "ANY":
        yield Problem(f"{place}: database.consistency", "ANY", "hints are not modelled", "use ONE")
    yield from cassandra_yaml.problems(database.settings, place)


def _warnings(trial: Trial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    spec = trial.spec
    vm = catalog.vms[spec.cluster.vm] if spec.cluster else None
    outside = calibration.outside(trial, vm.series_name if vm else None)
    if outside:
        yield f"outside the calibrated range: {'; '.join(outside)}"
    settings = spec.database.settings if spec.database else {}
    unread = [name for name in settings if name not in cassandra_yaml.READ]
    if unread:
        yield f"not modelled, and without effect on the prediction: {', '.join(unread)}"
    if spec.database and spec.database.table.compression != "none":
        yield (
            "a compressed table is read by whole chunks; its rows are random bytes, which do not "
            "shrink"
        )


def host_profile(spec: TrialSpec, scale: Fraction = FULL) -> Job:
    """Return the profile of a node with all its volumes. `scale`: of host cache and credits."""
    resolved = resolve_volumes(spec, scale=scale).values()
    volumes = [_dumped(made.volume) for made in resolved]
    host = {**_dumped(next(iter(resolved)).host), "volumes": volumes}
    share = spec.before.credits_ratio
    return host if share == 1 else with_credits(host, share)


def with_credits(host: Job, share: float) -> Job:
    """Return a host that begins with so much of its burst credits."""
    found: Job = copy.deepcopy(host)
    disks = (disk for volume in found["volumes"] for disk in volume["disks"])
    for limits in (found["uncached"], found["cached"], *(disk["limits"] for disk in disks)):
        for burst in (limit["burst"] for limit in limits if limit["burst"] is not None):
            if burst["credits"] is not None:
                burst["start"] = int(burst["credits"] * share)
    return found


# The catalogue resolves equal disks of equal VMs once, and a matrix has many cells of each kind.
_DUMPED: dict[int, tuple[Profile, Job]] = {}
MOST_DUMPED = 256


def _dumped(part: Profile) -> Job:
    known = _DUMPED.get(id(part))
    if known is None:
        if len(_DUMPED) >= MOST_DUMPED:
            _DUMPED.clear()
        # The part is kept beside its form: while it lives, nothing else has its id.
        known = _DUMPED[id(part)] = (part, part.model_dump(mode="json"))
    return known[1]


def database_job(spec: TrialSpec, catalog: Catalog, calibration: Calibration) -> Job:
    """Return the job of a database under load."""
    assert spec.cluster is not None
    client = catalog.vms[spec.client.vm or spec.cluster.vm].facts
    return {
        "cluster": _cluster(spec, catalog, calibration),
        "client": {
            "nodes": spec.client.nodes,
            "cores": client.vcpu,
            "network_bytes_per_s": network(client.net_mbit_per_s),
        },
        "network": delays(spec, catalog, calibration),
        "database": _database(spec, calibration),
        "dataset": _dataset(spec),
        "workload": _workload(spec, calibration),
        "before": _before(spec),
        "parameters": calibration.values(),
    }


def delays(spec: TrialSpec, catalog: Catalog, calibration: Calibration) -> Job:
    """Return how long a message is on its way: a fixed time and the mean of what comes on top.

    The network that the experiment names comes before that of the calibration.
    """
    mean = calibration.fact("one_way_ns")
    assert spec.cluster is not None
    if spec.cluster.network is not None:
        named = catalog.networks[spec.cluster.network]
        ways = {"within_zone": way(named.within_zone), "between_zones": way(named.between_zones)}
        return {"one_way_ns": sum(ways["within_zone"].values()), **ways}
    if "spread_ns" not in calibration.physical:
        return {"one_way_ns": mean}
    spread = calibration.fact("spread_ns")
    between, between_spread = (
        calibration.fact("between_zones_ns"),
        calibration.fact("between_zones_spread_ns"),
    )
    return {
        "one_way_ns": mean,
        "within_zone": {"fixed_ns": max(mean - spread, 0), "spread_ns": spread},
        "between_zones": {
            "fixed_ns": max(between - between_spread, 0),
            "spread_ns": between_spread,
        },
    }


TWO_WAYS_MEDIAN, TWO_WAYS_P99 = 1.678, 6.638
"""Median and 99th percentile of the sum of two exponential times of mean 1: the spread of a round
trip, whose ways there and back have one each (gamma distribution of shape 2)."""


def way(trip: RoundTripFacts) -> Job:
    """Return one way of a round trip: the fixed time and spread with its median and its p99."""
    median, p99 = trip.at_us(50), trip.at_us(99)
    spread = (p99 - median) / (TWO_WAYS_P99 - TWO_WAYS_MEDIAN)
    fixed = (median - TWO_WAYS_MEDIAN * spread) / 2
    if fixed < 0:
        # The median counts: a longer tail than an exponential one has cannot be had.
        fixed, spread = 0.0, median / TWO_WAYS_MEDIAN
    return {"fixed_ns": round(fixed * 1000), "spread_ns": round(spread * 1000)}


def network(mbit_per_s: int | None) -> int | None:
    """Return a bandwidth in bytes per second."""
    return None if mbit_per_s is None else mbit_per_s * 10**6 // 8


def _cluster(spec: TrialSpec, catalog: Catalog, calibration: Calibration) -> Job:
    cluster = spec.cluster
    assert cluster is not None
    vm = catalog.vms[cluster.vm].facts
    data = cluster.device_of("data")
    log = cluster.device_of("commitlog") if "commitlog" in cluster.volumes else data
    read_ahead = cluster.volumes["data"].read_ahead_bytes
    shares = calibration.physical["ownership_ppm"].value
    same_size = isinstance(shares, list) and len(shares) == cluster.nodes
    return {
        "nodes": cluster.nodes,
        "host": host_profile(spec),
        "cores": vm.vcpu,
        "page_cache_bytes": page_cache_bytes(vm.mem_gib, calibration),
        "network_bytes_per_s": network(vm.net_mbit_per_s),
        **({"zones": cluster.zones} if cluster.zones > 1 else {}),
        "data_volume": data,
        "commitlog_volume": None if log == data else log,
        "read_ahead_bytes": KERNEL_READ_AHEAD_BYTES if read_ahead is None else read_ahead,
        **({"ownership_ppm": shares} if same_size else {}),
    }


def _database(spec: TrialSpec, calibration: Calibration) -> Job:
    database = spec.database
    assert database is not None
    settings = database.settings
    job: Job = {
        "engine": "cassandra",
        "replication_factor": database.replication_factor,
        "consistency": COPIES.get(database.consistency, database.consistency),
        "compaction": COMPACTION[database.table.compaction],
        "table_write_bytes_per_s": calibration.fact("table_write_bytes_per_s"),
        **cassandra_yaml.storage_settings(settings, database.version),
        **cassandra_yaml.replica_settings(
            settings, database.version, calibration.fact("read_repair_ppm")
        ),
    }
    for name in cassandra_yaml.COUNTS:
        job[name] = int(settings.get(name, calibration.fact(name)))
    chunk_bytes = cassandra_yaml.chunk_bytes(database.table, database.version)
    if chunk_bytes is not None:
        job["chunk_bytes"] = chunk_bytes
        job["compressed_permille"] = calibration.fact("compressed_permille")
        # 10^12 ps a second, 10^6 bytes a MB.
        job["decompress_byte_ps"] = 10**6 // DECOMPRESS_MB_PER_S[database.table.compression]
    elif job["access"] != "mmap":
        # Whole buffers are read, as compressed chunks are, and nothing is opened.
        assert spec.dataset is not None
        shape = spec.dataset.shape
        beside = stored_row_bytes(spec.dataset) - shape.columns * shape.column_bytes
        large = shape.columns * shape.bytes_at(cassandra_yaml.BUFFER_SHARE)
        job["chunk_bytes"] = cassandra_yaml.buffer_bytes(large + beside)
        job["compressed_permille"] = WHOLE_PERMILLE
    return job


def _dataset(spec: TrialSpec) -> Job:
    dataset = spec.dataset
    assert dataset is not None
    sizes = dataset.shape.of_a_million()
    return {
        "rows": dataset.rows,
        "columns": dataset.columns,
        "column_bytes": dataset.column_bytes,
        **({"sizes": sizes} if sizes else {}),
    }


def load_of(spec: TrialSpec, calibration: Calibration) -> Job:
    """Return how a trial's operations of rows arrive."""
    load = spec.workload.load
    if load is None or load.rate_per_s is None:
        return {"closed": {"threads": threads_of(spec)}}
    return {
        "open": {
            "rate_per_ks": round(load.rate_per_s * 1000),
            "arrivals": load.arrivals,
            "max_in_flight": calibration.fact("max_in_flight"),
        }
    }


def _workload(spec: TrialSpec, calibration: Calibration) -> Job:
    work = spec.workload
    assert work.operations is not None
    assert work.stop is not None
    duration_s = work.stop.duration_s
    # The simulator's duration counts from the start; ours from the end of the warm-up.
    whole_s = None if duration_s is None else duration_s + work.warm_up_s
    return {
        "read_ppm": round(work.operations.read * PPM),
        **_other_operations(work),
        "keys": work.keys,
        "asked_rows": work.asked_of(spec.dataset.rows or 0) if spec.dataset is not None else None,
        "load": load_of(spec, calibration),
        "stop": {
            "operations": work.stop.operations,
            "duration_ns": None if whole_s is None else round(whole_s * NS_PER_S),
        },
        "warm_up_ns": round(work.warm_up_s * NS_PER_S),
    }


def _other_operations(work: Workload) -> Job:
    """Return the shares of operations beside reads and writes; empty: there are none."""
    assert work.operations is not None
    others = {
        f"{name}_ppm": round(share * PPM)
        for name, share in work.operations.shares.items()
        if name not in ("read", "write")
    }
    if not others:
        return {}
    beside = {"scan_rows": work.scan_rows, "scan_row_cpu_ns": SCAN_ROW_CPU_NS}
    return {"others": {**others, **beside}}


HOST_CACHE = {"empty": "cold", "written": "written", "warm": "warm", AS_LEFT: AS_LEFT}


def _before(spec: TrialSpec) -> Job:
    before = spec.before
    return {
        "page_cache": before.page_cache,
        "host_cache": HOST_CACHE[before.host_cache],
        "empty": before.dataset == "empty",
    }


def device_job(spec: TrialSpec) -> Job:
    """Return the job of a device under fio."""
    fio, stop = spec.workload.fio, spec.workload.stop
    assert fio is not None
    assert stop is not None
    jobs, depth = fio.load
    host = host_profile(spec)
    volume_bytes = host["volumes"][0]["size_bytes"]
    # A tenth stays free, as on any disk in use; small OS disks take smaller files.
    size = min(FIO_FILE_BYTES, volume_bytes * 9 // 10 // jobs // fio.block_bytes * fio.block_bytes)
    return {
        "host": host,
        "volume": "data",
        "fio": {
            "random": fio.random,
            "read_ppm": fio.read_percent * PPM // 100,
            "block_bytes": fio.block_bytes,
            "jobs": jobs,
            "depth": depth,
            "size_bytes": size,
            "runtime_ns": round((stop.duration_s or 0) * NS_PER_S),
            "submit_ns": FIO_SUBMIT_NS,
        },
        "host_cache": HOST_CACHE[spec.before.host_cache],
    }


def trace_job(spec: TrialSpec, replay: Replay) -> Job:
    """Return the job of a device under a trace."""
    asked, trace = spec.workload.trace, replay.placed.trace
    assert asked is not None
    return {
        "host": host_profile(spec),
        "volume": "data",
        "trace": {
            "at_ns": trace.at_ns.tolist(),
            "offset_bytes": trace.offset_bytes.tolist(),
            "len_bytes": trace.length_bytes.tolist(),
            "is_write": [bool(one) for one in trace.is_write],
            "depth": asked.depth,
        },
        "host_cache": HOST_CACHE[spec.before.host_cache],
    }
