"""What this machine does of the full system when it stands in for some of its nodes.

Per-node ratios stay those of the full system: what a node holds, is asked and remembers shrinks
together; rates and latencies of its disks stay real. Where this machine has fewer CPUs than the
nodes it stands in for, their time is dilated: it runs slower here, disks and load with it, so that
the machine's CPUs do in a second of theirs what they would do (Gupta et al., "To Infinity and
Beyond: Time-Warped Network Emulation", NSDI 2006). All figures are in the described system's time.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction

from pydantic import Field

from disklab.catalog import Catalog, find_vm
from disklab.catalog.facts import GIB
from disklab.catalog.resolve import HostRequest, Places, cache_bytes
from disklab.database_facts import facts_of
from disklab.spec.amounts import Part, Scale
from disklab.spec.model import TrialSpec, Workload
from disklab.spec.procedures import Here

MKFS_LEAST_BYTES = {"xfs": 300 << 20, "ext4": 16 << 20}
"""The smallest volume that a file system is made on.

**Source:** mkfs.xfs 5.19 and later refuse less than 300 MB; ext4 with a journal wants a few MiB.
"""

# What of a node's memory is no page cache. Cassandra's own defaults: a heap of a quarter of the
# memory, 8 GiB at most (cassandra-env.sh), and a chunk cache of 2 GiB (as published in 2019); one
# GiB is for the system (assumed).
MOST_HEAP_BYTES = 8 * GIB
CHUNK_CACHE_BYTES = 2 * GIB
SYSTEM_BYTES = GIB
LEAST_CACHE_RATIO = 0.125
"""Of a small VM's memory: its heap is smaller, half of it at most (cassandra-env.sh)."""


# Source: TPC-C 4.2.2: each warehouse has ten terminals.
TERMINALS_PER_WAREHOUSE = 10


class Figure(Part):
    """One figure of the full system, and what is done of it here."""

    full: int | float
    here: int | float


class Share(Part):
    """The full and the rehearsed figure of everything that is shrunk."""

    nodes: Figure
    """Database nodes."""
    nodes_ratio: float = Field(gt=0, le=1)
    """Rehearsed nodes / cluster nodes."""
    scale: Scale
    rate_scale: Scale
    time_dilation: int = Field(default=1, ge=1)
    """Seconds of this machine for each second of the described system."""
    engine: str | None = None
    """The database here; None: a device experiment."""
    replication_factor: Figure | None = None
    """Copies of each row. On fewer nodes than there are copies each node keeps one, where copies
    are not what the experiment compares."""
    rows: Figure | None = None
    """Of the data set; sysbench: of all its tables."""
    warehouses: Figure | None = None
    """TPC-C."""
    operations: Figure | None = None
    threads: Figure | None = None
    """Of the closed loop; of `variable`, those of the first step; sysbench's and TPC-C's
    connections."""
    rate_per_s: Figure | None = None
    at_most_per_s: Figure | None = None
    host_cache_bytes: Figure | None = None
    """Of each node; None: the VM has none, or its size is not known."""
    page_cache_bytes: Figure | None = None
    """Of each node: memory of the VM without the database's own."""
    volume_bytes: dict[str, Figure] = Field(default={})
    """Of each node, by volume."""

    @property
    def is_full(self) -> bool:
        """Whether nothing is shrunk."""
        unscaled = self.scale == 1 and self.rate_scale == 1
        return self.nodes_ratio == 1 and unscaled and self.time_dilation == 1


class Portion(Part):
    """What a mode runs of the full system."""

    nodes: int
    scale: Scale = Fraction(1)
    rate_scale: Scale = Fraction(1)
    time_dilation: int | None = 1
    """None: as many as the CPUs of the nodes ask for."""
    engine: str | None = None
    stands_in: bool = False
    """Whether `engine` is not the cluster's own database."""
    fewer_copies: bool = False
    """Whether there may be fewer copies here: no more than nodes."""


