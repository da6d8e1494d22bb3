"""Trials that begin with the caches of the trial before: first and second passes, sweeps."""

from __future__ import annotations

from pathlib import Path

from disklab import spec
from disklab.catalog import load_catalog
from disklab.events import Event
from disklab.prediction import Options, calibration_for, predict
from disklab.prediction.cells import prepare
from disklab.prediction.steady import Numbered, joined
from disklab.results import TrialResult

TWO_PASSES = """\
title: passes
cluster: {nodes: 3, vm: azure/Standard_DS12_v2, volumes: {data: {disks: 4 x azure/P30}}}
database: {engine: cassandra}
dataset: {rows: 4M, row: 5 x 818B}
workload: {operations: {read: 100%}, load: {threads: 64}, stop: {operations: 4M}}
factors:
  before.page_cache: [cold, as-left]
"""
SWEEP = (
    TWO_PASSES.replace("page_cache: [cold, as-left]", "host_cache: [empty]")
    .replace(
        "factors:",
        """\
before: {page_cache: as-left, host_cache: as-left}
factors:
  cluster.nodes: [3, 4]
  workload.load.threads: [32, 64]""",
    )
    .replace("  before.host_cache: [empty]\n", "")
)


def silent(_: Event) -> None:
    pass


def results(text: str, folder: Path) -> list[TrialResult]:
    options = Options(fidelity="quick", out=folder, bands=None)
    found = predict(spec.parse(text, "x.yaml"), options, silent).results()
    return sorted(found, key=lambda one: one.trial)


def numbered(text: str) -> list[Numbered]:
    catalog, calibration = load_catalog(), calibration_for("cassandra")
    found: list[Numbered] = []
    for trial in spec.parse(text, "x.yaml").trials("predict"):
        job = prepare(trial, catalog, calibration, "x.yaml").job
        found.append((trial, {"cell": trial.index, **job}))
    return found


def test_a_second_pass_reads_what_the_first_one_left_out(tmp_path: Path) -> None:
    first, second = results(TWO_PASSES, tmp_path)
    assert (first.status, second.status) == ("ok", "ok")
    told = [(one.telemetry.model_extra or {})["read_ios_per_operation"] for one in (first, second)]
    # 16 GB of rows in three page caches of 14 GiB: after as many reads as rows most are there.
    assert told[1] < 0.6 * told[0]
    assert second.ops_per_s > first.ops_per_s
    # A pass alone is the same as the first of two.
    alone = TWO_PASSES.replace("[cold, as-left]", "[cold]")
    (only,) = results(alone, tmp_path)
    assert only.latency_ms == first.latency_ms


def test_the_trials_of_a_bed_follow_each_other_in_the_order_of_the_file() -> None:
    jobs = joined(numbered(SWEEP))
    assert [(job["cell"], [next_["cell"] for next_ in job["then"]]) for job in jobs] == [
        (0, [1]),
        (2, [3]),
    ]
    assert [job.get("then") for job in joined(numbered(TWO_PASSES.replace(", as-left", "")))] == [
        None
    ]


def test_a_search_takes_no_caches_over() -> None:
    text = TWO_PASSES.replace("[cold, as-left]", "[as-left]").replace(
        ", stop: {operations: 4M}", ""
    )
    text = text.replace("load: {threads: 64}", "stop: {duration: 10s}")
    text += "procedure: {variable: {median_latency: 10ms}}\n"
    (trial,) = spec.parse(text, "x.yaml").trials("predict")
    (reason,) = prepare(trial, load_catalog(), calibration_for("cassandra"), "x").reasons
    assert "pass their caches on" in reason.rule
