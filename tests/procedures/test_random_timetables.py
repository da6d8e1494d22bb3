"""Timetables drawn at random, with kill -9 of the conductor among them.

`DISKLAB_TIMETABLES=100 pytest -m long -n 0 tests/procedures/test_random_timetables.py` runs a
hundred; a failing one is drawn again by its seed: `DISKLAB_TIMETABLES_FROM=SEED`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from disklab.hosts.control_group import GroupRoot

from tests.apart import apart
from tests.conftest import IN_CI
from tests.hosts.conftest import DISKLAB, Lab, new_lab

from .random_timetables import drawn

COUNT = int(os.environ.get("DISKLAB_TIMETABLES", "2"))
FIRST = int(os.environ.get("DISKLAB_TIMETABLES_FROM", "1"))
MOST_SECONDS = 600.0


@pytest.mark.parametrize("seed", range(1, 201))
def test_a_drawn_timetable_is_valid_and_ends_whole(seed: int) -> None:
    assert drawn(seed) == drawn(seed)


@contextmanager
def decoys() -> Iterator[list[Path]]:
    """Yield what is somebody else's: a namespace, a mount, a loop device and a memory group."""
    with ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="somebody-"))
        undo.callback(shutil.rmtree, folder)
        # No mount namespace: it would keep what is mounted on this machine meanwhile in use.
        held = subprocess.Popen(["unshare", "--net", "sleep", "1000000"])
        undo.callback(held.wait)
        undo.callback(held.kill)
        point = folder / "mount"
        point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "somebody", str(point)], check=True)
        undo.callback(subprocess.run, ["umount", str(point)], check=True)
        (point / "file").write_text("somebody's")
        image = folder / "image"
        image.write_bytes(bytes(1 << 20))
        made = subprocess.run(
            ["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=True
        )
        device = made.stdout.strip()
        undo.callback(subprocess.run, ["losetup", "-d", device], check=True)
        found = [
            Path(f"/proc/{held.pid}/ns/net"),
            point / "file",
            Path("/sys/block") / Path(device).name / "loop/backing_file",
        ]
        root = GroupRoot.of_machine()
        if root is not None:
            group = root.memory / f"somebody-{os.getpid()}"
            group.mkdir()
            undo.callback(group.rmdir)
            found.append(group)
        yield found


def groups() -> set[str]:
    """Return the memory groups of this machine."""
    root = GroupRoot.of_machine()
    return set() if root is None else {one.name for one in root.memory.iterdir() if one.is_dir()}


@pytest.mark.machine
@pytest.mark.alone
@pytest.mark.long
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@apart
def test_nothing_is_lost_and_nothing_is_left(seed: int, tmp_path: Path) -> None:
    if shutil.which("etcd") is None:
        assert not IN_CI, "scripts/setup.sh installs etcd in CI"
        pytest.skip("etcd is not installed")
    chance = random.Random(-seed)
    file, out = tmp_path / "drawn.yaml", tmp_path / "runs"
    file.write_text(drawn(seed), encoding="utf-8")
    with decoys() as others, new_lab() as lab:
        command = [str(DISKLAB), "rehearse", str(file), "--quick", "--out", str(out)]
        conductors = []
        if chance.random() < 0.6:
            conductors += killed(lab, command, out, chance)
        if conductors and out.is_dir():
            (run,) = out.iterdir()
            command = [*command[:2], "--resume", run.name, "--out", str(out)]
        with subprocess.Popen(
            command,
            env=lab.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            conductors.append(process.pid)
            said, _ = process.communicate(timeout=MOST_SECONDS)
        # 1: nothing is valid, as on a machine on which the emulator is late.
        assert process.returncode in {0, 1}, f"seed {seed}: {said}"
        (run,) = out.iterdir()
        (result,) = map(json.loads, (run / "trials.jsonl").read_text().splitlines())
        assert result["status"] in {"ok", "invalid"}, f"seed {seed}: {result['reason']}"
        seen = result["recovery"]
        lost = [seen[name] for name in ("rows_lost", "rows_wrong", "rows_unread", "updates_lost")]
        assert lost == [0, 0, 0, 0], f"seed {seed}: {seen}"
        assert os.listdir(lab.run_dir / "networks") == [], f"seed {seed}"
        left = sorted(map(str, (lab.run_dir / "databases").rglob("*")))
        assert left == [], f"seed {seed}, after conductors {conductors}: {said}"
        assert (lab.devices(), lab.mounts(), lab.processes()) == ({}, [], []), f"seed {seed}"
        # Others make and remove groups as they like; ours have the conductor's number.
        ours = tuple(f"rehearsal-{pid}-" for pid in conductors)
        left = [name for name in groups() if name.startswith(ours)]
        assert left == [], f"seed {seed}"
        assert all(os.path.lexists(one) for one in others), f"seed {seed}"


def killed(lab: Lab, command: list[str], out: Path, chance: random.Random) -> list[int]:
    """Start a rehearsal and kill its conductor at some moment; return its number.

    None where it had ended before.
    """
    with (lab.root / "killed.log").open("wb") as log:
        process = subprocess.Popen(command, env=lab.environment(), stdout=log, stderr=log)
    deadline = time.monotonic() + chance.uniform(2.0, 60.0)
    # It has to be there before it can be gone on with: what has no run.json yet is no run.
    while process.poll() is None and (
        time.monotonic() < deadline or not any(out.glob("*/run.json"))
    ):
        time.sleep(0.05)
    if process.poll() is not None:
        shutil.rmtree(out)
        return []
    process.send_signal(signal.SIGKILL)
    process.wait()
    return [process.pid]
