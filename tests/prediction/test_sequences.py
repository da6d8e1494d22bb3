"""Caches of the trial before, cells past the host cache, and what percentiles consist of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt
import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.events import Event
from disklab.prediction import Options, calibration_for, predict
from disklab.prediction.cells import prepare
from disklab.prediction.steady import Numbered, joined
from disklab.report.page import page
from disklab.report.report import Report
from disklab.results import Run, TrialResult
from disklab.results.seconds import largest, stretches

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


CLIFF = Path("experiments/cassandra-cache-cliff.yaml")
STORED_ROW_BYTES = 4255 + 19
"""A row of the study, and its entry in the index."""
PAGES_OF_A_ROW = 2.04
CACHE_BYTES = 576 << 30


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], TrialResult]:
    """Every cell of the experiment, a fiftieth of its rows, memory and cache."""
    experiment = spec.load(CLIFF)
    out = tmp_path_factory.mktemp("runs")
    run = predict(experiment, Options(fidelity="quick", out=out), lambda _: None)
    return {
        (str(result.factors["dataset.rows"]), str(result.factors["data disks"])): result
        for result in run.results()
    }


def mean_ms(result: TrialResult) -> float:
    return result.latency_ms["mean"]


@pytest.mark.parametrize("rows", ["50M", "150M"])
def test_while_the_data_fit_readonly_is_as_fast_as_local(
    cells: dict[tuple[str, str], TrialResult], rows: str
) -> None:
    cached, local = cells[rows, "attached, ReadOnly"], cells[rows, "local"]
    assert cached.host_cache_hit_ratio == pytest.approx(1.0, abs=0.001)
    assert cached.ops_per_s == pytest.approx(local.ops_per_s, rel=0.03)
    none = cells[rows, "attached, None"]
    assert cached.ops_per_s > 3 * none.ops_per_s


@pytest.mark.parametrize(("rows", "count"), [("1000M", 1_000), ("2000M", 2_000)])
def test_past_the_cache_time_follows_the_hit_ratio(
    cells: dict[tuple[str, str], TrialResult], rows: str, count: int
) -> None:
    cached, none = cells[rows, "attached, ReadOnly"], cells[rows, "attached, None"]
    hits = cached.host_cache_hit_ratio
    fits = CACHE_BYTES / (count * 10**6 * STORED_ROW_BYTES / 6)
    # The index was written last and stays: only the two pages of a row miss.
    ios = cached.telemetry.model_dump()["read_ios_per_operation"]
    assert hits == pytest.approx(1 - (1 - fits) * PAGES_OF_A_ROW / ios, abs=0.04)
    # No limit binds here, so the time of a read is a mixture of the two: a little less, because the
    # warm reads are so many that they wait for the client.
    warm = mean_ms(cells["500M", "attached, ReadOnly"])
    mixed = hits * warm + (1 - hits) * mean_ms(none)
    assert 0.8 * mixed < mean_ms(cached) < 1.05 * mixed
    assert warm < mean_ms(cached) < mean_ms(none)


@pytest.mark.parametrize("rows", ["500M", "1000M", "2000M"])
def test_data_that_outgrow_the_local_disk_are_refused(
    cells: dict[tuple[str, str], TrialResult], rows: str
) -> None:
    refused = cells[rows, "local"]
    assert refused.status == "refused"
    assert "holds 224 GiB" in str(refused.reason.rule)


EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def heard(_event: Event) -> None:
    """Say nothing."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    experiment = spec.load(EXPERIMENTS / "cassandra-disk-caching-threads.yaml")
    options = Options(fidelity="quick", bands=False, out=tmp_path_factory.mktemp("runs"))
    return predict(experiment, options, heard)


def by_levels(results: Sequence[TrialResult]) -> dict[tuple[str, ...], TrialResult]:
    return {tuple(str(level) for level in one.factors.values()): one for one in results}


def test_the_stretches_of_each_percentile_add_up_to_it(run: Run) -> None:
    results = run.results()
    assert len(results) == 8
    for result in results:
        told = [(result.tail_ms, result.latency_ms)]
        told += [(one.tail_ms, one.latency_ms) for one in result.per_operation.values()]
        for tail_ms, latency_ms in told:
            for percentile in ("p50", "p95", "p99"):
                parts = tail_ms[percentile]
                assert sum(parts.values()) == pytest.approx(latency_ms[percentile])


def test_the_tail_of_the_study_is_what_it_should_be(run: Run) -> None:
    cells = by_levels(list(run.results()))
    # Few threads wait for a disk 2.4 ms away; what a host cache serves waits for its limit.
    assert largest(stretches([cells["None", "64"]], "p99")).startswith("disk ")
    assert largest(stretches([cells["ReadOnly", "128"]], "p99")).startswith("queue at disk limits ")
    assert stretches([cells["ReadOnly", "128"]], "p50").get("limits", 0) < 0.5


def test_the_report_shows_them(run: Run) -> None:
    report = Report.of([run])
    section = next(one for one in report.sections if one.name == "tail")
    assert [panel.title for panel in section.panels] == ["p99", "p95", "p50"]
    assert len(section.panels[0].figures.rows) == 8
    for panel in section.panels:
        drawn = panel.spec(width="container")
        del drawn["description"]
        alt.Chart.from_dict({**drawn}, validate=True)
    assert "What the tail consists of" in page(report)


def test_what_nobody_tells_is_not_said() -> None:
    assert stretches([], "p99") == {}
    assert largest({}) == ""
    assert largest({"disk": 8.0, "pause": 1.5, "cpu": 0.5}) == "disk 80 %, garbage collection 15 %"
