"""What the checks of this tree see: of Python, of scripts of pages, and of what tests cost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from scripts.javascript import complaints, main
from scripts.tidy import circles
from tests.programs import ended

TOP = "use crate::{low::{self, Depth}, middle};\nmod low; mod middle;\n"


@pytest.mark.parametrize(
    ("low", "middle", "in_circle"),
    [
        ("use std::fmt::{self, Debug};", "use crate::low::Depth;", False),
        ("use crate::{middle::Part as Whole};", "use super::low::Depth;", True),
        ("fn depth() { crate::middle::whole() }", "fn whole() { super::low::depth() }", True),
        ("// See crate::middle.", "use crate::low::{Depth, Part};", False),
        ("#[cfg(test)]\nmod tests {\nuse crate::middle::Part;\n}", "use crate::low::Depth;", False),
    ],
)
def test_files_that_use_each_other_are_a_circle(
    tmp_path: Path, low: str, middle: str, in_circle: bool
) -> None:
    source = tmp_path / "src"
    (source / "middle").mkdir(parents=True)
    (source / "lib.rs").write_text(TOP)
    (source / "low.rs").write_text(low)
    (source / "middle.rs").write_text(middle + "\nmod part;\n")
    # A part may use what it is a part of.
    (source / "middle/part.rs").write_text("use super::Part;\nuse crate::middle::Other;\n")
    complaints = list(circles(tmp_path))
    assert [complaint.partition(": ")[2] for complaint in complaints] == (
        ["files that use each other in a circle, or lie between two: low, middle"]
        if in_circle
        else []
    )


def test_every_name_in_the_pages_is_defined_and_used() -> None:
    assert main() == 0


def test_a_name_that_nobody_defines_is_named_with_its_line(tmp_path: Path) -> None:
    first, second = tmp_path / "first.js", tmp_path / "second.js"
    first.write_text("'use strict';\nconst shared = 1;\n")
    second.write_text("document.title = shared;\ndocument.title = scene.number;\n")
    assert complaints([first, second]) == [f"{second}:2: 'scene' is not defined."]


SCRIPT = Path(__file__).parents[1] / "scripts/part.sh"
WORK = "echo ran >>ran; for ((i = 0; i < 100000; i++)); do :; done"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose part `cheap` once took nothing, and `dear` took long."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    figures = "# a comment\nloop\t-\t9\ncheap\t1\t0.01\ndear\t9\t99\n"
    (tmp_path / "scripts/parts.tsv").write_text(figures, encoding="utf-8")
    return tmp_path


def ran(tree: Path, *words: str, ci: str = "true") -> tuple[int, str]:
    done = ended([tree / "scripts/part.sh", *words], env={**os.environ, "CI": ci})
    return done.returncode, done.stdout


def test_a_part_over_its_budget_runs_once_more_and_fails(tree: Path) -> None:
    code, said = ran(tree, "cheap", "bash", "-c", WORK)
    assert code == 1
    assert "once more: cheap" in said
    assert (tree / "ran").read_text().split() == ["ran", "ran"]
    # Both count.
    parts = (tree / "target/parts.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in parts] == ["cheap", "cheap"]
    assert all(float(line.split("\t")[2]) > 0.01 for line in parts)
    _, table = ran(tree, "--table")
    assert table.splitlines()[1].split()[0] == "cheap"
    assert table.splitlines()[1].split()[-1] == "0.01"


def test_a_part_within_its_budget_and_an_unknown_one_run_once(tree: Path) -> None:
    assert ran(tree, "dear", "bash", "-c", WORK)[0] == 0
    assert ran(tree, "new", "bash", "-c", WORK)[0] == 0
    # On a machine of one's own nothing is demanded.
    assert ran(tree, "cheap", "bash", "-c", WORK, ci="")[0] == 0
    assert (tree / "ran").read_text().split() == ["ran"] * 3


def test_a_part_that_fails_fails_with_its_own_code(tree: Path) -> None:
    code, said = ran(tree, "cheap", "bash", "-c", f"{WORK}; exit 3")
    assert (code, "once more" in said) == (3, False)


def test_what_parts_took_becomes_what_they_may_take(tree: Path) -> None:
    for words in (("dear", "true"), ("dear", "bash", "-c", WORK), ("new", "true")):
        assert ran(tree, *words, ci="")[0] == 0
    assert ran(tree, "--renew") == (0, "")
    comment, loop, *parts = (tree / "scripts/parts.tsv").read_text().splitlines()
    assert comment == "# a comment"
    assert float(loop.removeprefix("loop\t-\t")) > 0
    assert [part.split("\t")[0] for part in parts] == ["cheap", "dear", "new"]
    # The dearest run counts, and what did not run keeps its figure.
    assert parts[0].split("\t")[1:] == ["1", "0"]
    assert float(parts[1].split("\t")[2]) < 99
