"""How much memory a server gets, and why."""

from __future__ import annotations

from dataclasses import dataclass

from disklab.databases.protocol import Sizes

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Source: PostgreSQL's documentation, 20.4.1: "a reasonable starting value for shared_buffers is 25%
# of the memory in your system".
BUFFERS_SHARE = 4
# Source: 20.7.2, effective_cache_size: what "is available for disk caching"; 3/4 is customary.
CACHE_SHARE = 0.75
# Thirty backends pin up to some hundred buffers each; the server's own default is 128 MiB.
LEAST_BUFFERS = 16 * MIB
# Source: 20.5.2, max_wal_size: 1 GB, whatever the memory.
FULL_WAL = 1 * GIB
# The server refuses less than two segments of 16 MiB; checkpoints would follow one another.
LEAST_WAL = 64 * MIB
# Anonymous memory beside the buffers: backends and work areas of thirty of them; of the full
# system, and here before it was seen how much they really take.
SERVER_OVERHEAD = 128 * MIB
# A backend with TLS and a prepared statement for each of thirty tables (our measurement of 2026-11:
# 2 to 5 MiB); this much is kept free for each that may come.
BACKEND_BYTES = 6 * MIB
# Beside what was seen: the kernel's own of the group, and what a backend needs in passing.
SPARE_BYTES = 24 * MIB
LEAST_PAGE_CACHE = 32 * MIB
# ANALYZE keeps so many rows in its own memory for each step of `default_statistics_target`, which
# is 100 unless somebody says otherwise. Source: `std_typanalyze` of analyze.c.
ROWS_A_STEP = 300
USUAL_TARGET = 100
# A row in memory beside its values: two headers and the alignment of each value; and its piece of
# memory is a power of two up to 8 KiB. Source: htup.h, aset.c. Measured (PostgreSQL 15, rows of
# 2,045 B, the usual target): a backend of 3 MiB had 122 MiB, which is 4 KiB a row.
ROW_IN_MEMORY = 96
LARGEST_PIECE = 8 * KIB
# A row of sysbench has 190 bytes, the longest of TPC-C 670.
OWN_TABLES_ROW = 670


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one server, in bytes."""

    buffers: int
    wal: int
    page_cache: int
    statistics_target: int
    """How much ANALYZE looks at: what it keeps must not push the server over its memory's limit."""
    reasons: tuple[str, ...]

    def first_limit(self, connections: int) -> int:
        """Return the limit of the server's memory group before its clients have come.

        Buffers are shared memory and charged to it.
        """
        return self.buffers + SERVER_OVERHEAD + connections * BACKEND_BYTES + self.page_cache

    def limit_for(self, anonymous: int, missing: int = 0) -> int:
        """Return the limit with which buffers and page cache have their planned size.

        `anonymous`: what was seen of the rest; `missing`: backends that may still come.
        """
        rest = anonymous + missing * BACKEND_BYTES + SPARE_BYTES
        return self.buffers + self.page_cache + rest

    @property
    def settings(self) -> dict[str, str]:
        """What follows the scale, as settings."""
        cache = int(CACHE_SHARE * (self.buffers + self.page_cache))
        return {
            "shared_buffers": f"{self.buffers // KIB}kB",
            "effective_cache_size": f"{cache // KIB}kB",
            "max_wal_size": f"{self.wal // MIB}MB",
            "min_wal_size": f"{LEAST_WAL // 2 // MIB}MB",
            "default_statistics_target": str(self.statistics_target),
        }


def sample_bytes(row_bytes: int, target: int) -> int:
    """Return the memory that ANALYZE takes for its sample of rows with so many bytes of values."""
    piece: int = 1 << (min(row_bytes + ROW_IN_MEMORY, LARGEST_PIECE) - 1).bit_length()
    return ROWS_A_STEP * target * piece


def plan_memory(sizes: Sizes, row_bytes: int = 0) -> MemoryPlan:
    """Plan one server: buffers, page cache and the WAL between checkpoints follow the scale.

    `row_bytes`: of the values of a row, on average; 0: tables of sysbench or TPC-C.
    """
    full = sizes.memory_bytes // BUFFERS_SHARE
    buffers = int(full * sizes.scale)
    page_cache = int((sizes.memory_bytes - full - SERVER_OVERHEAD) * sizes.scale)
    wal = int(FULL_WAL * sizes.scale)
    reasons = [
        f"{name} {least // MIB} MiB: scaled by {sizes.scale} it would be {max(value, 0) / MIB:.1f} "
        "MiB, too little to work with"
        for name, value, least in (
            ("shared_buffers", buffers, LEAST_BUFFERS),
            ("page cache", page_cache, LEAST_PAGE_CACHE),
            ("max_wal_size", wal, LEAST_WAL),
        )
        if value < least
    ]
    page_cache = max(page_cache, LEAST_PAGE_CACHE)
    # Two at a time: our own, and one of autovacuum, each in half of what the page cache can give.
    row_bytes = row_bytes or OWN_TABLES_ROW
    target = min(USUAL_TARGET, max(1, page_cache // 4 // sample_bytes(row_bytes, 1)))
    if target < USUAL_TARGET:
        reasons.append(
            f"default_statistics_target {target}: with the usual {USUAL_TARGET}, ANALYZE would "
            f"keep {sample_bytes(row_bytes, USUAL_TARGET) / MIB:.0f} MiB of rows beside a page "
            f"cache of {page_cache // MIB} MiB"
        )
    return MemoryPlan(
        buffers=max(buffers, LEAST_BUFFERS),
        wal=max(wal, LEAST_WAL) // MIB * MIB,
        page_cache=page_cache,
        statistics_target=target,
        reasons=tuple(reasons),
    )
