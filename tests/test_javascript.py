"""What the lint of the pages' scripts sees, which no compiler reads."""

from __future__ import annotations

from pathlib import Path

from scripts.javascript import complaints, main


def test_every_name_in_the_pages_is_defined_and_used() -> None:
    assert main() == 0


def test_a_name_that_nobody_defines_is_named_with_its_line(tmp_path: Path) -> None:
    first, second = tmp_path / "first.js", tmp_path / "second.js"
    first.write_text("'use strict';\nconst shared = 1;\n")
    second.write_text("document.title = shared;\ndocument.title = scene.number;\n")
    assert complaints([first, second]) == [f"{second}:2: 'scene' is not defined."]
