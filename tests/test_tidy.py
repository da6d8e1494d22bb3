"""The checks of `scripts/tidy.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.tidy import circles

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
