"""`disklab clean` after kill -9: nothing of ours is left, nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from disklab import interrupts
from disklab.catalog import VolumeRequest, load_catalog
from disklab.hosts.attach import AttachRequest, attach
from disklab.hosts.places import HostPlace, Places

from tests.programs import ended, wait_until

from .conftest import DISKLAB, OWNER, PREFIX, Lab, clear_left

pytestmark = pytest.mark.machine

# 100 on demand; each cycle takes some seconds.
CYCLES = int(os.environ.get("DISKLAB_CYCLES", "2"))


def kinds(outcome: Any) -> list[str]:
    return [one["kind"] for one in outcome["removed"]]


def test_attach_mount_write_kill_clean(lab: Lab, foreign: Path) -> None:
    point = lab.root / "mnt"
    before = (lab.root / "foreign.img").read_bytes()
    for _ in range(CYCLES):
        lab.attach("azure/P30", "--size", "1GiB", "--mount", str(point))
        writer = subprocess.Popen(
            ["dd", "if=/dev/zero", f"of={point}/file", "bs=1M", "count=400"],
            stderr=subprocess.DEVNULL,
        )
        wait_until((point / "file").exists)
        os.kill(lab.engine(), signal.SIGKILL)
        planned = lab.json("clean", "--dry-run")
        assert "run directory" in kinds(planned)
        assert lab.devices() != {}
        outcome = lab.json("clean")
        writer.wait(timeout=30)
        assert {"mount", "device", "fuse mount", "run directory"} <= set(kinds(outcome))
        assert all(one["done"] for one in outcome["removed"])
        assert outcome["data"] == [str(lab.data_dir / "default/data.img")]
        assert (lab.devices().keys() - {foreign.name}, lab.processes()) == (set(), [])
        assert [line for line in lab.mounts() if "/mnt" in line] == []
    assert (lab.root / "foreign.img").read_bytes() == before
    assert lab.run("clean").stdout.startswith("data are kept in")
    assert kinds(lab.json("clean", "--data")) == ["data"]
    assert list(lab.data_dir.rglob("*.img")) == []


def test_a_terminated_engine_leaves_a_proof(lab: Lab) -> None:
    """SIGTERM while the disk is mounted: the device stays in use, and is still known as ours."""
    lab.attach("azure/P30", "--size", "1GiB", "--mount", str(lab.root / "mnt"))
    os.kill(lab.engine(), signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{lab.engine()}").exists())
    assert all(one["done"] for one in lab.json("clean")["removed"])
    assert (lab.devices(), lab.mounts(), lab.processes()) == ({}, [], [])


def test_a_terminated_attach_takes_its_engine_along(lab: Lab) -> None:
    """SIGTERM while the engine measures the machine, when it has a mount and a device already."""
    command = [str(DISKLAB), "disk", "attach", "azure/P30", "--size", "64MiB"]
    with subprocess.Popen(command, env=lab.environment(), stderr=subprocess.DEVNULL) as attach:
        # Also under what is there for a moment only: its devices come and go.
        wait_until(lambda: lab.devices() != {})
        attach.terminate()
        assert attach.wait(timeout=30) != 0
    assert (lab.devices(), lab.mounts(), lab.processes()) == ({}, [], [])
    assert not lab.host().exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("seen", ["the folder", "a device"])
def test_six_signals_while_a_host_starts_leave_nothing(
    lab: Lab, number: signal.Signals, seen: str
) -> None:
    command = [str(DISKLAB), "disk", "attach", "azure/P30", "--size", "64MiB"]
    errors = lab.root / "errors"
    with (
        errors.open("wb") as written,
        subprocess.Popen(
            command,
            env=lab.environment(),
            stderr=written,
            # These tests hold under nohup and in a script's background, too.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509
        ) as attach,
    ):
        there = lab.host("default").exists if seen == "the folder" else lambda: lab.devices() != {}
        wait_until(there)
        for _ in range(6):
            attach.send_signal(number)
            time.sleep(0.25)
        # The last ones may come when it has begun to end.
        assert attach.wait(timeout=60) in {130, -number}, (lab.devices(), errors.read_text())
    assert (lab.devices(), lab.mounts(), lab.processes()) == ({}, [], [])
    assert not lab.host().exists()


def test_a_signal_when_the_folder_was_just_made_leaves_none(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a signal found the moment between the folder and who takes it back."""
    places = Places(lab.run_dir, lab.data_dir)
    make = HostPlace.make

    def make_and_interrupt(host: HostPlace) -> None:
        make(host)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(HostPlace, "make", make_and_interrupt)
    # Under nohup too.
    monkeypatch.setattr(interrupts, "heeded", lambda: [signal.SIGINT])
    request = AttachRequest(VolumeRequest("azure/P30", size_bytes=64 << 20), host="h")
    with interrupts.ended_once(), pytest.raises(KeyboardInterrupt):
        attach(load_catalog(), request, places)
    assert not places.host("h").run.exists()


