"""`disklab calibrate --here` under sudo: root's part has the bed; run and file are the caller's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disklab.databases.calibration import read_calibration

from tests.hosts.conftest import Lab

from .conftest import CALLER
from .test_caller import check_unprivileged, facts, owners
from .test_divided import NOTHING, as_caller, caller_of, nothing_left, read_until

sudo = pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")


@contextmanager
def calibration(lab: Lab, mine: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a calibration as sudo would; it is ended with the block."""
    out = str(mine / "here.yaml")
    with as_caller(lab, mine, "calibrate", "--here", "--out", out, *words) as started:
        yield started


@pytest.mark.machine
@sudo
def test_it_plans_as_the_caller_and_roots_part_makes_its_disk(lab: Lab, mine: Path) -> None:
    with calibration(lab, mine, "--minutes", "4") as started:
        # It has read the catalogue, simulated its plan and looked at this machine by then.
        read_until(started, "probing azure/P30")
        told = facts(caller_of(started))
        assert facts(started.pid)["Uid"] == ["0"] * 4
    check_unprivileged(told)
    assert nothing_left(lab) == NOTHING
    assert set(owners(mine).values()) == {CALLER}
    assert not (mine / "here.yaml").exists()


@pytest.mark.machine
@pytest.mark.long
@sudo
def test_the_calibration_and_its_run_are_the_callers(lab: Lab, mine: Path) -> None:
    with calibration(lab, mine, "--minutes", "3") as started:
        said, _ = started.communicate(timeout=1500)
    assert started.returncode == 0, said
    assert "probe: a 4 KiB read takes" in said
    assert set(owners(mine).values()) == {CALLER}
    assert read_calibration(mine / "here.yaml").parameters["read_cpu_ns"].value > 0
    assert nothing_left(lab) == NOTHING
