"""A rehearsal as the simulator sees it: the trial that was really run, and not its full system.

Its disks, its page cache and its data are those of the rehearsal's scale, and its client is ours,
whose CPU and warm-up are next to nothing beside those of the studies' clients. Its CPU is this
machine's: in slow motion as many cores as the node has, each as fast as one of this machine.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from fractions import Fraction

from disklab.catalog import Catalog
from disklab.catalog.facts import GIB
from disklab.databases.cassandra.sizing import PROGRAM_PAGES, MemoryPlan, plan_memory
from disklab.databases.protocol import Sizes
from disklab.errors import Problem
from disklab.prediction import postgresql
from disklab.prediction.calibration import Calibration
from disklab.prediction.faults import REHEARSED
from disklab.prediction.jobs import (
    NS_PER_S,
    Job,
    Prepared,
    database_job,
    host_profile,
    timetable,
    unmodelled,
)
from disklab.procedures.effort import FULL, Effort
from disklab.procedures.jobs import stop_of, uses_up, warm_up_of
from disklab.results import Share
from disklab.spec import Experiment, Trial, TrialSpec

CLIENT = "client_"
"""How the names of the client's parameters begin."""

OFF = ("client_cpu", "client_warm_up")
"""Mechanisms of the simulator that a rehearsal's client does not have."""

OWN_CLIENT = ("client_read_cpu_ns", "client_write_cpu_ns", "client_byte_ps", "client_cpu_ns")
"""Parameters of the studies' client that cost time in the simulator even when it never queues."""

FLUSHED_SHARE = 3
"""A third of the memtables' space is flushed at a time, as in the simulator's own default.

**Source:** Cassandra's `memtable_cleanup_threshold`, 1 / (1 + two flush writers).
"""

LOOPBACK_ONE_WAY_NS = 7_000
"""Of a message between client and node, which a rehearsal without a network of its own sends
through this machine's loopback.

**Source:** our own measurement: a byte to and fro over TCP between two processes took 14 us
in the median (Linux 6.18, two cores of an AMD EPYC, 2026-11-24).
"""

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

ANY_MEMORY = 1 << 50
"""The rehearsal's machine had enough, or there would be no result."""


FIRST_OF_TODAY = (4, 10)
"""Since then faults map what is around them, and a read may fetch more than `read_ahead_kb`.

**Source:** mm/filemap.c and mm/readahead.c of Linux.
"""


def kernel_rules(release: str) -> str:
    """Return whose rules of reading ahead a kernel such as `6.1.0-13-amd64` has, for a job."""
    found = re.match(r"(\d+)\.(\d+)", release)
    version = (int(found[1]), int(found[2])) if found else FIRST_OF_TODAY
    return "6.18" if version >= FIRST_OF_TODAY else "3.10"


def own_client(values: Mapping[str, int]) -> dict[str, int]:
    """Return parameters with the rehearsal's client: its CPU is next to nothing.

    **Source:** our own rehearsals of 2026-11-24: 2 to 14 us an operation, of a database's 24 to
    127 us; the studies' client, cassandra-stress, takes 125 to 167 us.
    """
    return {name: 0 if name in OWN_CLIENT else value for name, value in values.items()}


def rehearsed_trials(experiment: Experiment, share: Share) -> list[Trial]:
    """Return the matrix as a run with this share rehearsed it."""
    return experiment.trials(
        "rehearse",
        scale=Fraction(share.scale),
        nodes=int(share.nodes.here),
        time_dilation=share.time_dilation,
    )


def prepare_rehearsed(
    trial: Trial,
    catalog: Catalog,
    calibration: Calibration,
    place: str,
    effort: Effort = FULL,
) -> Prepared:
    """Return the job of what was rehearsed, or why there is none.

    `place`: the file; `effort`: how much was measured, which decides how long runs limited by time
    took.
    """
    spec = trial.here
    if spec.database is not None and spec.database.engine == "postgresql":
        return _prepare_postgresql(trial, catalog, calibration, place, effort)
    reasons = [*unmodelled(spec, place)]
    if spec.cluster is None or spec.database is None:
        rule, way_out = "a device has no parameters to fit", "name a cluster's experiment"
        reasons.append(Problem(f"{place}: device", "", rule, way_out))
    if reasons:
        return Prepared(None, tuple(reasons))
    return Prepared(
        {"database": _rehearsed_job(trial, catalog, calibration, effort), "ablate": list(OFF)}
    )


