"""The published studies are runs whose cells are those of our experiment files."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.report.cells import key_of
from disklab.results import ReferenceRun, reference_runs

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
RUNS = {run.info.id.removesuffix("-published"): run for run in reference_runs()}


@pytest.mark.parametrize("stem", sorted(RUNS))
def test_every_published_cell_is_a_trial_of_the_experiment_of_that_name(stem: str) -> None:
    experiment = spec.load(EXPERIMENTS / f"{stem}.yaml")
    ours = {key_of(trial.factors) for trial in experiment.trials("published")}
    run = RUNS[stem]
    assert run.info.experiment.title == experiment.title
    assert {key_of(result.factors) for result in run.results()} <= ours
    assert run.results()


def cell(run: ReferenceRun, **wanted: str | int) -> dict[str, float]:
    (found,) = (
        one
        for one in run.results()
        if {name.rsplit(".", 1)[-1].replace(" ", "_"): level for name, level in one.factors.items()}
        == wanted
    )
    return {"ops": found.ops_per_s or 0, **found.latency_ms}


def test_figures_are_the_publishers() -> None:
    disks = RUNS["cassandra-local-or-attached"]
    read = cell(disks, data_disks="local", replication_factor=3, workload="read")
    assert read == {"ops": 52000, "p50": 2.0, "p95": 3.8, "p99": 10.4}
    ahead = RUNS["cassandra-disk-caching-read-ahead"]
    assert cell(ahead, caching="ReadOnly", read_ahead=0, threads=128)["ops"] == 80000
    assert cell(ahead, caching="None", read_ahead="128KiB", threads=256) == {"ops": 42000}
    vms = RUNS["cassandra-vm-types"]
    small = cell(vms, vm="L8s remote", procedure="variable", row="small", workload="read")
    assert small == {"ops": 7198, "mean": 48.3, "p50": 40.3, "p95": 123.5, "p99": 148.9}
    sql = RUNS["yugabytedb-disk-types"]
    assert cell(sql, disk="Ultra", workload="TPC-C")["ops"] == pytest.approx(25616.27 / 60)


def test_what_was_read_off_a_chart_says_so() -> None:
    threads = RUNS["cassandra-disk-caching-threads"].results()
    assert {one.citation.read for one in threads if one.citation} == {"chart"}
    marked = [
        one.factors
        for one in RUNS["cassandra-local-or-attached"].results()
        if one.citation and one.citation.chart_keys == ["p99"]
    ]
    assert {one["workload"] for one in marked} == {"write", "mixed"}
    assert {one["data disks"] for one in marked} == {"local"}


def test_a_cell_without_a_figure_is_kept_with_its_reason() -> None:
    failed = [one for one in RUNS["yugabytedb-disk-types"].results() if one.status == "failed"]
    assert [one.factors for one in failed] == [
        {"disk": "Premium SSD", "workload": "sysbench write, 30 tables"}
    ]
    assert failed[0].reason is not None


def test_rates_by_node() -> None:
    frame = RUNS["cassandra-disk-caching-threads"].frame()
    assert frame["ops_per_s_per_node"][0] == pytest.approx(14000 / 6)
