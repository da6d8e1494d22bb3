"""Published studies, and results of yugabyte/tpcc, are runs that are read like any other."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.cli.app import app
from disklab.errors import UserError
from disklab.report.cells import key_of
from disklab.results import ReferenceRun, Run, reference_runs
from disklab.results.yugabyte_tpcc import read, trial_of
from typer.testing import CliRunner

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


EXPERIMENT = str(Path(__file__).parents[2] / "experiments/yugabytedb-disk-types.yaml")
KEYS = ("Count", "avgLatency", "P99Latency", "connectionAcqLatency")
# Made as its docs/METRICS_AND_RESULTS.md says: 1800 s of 2000 warehouses.
OUTPUT: dict[str, Any] = {
    "TestConfiguration": {
        "numNodes": 3,
        "totalWarehouses": 2000,
        "numWarehouses": 2000,
        "numDBConnections": 600,
        "warmupTimeInSecs": 300,
        "runTimeInSecs": 1800,
        "numRetries": 2,
        "testStartTime": "06-10-26_14:03:00",
    },
    "Results": {"tpmc": 25600.0, "efficiency": 99.53, "throughput": 948.1},
    "Latencies": {
        name: dict(zip(KEYS, values, strict=True))
        for name, values in {
            "NewOrder": (768_000, 94.13, 210.5, 0.4),
            "Payment": (734_000, 40.2, 110.0, 0.4),
            "OrderStatus": (68_300, 12.1, 44.0, 0.4),
            "Delivery": (68_200, 150.3, 402.0, 0.4),
            "StockLevel": (68_100, 30.0, 80.0, 0.4),
            "All": (1_706_600, 70.0, 300.0, 0.4),
        }.items()
    },
    "RetryAttempts": {"NewOrder": {"count": 768_000, "retriesFailureCount": [[512, 27, 1]]}},
}


def changed(*path: str, value: Any) -> str:
    found = copy.deepcopy(OUTPUT)
    place = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return json.dumps(found)


def as_list() -> str:
    listed = [{"Transaction": name, **one} for name, one in OUTPUT["Latencies"].items()]
    return changed("Latencies", value=listed)


@pytest.mark.parametrize("text", [json.dumps(OUTPUT), as_list()], ids=["table", "list"])
def test_both_forms_become_the_same_result(text: str) -> None:
    result = trial_of(read(text, "output.json"), "title", 14, 2, {"disk": "Ultra"})
    assert (result.mode, result.trial, result.repeat, result.nodes) == ("measure", 14, 2, 3)
    assert result.ops_per_s == pytest.approx(25600 / 60)
    assert result.latency_ms == {"mean": 94.13, "p99": 210.5}
    assert result.loop == {"kind": "closed", "threads": 600}
    assert set(result.per_operation) == {
        "new_order",
        "payment",
        "order_status",
        "delivery",
        "stock_level",
    }
    assert result.per_operation["delivery"].operations == 68_200
    assert result.per_operation["new_order"].errors == 540
    assert result.errors == {"failed attempts": 540}
    told = result.model_dump()
    assert told["efficiency_ratio"] == pytest.approx(25600 / 25720)
    assert sum(told["mix_ratio"].values()) == pytest.approx(1)
    assert result.usable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "results/json/output.json"),
        (changed("TestConfiguration", "runTimeInSecs", value="long"), "runTimeInSecs"),
        (changed("Results", "tpmc", value=99_000.0), "makes 25600.00 new orders a minute"),
        (changed("Latencies", value={}), "Delivery, NewOrder"),
    ],
)
def test_what_is_no_such_result_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(text, "output.json")


def test_a_run_is_made_and_grows_and_lies_beside_the_published_one(tmp_path: Path) -> None:
    file = tmp_path / "output.json"
    file.write_text(json.dumps(OUTPUT))
    out = tmp_path / "runs"

    def imported(disk: str, *more: str) -> dict[str, Any]:
        command = ["import", EXPERIMENT, str(file), "--only", f"disk={disk}"]
        command += ["--only", "workload=TPC-C", "--out", str(out), "--json", *more]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == 0
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    run_id = imported("Ultra")["run"]
    assert imported("Ultra", "--into", run_id)["run"] == run_id
    assert imported("Premium SSD v2", "--into", run_id)["run"] == run_id
    run = Run.open(run_id, out)
    results = run.results()
    assert sorted(result.repeat for result in results) == [0, 0, 1]
    (study,) = [
        one for one in reference_runs() if one.info.experiment.title == results[0].experiment
    ]
    published = {tuple(one.factors.items()): one for one in study.results()}
    for result in results:
        # The factors are the published ones: a report finds the cell.
        assert published[tuple(result.factors.items())].ops_per_s == pytest.approx(
            25600 / 60, rel=0.01
        )
    done = CliRunner().invoke(app, ["report", run_id, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert (run.folder / "report.html").exists()


def test_a_cell_that_is_not_tpc_c_or_not_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "output.json"
    file.write_text(json.dumps(OUTPUT))
    command = ["import", EXPERIMENT, str(file), "--out", str(tmp_path / "runs")]
    for only, said in (
        ([], "this names 15"),
        (["disk=Ultra", "workload=sysbench read, 20 tables"], "the results are TPC-C's"),
    ):
        chosen = [word for choice in only for word in ("--only", choice)]
        with pytest.raises(UserError, match=said):
            CliRunner().invoke(app, [*command, *chosen], catch_exceptions=False)
    assert not (tmp_path / "runs").exists()
