"""Cassandra before it starts: heap and page cache, its Java, what fills and compactions leave."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import cast

import pytest
from disklab.databases import Sizes
from disklab.databases.cassandra.access import NOT_NORMAL, replace_well_known
from disklab.databases.cassandra.compactions import (
    QUIET_SECONDS,
    STALE_SECONDS,
    Activity,
    Calm,
    activity,
)
from disklab.databases.cassandra.distribution import find_java
from disklab.databases.cassandra.jolokia import Jolokia
from disklab.databases.cassandra.simulated import heap_bytes, tables_of_fill
from disklab.databases.cassandra.sizing import GIB, JVM_OVERHEAD, MIB, PROGRAM_PAGES, plan_memory
from disklab.engine import CqlLogin, QueryError
from disklab.errors import MachineError, UserError
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


def java(folder: Path, name: str, version: str) -> Path:
    """Make what an installed Java looks like."""
    home = folder / name
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").touch(mode=0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_17_is_found_among_several(tmp_path: Path) -> None:
    java(tmp_path, "java-11", "11.0.20")
    java(tmp_path, "java-21", "21.0.4")
    wanted = java(tmp_path, "java-17", "17.0.15")
    newest = java(tmp_path, "java-25", "25")
    found = find_java({"PATH": str(newest / "bin")}, (tmp_path,))
    assert found.home == wanted
    assert found.options == []


def test_java_home_comes_first(tmp_path: Path) -> None:
    java(tmp_path / "jvm", "java-17", "17.0.15")
    own = java(tmp_path, "own", "17.0.1")
    environment = {"PATH": "", "JAVA_HOME": str(own)}
    assert find_java(environment, (tmp_path / "jvm",)).home == own


def test_a_newer_java_may_have_its_security_manager(tmp_path: Path) -> None:
    java(tmp_path, "java-21", "21.0.4")
    assert find_java({"PATH": ""}, (tmp_path,)).options == ["-Djava.security.manager=allow"]


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.20", "24", "25.0.1"])
def test_what_will_not_do_is_named(tmp_path: Path, version: str) -> None:
    java(tmp_path, "jdk", version)
    with pytest.raises(UserError) as refused:
        find_java({"PATH": ""}, (tmp_path,))
    (problem,) = refused.value.problems
    major = version.removeprefix("1.").split(".")[0]
    assert f"Java {major} in {tmp_path / 'jdk'}" in problem.value
    assert "security manager" in problem.rule
    assert "openjdk" in problem.way_out


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no Java"):
        find_java({"PATH": ""}, (tmp_path,))


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


class FakeAgent:
    """Answers as a node's agent does; its estimate is renewed by nobody."""

    def __init__(self, pending: int) -> None:
        self.pending = pending
        self.done = 0
        self.tasks: list[dict[str, str]] = []

    def read(self, *wanted: tuple[str, str]) -> list[object]:
        assert len(wanted) == 4
        return [self.tasks, self.pending, self.done, self.done * 1000]


def ends_after(calm: Calm, agent: FakeAgent, begun: float, most_s: float) -> float | None:
    """Return after which time the compactions are said to have ended; None: not in that time."""
    nodes = [("n1", cast(Jolokia, agent))]
    looks = int(most_s * 2) + 1
    times = (half / 2 for half in range(looks))
    return next((at for at in times if calm.saw(activity(nodes), begun + at)), None)


def test_a_stale_estimate_is_not_waited_for() -> None:
    assert ends_after(Calm(), FakeAgent(pending=3), 100.0, 300.0) == STALE_SECONDS


def test_nothing_pending_is_enough_after_a_moment() -> None:
    assert ends_after(Calm(), FakeAgent(pending=0), 100.0, 300.0) == QUIET_SECONDS


def test_what_runs_or_grows_is_waited_for() -> None:
    calm, agent = Calm(), FakeAgent(pending=1)
    agent.tasks = [
        {"keyspace": "disklab", "columnfamily": "rows", "completed": "12", "total": "40"}
    ]
    assert ends_after(calm, agent, 0.0, 300.0) is None
    # The next one begins between two looks: only what was done has grown.
    agent.tasks = []
    for second in range(1, 20):
        agent.done += 1
        assert ends_after(calm, agent, 300.0 + second, 0.0) is None
    assert ends_after(calm, agent, 320.0, 300.0) == STALE_SECONDS - 1


def test_it_says_what_runs_where() -> None:
    state = Activity(("disklab.rows on n1: 12 of 40",), 2, ((0, 0),))
    assert str(state) == "2 pending, running: disklab.rows on n1: 12 of 40"


OURS = CqlLogin("disklab", "secret")


class Refusing:
    """A node that refuses a new replication at first, as one does that misses another's tokens."""

    def __init__(self, times: int, error: str = f"Cannot alter RF: {NOT_NORMAL}") -> None:
        self.left = times
        self.error = error
        self.asked: list[str] = []

    def log_in(self, login: CqlLogin) -> None:
        self.asked.append(f"as {login.user}")

    def ask(self, statement: str) -> list[dict[str, object]]:
        word = statement.split(" ", 1)[0]
        if word == "ALTER" and self.left:
            self.left -= 1
            raise QueryError(self.error)
        self.asked.append(word)
        return []


def replaced(node: Refusing, seconds: float = 30.0) -> list[str]:
    replace_well_known(node, OURS, 3, seconds, lambda: None)  # type: ignore[arg-type]
    return node.asked


def test_a_replication_is_asked_for_until_all_tokens_are_known() -> None:
    said = ["as cassandra", "SELECT", "ALTER", "CREATE", "as disklab", "DROP"]
    assert replaced(Refusing(2)) == said


def test_it_is_not_asked_for_for_ever_nor_after_another_error() -> None:
    with pytest.raises(MachineError, match=f"still refused after 0 s: .*{NOT_NORMAL}"):
        replaced(Refusing(9), seconds=0.0)
    never = Refusing(1, "no such keyspace")
    with pytest.raises(MachineError, match=r"the new node refused: .*no such keyspace"):
        replaced(never)
    assert never.left == 0
