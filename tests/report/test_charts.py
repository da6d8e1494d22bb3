"""Charts are built unchecked, for time; here every kind of them is held against the schema."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import pytest
from disklab.report.axes import wrapped
from disklab.report.report import Report

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
