"""Figures that other work spoiled are named first, shown, and in no answer; the others are."""

from __future__ import annotations

from pathlib import Path

from disklab.report import tables
from disklab.report.report import Report
from disklab.report.wording import SPACE
from disklab.results import Run

from tests.report.synthetic import Made, make_run

TAIL = {"tail": "one wait in a hundred for replies of volume data that this machine made late"}


def run_of(out: Path, spoiled: dict[str, str]) -> Run:
    cells = [
        Made({"disk": "P10"}, 400.0, p50_ms=8.0, more={"spoiled": spoiled}),
        Made({"disk": "P30"}, 900.0, p50_ms=4.0),
    ]
    return make_run(out, cells, title="Which disk?", seconds=5)


def first_lines(report: Report) -> list[str]:
    return [finding.text.replace(SPACE, " ") for _, finding in report.said]


def test_the_first_line_says_which_figure_does_not_count(tmp_path: Path) -> None:
    report = Report.of([run_of(tmp_path, TAIL)])
    first, *rest = first_lines(report)
    assert first == (
        "No answer on the 99th percentile of P10: other work on this machine disturbed it"
    )
    ((_, finding),) = report.headline
    assert finding.reason == TAIL["tail"]
    # The rate was not spoiled, and the answer on it stands.
    assert any("P30" in text for text in rest)
    (cell, _) = report.subjects[0].matrix.cells.values()
    assert cell.median("p99_ms") is None
    assert cell.median("ops_per_s") is not None


def test_the_table_shows_what_it_was(tmp_path: Path) -> None:
    (subject,) = Report.of([run_of(tmp_path, TAIL)]).subjects
    figures = tables.summary(subject)
    column = figures.headings.index("p99")
    assert all(line[column] for line in figures.rows)


def test_a_rate_that_was_spoiled_makes_no_answer(tmp_path: Path) -> None:
    (subject,) = Report.of([run_of(tmp_path, {"rate": "x", "median": "x"})]).subjects
    first, *_ = first_lines(Report.of([subject.run]))
    assert first.startswith("No answer on the rate and the median of P10")
