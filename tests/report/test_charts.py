"""Charts hold against the schema, and reports of any size open, in bounded time and memory."""

from __future__ import annotations

import csv
from pathlib import Path

import altair as alt
import pytest
from disklab.report import files
from disklab.report.answer import MOST_CELLS
from disklab.report.axes import wrapped
from disklab.report.report import Report
from disklab.results import Run

from benches.large_report import MOST_BYTES, MOST_SECONDS, report, write_hours, write_results
from tests.report import synthetic


@pytest.mark.parametrize("shape", synthetic.SHAPES)
def test_every_chart_is_valid_vega_lite(tmp_path: Path, shape: str) -> None:
    make = synthetic.SHAPES[shape]
    runs = [make(tmp_path, run_id=f"{shape}-{n}", seed=n, repeats=2, seconds=20) for n in range(2)]
    panels = [panel for section in Report.of(runs).sections for panel in section.panels]
    assert len(panels) >= 4
    for panel in panels:
        spec = panel.spec(width="container")
        del spec["description"]
        alt.Chart.from_dict({**spec}, validate=True)


def test_a_wrong_chart_is_seen(tmp_path: Path) -> None:
    """The check above is one: a chart with a wrong key does not pass."""
    report = Report.of([synthetic.local_or_attached(tmp_path, repeats=1, seconds=5)])
    spec = report.sections[0].panels[0].spec(width="container")
    with pytest.raises(Exception, match="was expected"):  # of jsonschema, which altair brings
        alt.Chart.from_dict({**spec, "layer": [{"mark": "no such mark"}]}, validate=True)


def test_a_name_has_lines_of_twenty_letters() -> None:
    assert wrapped("local disk, ReadOnly, 4 copies") == ["local disk,", "ReadOnly, 4 copies"]
    assert wrapped("twenty lettersabcdef, more") == ["twenty", "lettersabcdef, more"]
    assert wrapped("twenty letters abcde") == ["twenty letters abcde"]
    assert wrapped("") == [""]


CELLS = MOST_CELLS + 20


def test_more_cells_than_a_page_shows_are_in_a_table_beside_it(tmp_path: Path) -> None:
    made = Report.of([Run.open(write_results(tmp_path, CELLS, 1))])
    assert len(made.subjects[0].matrix.cells) == MOST_CELLS
    assert made.status[0].startswith(f"{MOST_CELLS} of {CELLS} cells are compared and shown here")
    (path,) = files.write_tables(made, tmp_path / "report.html")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == [str(number) for number in range(CELLS)]
    assert rows[0]["disk"] == "disk 0"
    assert float(rows[0]["p99_ms"]) == 9.0


def test_a_run_that_fits_the_page_has_no_table_beside_it(tmp_path: Path) -> None:
    made = Report.of([Run.open(write_results(tmp_path, 20, 1))])
    assert files.write_tables(made, tmp_path / "report.html") == []


@pytest.mark.long
@pytest.mark.alone
def test_a_hundred_thousand_results_and_ten_hours_are_reported_in_time(tmp_path: Path) -> None:
    for folder in (write_results(tmp_path, 100_000, 1), write_hours(tmp_path, 10.0)):
        cost = report(folder)
        assert cost.seconds <= MOST_SECONDS, folder
        assert cost.peak_bytes <= MOST_BYTES, folder
