"""Rules of an experiment that no message of a whole file shows: volumes, rows, workloads."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.catalog.quantity import parse_disks
from disklab.errors import UserError
from disklab.spec import ClusterTrial
from disklab.spec.amounts import only
from disklab.spec.bundled import typed
from disklab.spec.feasible import LARGER, larger
from disklab.spec.payloads import row_shape
from disklab.spec.procedures import ThreadSteps
from disklab.spec.timetable_checks import ends_whole

from tests.spec.test_messages import BASE

EXPERIMENT = """
title: Which rules?
cluster: {{nodes: 3, vm: azure/Standard_DS14_v2, volumes: {{data: {{disks: azure/P30}}}}}}
database: {{engine: cassandra, replication_factor: 3}}
dataset: {{rows: 10k, row: 1 x 100B}}
workload: {{operations: {{read: 100%}}, load: {{threads: 4}}, stop: {{duration: 10s}}}}
events: [{events}]
"""


def test_steps_of_threads_end_at_the_most() -> None:
    assert ThreadSteps(start=6, factor=4, most=96).each() == [6, 24, 96]
    assert ThreadSteps(start=7, factor=1.1, most=9).each() == [7, 8, 9]
    assert ThreadSteps(start=64, most=8).each() == [8]


def test_a_bundled_file_is_typed_by_its_name() -> None:
    name = "cassandra-vm-types"
    assert typed(f"/usr/lib/disklab/experiments/{name}.yaml") == name
    for other in (f"/home/me/{name}.yaml", "/usr/lib/disklab/experiments/mine.yaml"):
        assert typed(other) == other


def test_more_room_is_on_all_local_disks_that_a_vm_has() -> None:
    vm = load_catalog([]).vms["azure/Standard_L16s_v2"]
    every = "disks: 2 x nvme, which the VM has"
    told = [larger(vm, parse_disks(disks)) for disks in ("nvme", "local", "2 x nvme", "azure/P30")]
    assert told == [every, every, LARGER, LARGER]


@pytest.mark.parametrize(
    ("events", "whole"),
    [
        ("{at: 1s, kill: n2}", False),
        ("{at: 1s, kill: n2}, {at: 2s, start: n2}", True),
        ("{at: 1s, add: n4}, {at: 2s, decommission: n3}", True),
    ],
)
def test_a_timetable_ends_whole_when_all_that_are_left_are_up(events: str, whole: bool) -> None:
    (trial,) = spec.parse(EXPERIMENT.format(events=events)).trials("rehearse")
    assert ends_whole(only(ClusterTrial, trial.spec)) is whole


def test_a_node_moves_to_a_vm_that_there_is() -> None:
    moved = "{at: 1s, move: n1, host: {vm: azure/Standard_DS14_v3}}"
    with pytest.raises(UserError, match="Standard_DS14_v3"):
        spec.parse(EXPERIMENT.format(events=moved)).trials("rehearse")


TEXT = """
title: A log on a disk of its own
cluster:
  nodes: 1
  vm: azure/Standard_D4s_v5
  volumes: {{data: {{disks: azure/P20}}, {name}: {{disks: azure/P1}}}}
database: {{engine: {engine}, replication_factor: 1}}
dataset: {{rows: 10M, row: 1 x 100B}}
workload: {{operations: {{write: 100%}}, load: {{threads: 8}}, stop: {{duration: 20s}}}}
"""


@pytest.mark.parametrize(
    ("engine", "name", "way_out"),
    [
        ("postgresql", "pg_wal", "did you mean wal?"),
        ("postgresql", "pg_log", "call its log's volume wal"),
        ("cassandra", "wal", "call its log's volume commitlog"),
        ("cassandra", "commit_log", "did you mean commitlog?"),
        ("etcd", "journal", "call its log's volume wal"),
    ],
)
def test_a_volume_that_is_not_used_is_refused(engine: str, name: str, way_out: str) -> None:
    with pytest.raises(UserError) as caught:
        spec.parse(TEXT.format(engine=engine, name=name)).trials("predict")
    (problem,) = caught.value.problems
    assert problem.place.endswith(f"cluster.volumes.{name}")
    assert "does not use it" in problem.rule
    assert problem.way_out == way_out


@pytest.mark.parametrize(
    ("engine", "name"),
    [("postgresql", "wal"), ("postgresql", "commitlog"), ("cassandra", "commitlog")],
)
def test_a_volume_of_the_log_is_used(engine: str, name: str) -> None:
    (trial,) = spec.parse(TEXT.format(engine=engine, name=name)).trials("predict")
    assert trial.refused is None


Z95 = 1.6448536269514722
"""Of a normal distribution, one row of twenty is above so many standard deviations."""


@pytest.mark.parametrize(
    ("text", "median", "p95"),
    [
        ("1 x lognormal median 1KiB p95 8KiB", 1024, 8192),
        ("5 x lognormal  median 200B  p95 500B", 200, 500),
    ],
)
def test_lognormal_rows_have_the_distributions_mean_and_quantiles(
    text: str, median: int, p95: int
) -> None:
    shape = row_shape(text)
    sigma = math.log(p95 / median) / Z95
    shares = [share for _, share in shape.sizes]
    assert sum(shares) == 1
    assert min(shares) == Fraction(1, 4096)
    assert shape.column_bytes == round(median * math.exp(sigma**2 / 2))
    mean = float(sum(bytes_ * share for bytes_, share in shape.sizes))
    assert mean == pytest.approx(shape.column_bytes, rel=0.003)
    # A class of a 64th of the rows holds each quantile.
    for quantile, known in ((0.5, median), (0.95, p95)):
        below, above = (
            shape.bytes_at(Fraction(quantile + step).limit_denominator(1000))
            for step in (-1 / 64, 1 / 64)
        )
        assert below <= known <= above
    squares = float(sum(bytes_**2 * share for bytes_, share in shape.sizes))
    assert squares == pytest.approx((median * math.exp(sigma**2)) ** 2, rel=0.035)


def test_lognormal_rows_are_what_load_and_simulator_take() -> None:
    shape = row_shape("3 x lognormal median 1KiB p95 8KiB")
    assert shape.columns == 3
    taken = shape.of_a_million()
    assert len(taken) == 70
    assert sum(one["share_ppm"] for one in taken) == pytest.approx(10**6, abs=10)
    bytes_ = [one["column_bytes"] for one in taken]
    assert bytes_ == sorted(bytes_)


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
