"""The most that a system can do, from the limits of its disk model alone.

The bound is above what any simulation of the cell does: it counts the reads that no cache can
serve, each as one I/O of the smallest size, and nothing that background work adds. What it leaves
out is safe to leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from disklab.catalog import Resolution
from disklab.catalog.facts import GIB
from disklab.catalog.load import VmEntry
from disklab.catalog.profile import HostProfile, Limit
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration, page_cache_bytes
from disklab.spec import ClusterTrial, feasible

SLACK = 0.9
"""A cell is left out only when it cannot do this share of the rate.

A simulation of a minute has some per cent more or less than its limits: what is in flight when it
ends, arrivals at random, and tables of which a part is in memory by chance.
"""

SMALLEST_IO_BYTES = 4096
"""A page of Linux's page cache."""

MANY = {"ONE": 1, "LOCAL_ONE": 1, "TWO": 2, "THREE": 3}
"""Copies that a read asks, by consistency level; ANY is for writes. The others: a majority."""


@dataclass(frozen=True)
class Ceiling:
    """The most operations a second, and the limit that says so."""

    per_s: float
    limit: str


def copies_read(spec: ClusterTrial) -> int:
    """Return how many replicas a read asks."""
    if facts_of(spec.database.engine).primary:
        return 1
    copies = spec.database.replication_factor
    if spec.database.consistency == "ALL":
        return copies
    return MANY.get(spec.database.consistency, copies // 2 + 1)


def serving_nodes(spec: ClusterTrial) -> int:
    """Return among how many nodes the operations are shared."""
    return 1 if facts_of(spec.database.engine).primary else spec.cluster.nodes


def cache_bytes(spec: ClusterTrial, memory_gib: float | None, calibration: Calibration) -> int:
    """Return the most that a node's memory holds of its data.

    A server without a heap of its own may use all of it, as buffers or as page cache.
    """
    if facts_of(spec.database.engine).in_java:
        return page_cache_bytes(memory_gib, calibration, spec.database.jvm.heap_bytes)
    return int((memory_gib or 0) * GIB)


def node_data_bytes(spec: ClusterTrial) -> float:
    """Return the bytes of rows on each node, without what storing them adds; TPC-C's with it."""
    if spec.workload.tpcc is not None:
        return feasible.node_bytes(spec)
    rows = spec.the_dataset.rows or 0
    row = spec.the_dataset.columns * spec.the_dataset.column_bytes
    return rows * row * spec.database.replication_factor / spec.cluster.nodes


@dataclass(frozen=True)
class Machine:
    """A node: its host with the data volume, page cache in bytes, and cores."""

    host: HostProfile
    page_cache: int
    cores: float


def ceiling(
    spec: ClusterTrial, machine: Machine, calibration: Calibration, reads: float | None = None
) -> Ceiling:
    """Return the most operations a second of the whole cluster.

    `reads`: disk reads of an operation at least, where a simulation has shown it.
    """
    work = spec.workload.operations
    if work is None:
        # What a transaction of a benchmark takes is known to the simulator alone.
        return Ceiling(UNLIMITED, "")
    found = [cpu_ceiling(spec, machine.cores, calibration)]
    data = node_data_bytes(spec)
    if spec.workload.keys == "uniform" and data > 0 and work.read > 0:
        each = work.read * copies_read(spec)
        missed = max(0.0, 1 - machine.page_cache / data)
        cached = machine.host.cache.capacity_bytes if machine.host.cache else 0
        past_both = max(0.0, missed - cached / data)
        to_cache = each * missed
        to_disk = each * past_both
        if reads is not None and missed > 0:
            to_cache = max(to_cache, reads)
            to_disk = max(to_disk, reads * past_both / missed)
        for name, limit, count, share in _path(machine.host, to_cache, to_disk):
            cost = 1 if limit.unit == "ios" else SMALLEST_IO_BYTES
            if share > 0 and limit.scope in ("all", "read"):
                node = sustained(limit, seconds_of(spec)) * count / cost / share
                most = node * serving_nodes(spec)
                found.append(Ceiling(most, f"{name} {'IOPS' if cost == 1 else 'MB/s'}"))
    return min(found, key=lambda one: one.per_s)


def _path(
    host: HostProfile, missed: float, past_both: float
) -> Iterator[tuple[str, Limit, int, float]]:
    """Yield the limits that reads meet: name, limit, how many disks, and reads of an operation."""
    volume = host.volumes[0]
    count, medium = len(volume.disks), volume.disks[0].medium
    through_cache = volume.caching != "None"
    to_disk = past_both if through_cache else missed
    for limit in volume.disks[0].limits:
        yield "data disk", limit, count, to_disk
    if medium == "temp" or through_cache:
        for limit in host.cached:
            yield "VM cached", limit, 1, missed
    if medium == "remote":
        for limit in host.uncached:
            yield "VM uncached", limit, 1, to_disk


def cpu_ceiling(spec: ClusterTrial, cores: float, calibration: Calibration) -> Ceiling:
    """Return what the nodes' processors do at most: each operation at its replicas only."""
    work, costs = spec.workload.operations, calibration.values()
    if work is None:
        return Ceiling(UNLIMITED, "")
    if facts_of(spec.database.engine).primary:
        statement = costs.get("statement_cpu_ns", 0)
        read = statement + costs.get("row_read_cpu_ns", 0)
        write = statement + costs.get("row_write_cpu_ns", 0)
    else:
        read = copies_read(spec) * costs.get("read_cpu_ns", 0)
        write = spec.database.replication_factor * costs.get("write_cpu_ns", 0)
    each_ns = work.read * read + work.write * write
    most = serving_nodes(spec) * cores * 1e9 / each_ns if each_ns else float("inf")
    return Ceiling(most, "node CPU")


def sustained(limit: Limit, seconds: float) -> float:
    """Return what a limit lets through a second over a run, with the credits it starts with."""
    burst = limit.burst
    if burst is None:
        return limit.per_s
    if burst.credits is None:
        return burst.per_s
    start = burst.credits if burst.start is None else burst.start
    return min(burst.per_s, limit.per_s + start / seconds)


def seconds_of(spec: ClusterTrial) -> float:
    """Return how long a cell runs."""
    stop = spec.workload.stop
    load = spec.workload.load
    if stop is None:
        return 60.0
    found = [stop.duration_s] if stop.duration_s else []
    if stop.operations and load and load.rate_per_s:
        found.append(stop.operations / load.rate_per_s)
    return min(found) if found else 1.0


# How strong an option is in each of its parts, so that two can be compared without simulating.

UNLIMITED = float("inf")
MBIT_BYTES = 125_000


@dataclass(frozen=True)
class Strength:
    """What an option gives all the time, by part; no limit is infinite."""

    amounts: tuple[float, ...]
    """Cores, memory, network, then IOPS and bytes a second of reads and writes: the VM's cached and
    uncached budgets, and all disks together; host cache and volume in bytes."""
    kinds: tuple[str, ...]
    """Latency profiles of disks and host cache: options of different kinds are not compared."""

    @property
    def cores(self) -> float:
        """Cores of a node."""
        return self.amounts[0]

    @property
    def memory_gib(self) -> float:
        """Memory of a node."""
        return self.amounts[1]

    @property
    def read_bytes_per_s(self) -> float:
        """What its disks read at most, as far as the VM lets them."""
        return max(min(self.amounts[9], self.amounts[13]), 1.0)

    def at_most(self, other: Strength) -> bool:
        """Return whether the other is of the same kinds and at least as good in everything."""
        same = self.kinds == other.kinds
        return same and all(a <= b for a, b in zip(self.amounts, other.amounts, strict=True))

    def rank(self) -> tuple[float, ...]:
        """Return an order whose last is the strongest: by disks as far as the VM lets them, CPU."""
        cores, memory, _, *rest = self.amounts
        cached, uncached, disks = (rest[start : start + 4] for start in (0, 4, 8))
        reads = min(disks[0], max(uncached[0], cached[0] if self.amounts[-2] else 0.0))
        return (min(reads, MOST_READS), cores, memory, *disks)


MOST_READS = 100_000.0
"""Disks beyond this many reads a second and node are equally strong: their processors are not."""


def strength_of(made: Resolution, seconds: float, vm: VmEntry) -> Strength:
    """Return the strength of a volume on a VM over a run of some seconds."""
    host, volume, net_mbit_per_s = made.host, made.volume, vm.facts.net_mbit_per_s
    disk, count = volume.disks[0], len(volume.disks)
    disks = tuple(amount * count for amount in four(disk.limits, seconds))
    cached, uncached = four(host.cached, seconds), four(host.uncached, seconds)
    network = UNLIMITED if net_mbit_per_s is None else net_mbit_per_s * MBIT_BYTES
    through_cache = host.cache is not None and volume.caching != "None"
    cache_bytes = host.cache.capacity_bytes if host.cache and through_cache else 0
    amounts = (
        float(vm.facts.vcpu),
        vm.facts.mem_gib or 0.0,
        network,
        *cached,
        *uncached,
        *disks,
        float(cache_bytes),
        float(volume.size_bytes),
    )
    kinds = (
        disk.medium,
        volume.caching,
        str(disk.latency.model_dump() if disk.medium != "remote" else ""),
        str(host.cache.latency.model_dump() if host.cache and through_cache else ""),
    )
    return Strength(amounts, kinds)


def four(limits: Sequence[Limit], seconds: float) -> tuple[float, float, float, float]:
    """Return read IOPS, write IOPS, bytes read and bytes written a second."""
    told = []
    for unit in ("ios", "bytes"):
        for scope in ("read", "write"):
            some = [one for one in limits if one.unit == unit and one.scope in ("all", scope)]
            told.append(min((sustained(one, seconds) for one in some), default=UNLIMITED))
    return told[0], told[1], told[2], told[3]
