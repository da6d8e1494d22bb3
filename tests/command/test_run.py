"""`disklab run` on real emulated disks, and the fixture `cloud_disk` in a project of others."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from disklab.cli.output import OVER_BUDGET
from disklab.pytest_plugin import MakeDisk, _made, cloud_disk

from tests.hosts.conftest import Lab
from tests.privilege.test_caller import DISKLAB, SUDO
from tests.programs import ended

pytestmark = pytest.mark.machine
DISK = ("--disk", "azure/P10", "--size", "512MiB", "--filesystem", "ext4", "--no-calibrate")
SYNCS = "for i in 1 2 3 4 5; do dd if=/dev/zero of=f$i bs=4k count=4 conv=fsync status=none; done"


def run(lab: Lab, *words: str, sudo: bool = False) -> subprocess.CompletedProcess[str]:
    return ended(
        [str(DISKLAB), "run", *DISK, *words],
        env={**lab.environment(), **(SUDO if sudo else {})},
        cwd="/",
    )


def told(ran: subprocess.CompletedProcess[str]) -> Any:
    assert "Traceback" not in ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_counts_are_the_same_and_one_more_fsync_is_told(lab: Lab, tmp_path: Path) -> None:
    first = run(lab, "--json", "--", "sh", "-c", SYNCS)
    assert first.returncode == 0, first.stderr
    base = tmp_path / "base.json"
    base.write_text(first.stdout)
    kept = tmp_path / "kept"
    again = run(lab, "--compare", str(base), "--keep", str(kept), "--", "sh", "-c", SYNCS)
    assert again.returncode == 0, again.stderr
    assert sorted(path.name for path in kept.iterdir()) == ["f1", "f2", "f3", "f4", "f5"]
    more = run(
        lab, "--json", "--compare", str(base), "--", "sh", "-c", f"{SYNCS}; sync f1; {SYNCS}"
    )
    assert more.returncode == OVER_BUDGET, more.stderr
    assert told(more)["changes"][0]["name"] == "flushes"
    operations = told(more)["operations"]
    assert operations["write"]["latency"]["p99_ms"] > 1, "a P10 takes milliseconds"
    assert lab.devices() == {}


def test_fsyncs_are_calls_and_flushes_what_reached_the_disk(lab: Lab) -> None:
    ran = run(lab, "--json", "--budget", "fsyncs <= 5, flushes <= 60", "--", "sh", "-c", SYNCS)
    assert ran.returncode == 0, ran.stderr
    result = told(ran)
    # Five files, a call each; what the file system makes of them is the disk's affair.
    assert result["fsyncs"] == 5
    assert result["operations"]["flush"]["ios"] >= 5
    assert result["command"][0] == "sh"
    missed = run(lab, "--budget", "fsyncs <= 4", "--", "sh", "-c", SYNCS)
    assert missed.returncode == OVER_BUDGET
    assert "fsyncs <= 4: 5, missed" in missed.stderr
    # The command's own exit code and its signals stay its own.
    assert run(lab, "--fsyncs", "--", "sh", "-c", "exit 3").returncode == 3
    assert run(lab, "--fsyncs", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9


def test_it_ends_with_the_commands_code_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    marker = f"sleep {600 + os.getpid() / 1e6}"
    words = ("sh", "-c", f"{marker} & (setsid {marker} &); cd .. ; exit 7")
    ran = run(lab, "--budget", "flushes <= 0", "--", *words)
    assert ran.returncode == 7, ran.stderr
    running = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    assert marker not in running.stdout
    assert run(lab, "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = run(lab, "--", str(tmp_path / "nothing"))
    assert missing.returncode == 2
    assert "there is no such program" in missing.stderr
    taken = run(lab, "--keep", str(tmp_path), "--", "true")
    assert (taken.returncode, "it exists already" in taken.stderr) == (2, True)
    assert lab.devices() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")
def test_under_sudo_the_command_runs_as_the_caller(lab: Lab) -> None:
    ran = run(lab, "--json", "--", "sh", "-c", "id -u; echo mine > file; ls -ln file", sudo=True)
    assert ran.returncode == 0, ran.stderr
    user, listed, _ = ran.stdout.splitlines()
    assert user == SUDO["SUDO_UID"]
    assert listed.split()[2] == user
    assert lab.devices() == {}


def test_what_a_kill_leaves_goes_with_the_next_run(lab: Lab) -> None:
    words = [str(DISKLAB), "run", *DISK, "--", "sh", "-c", "echo ready; exec sleep 600"]
    killed = subprocess.Popen(words, env=lab.environment(), stdout=subprocess.PIPE, text=True)
    assert killed.stdout.readline() == "ready\n"
    killed.kill()
    killed.wait()
    killed.stdout.close()
    assert run(lab, "--", "true").returncode == 0
    assert lab.devices() == {}


def test_an_interrupt_goes_to_the_command(lab: Lab) -> None:
    script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    words = [str(DISKLAB), "run", *DISK, "--", "sh", "-c", script]
    started = subprocess.Popen(words, env=lab.environment(), stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "ready\n"
    time.sleep(0.2)  # until the shell waits in its loop
    started.send_signal(signal.SIGTERM)
    assert started.wait(timeout=60) == 5
    started.stdout.close()
    assert lab.devices() == {}


@pytest.fixture
def small(lab: Lab) -> Iterator[Lab]:
    """Give the lab's data a file system of this machine with room for 60 MB."""
    lab.data_dir.mkdir(exist_ok=True)
    options = ["-t", "tmpfs", "-o", "size=60m,mode=0755", "disklab-test", str(lab.data_dir)]
    subprocess.run(["mount", *options], check=True)
    try:
        yield lab
    finally:
        subprocess.run(["umount", "-l", str(lab.data_dir)], check=True)


