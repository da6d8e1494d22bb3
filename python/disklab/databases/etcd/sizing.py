"""How much memory a member gets, and why."""

from __future__ import annotations

from dataclasses import dataclass

from disklab.databases.protocol import Sizes

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# The Go runtime, the index of some hundred thousand keys, buffers of connections (an idle member
# of 3.4 has 25 MiB, 2026-11).
SERVER_BYTES = 128 * MIB
# Source: etcd's documentation, "Tuning": snapshots come each 100,000 entries, which stay in memory
# until then.
FULL_ENTRIES = 100_000
# With fewer a snapshot would be made every second of a busy load; etcd keeps as many anyway for
# members that are behind (DefaultSnapshotCatchUpEntries).
LEAST_ENTRIES = 5_000
# An object of Kubernetes with its key and revision takes 1 to 2 KiB; double for what Go has not
# collected yet.
ENTRY_BYTES = 4 * KIB
LEAST_PAGE_CACHE = 64 * MIB
# Source: etcd's documentation, "System limits": 8 GiB is the suggested maximum.
QUOTA_BYTES = 8 * GIB


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one member, in bytes."""

    entries: int
    """Of the log between two snapshots."""
    page_cache: int
    reasons: tuple[str, ...]

    @property
    def limit(self) -> int:
        """Return the limit of the member's memory group. The database is mapped: page cache."""
        return SERVER_BYTES + self.entries * ENTRY_BYTES + self.page_cache


def plan_memory(sizes: Sizes) -> MemoryPlan:
    """Plan one member: the page cache and the log between snapshots follow the scale."""
    own = SERVER_BYTES + FULL_ENTRIES * ENTRY_BYTES
    page_cache = int(max(sizes.memory_bytes - own, 0) * sizes.scale)
    reasons = []
    if page_cache < LEAST_PAGE_CACHE:
        reasons.append(
            f"page cache {LEAST_PAGE_CACHE // MIB} MiB: scaled by {sizes.scale} it would be "
            f"{page_cache / MIB:.1f} MiB, too little to work with"
        )
    return MemoryPlan(
        entries=max(int(FULL_ENTRIES * sizes.scale), LEAST_ENTRIES),
        page_cache=max(page_cache, LEAST_PAGE_CACHE),
        reasons=tuple(reasons),
    )
