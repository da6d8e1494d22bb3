"""docs/measure.md names every database that can be measured."""

from __future__ import annotations

from pathlib import Path

from disklab.database_facts import facts_of
from disklab.measurement.machines_of import ENGINES

PAGE = Path(__file__).parents[2] / "docs" / "measure.md"


def test_every_database_says_what_its_hosts_need() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for engine in ENGINES:
        title = facts_of(engine).title
        assert f"| {title} |" in text, title
        assert f"- **{title}** is" in text, title
