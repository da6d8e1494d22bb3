"""How much memory a server gets, and why."""

from __future__ import annotations

from dataclasses import dataclass

from disklab.databases.protocol import Sizes

MIB, GIB = 1 << 20, 1 << 30

# Of a machine that does nothing else. Assumed: what those who tune InnoDB usually give it.
POOL_SHARE = 0.7
# The server starts with 2 MiB of pages of 16 KiB, and has no room to work in it.
LEAST_POOL = 16 * MIB
# Source: the default of innodb_log_file_size, whatever the memory.
FULL_REDO = 96 * MIB
LEAST_REDO = 4 * MIB
# Source: innodb_log_buffer_size, its default and its least; a redo log cannot be made smaller than
# it while the server runs.
FULL_LOG_BUFFER, LEAST_LOG_BUFFER = 16 * MIB, 2 * MIB
# Source: the default of Galera's gcache.size, whatever the memory. A node that was away for longer
# than it lasts gets a whole copy.
FULL_GCACHE = 128 * MIB
LEAST_GCACHE = 16 * MIB
# Code, dictionary, log buffer and caches beside the pool. Assumed.
SERVER_OVERHEAD = 192 * MIB
# A thread with its buffers and prepared statements. Assumed.
THREAD_BYTES = 2 * MIB
# The binary log goes through the page cache; tables and redo log do not (O_DIRECT).
LEAST_PAGE_CACHE = 32 * MIB


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one server, in bytes."""

    pool: int
    redo: int
    page_cache: int
    reasons: tuple[str, ...]
    gcache: int = FULL_GCACHE
    """What a node of Galera keeps for others that are away."""

    def limit(self, connections: int) -> int:
        """Return the limit of the server's memory group."""
        return self.pool + SERVER_OVERHEAD + connections * THREAD_BYTES + self.page_cache

    @property
    def settings(self) -> dict[str, str]:
        """What follows the scale, as settings."""
        return {
            "innodb_buffer_pool_size": str(self.pool),
            "innodb_log_file_size": str(self.redo),
            "innodb_log_buffer_size": str(
                min(FULL_LOG_BUFFER, max(self.redo // 2 // MIB * MIB, LEAST_LOG_BUFFER))
            ),
            # Caches of engines that no table of ours has.
            "key_buffer_size": "1M",
            "aria_pagecache_buffer_size": "8M",
        }


def plan_memory(sizes: Sizes) -> MemoryPlan:
    """Plan one server: buffer pool, redo log and page cache follow the scale."""
    pool = int(sizes.memory_bytes * POOL_SHARE * sizes.scale)
    redo = int(FULL_REDO * sizes.scale)
    page_cache = int((sizes.memory_bytes * (1 - POOL_SHARE) - SERVER_OVERHEAD) * sizes.scale)
    reasons = sizes.too_small(
        (
            ("innodb_buffer_pool_size", pool, LEAST_POOL),
            ("innodb_log_file_size", redo, LEAST_REDO),
            ("page cache", page_cache, LEAST_PAGE_CACHE),
        )
    )
    return MemoryPlan(
        pool=max(pool, LEAST_POOL) // MIB * MIB,
        redo=max(redo, LEAST_REDO) // MIB * MIB,
        page_cache=max(page_cache, LEAST_PAGE_CACHE),
        reasons=tuple(reasons),
        gcache=max(int(FULL_GCACHE * sizes.scale), LEAST_GCACHE),
    )
