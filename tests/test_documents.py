"""What the documentation shows works as it stands: examples, drawings, notebooks."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from scripts import examples
from tests.in_process import disklab

DOCS = Path(__file__).parent.parent / "docs"
WHOLE = re.compile(r"^```yaml\n(title: .*?)^```", re.MULTILINE | re.DOTALL)
FILES = [
    (page, text) for page in sorted(DOCS.glob("*.md")) for text in WHOLE.findall(page.read_text())
]


def test_there_are_examples() -> None:
    assert {page.name for page, _ in FILES} >= {"tutorial.md"}


@pytest.mark.parametrize(("page", "text"), FILES, ids=[page.name for page, _ in FILES])
def test_an_experiment_in_the_docs_is_accepted(page: Path, text: str, tmp_path: Path) -> None:
    # Files that an example names lie beside it, as they do in experiments.
    shutil.copytree(DOCS.parent / "experiments" / "traces", tmp_path / "traces")
    file = tmp_path / "of_the_docs.yaml"
    file.write_text(text)
    disklab("experiment", "check", str(file), code=0)


NAME = "predicted/azure-queue-depths"


def test_an_example_tells_when_its_run_would_look_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(examples.EXAMPLES / NAME, tmp_path / NAME)
    monkeypatch.setattr(examples, "EXAMPLES", tmp_path)
    assert not list(examples.rendered(NAME, write=False))
    kept = tmp_path / NAME / "run" / "run.json"
    info = json.loads(kept.read_text())
    # What a run is called stands in every caption, as colours stand in every chart.
    info["seed"] = 7
    kept.write_text(json.dumps(info))
    told = list(examples.rendered(NAME, write=False))
    assert [one.split()[0] for one in told][:2] == ["rate.svg", "latency-p50.svg"]
    list(examples.rendered(NAME, write=True))
    assert not list(examples.rendered(NAME, write=False))
    assert "seed 7" in (tmp_path / NAME / "rate.svg").read_text()


def test_what_is_kept_of_a_run_tells_nothing_of_where_it_lay() -> None:
    kept = [examples.EXAMPLES / name / "run" for name in examples.SHOWN]
    for folder in filter(Path.is_dir, kept):
        assert sorted(one.name for one in folder.iterdir()) == sorted(examples.KEPT)
        assert "--out" not in json.loads((folder / "run.json").read_text())["command"]