def share_of(spec: TrialSpec, portion: Portion, catalog: Catalog, volumes: dict[str, int]) -> Share:
    """Return what a portion makes of a trial. `volumes`: usable bytes of each device."""
    cluster_nodes = spec.nodes
    nodes_ratio = Fraction(min(portion.nodes, cluster_nodes), cluster_nodes)
    both = portion.scale * nodes_ratio

    def whole(amount: int | None, by: Fraction) -> Figure | None:
        return None if amount is None else Figure(full=amount, here=max(1, round(amount * by)))

    def each_s(rate: float | None) -> Figure | None:
        here = 0.0 if rate is None else float(Fraction(rate) * nodes_ratio * portion.rate_scale)
        return None if rate is None else Figure(full=rate, here=here)

    load, stop = spec.workload.load, spec.workload.stop
    machine = spec.machine
    vm = find_vm(catalog, machine.vm, Places())
    cache = cache_bytes(vm, HostRequest(machine.vm, machine.host_cache_bytes)) if vm else None
    nodes = min(portion.nodes, cluster_nodes)
    dilation = portion.time_dilation
    if dilation is None:
        vcpus = Fraction(vm.facts.vcpu or 0 if vm else 0) * nodes
        if spec.workload.tpcc is not None and spec.workload.tpcc.rests:
            # Its terminals rest: fewer warehouses ask for less in a second, not sooner.
            vcpus *= portion.scale
        dilation = time_dilation(math.ceil(vcpus), os.cpu_count() or 1)
    copies = copies_of(spec, portion)
    rows = both
    if copies is not None and not portion.stands_in:
        # So that a node has as much of the data as in the cluster. What stands in for YugabyteDB
        # has the rows that its nodes lead: those alone are read.
        rows *= Fraction(int(copies.full), int(copies.here))
    page_cache = _page_cache_bytes(vm.facts.mem_gib if vm else None)
    warehouses = whole(spec.workload.tpcc.warehouses if spec.workload.tpcc else None, both)
    engine = portion.engine or spec.engine
    room = least_volume_bytes(engine, warehouses, portion) if engine else 0
    beside = facts_of(engine).unscaled_bytes if engine and spec.cluster else 0
    least = {
        name: max(MKFS_LEAST_BYTES[(volume.filesystem)], room)
        for name, volume in (spec.cluster.volumes.items() if spec.cluster else ())
    }
    return Share(
        nodes=Figure(full=cluster_nodes, here=nodes),
        nodes_ratio=float(nodes_ratio),
        scale=portion.scale,
        rate_scale=portion.rate_scale,
        time_dilation=dilation,
        engine=engine,
        replication_factor=copies,
        rows=rows_figure(spec, rows),
        warehouses=warehouses,
        operations=whole(stop.operations if stop else None, both),
        threads=threads_figure(spec, nodes_ratio, both),
        rate_per_s=each_s(load.rate_per_s if load else None),
        at_most_per_s=each_s(load.at_most_per_s if load else None),
        host_cache_bytes=whole(cache, portion.scale),
        page_cache_bytes=whole(page_cache, portion.scale),
        volume_bytes={
            name: Figure(
                full=size,
                here=min(size, max(least.get(name, 0), int(size * portion.scale) + beside)),
            )
            for name, size in volumes.items()
        },
    )


def least_volume_bytes(engine: str, warehouses: Figure | None, portion: Portion) -> int:
    """Return the least volume of a node on which a database holds what it is given here.

    A database that stands in for another one does not compress as that one does. How large a volume
    is changes nothing of how fast it is.
    """
    facts = facts_of(engine)
    if warehouses is None or facts.tpcc is None or not portion.stands_in:
        return facts.least_volume_bytes
    tables = int(warehouses.here) * facts.tpcc.warehouse_bytes
    return max(facts.least_volume_bytes, facts.tpcc.server_bytes + tables)


def copies_of(spec: TrialSpec, portion: Portion) -> Figure | None:
    """Return how many copies of a row there are; None: a device experiment."""
    if spec.database is None:
        return None
    copies = spec.copies
    return Figure(full=copies, here=min(copies, portion.nodes) if portion.fewer_copies else copies)


def rows_figure(spec: TrialSpec, by: Fraction) -> Figure | None:
    """Return the rows of the data set; None: it has none that are counted (TPC-C, fio)."""
    bench = spec.workload.sysbench
    if bench is not None:
        each = max(1, round(bench.rows_per_table * by))
        return Figure(full=bench.tables * bench.rows_per_table, here=bench.tables * each)
    tool = spec.workload.tool
    if tool is not None:
        fill = tool.fill
        return None if fill is None else Figure(full=fill, here=max(1, round(fill * by)))
    if spec.dataset is None or spec.dataset.rows is None:
        return None
    return Figure(full=spec.dataset.rows, here=max(1, round(spec.dataset.rows * by)))