def test_a_lost_session_does_not_end_what_nohup_started(lab: Lab) -> None:
    command = [str(DISKLAB), "disk", "attach", "azure/P30", "--size", "64MiB"]
    with subprocess.Popen(
        ["nohup", *command], env=lab.environment(), stderr=subprocess.DEVNULL
    ) as attach:
        wait_until(lambda: lab.devices() != {})
        attach.send_signal(signal.SIGHUP)
        assert attach.wait(timeout=120) == 0
    assert lab.json("disk", "list")["volumes"][0]["state"] == "attached"


def test_a_healthy_host_stays(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB")
    outcome = lab.json("clean")
    assert (outcome["removed"], outcome["healthy"]) == ([], ["default"])
    assert len(lab.devices()) == 1
    assert lab.json("clean", "--data")["removed"] == []
    assert "run directory" in kinds(lab.json("clean", "--all"))
    assert (lab.devices(), lab.processes()) == ({}, [])


def test_a_hanging_engine_is_removed(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB")
    engine = lab.engine()
    os.kill(engine, signal.SIGSTOP)
    try:
        outcome = lab.json("clean", "--all")
    finally:
        if Path(f"/proc/{engine}").exists():
            os.kill(engine, signal.SIGCONT)
    assert "process" in kinds(outcome)
    assert (lab.devices(), lab.mounts(), lab.processes()) == ({}, [], [])


def test_a_number_that_is_used_again_is_not_killed(lab: Lab) -> None:
    lab.attach("azure/P30", "--size", "64MiB")
    os.kill(lab.engine(), signal.SIGKILL)
    innocent = subprocess.Popen(["sleep", "100"])
    try:
        start = Path(f"/proc/{innocent.pid}/stat").read_text().rpartition(")")[2].split()[19]
        # The start time fits; the program does not.
        (lab.host() / "pid").write_text(f"{innocent.pid} {start}\n")
        lab.run("clean")
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_an_attach_that_was_killed_half_way(lab: Lab) -> None:
    """A slow disk makes mkfs last; command and keeper die, mkfs and the host live on."""
    command = ["disk", "attach", "azure/S4", "--size", "4GiB", "--no-calibrate"]
    attach = subprocess.Popen(
        [str(DISKLAB), *command, "--filesystem", "xfs"],
        env=lab.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: formatting(lab))
    (keeper,) = lab.keepers()
    os.kill(keeper, signal.SIGKILL)
    attach.kill()
    attach.wait()
    assert lab.json("disk", "list")["volumes"][0]["state"] == "attaching"
    outcome = lab.json("clean")
    # mkfs comes first, unless it was done by now.
    assert kinds(outcome)[-4:] == ["volume", "process", "fuse mount", "run directory"]
    assert all(one["done"] for one in outcome["removed"])
    assert (lab.devices(), lab.processes()) == ({}, [])
    lab.attach("azure/P30", "--size", "4GiB")


def formatting(lab: Lab) -> bool:
    """Return whether mkfs works on a device of the lab."""
    devices = {f"/dev/{name}".encode() for name in lab.devices()}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"mkfs.xfs") and devices & set(words):
            return True
    return False


def test_the_data_of_a_link_are_left_alone(lab: Lab) -> None:
    folder = lab.data_dir / "default"
    folder.mkdir(parents=True)
    precious = lab.root / "precious"
    precious.write_text("x")
    (folder / "data.img").symlink_to(precious)
    outcome = lab.json("clean", "--data")
    assert outcome["removed"] == []
    assert [one["what"] for one in outcome["foreign"]] == [str(folder / "data.img")]
    assert precious.read_text() == "x"
    (folder / "data.img").unlink()


def test_what_an_engine_of_another_release_says(lab: Lab) -> None:
    assert sys.platform == "linux"
    folder = lab.host("old")
    folder.mkdir(parents=True)
    (folder / "pid").write_text("not a number\n")
    (folder / "attached").mkdir()
    (folder / "attached/x.json").write_text("{}")
    outcome = lab.json("clean")
    assert outcome["removed"] == []
    assert [one["what"] for one in outcome["foreign"]] == [str(folder)]
    assert "disklab has not marked it as its own" in outcome["foreign"][0]["why"]
    assert folder.exists()
    assert "disklab did not create it" in lab.refused(
        *("disk", "attach", "azure/P30", "--host", "old", "--no-calibrate")
    )


def test_what_a_killed_engine_was_writing_in_the_run_directory(lab: Lab) -> None:
    """The engine writes what this machine can do under the name of its process, then renames it."""
    lab.run_dir.mkdir(mode=0o755)
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = lab.run_dir / f"envelope.json.{ended.pid}.new"
    left.write_text('{"half": ')
    under_way = lab.run_dir / f"envelope.json.{os.getpid()}.new"
    under_way.write_text("{")
    strange = lab.run_dir / f"envelope.json.0{ended.pid}.new"
    strange.symlink_to(under_way)
    lab.run("clean")
    assert not left.exists()
    assert under_way.read_text() == "{"
    assert strange.is_symlink()
    for file in (under_way, strange):
        file.unlink()


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
