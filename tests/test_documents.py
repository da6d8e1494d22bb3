"""What the documentation shows works as it stands."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

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
