"""Heap, page cache and what follows the scale."""

from __future__ import annotations

from fractions import Fraction

import pytest
from disklab.databases import Sizes
from disklab.databases.cassandra.sizing import GIB, JVM_OVERHEAD, MIB, PROGRAM_PAGES, plan_memory
from disklab.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

DS14 = 112 * GIB


def test_at_full_size_the_heap_is_that_of_cassandras_own_script() -> None:
    assert plan_memory(Sizes(DS14), machine_bytes=256 * GIB).heap == 8 * GIB
    assert plan_memory(Sizes(16 * GIB), machine_bytes=256 * GIB).heap == 4 * GIB


def test_a_small_scale_keeps_a_working_heap_and_scales_what_holds_data() -> None:
    plan = plan_memory(Sizes(DS14, Fraction(1, 20)), machine_bytes=24 * GIB)
    assert plan.heap == GIB
    assert plan.memtable == 102 * MIB  # a quarter of 8 GiB, by 20
    page_cache = (DS14 - 8 * GIB - JVM_OVERHEAD) / 20
    assert plan.page_cache == pytest.approx(page_cache, rel=1e-6)
    assert "less than a JVM works well with" in plan.reasons[0]


def test_the_limit_leaves_the_page_cache_its_scaled_size() -> None:
    plan = plan_memory(Sizes(DS14, Fraction(1, 100)), machine_bytes=24 * GIB)
    assert plan.limit_for(1300 * MIB) - 1300 * MIB - PROGRAM_PAGES == plan.page_cache


def test_a_page_cache_too_small_to_work_with_is_raised_and_said() -> None:
    plan = plan_memory(Sizes(DS14, Fraction(1, 10_000)), machine_bytes=24 * GIB)
    assert plan.page_cache == 96 * MIB
    assert any("page cache 96 MiB" in reason for reason in plan.reasons)


def test_memtables_too_small_to_work_with_are_raised_and_said() -> None:
    plan = plan_memory(Sizes(DS14, Fraction(1, 100)), machine_bytes=24 * GIB)
    assert plan.memtable == 64 * MIB
    assert any("scaled they would be 20 MiB" in reason for reason in plan.reasons)


def test_a_machine_too_small_for_its_nodes_is_refused() -> None:
    with pytest.raises(UserError, match="rehearse fewer nodes"):
        plan_memory(Sizes(DS14, Fraction(1, 100), nodes=3), machine_bytes=4 * GIB)


@given(st.integers(1, 10_000), st.integers(1, 6), st.integers(16, 512))
def test_heaps_never_take_more_than_a_quarter_of_the_machine(
    part: int, nodes: int, machine_gib: int
) -> None:
    sizes = Sizes(DS14, Fraction(1, part), nodes=nodes)
    plan = plan_memory(sizes, machine_bytes=machine_gib * GIB)
    assert nodes * plan.heap <= machine_gib * GIB / 4
    assert plan.heap >= 512 * MIB