def _prepare_postgresql(
    trial: Trial, catalog: Catalog, calibration: Calibration, place: str, effort: Effort
) -> Prepared:
    """Return the job of a rehearsal of PostgreSQL.

    Its rows are written with the same bytes again, which the log leaves out (`log_heap_update`)
    where a row stays in its page.
    """
    spec, share = trial.here, trial.share
    reasons = [*postgresql.unmodelled(spec, place)]
    if reasons:
        return Prepared(None, tuple(reasons))
    job = postgresql.postgresql_job(
        _with_sizes(trial, spec), catalog, calibration, Fraction(share.scale)
    )
    job["cluster"]["kernel"] = kernel_rules(platform.release())
    assert spec.cluster is not None
    if spec.cluster.network is None:
        job["network"] = {"one_way_ns": LOOPBACK_ONE_WAY_NS}
    job["parameters"] = own_client(job["parameters"])
    job["workload"] |= _course(trial, effort.dilated(share.time_dilation))
    if spec.workload.kind == "rows":
        for kind in job["workload"]["transactions"]:
            for access in kind["statements"][0]["accesses"]:
                if access["kind"] == "update":
                    access["written_bytes"] = 0
    return Prepared({"postgresql": job, "ablate": ["client_cpu"]})


def _rehearsed_job(trial: Trial, catalog: Catalog, calibration: Calibration, effort: Effort) -> Job:
    spec = trial.here
    assert spec.cluster is not None
    job = database_job(spec, catalog, calibration)
    job["cluster"] |= _here(trial, spec, catalog)
    flushed = _memory(trial, spec, catalog).memtable // FLUSHED_SHARE
    job["database"]["memtable_bytes"] = flushed
    job["dataset"] |= {
        "stored_row_bytes": _values_bytes(spec) + ROW_OVERHEAD_BYTES,
        "index_entry_bytes": INDEX_ENTRY_BYTES,
    }
    assert spec.database is not None
    if spec.database.table.compression != "none":
        job["database"]["compressed_permille"] = STORED_PERMILLE
    job["workload"] |= _course(trial, effort.dilated(trial.share.time_dilation))

    def on(other: TrialSpec) -> Job:
        there = database_job(other, catalog, calibration)["cluster"]
        found: Job = there | _here(trial, other, catalog)
        return found

    job |= timetable(spec, REHEARSED.dilated(trial.share.time_dilation), on)
    if spec.cluster.network is None:
        job["network"] = {"one_way_ns": LOOPBACK_ONE_WAY_NS}
    return job


def _memory(trial: Trial, spec: TrialSpec, catalog: Catalog) -> MemoryPlan:
    assert spec.cluster is not None
    memory = int((catalog.vms[spec.cluster.vm].facts.mem_gib or 0) * GIB)
    scale = Fraction(trial.share.scale)
    sizes = Sizes(memory_bytes=memory, scale=scale, nodes=spec.cluster.nodes)
    return plan_memory(sizes, ANY_MEMORY)


def _here(trial: Trial, spec: TrialSpec, catalog: Catalog) -> Job:
    """Return what of a cluster's hosts is that of the rehearsal."""
    cache = _memory(trial, spec, catalog).page_cache
    return {
        "host": host_profile(_with_sizes(trial, spec), Fraction(trial.share.scale)),
        "page_cache_bytes": cache + PROGRAM_PAGES - KERNEL_OF_GROUP_BYTES,
        "kernel": kernel_rules(platform.release()),
    }


def _values_bytes(spec: TrialSpec) -> int:
    """Return the bytes of a row's values."""
    assert spec.dataset is not None
    return spec.dataset.columns * spec.dataset.column_bytes


def _course(trial: Trial, effort: Effort) -> Job:
    """Return when a pass of the trial's load begins to be counted, and when it ends.

    Where the page cache is to be warm, the trial's own load has run before, for as long again.
    """
    spec, scale = trial.here, float(Fraction(trial.share.scale))
    stop = stop_of(spec, effort, scale)
    before = warm_up_of(spec, effort, scale)
    uncounted_s = before.duration_s or 0.0 if before else 0.0
    if not uses_up(spec) and spec.before.page_cache == "warm":
        uncounted_s += stop.duration_s or 0.0
    whole_s = None if stop.duration_s is None else stop.duration_s + uncounted_s
    return {
        "stop": {
            "operations": stop.operations,
            "duration_ns": None if whole_s is None else round(whole_s * NS_PER_S),
        },
        "warm_up_ns": round(uncounted_s * NS_PER_S),
    }


def _with_sizes(trial: Trial, spec: TrialSpec) -> TrialSpec:
    """Return the trial with volumes as large as they were in the rehearsal."""
    cluster = spec.cluster
    assert cluster is not None
    volumes = {
        name: volume.model_copy(
            update={"size_bytes": int(trial.share.volume_bytes[cluster.device_of(name)].here)}
        )
        for name, volume in cluster.volumes.items()
    }
    changed = cluster.model_copy(update={"volumes": volumes})
    return spec.model_copy(update={"cluster": changed})
