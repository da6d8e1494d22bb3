"""What packages install beside the program: a man page that renders, and completion."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARE = ROOT / "installer" / "data" / "share"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_renders_without_a_warning() -> None:
    ran = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(SHARE / "man" / "man1" / "disklab.1")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not ran.stderr
    assert "which disks should my distributed database live on?" in ran.stdout
    assert "disklab reproduce" in ran.stdout


def test_bash_takes_the_completion() -> None:
    file = SHARE / "bash-completion" / "completions" / "disklab"
    told = f"source {file}; complete -p disklab"
    ran = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True)
    assert "_disklab_completion disklab" in ran.stdout


def test_the_scripts_are_sound() -> None:
    for name in ("release.sh", "setup.sh", "demo.sh"):
        subprocess.run(["bash", "-n", str(ROOT / "scripts" / name)], check=True)
