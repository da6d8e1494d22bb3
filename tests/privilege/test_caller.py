"""Under sudo, a command that needs no root gives it up, and what it writes is the caller's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prediction.test_command import NONE_128, THREADS
from tests.programs import ended

from .conftest import CALLER

DISKLAB = Path(sys.executable).with_name("disklab")
SUDO = {"SUDO_UID": str(CALLER), "SUDO_GID": str(CALLER)}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")


def owners(*places: Path) -> dict[str, int]:
    inside = [path for place in places for path in [place, *place.rglob("*")]]
    return {str(path): os.lstat(path).st_uid for path in inside}


def disklab(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = ended(
        [str(DISKLAB), *arguments],
        env={**os.environ, **SUDO},
        cwd=Path(__file__).parents[2],
        code=code,
    )
    assert "Traceback" not in ran.stderr
    return ran


def test_a_prediction_and_its_report_belong_to_the_caller(mine: Path) -> None:
    out = mine / "mine/runs"
    quick = (THREADS, *NONE_128, "--fidelity", "quick", "--no-bands")
    disklab("predict", *quick, "--out", str(out))
    (made,) = out.iterdir()
    disklab("report", str(made), "--html", str(mine / "pages/page.html"))
    disklab("experiment", "new", str(mine / "new.yaml"), "--vm", "azure/Standard_E8ds_v4")
    assert set(owners(mine).values()) == {CALLER}


RECORDING = """
import os, sys
from disklab.cli.root_part import divide, root_part
from disklab.privilege.probing import recorder_by
divide(["observe", "postgresql", "--block-trace=1s"])
assert os.geteuid() == int(os.environ["SUDO_UID"])
told = []
ended = recorder_by(root_part())([sys.argv[1]], 1.0, lambda: False, told.append)
assert 1 <= ended.seconds < 30, ended
"""


@pytest.mark.machine
def test_ios_are_recorded_by_roots_part_and_observed_by_the_caller(mine: Path) -> None:
    device = os.stat(mine).st_dev
    ran = ended(
        [sys.executable, "-c", RECORDING, f"{os.major(device)}:{os.minor(device)}"],
        env={**os.environ, **SUDO},
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_file_that_is_roots_alone_is_not_read(mine: Path) -> None:
    secret = mine / "secret.yaml"
    secret.write_text("title: secret\n")
    secret.chmod(0o600)
    (mine / "link.yaml").symlink_to(secret)
    for words in (("experiment", "check"), ("calibrate",)):
        said = disklab(*words, str(mine / "link.yaml"), code=2).stderr
        assert "not readable" in " ".join(said.split())
        assert "secret'" not in said


def test_nothing_is_written_where_the_caller_may_not(tmp_path: Path) -> None:
    """The folder is root's: as root it would have been written."""
    said = disklab("experiment", "new", str(tmp_path / "new.yaml"), code=2).stderr
    assert "FILE" in said
    assert not (tmp_path / "new.yaml").exists()


def test_root_is_given_up_for_good(mine: Path) -> None:
    """Users, groups, capabilities; and no program brings them back."""
    serve = subprocess.Popen(
        [str(DISKLAB), "serve", str(mine), "--port", "0"],
        env={**os.environ, **SUDO},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert b"token=" in serve.stderr.readline()
        told = facts(serve.pid)
    finally:
        serve.terminate()
        serve.communicate(timeout=20)
    check_unprivileged(told)


def facts(pid: int) -> dict[str, list[str]]:
    """Return what the kernel says about a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: told.split() for name, _, told in (line.partition(":") for line in lines)}


def check_unprivileged(told: dict[str, list[str]]) -> None:
    assert told["Uid"] == told["Gid"] == [str(CALLER)] * 4
    assert told["Groups"] in ([], [str(CALLER)])
    assert {int(told[name][0], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert told["NoNewPrivs"] == ["1"]
