"""The example notebooks run from top to bottom, cell after cell, in an empty folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import disklab
import pytest
from disklab.errors import UserError

from tests.programs import ended

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))

# A notebook shows the value of a cell's last line; a chart makes its JSON then.
RUN = """
import ast, json, sys
space = {}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] != "code":
        continue
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, sys.argv[1], "exec"), space)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), sys.argv[1], "eval"), space)
        text = shown.to_json() if hasattr(shown, "mark_line") else str(shown)
        print(len(text), text[:2000])
"""


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    ran = ended([sys.executable, "-c", RUN, str(notebook)], cwd=tmp_path, code=0)
    assert "shape:" in ran.stdout
    assert '"$schema"' in ran.stdout, "a chart"
    assert list((tmp_path / "disklab-runs").glob("*/run.json"))


def test_there_are_two_notebooks_without_stored_output() -> None:
    assert len(NOTEBOOKS) == 2
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        assert all(not cell.get("outputs") for cell in cells)


def test_published_figures_are_found_by_a_part_of_the_title() -> None:
    frame = disklab.published("HOW MANY CLIENT THREADS")
    assert set(frame["mode"]) == {"published"}
    assert frame.height == 8
    with pytest.raises(UserError, match="belongs to no published experiment; known are"):
        disklab.published("no such study")
    with pytest.raises(UserError, match="belongs to several"):
        disklab.published("c")
