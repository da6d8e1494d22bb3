"""What commands write as root under sudo belongs to the user who called it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prediction.test_command import NONE_128, THREADS

DISKLAB = Path(sys.executable).with_name("disklab")
CALLER = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")


def owners(*places: Path) -> dict[str, int]:
    inside = [path for place in places for path in [place, *place.rglob("*")]]
    return {str(path): os.lstat(path).st_uid for path in inside}


def test_a_prediction_and_its_report_belong_to_the_caller(tmp_path: Path) -> None:
    sudo = {**os.environ, "SUDO_UID": str(CALLER), "SUDO_GID": str(CALLER)}

    def disklab(*arguments: str) -> None:
        subprocess.run(
            [str(DISKLAB), *arguments],
            env=sudo,
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
        )

    out = tmp_path / "mine/runs"
    quick = (THREADS, *NONE_128, "--fidelity", "quick", "--no-bands")
    disklab("predict", *quick, "--out", str(out))
    assert set(owners(tmp_path / "mine").values()) == {CALLER}
    (made,) = out.iterdir()
    # What was root's before stays root's; no link is followed.
    roots = tmp_path / "roots"
    roots.write_text("x")
    (made / "link").symlink_to(roots)
    disklab("report", str(made), "--html", str(tmp_path / "pages/page.html"))
    assert set(owners(tmp_path / "pages").values()) == {CALLER}
    assert os.stat(roots).st_uid == 0
    assert os.stat(tmp_path).st_uid == 0
