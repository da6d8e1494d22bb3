"""`disklab probe` under sudo: the results are the caller's, and root's part does a closed list."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from disklab.errors import MachineError, UserError
from disklab.privilege.probing import FORMS, ProbeAt, probed
from disklab.probe import target
from disklab.probe.cells import MIB, Cell, Direction, Plan, Profile
from disklab.probe.emulated import At
from disklab.probe.fio import Job, find_fio
from disklab.probe.target import open_region

from tests.hosts.conftest import Lab
from tests.programs import ended

from .conftest import CALLER
from .test_caller import DISKLAB, SUDO, owners

ONE_CELL = ("--rw", "randread", "--bs", "4k", "--profile", "sync", "--duration", "1s")


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")
def test_results_of_an_emulated_disk_are_the_callers(lab: Lab, mine: Path) -> None:
    ran = ended(
        [
            *(str(DISKLAB), "probe", "--disk", "azure/P30", *ONE_CELL, "--size", "16MiB"),
            *("--json", "--out", str(mine / "results")),
        ],
        env={**lab.environment(), **SUDO},
        cwd=mine,
        code=0,
    )
    (told,) = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told["valid"] in (True, False)
    (run,) = (mine / "results").iterdir()
    (kept,) = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    assert kept == {**told, "run": run.name}
    assert set(owners(mine).values()) == {CALLER}
    assert lab.devices() == {}


READ = Cell(Profile.SYNC, Direction.RANDREAD, 4096)
WRITE = Cell(Profile.SYNC, Direction.RANDWRITE, 4096)


def plan(*cells: Cell) -> Plan:
    return Plan(cells or (READ,), 0.2, 4 * MIB)


def asked(**changed: Any) -> dict[str, Any]:
    """Return a request as the caller's part sends it, and something in its plan changed."""
    message = FORMS.asked(ProbeAt(At(Path("/nonexistent"), plan())))
    message["with"]["wanted"]["plan"].update(changed)
    return message


HOSTILE: tuple[dict[str, Any], ...] = (
    {"engine": "filedelete"},
    {"engine": "exec"},
    {"engine": "libaio\n"},
    {"engine": "external:/tmp/evil.so"},
    {"engine": "http"},
    {"engine": "libaio --exec_prerun=id"},
    {"engine": None},
    {"engine": ["libaio"]},
    {"exec_prerun": "id"},
    {"size_bytes": -1},
    {"size_bytes": 1 << 62},
    {"duration_s": float("inf")},
    {"duration_s": -1},
    {"time_dilation": 0},
    {"cells": [{"profile": "sync", "direction": {"random": True, "read_percent": 101},
                "block_bytes": 4096}]},
    {"cells": [{"profile": "sync", "direction": {"random": True, "read_percent": 100},
                "block_bytes": 0}]},
    {"cells": [{"profile": "exec", "direction": {"random": True, "read_percent": 100},
                "block_bytes": 4096}]},
    {"cells": [{"profile": "sync", "direction": {"random": True, "read_percent": 100},
                "block_bytes": 4096, "asked": {"jobs": 10**9, "depth": 1}}]},
    {"cells": [{"profile": "sync", "direction": {"random": True, "read_percent": 100},
                "block_bytes": 4096, "filename": "/etc/shadow"}]},
)  # fmt: skip


def test_what_a_caller_asks_is_answered() -> None:
    name, request = FORMS.request_of(asked())
    assert name == "at"
    assert request.wanted.plan == plan()


@pytest.mark.parametrize("changed", HOSTILE, ids=str)
def test_engines_and_options_of_fio_are_a_closed_list(changed: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match=r"^refused: "):
        FORMS.request_of(asked(**changed))


def test_a_plan_has_no_engine_of_fios_that_deletes() -> None:
    with pytest.raises(ValueError, match="filedelete"):
        Plan((READ,), 1.0, MIB, "filedelete")  # type: ignore[arg-type]


def test_fio_reads_what_was_proved_whatever_its_name_leads_to(tmp_path: Path) -> None:
    mine, other, link = tmp_path / "mine", tmp_path / "other", tmp_path / "link"
    mine.write_bytes(b"m" * 8 * MIB)
    link.symlink_to(mine)
    with open_region(link, plan(), ours=False, destroy_data=False) as region:
        link.unlink()
        link.symlink_to(other)
        opened = os.stat(region.path)
        assert (opened.st_dev, opened.st_ino) == (mine.stat().st_dev, mine.stat().st_ino)
        job = Job(find_fio("libaio"), region.path, region.writable, plan())
        assert job.measure(READ, lambda _: None).ios > 0
    assert region.shown == str(link)


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="loop devices are root's")
def test_a_device_that_was_proved_is_written_and_no_other_file(tmp_path: Path) -> None:
    """64 MiB of a file were overwritten by a link that came between the look and fio."""
    ours, victim, link = tmp_path / "ours", tmp_path / "victim", tmp_path / "link"
    for file in (ours, victim):
        file.write_bytes(b"\0" * 8 * MIB)
    device = subprocess.run(
        ["losetup", "--find", "--show", str(ours)], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        link.symlink_to(device)
        with open_region(link, plan(WRITE), ours=True, destroy_data=False) as region:
            assert region.writable
            link.unlink()
            link.symlink_to(victim)
            Job(find_fio("libaio"), region.path, True, plan(WRITE)).fill(lambda _: None)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert victim.read_bytes() == b"\0" * 8 * MIB
    assert ours.read_bytes()[: 4 * MIB].count(0) < MIB


def test_a_directory_that_was_looked_at_has_the_file_of_the_probe(tmp_path: Path) -> None:
    real, other, link = tmp_path / "real", tmp_path / "other", tmp_path / "link"
    real.mkdir()
    other.mkdir()
    link.symlink_to(real)
    with target.opened(link) as at:
        link.unlink()
        link.symlink_to(other)
        with target.region_of(at, plan(), ours=False, destroy_data=False) as region:
            assert os.stat(region.path).st_nlink == 0
            assert os.stat(region.path).st_dev == real.stat().st_dev
    assert list(other.iterdir()) == list(real.iterdir()) == []


@pytest.mark.parametrize("kind", ["fifo", "missing", "character", "loop"])
def test_what_is_no_place_to_probe_is_refused_in_words(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "character":
        path = Path("/dev/null")
    elif kind == "loop":
        path.symlink_to(path)
    if shutil.which("fio") is None:
        pytest.skip("no fio")
    with pytest.raises(UserError):
        probed(ProbeAt(At(path, plan())), lambda _: None)
