"""Workloads by the name that YCSB gives them, and tables of which only a part is asked for."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.errors import UserError

from tests.spec.test_messages import BASE

ROWS = "  operations: {read: 100%}\n"


def workload(lines: str) -> spec.TrialSpec:
    """Return the trial whose workload has these lines in the place of its mixture."""
    return spec.parse(BASE.replace(ROWS, lines)).cells[0].spec


@pytest.mark.parametrize(
    ("name", "read", "keys"),
    [("A", 0.5, "zipfian"), ("B", 0.95, "zipfian"), ("C", 1.0, "zipfian"), ("D", 0.95, "latest")],
)
def test_a_name_of_ycsb_is_its_mixture_and_its_keys(name: str, read: float, keys: str) -> None:
    work = workload(f"  ycsb: {name}\n").workload
    assert work.operations.read == pytest.approx(read)
    assert work.operations.write == pytest.approx(1 - read)
    assert (work.keys, work.kind, work.ycsb) == (keys, "rows", name)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("E", {"scan": 0.95, "insert": 0.05}),
        ("F", {"read": 0.5, "read_modify_write": 0.5}),
    ],
)
def test_scans_and_reads_before_writes_have_names_too(name: str, shares: dict[str, float]) -> None:
    work = workload(f"  ycsb: {name}\n").workload
    assert work.operations.shares == pytest.approx(shares)
    assert (work.keys, work.scan_rows, work.ycsb) == ("zipfian", 100, name)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("hammerdb", "write tpcc: {warehouses: ..., "),
        ("pgbench", "write sysbench: {script: tpcb, "),
    ],
)
def test_other_load_tools_are_told_what_to_write(name: str, instead: str) -> None:
    with pytest.raises(UserError) as caught:
        workload(f"  {name}: {{scale: 100}}\n")
    assert instead in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "operation", "reason"),
    [
        ("etcd", "scan", "etcd has no scan of rows here"),
        ("etcd", "update", "a row is one value under its key"),
        ("yugabytedb", "scan", "spread over the tablets by a hash"),
    ],
)
def test_a_database_refuses_by_name_what_it_does_not_do(
    engine: str, operation: str, reason: str
) -> None:
    text = BASE.replace("engine: cassandra", f"engine: {engine}")
    with pytest.raises(UserError) as caught:
        spec.parse(text.replace(ROWS, f"  operations: {{{operation}: 100%}}\n"))
    assert reason in str(caught.value)


def test_the_names_are_levels_too() -> None:
    text = BASE.replace(ROWS, "  ycsb: A\n")
    text = text.replace("cluster.volumes.data.caching: [None, ReadOnly]", "workload.ycsb: [A, D]")
    found = [trial.spec.workload for trial in spec.parse(text).trials("predict")]
    assert [one.keys for one in found] == ["zipfian", "latest"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (ROWS + "  scan_rows: 0\n", "greater than or equal to 1"),
        ("  operations: {scan: 95%, insert: 6%}\n", "these make 101 %"),
        ("  ycsb: G\n", "G"),
        ("  ycsb: A\n" + ROWS, "a mixture and keys of its own (here: operations)"),
        ("  ycsb: A\n  keys: uniform\n", "a mixture and keys of its own (here: keys)"),
        (ROWS + "  working_set: 0%\n", "more than none of the rows, and at most all"),
        (ROWS + "  working_set: 120%\n", "120%"),
        ("  ycsb: D\n  working_set: 20%\n", "the newest rows are asked for"),
        (ROWS + "  keys: gausian\n", "did you mean gaussian?"),
    ],
)
def test_what_cannot_be_is_told(lines: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        workload(lines)
    assert message in str(caught.value)


def test_a_share_of_the_rows_is_so_many_of_those_that_are_there() -> None:
    work = workload(ROWS + "  working_set: 20%\n").workload
    assert (work.asked_of(1_000_000), work.asked_of(2)) == (200_000, 1)
    assert workload(ROWS).workload.asked_of(1_000_000) is None
