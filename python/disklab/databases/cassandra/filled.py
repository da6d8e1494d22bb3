"""Which tables a fill leaves: memtables that were flushed one after the other, then compacted.

What decides it are the bytes of heap that a memtable takes before it is flushed, those that a row
takes in it, and the rules of size-tiered compaction. **Divergence:** compactions keep up with the
fill here. Where they fall behind, each merges more tables at a time, and the last tables are
others: a rehearsed fill of 744 MB left 303, 75, 152 and 214 MB, where 317, 317, 79 and two of 20 MB
are predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

LEAST_TABLE_BYTES = 50 * MIB
"""Tables below this size are all alike. **Source:** `min_sstable_size` of
SizeTieredCompactionStrategyOptions (50 MiB), as are the next four."""
BUCKET_LOW = 0.5
BUCKET_HIGH = 1.5
LEAST_MERGED = 4
MOST_MERGED = 32

ROW_HEAP_BYTES = 380
COLUMN_HEAP_BYTES = 112
"""What a memtable's row takes beside its values: of itself, and of each column.

**Source:** our own fills of 2026-11-25, Cassandra 5.0.6: with a third of 64 MiB, flushed tables had
18.5 MB or a little more of rows of 4,135 B and 4.72 MB of rows of 248 B, each of five columns: 910
and 975 B a row. A cell is an object of 48 B and a buffer of 64 B; the rest is the row's.
"""


def heap_bytes(columns: int, column_bytes: int) -> int:
    """Return what a row takes in a memtable."""
    return ROW_HEAP_BYTES + columns * (COLUMN_HEAP_BYTES + column_bytes)


@dataclass(frozen=True)
class Table:
    """Rows that were written one after the other."""

    rows: int
    bytes: int


def tables_of_fill(rows: int, stored_bytes: int, heap_bytes: int, flushed_bytes: int) -> list[int]:
    """Return the rows of each table that a fill leaves, in the order in which they were written.

    `stored_bytes`, `heap_bytes`: of a row in a table file and in a memtable. `flushed_bytes`: of
    heap, with which a memtable is flushed.
    """
    each = max(1, flushed_bytes // heap_bytes)
    tables: list[Table] = []
    left = rows
    while left > 0:
        count = min(each, left)
        left -= count
        tables.append(Table(count, count * stored_bytes))
        while (merged := _last_bucket(tables)) >= LEAST_MERGED:
            last = tables[-merged:]
            whole = Table(sum(one.rows for one in last), sum(one.bytes for one in last))
            tables[-merged:] = [whole]
    return [table.rows for table in tables]


def _last_bucket(tables: list[Table]) -> int:
    """Return how many of the last tables are of one size, as compaction has it."""
    count, total = 1, tables[-1].bytes
    for table in reversed(tables[:-1]):
        mean = total / count
        near = BUCKET_LOW * mean < table.bytes < BUCKET_HIGH * mean
        small = table.bytes < LEAST_TABLE_BYTES and mean < LEAST_TABLE_BYTES
        if not (near or small) or count == MOST_MERGED:
            break
        count, total = count + 1, total + table.bytes
    return count
