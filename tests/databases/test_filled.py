"""Which tables a fill of Cassandra leaves, beside those that real fills have left."""

from __future__ import annotations

import pytest
from disklab.databases.cassandra.simulated import MIB, heap_bytes, tables_of_fill

FLUSHED = 64 * MIB // 3


def megabytes(rows: int, column_bytes: int) -> list[float]:
    """Return the sizes of the tables of rows with five columns, as our rehearsals fill them."""
    stored = 5 * column_bytes + 46
    tables = tables_of_fill(rows, stored, heap_bytes(5, column_bytes), FLUSHED)
    assert sum(tables) == rows
    return [round(one * stored / 1e6, 1) for one in tables]


def test_a_real_fill_of_small_rows_left_two_tables() -> None:
    """2026-11-25, 500,000 rows of 248 B: 61.8 MB were merged thirteen times, then 58.6 MB."""
    assert megabytes(500_000, 40) == pytest.approx([61.8, 58.6], rel=0.03)


def test_a_real_fill_of_larger_rows_began_with_sixteen_memtables() -> None:
    """2026-11-25, 180,000 rows of 4,135 B: 303 and 304.5 MB in two fills; others came behind it."""
    assert megabytes(180_000, 818)[0] == pytest.approx(303, rel=0.04)


@pytest.mark.parametrize(("column_bytes", "seen"), [(818, 18.8), (40, 4.73), (205, 12.3)])
def test_a_memtable_is_flushed_when_its_heap_is_full(column_bytes: int, seen: float) -> None:
    """Of the same fills: what the first flushed tables had, in MB."""
    rows = FLUSHED // heap_bytes(5, column_bytes)
    assert megabytes(rows, column_bytes) == pytest.approx([seen], rel=0.04)


def test_few_rows_are_one_table_and_four_small_ones_are_merged() -> None:
    assert tables_of_fill(100, 100, 1000, 1_000_000) == [100]
    assert tables_of_fill(3_000, 100, 1000, 1_000_000) == [1_000] * 3
    assert tables_of_fill(4_000, 100, 1000, 1_000_000) == [4_000]


def test_tables_of_a_large_system_grow_by_fours() -> None:
    """A memtable of 680 MiB of heap: none of its tables is small."""
    flushed = (8 << 30) // 12
    each = flushed // heap_bytes(5, 818)
    tables = tables_of_fill(21 * each, 4255, heap_bytes(5, 818), flushed)
    assert tables == [16 * each, 4 * each, each]
