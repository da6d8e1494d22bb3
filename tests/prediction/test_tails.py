"""What percentiles consist of, from the simulator to the page and to words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt
import pytest
from disklab import spec
from disklab.events import Event
from disklab.prediction import Options, predict
from disklab.report.page import page
from disklab.report.report import Report
from disklab.results import Run, TrialResult
from disklab.results.seconds import largest, stretches

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
