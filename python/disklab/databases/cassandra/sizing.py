"""How much memory a node gets, and why: heap, page cache, and what scales with the data."""

from __future__ import annotations

import os
from dataclasses import dataclass

from disklab.databases.protocol import Sizes
from disklab.errors import Problem, UserError

MIB = 1 << 20
GIB = 1 << 30

# Cassandra 5.0 starts and serves with this much (our own starts); below it, collects all the time.
LEAST_HEAP = 512 * MIB
# With 1 GiB, young collections at 20,000 reads a second stay about a second apart.
COMFORTABLE_HEAP = 1 * GIB
# Anonymous memory beyond the heap: metaspace, code, threads, network and file buffers. Measured
# with 5.0.6 on Java 17 (2026-11-21): 257 MiB after the start, 328 MiB after 120,000 operations.
JVM_OVERHEAD = 384 * MIB
# What else of the program stays in a group whose clean pages were just reclaimed: kernel memory and
# pages of the JVM itself. Measured: 10 MiB on one node; page tables and sockets grow with load.
PROGRAM_PAGES = 32 * MIB
# The page cache must at least take the jars, the commit log being written and the SSTables being
# flushed, or the kernel thrashes on pages in use.
LEAST_PAGE_CACHE = 96 * MIB

# Source: cassandra-env.sh, calculate_heap_sizes: a quarter of memory, 8 GiB at most, and never
# less than half of a small machine's memory up to 1 GiB.
MOST_FULL_HEAP = 8 * GIB
# Source: cassandra.yaml, memtable_heap_space: a quarter of the heap.
MEMTABLE_SHARE = 4
# Below it, flushes of a few megabytes follow each other faster than they end, and writes wait for
# them: at 20 MiB an attached disk wrote 57 % slower than at 200 MiB, with the same bytes to write
# (Cassandra 5.0.6, 2026-11-21); at 16 MiB small rows were flushed three times a second.
LEAST_MEMTABLE = 64 * MIB
# Source: cassandra.yaml, commitlog_total_space: 8 GiB, a quarter of the volume at most.
FULL_COMMITLOG = 8 * GIB
# Four segments of 32 MiB: with fewer, each new segment waits for a flush.
LEAST_COMMITLOG = 128 * MIB
# Source: cassandra.yaml, key_cache_size: 5 % of the heap, 100 MiB at most.
FULL_KEY_CACHE = 100 * MIB


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one node, in bytes."""

    heap: int
    memtable: int
    commitlog: int
    key_cache: int
    page_cache: int
    """The full system's page cache times the scale."""
    reasons: tuple[str, ...]

    @property
    def limit(self) -> int:
        """The limit of the node's memory group when it starts."""
        return self.heap + JVM_OVERHEAD + self.page_cache

    def limit_for(self, anonymous: int) -> int:
        """Return the limit that leaves the page cache its scaled size, for a running node.

        What the JVM takes beyond its heap is known only when it runs, and is not small beside a
        scaled page cache.
        """
        return anonymous + PROGRAM_PAGES + self.page_cache


def plan_memory(sizes: Sizes, machine_bytes: int | None = None) -> MemoryPlan:
    """Plan one node. Raises UserError when this machine has too little memory for the nodes.

    The heap follows the scale until it is as small as the JVM can work with. What holds data in
    it (memtables, key cache) is pinned to the scaled size all the same, so that flushes come as
    often for each part of the data set as on the full system, down to the least that works.
    """
    machine = machine_memory() if machine_bytes is None else machine_bytes
    full_heap = sizes.heap_bytes or full_heap_bytes(sizes.memory_bytes)
    scaled = int(full_heap * sizes.scale)
    most = machine // 4 // sizes.nodes
    if most < LEAST_HEAP:
        rule = (
            f"a node needs a heap of {LEAST_HEAP // MIB} MiB and {JVM_OVERHEAD // MIB} MiB more, "
            "and disklab gives at most a quarter of the memory to heaps"
        )
        value = f"{machine / GIB:.1f} GiB for {sizes.nodes} nodes"
        raise UserError(Problem("this machine", value, rule, "rehearse fewer nodes (--nodes)"))
    floor = max(LEAST_HEAP, min(COMFORTABLE_HEAP, machine // 8 // sizes.nodes))
    heap = max(min(scaled, most), min(floor, most)) // MIB * MIB
    page_cache = int((sizes.memory_bytes - full_heap - JVM_OVERHEAD) * sizes.scale)
    reasons = [
        f"heap {heap // MIB} MiB: {full_heap / GIB:.0f} GiB of the full system x {sizes.scale} is "
        f"{scaled // MIB} MiB" + _bound(heap, scaled, most)
    ]
    if page_cache < LEAST_PAGE_CACHE:
        reasons.append(
            f"page cache {LEAST_PAGE_CACHE // MIB} MiB: scaled it would be "
            f"{max(page_cache, 0) // MIB} MiB, too little to work with"
        )
        page_cache = LEAST_PAGE_CACHE
    memtable = int(full_heap // MEMTABLE_SHARE * sizes.scale) // MIB * MIB
    if memtable < LEAST_MEMTABLE:
        reasons.append(
            f"memtables of {LEAST_MEMTABLE // MIB} MiB: scaled they would be {memtable // MIB} "
            "MiB, and writes would wait for their flushes; a larger --scale has the true share"
        )
        memtable = LEAST_MEMTABLE
    return MemoryPlan(
        heap=heap,
        memtable=memtable,
        commitlog=max(int(FULL_COMMITLOG * sizes.scale), LEAST_COMMITLOG) // MIB * MIB,
        key_cache=max(int(FULL_KEY_CACHE * sizes.scale), MIB) // MIB * MIB,
        page_cache=page_cache,
        reasons=tuple(reasons),
    )


def full_heap_bytes(memory: int) -> int:
    """Return the heap that Cassandra's own script gives a machine with this much memory."""
    return max(min(memory // 2, GIB), min(memory // 4, MOST_FULL_HEAP))


def machine_memory() -> int:
    """Return the memory of this machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bound(heap: int, scaled: int, most: int) -> str:
    if heap > scaled:
        return ", less than a JVM works well with; the key cache is scaled all the same"
    if heap < scaled:
        return (
            f", and a quarter of this machine's memory, shared by its nodes, is {most // MIB} MiB"
        )
    return ""
