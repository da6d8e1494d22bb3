"""What a killed run of the tests leaves is cleared by the next one, and nobody else's."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.programs import ended

from .conftest import OWNER, PREFIX, Lab, clear_left

pytestmark = pytest.mark.machine

KILLED = """
import os, signal, tempfile
from tests.hosts.conftest import new_lab
with new_lab() as lab:
    lab.attach("azure/P30", "--size", "512MiB", "--mount", str(lab.root / "mnt"))
    print(lab.root, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_runs_disks_are_taken_away_and_a_running_ones_stay(lab: Lab) -> None:
    device = lab.attach("azure/P30", "--size", "64MiB")["device"]
    killed = ended(
        [sys.executable, "-c", KILLED], cwd=Path(__file__).parents[2], code=-signal.SIGKILL
    )
    left = Lab(Path(killed.stdout.strip()))
    assert all((left.devices(), left.mounts(), left.processes()))
    assert left.root.name.startswith(PREFIX)
    assert (left.root / OWNER).exists()

    clear_left(left.root.parent)
    assert not left.root.exists()
    assert (left.devices(), left.mounts(), left.processes()) == ({}, [], [])
    assert Path(device).name in lab.devices(), "this run's own lab is locked"