def test_a_full_disk_of_this_machine_is_told_by_that_name(small: Lab) -> None:
    ran = run(small, "--", "dd", "if=/dev/zero", "of=file", "bs=1M", "count=100", "status=none")
    assert ran.returncode == 1
    for words in ("this machine's disk is full", "tmpfs on disklab-test", "B free", "make room"):
        assert words in ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="sudo runs it as root")
def test_weather_makes_real_ios_wait_and_is_over_with_the_command(lab: Lab) -> None:
    # Of this seed's 20 seconds, those from 4.5 s to 6.6 s are a stall.
    year = ("--weather", "aws/gp3(100GiB)", "--seed", "1", "--year-in", "20s")
    fsync = "dd if=/dev/zero of=f bs=4k count=1 conv=fsync status=none"
    ran = run(lab, "--json", *year, "--", "sh", "-c", f"sleep 5; {fsync}", sudo=True)
    assert ran.returncode == 0, ran.stderr
    result = told(ran)
    assert result["operations"]["write"]["latency"]["max_ms"] > 1000
    assert result["weather"] == "aws/gp3(100GiB), seed 1, a year in 20s"
    assert "ended before" in str(result["warnings"])
    # What the command leaves to be written is not held up by its weather.
    began = time.monotonic()
    ran = run(lab, "--json", *year, "--", "sh", "-c", "sleep 4.6; echo mine > f", sudo=True)
    assert ran.returncode == 0, ran.stderr
    assert told(ran)["wall_s"] < 6, time.monotonic() - began
    refused = run(lab, *year, "--simulate", "--", "true")
    assert (refused.returncode, "no weather" in refused.stderr) == (2, True)


__all__ = ["cloud_disk"]


@pytest.fixture
def places(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Run and data directories of this test's own, for disks that this process makes."""
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    return lab


def write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())


def test_a_disk_counts_breaks_and_goes(places: Lab, request: pytest.FixtureRequest) -> None:
    make: MakeDisk = request.getfixturevalue("cloud_disk")
    disk = make("azure/P10", size_bytes=256 << 20, calibrate=False)
    before = disk.counts()
    write(disk.path / "file", 1 << 20)
    since = disk.counts() - before
    assert since.flushes >= 1
    assert since.bytes_written >= 1 << 20
    disk.fail("error-rate 100%")
    with pytest.raises(OSError, match="error"):
        write(disk.path / "other", 1 << 20)
    disk.fail("recover")
    assert len(places.devices()) == 1


def test_a_connection_that_is_left_open_keeps_no_disk(places: Lab) -> None:
    with ExitStack() as stack:
        disk = _made(stack, "azure/P10", size_bytes=256 << 20, calibrate=False)
        left = sqlite3.connect(disk.path / "db.sqlite")
        left.execute("create table t (x)")
        left.commit()
    assert places.devices() == {}
    left.close()