def threads_figure(spec: TrialSpec, nodes_ratio: Fraction, both: Fraction) -> Figure | None:
    """Return the threads of the load. TPC-C has no more connections than terminals."""
    threads = threads_of(spec)
    if threads is None:
        return None
    here = max(1, round(threads * nodes_ratio))
    if spec.workload.tpcc is not None and spec.workload.tpcc.rests:
        warehouses = max(1, round(spec.workload.tpcc.warehouses * both))
        here = min(here, TERMINALS_PER_WAREHOUSE * warehouses)
    return Figure(full=threads, here=here)


def time_dilation(vcpus: int, cpus: int) -> int:
    """Return how much slower this machine's `cpus` must let time run to be worth `vcpus`.

    **Divergence:** a CPU here counts as one vCPU there, whatever the clock rates of both.
    """
    return max(1, math.ceil(vcpus / cpus))


def threads_of(spec: TrialSpec) -> int | None:
    """Return the threads that a trial starts with; None: an open loop, or fio."""
    work = spec.workload
    if spec.procedure is not None and (first := spec.procedure.chosen.first_threads()):
        return first
    if work.sysbench is not None:
        return work.sysbench.threads
    if work.tpcc is not None:
        return work.tpcc.connections
    if work.tool is not None:
        return work.tool.threads
    return work.load.threads if work.load else None


def left_for_page_cache(memory_bytes: int, beside_bytes: int, least_ratio: float) -> int:
    """Return what a node's memory leaves for the page cache beside its database and system.

    A prediction takes `beside_bytes` and `least_ratio` from its calibration, a share from above.
    """
    return max(memory_bytes - beside_bytes, math.floor(memory_bytes * least_ratio))


def _page_cache_bytes(memory_gib: float | None) -> int | None:
    """Return the page cache of a node of the full system; None: its memory is not known."""
    if memory_gib is None:
        return None
    memory = int(memory_gib * GIB)
    beside = min(memory // 4, MOST_HEAP_BYTES) + CHUNK_CACHE_BYTES + SYSTEM_BYTES
    return left_for_page_cache(memory, beside, LEAST_CACHE_RATIO)


def _benchmark(work: Workload, share: Share) -> dict[str, object]:
    """Return sysbench's, TPC-C's or a tool's part of a workload with the figures of its share."""
    update: dict[str, object] = {}
    if work.sysbench is not None and share.rows is not None and share.threads is not None:
        tables = work.sysbench.tables
        update["sysbench"] = work.sysbench.model_copy(
            update={
                "rows_per_table": int(share.rows.here) // tables,
                "threads": int(share.threads.here),
            }
        )
    if work.tool is not None:
        here = {
            "threads": int(share.threads.here) if share.threads else work.tool.threads,
            "fill": int(share.rows.here) if share.rows else None,
        }
        update["tool"] = work.tool.model_copy(update=here)
    if work.tpcc is not None and share.warehouses is not None and share.threads is not None:
        update["tpcc"] = work.tpcc.model_copy(
            update={
                "warehouses": int(share.warehouses.here),
                "connections": int(share.threads.here),
            }
        )
    return update


def scaled_down(spec: TrialSpec, share: Share) -> TrialSpec:
    """Return a trial with the figures of its share."""
    work = spec.workload
    update: dict[str, object] = _benchmark(work, share)
    if work.load is not None:
        threads = int(share.threads.here) if share.threads and work.load.threads else None
        rate = float(share.rate_per_s.here) if share.rate_per_s else None
        most = float(share.at_most_per_s.here) if share.at_most_per_s else None
        update["load"] = work.load.model_copy(
            update={"threads": threads, "rate_per_s": rate, "at_most_per_s": most}
        )
    if work.stop is not None and share.operations is not None:
        update["stop"] = work.stop.model_copy(update={"operations": int(share.operations.here)})
    changed: dict[str, object] = {"workload": work.model_copy(update=update)}
    here = Here(
        threads=int(share.threads.here) if share.threads else None,
        rate_per_s=float(share.rate_per_s.here) if share.rate_per_s else None,
        nodes_ratio=share.nodes_ratio,
    )
    changed["procedure"] = spec.procedure.scaled_down(here)
    if spec.dataset is not None and share.rows is not None:
        changed["dataset"] = spec.dataset.model_copy(update={"rows": int(share.rows.here)})
    if spec.cluster is not None:
        changed["cluster"] = spec.cluster.model_copy(update={"nodes": int(share.nodes.here)})
        update = {"engine": share.engine}
        if share.replication_factor is not None:
            update["replication_factor"] = int(share.replication_factor.here)
        changed["database"] = spec.database.model_copy(update=update)
    return spec.model_copy(update=changed)
