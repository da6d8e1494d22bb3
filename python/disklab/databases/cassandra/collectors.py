"""The collector of a node's JVM: how much is allocated between two young collections, by how many.

Which collector, heap and young generation a node has is what Cassandra's own scripts choose for its
VM, or what a rehearsal starts it with.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from disklab.databases.cassandra.sizing import FULL_KEY_CACHE
from disklab.databases.simulating import Job

MIB = 1 << 20

G1_YOUNG_SHARE = Fraction(60, 100)
"""Of the heap. G1 lets its young generation grow as long as pauses are shorter than its aim, and
Cassandra's are: 10 to 100 ms of 200 or 300.

**Source:** HotSpot, `G1MaxNewSizePercent`, in JDK 8, 11 and 17 alike; what our own collections
found is in `campaigns/pauses`.
"""

PARNEW_BYTES_PER_CORE = 100 * MIB
PARNEW_SHARE = 4
"""A quarter of the heap at most. **Source:** cassandra-env.sh of 3.11, `HEAP_NEWSIZE`."""
PARNEW_EDEN = Fraction(8, 10)
"""The rest are two survivor spaces. **Source:** jvm.options of 3.11, `SurvivorRatio=8`."""

WHOLE_THREADS = 8
FURTHER_THREADS = Fraction(5, 8)
"""Of the cores beyond eight. **Source:** HotSpot, `ParallelGCThreads`, as jvm.options says too."""

PARNEW_VERSION = "3"
"""**Source:** jvm.options of 3.11 has `UseParNewGC` with CMS, that of Java 11 and 17 in 5.0 has
`UseG1GC`; so do the studies without a version, whose jvm.options were changed to G1."""


ALL_PERMILLE = 1000

KEY_CACHE_SHARE = 20
"""A twentieth of the heap, up to `FULL_KEY_CACHE`. **Source:** cassandra.yaml, `key_cache_size`."""


def usual_key_cache(heap_bytes: int) -> int:
    """Return the bytes of the key cache of a node that does not set it."""
    return min(heap_bytes // KEY_CACHE_SHARE, FULL_KEY_CACHE)


@dataclass(frozen=True)
class Collector:
    """What collects a JVM's garbage."""

    young_bytes: int
    """Allocated from one young collection to the next."""
    threads: int

    def job(self, new_keys_permille: int = ALL_PERMILLE) -> Job:
        """Return it as a job has it; `new_keys_permille`: reads with a key new to the key cache."""
        return {
            "young_bytes": self.young_bytes,
            "threads": self.threads,
            "new_keys_permille": new_keys_permille,
        }


def new_keys_permille(cached_keys: int, asked_rows: float) -> int:
    """Return how many reads bring a key that is new to the key cache, once that is full.

    **Divergence:** as if each row was asked for as often as any other.
    """
    return round(ALL_PERMILLE * max(0.0, 1 - cached_keys / max(asked_rows, 1)))


PARNEW = ("parnew", "cms")
"""Two names of one: ParNew collects the young generation of CMS."""


def collector_name(version: str | None, asked: str | None) -> str:
    """Return which collector a version has, unless another is asked for."""
    parnew = (version or "").partition(".")[0] == PARNEW_VERSION
    return asked or ("parnew" if parnew else "g1")


def collector_of(
    heap_bytes: int, cores: int, version: str | None, asked: str | None = None
) -> Collector:
    """Return the collector of a JVM with such a heap on so many cores."""
    if collector_name(version, asked) in PARNEW:
        young = min(PARNEW_BYTES_PER_CORE * cores, heap_bytes // PARNEW_SHARE)
        return Collector(int(young * PARNEW_EDEN), threads_on(cores))
    return Collector(int(heap_bytes * G1_YOUNG_SHARE), threads_on(cores))


def threads_on(cores: int) -> int:
    """Return how many threads collect on so many cores."""
    return min(cores, WHOLE_THREADS) + int(max(cores - WHOLE_THREADS, 0) * FURTHER_THREADS)
