"""From a trial of YugabyteDB to a job of the simulator: its folder in `disklab-sim`."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor

from disklab.catalog import Catalog
from disklab.catalog.facts import GIB
from disklab.databases import statements
from disklab.databases.calibration import Calibration, carried
from disklab.databases.simulating import (
    CLIENT_TIMEOUT_S,
    HOST_CACHE,
    MOST_RETRY_S,
    REHEARSE,
    Breaking,
    Delays,
    Job,
    Simulated,
    clients,
    delays,
    host_profile,
    network,
    outside,
    sql_faults,
)
from disklab.databases.statements import Shape, Stored
from disklab.errors import Problem
from disklab.spec import ClusterTrial
from disklab.spec.share import left_for_page_cache, threads_of

NS_PER_S = 1_000_000_000
UNIFORM = "leave it out, for uniform"


def _unmodelled(spec: ClusterTrial, place: str) -> Iterator[Problem]:
    work, before = spec.workload, spec.before
    if work.sysbench is None and work.tpcc is None:
        rule = "the simulator sends sysbench or TPC-C to YugabyteDB"
        yield Problem(f"{place}: workload", work.kind, rule, REHEARSE)
    if work.sysbench is not None and work.sysbench.rand_type != "uniform":
        rule = "the simulator scatters YugabyteDB's rows by their hash and draws all alike"
        yield Problem(
            f"{place}: workload.sysbench.rand_type", work.sysbench.rand_type, rule, UNIFORM
        )
    if "as-left" in (before.page_cache, before.host_cache):
        rule = (
            "a simulated trial of SQL is independent of others: no earlier trial has left "
            "it a cache"
        )
        way_out = "say cold or warm, and empty, written or warm"
        yield Problem(f"{place}: before", "as-left", rule, way_out)
    if work.stop is not None and work.stop.duration_s is None:
        rule = "sysbench and TPC-C run for a time"
        yield Problem(f"{place}: workload.stop", "operations", rule, "give a duration")
    if spec.procedure.kind != "closed_loop":
        rule = "sysbench and TPC-C are closed loops here"
        yield Problem(f"{place}: procedure", spec.procedure.kind, rule, REHEARSE)


def _warnings(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Iterator[str]:
    beyond = outside(spec, catalog, calibration)
    least, most = calibration.range.threads
    threads = threads_of(spec)
    if threads is not None and not least <= threads <= most:
        beyond.append(f"{threads} threads (fitted on {least} to {most})")
    if beyond:
        yield f"outside the calibrated range: {'; '.join(beyond)}"
    if spec.database.settings:
        unread = ", ".join(spec.database.settings)
        yield f"not modelled, and without effect on the prediction: {unread}"


def sql_job(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Job:
    """Return the job of a SQL database under transactions."""
    cluster, database, work = spec.cluster, spec.database, spec.workload
    vm = catalog.vms[cluster.vm].facts
    memory = int((vm.mem_gib or 0) * GIB)
    shape = shape_of(spec, calibration)
    backends = (shape.connections or shape.sessions) / cluster.nodes
    block_cache, page_cache = caches(memory, backends, calibration)
    duration_s = work.stop.duration_s if work.stop else None
    return {
        "cluster": {
            "nodes": cluster.nodes,
            "host": host_profile(spec),
            "cores": vm.vcpu,
            "page_cache_bytes": page_cache,
            "network_bytes_per_s": network(vm.net_mbit_per_s),
            **({"zones": cluster.zones} if cluster.zones > 1 else {}),
            "data_volume": cluster.device_of("data"),
            "read_ahead_bytes": 0,
        },
        "client": clients(spec, catalog),
        "network": delays(spec, catalog, calibration),
        "database": {
            "engine": "yugabytedb",
            "replication_factor": database.replication_factor,
            "tls": database.tls,
            "block_cache_bytes": block_cache,
            **{
                name: calibration.fact(name)
                for name in (
                    "block_bytes",
                    "compressed_permille",
                    "extra_block_ppm",
                    "wal_sync_period_ns",
                    "memstore_bytes",
                    "compaction_bytes_per_s",
                )
            },
        },
        "tables": shape.tables,
        "workload": {
            "transactions": shape.transactions,
            "sessions": shape.sessions,
            "connections": shape.connections,
            # The simulator's duration counts from the start; ours from the end of the warm-up.
            "duration_ns": round(((duration_s or 0) + work.warm_up_s) * NS_PER_S),
            "warm_up_ns": round(work.warm_up_s * NS_PER_S),
        },
        "before": {
            "page_cache": spec.before.page_cache,
            "host_cache": HOST_CACHE[spec.before.host_cache],
        },
        "parameters": carried(calibration.values(), spec, catalog, calibration),
    }


def shape_of(spec: ClusterTrial, calibration: Calibration) -> Shape:
    """Return the tables and transactions of a trial's workload."""
    tablets = calibration.fact("tablets_per_node") * spec.cluster.nodes
    stored = Stored(tablets, calibration.fact("column_overhead_bytes"))
    return statements.shape_of(spec, stored)


def caches(memory_bytes: int, backends: float, calibration: Calibration) -> tuple[int, int]:
    """Return the bytes of a node's block cache and of its page cache; `backends`: connections."""
    ratio = calibration.ratio("memory_limit_ratio") * calibration.ratio("block_cache_ratio")
    block_cache = floor(memory_bytes * ratio)
    beside = block_cache + calibration.fact("memory_beside_caches_bytes")
    beside += floor(backends * calibration.fact("memory_of_connection_bytes"))
    least = calibration.ratio("least_page_cache_ratio")
    return block_cache, left_for_page_cache(memory_bytes, beside, least)


DELAYS = Delays(0.0, 0.0, CLIENT_TIMEOUT_S, MOST_RETRY_S, MOST_RETRY_S)
BREAKING = Breaking(
    DELAYS,
    lambda events, _database, delays, cluster, _hosts: sql_faults(events, delays, cluster),
    lambda _resource, _kind: "",
    replaces=False,
    more_copies=2,
)

SIMULATED = Simulated("sql", _unmodelled, _warnings, sql_job, breaking=BREAKING)
