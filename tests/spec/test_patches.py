"""How a level changes the baseline: the rules of docs/experiment-file.md, each by itself."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.errors import UserError
from disklab.spec import TrialSpec

HEAD = """\
title: patches
cluster:
  nodes: 3
  vm: azure/Standard_DS14_v2
  volumes:
    data: {disks: 4 x azure/P30, caching: ReadOnly, read_ahead: 8KiB}
    commitlog: {disks: local}
database: {engine: yugabytedb, settings: {ysql_max_connections: 1, memstore_size_mb: 2}}
dataset: {rows: 10M, row: small}
"""
ROWS = """\
workload:
  operations: {read: 100%}
  load: {threads: 128}
  stop: {operations: 3M, duration: 60s}
  warm_up: 5s
"""
SYSBENCH = """\
workload:
  sysbench: {script: oltp_read, tables: 20, rows_per_table: 15M, threads: 60}
  warm_up: 300s
  stop: {duration: 1800s}
"""
VARIABLE = "workload: {operations: {read: 100%}}\nprocedure: {variable: {median_latency: 10ms}}\n"


def patched(workload: str, patch: str) -> TrialSpec:
    """Return the one trial that a level with this patch makes."""
    text = f"{HEAD}{workload}factors:\n  f:\n    level: {patch}\n"
    (trial,) = spec.parse(text).trials("predict")
    return trial.spec


def test_an_empty_level_is_the_baseline() -> None:
    assert patched(ROWS, "{}") == spec.parse(HEAD + ROWS).trials("predict")[0].spec
    assert patched(ROWS, "") == patched(ROWS, "{}")


def test_a_mapping_merges_key_by_key() -> None:
    work = patched(SYSBENCH, "{workload.sysbench: {script: oltp_insert, threads: 24}}").workload
    assert (work.sysbench.script, work.sysbench.threads) == ("oltp_insert", 24)
    assert (work.sysbench.tables, work.sysbench.rows_per_table) == (20, 15_000_000)
    database = patched(
        ROWS, "{database.settings: {memstore_size_mb: 3, log_segment_size_mb: 4}}"
    ).database
    merged = {"ysql_max_connections": 1, "memstore_size_mb": 3, "log_segment_size_mb": 4}
    assert database.settings == merged


def test_a_dotted_path_and_a_nested_mapping_are_the_same() -> None:
    dotted = patched(ROWS, "{cluster.volumes.data.caching: None, cluster.nodes: 5}")
    nested = patched(ROWS, "{cluster: {nodes: 5, volumes: {data: {caching: None}}}}")
    assert dotted == nested
    assert dotted.cluster.volumes["data"].read_ahead_bytes == 8192


def test_another_kind_of_workload_pushes_the_old_one_out() -> None:
    work = patched(SYSBENCH, "{workload: {tpcc: {warehouses: 10, connections: 5}}}").workload
    assert (work.kind, work.sysbench) == ("tpcc", None)
    # What is not of the old kind alone stays.
    assert work.warm_up_s == 300
    rows = patched(ROWS, "{workload.tpcc: {warehouses: 10, connections: 5}}").workload
    assert (rows.kind, rows.operations, rows.load) == ("tpcc", None, None)


def test_threads_and_rate_push_each_other_out() -> None:
    load = patched(ROWS, "{workload.load: {rate: 500/s}}").workload.load
    assert (load.threads, load.rate_per_s) == (None, 500)
    assert patched(ROWS, "{workload.load.rate: 500/s}").workload.load == load


def test_a_ceiling_belongs_to_the_threads() -> None:
    load = patched(ROWS, "{workload.load.at_most: 500/s}").workload.load
    assert load.threads
    assert load.at_most_per_s == load.scheduled_per_s == 500
    both = patched(ROWS.replace("load: {", "load: {at_most: 9/s, "), "{workload.load.rate: 5/s}")
    assert (both.workload.load.at_most_per_s, both.workload.load.scheduled_per_s) == (None, 5)


def test_another_procedure_replaces_the_old_one_and_the_same_merges() -> None:
    fixed = patched(VARIABLE, "{procedure: {fixed: {rate: 500/s}}}").procedure
    assert (fixed.kind, fixed.variable) == ("fixed", None)
    slower = patched(VARIABLE, "{procedure: {variable: {pending_compactions: 5}}}").procedure
    assert (slower.variable.median_latency_ms, slower.variable.pending_compactions) == (10, 5)


def test_fill_and_rows_push_each_other_out_and_the_row_stays() -> None:
    dataset = patched(ROWS, "{dataset: {fill: 10%}}").dataset
    assert (dataset.fill_ratio, dataset.row) == (0.1, "small")
    assert dataset.rows > 100_000_000


def test_shares_and_the_end_are_one_value() -> None:
    work = patched(ROWS, "{workload.operations: {write: 100%}, workload.stop: {duration: 9s}}")
    assert work.workload.operations.model_dump() == {"read": 0, "write": 1}
    assert work.workload.stop.model_dump() == {"operations": None, "duration_s": 9}


def test_null_takes_a_key_away() -> None:
    assert list(patched(ROWS, "{cluster.volumes.commitlog: null}").cluster.volumes) == ["data"]


def test_a_level_may_add_a_whole_volume() -> None:
    cluster = patched(ROWS, "{cluster.volumes.log: {disks: azure/P10}}").cluster
    assert list(cluster.volumes) == ["data", "commitlog", "log"]


def test_the_last_factor_runs_fastest_and_labels_are_as_written() -> None:
    text = (
        f"{HEAD}{ROWS}factors:\n"
        "  cluster.volumes.data.read_ahead: [0, 8KiB]\n"
        "  cluster.volumes.data.caching: [None, ReadOnly]\n"
        "  database.tls: [true, false]\n"
    )
    trials = spec.parse(text).trials("predict")
    assert [tuple(trial.factors.values()) for trial in trials][:3] == [
        (0, "None", "true"),
        (0, "None", "false"),
        (0, "ReadOnly", "true"),
    ]
    assert [trial.index for trial in trials] == list(range(8))


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ("cluster.nodes: 5", "cluster.nodes: 6", "cluster.nodes"),
        ("workload.load: {threads: 5}", "workload.load.threads: 6", "workload.load.threads"),
        ("workload.load: {threads: 5}", "workload.load.rate: 6/s", "workload.load.threads"),
        ("workload.stop: {duration: 5s}", "workload.stop: {operations: 6}", "workload.stop"),
        (
            "cluster.volumes.commitlog.size: 1GiB",
            "cluster.volumes.commitlog: null",
            "cluster.volumes",
        ),
    ],
)
def test_two_factors_that_set_one_value_are_an_error_naming_both(
    one: str, other: str, path: str
) -> None:
    factors = f"factors:\n  first:\n    a: {{{one}}}\n    b: {{}}\n  second:\n    c: {{{other}}}\n"
    with pytest.raises(UserError) as caught:
        spec.parse(HEAD + ROWS + factors, "x.yaml")
    message = str(caught.value)
    assert f"x.yaml:20: {path}" in message
    assert "the factors 'first' (line 17) and 'second' both set it; let one factor" in message


def test_two_factors_may_set_the_same_value() -> None:
    factors = (
        "factors:\n  first:\n    a: {cluster.nodes: 5}\n  second:\n    b: {cluster.nodes: 5}\n"
    )
    assert spec.parse(HEAD + ROWS + factors).trials("predict")[0].spec.cluster.nodes == 5


def test_a_part_of_the_matrix_keeps_its_numbers() -> None:
    text = f"{HEAD}{ROWS}factors:\n  workload.load.threads: [1, 2, 3]\n  database.tls: [true]\n"
    experiment = spec.parse(text)
    part = experiment.select(**{"workload.load.threads": [1, 3]})
    assert [trial.index for trial in part.trials("predict")] == [0, 2]
    # The end of a path is enough where no other factor has it.
    assert [t.index for t in experiment.only({"threads": ["2"]}).trials("predict")] == [1]
    with pytest.raises(UserError) as caught:
        experiment.only({"workload.load.thread": ["1"], "database.tls": ["tru"]})
    assert str(caught.value).splitlines() == [
        "--only: workload.load.thread: is not a factor of the experiment; "
        "did you mean workload.load.threads?",
        "--only: tru: is not a level of database.tls; did you mean true?",
    ]
