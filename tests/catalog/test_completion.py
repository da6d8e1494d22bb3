"""Completion in the shell, as bash asks for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.programs import ended

DISKLAB = Path(sys.executable).with_name("disklab")


def completed(words: str) -> list[str]:
    count = len(words.split()) - (not words.endswith(" "))
    asked = {"_DISKLAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    ran = ended([str(DISKLAB)], env={**os.environ, **asked})
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("disklab disk attach azure/P3", ["azure/P3", "azure/P30"]),
        ("disklab disk attach azure/P30 --vm azure/Standard_DS14", ["azure/Standard_DS14_v2"]),
        ("disklab catalog azure/Standard_DS14", ["azure/Standard_DS14_v2"]),
        ("disklab disk fail data st", ["stall"]),
    ],
)
def test_names_are_completed(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


def test_a_broken_file_does_not_break_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("families: [")
    monkeypatch.setenv("DISKLAB_CATALOG", str(broken))
    assert completed("disklab disk attach azure/P3") == []
