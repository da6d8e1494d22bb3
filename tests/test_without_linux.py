"""Predictions and reports need nothing of Linux; what does says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from disklab.cli.app import check_system
from disklab.errors import MachineError

from tests.programs import ended

SCRIPT = Path(__file__).with_name("without_linux.py")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *words]
    return ended(command, cwd=folder)


def test_a_prediction_and_its_report(tmp_path: Path) -> None:
    quick = ("--fidelity", "quick", "--no-bands", "--only", "host cache=ReadOnly caching")
    said = run(tmp_path, "predict", "cassandra-host-caching-quick", *quick)
    assert (said.returncode, "ReadOnly" in said.stdout) == (0, True), said.stderr
    (made,) = (tmp_path / "disklab-runs").iterdir()
    said = run(tmp_path, "report", str(made), "--html", "page.html")
    assert said.returncode == 0, said.stderr
    assert "</html>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_needs_linux_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    for words in (["rehearse", "FILE"], ["disk", "list"], ["calibrate", "--here"]):
        with pytest.raises(MachineError, match="needs Linux, and this is darwin"):
            check_system(words)
    for words in (["rehearse", "--help"], ["catalog", "disk"], ["predict", "FILE"], []):
        check_system(words)
