"""SIGKILL of who has a disk: what was made for it is gone within ten seconds, by nobody's help."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.conftest import Lab
from tests.privilege.test_caller import DISKLAB, SUDO
from tests.programs import wait_until

pytestmark = pytest.mark.machine
DISK = ("--disk", "azure/P10", "--size", "512MiB", "--filesystem", "ext4", "--no-calibrate")
# It leaves children behind: one in its session, one in another, one that does not listen.
COMMAND = """
trap '' TERM INT
sleep SLEPT & (setsid sleep SLEPT &)
dd if=/dev/zero of=file bs=1M count=40 status=none
echo ready
while :; do sleep SLEPT; done
"""
GONE_SECONDS = 10.0
BESIDE_LOAD = 3
"""Tests run beside each other on a busy machine."""


@contextmanager
def started(lab: Lab, words: list[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        words,
        env={**lab.environment(), "TMPDIR": str(lab.root), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
    ) as process:
        yield process


def sleeper() -> str:
    """Return a duration that no other program sleeps for."""
    return f"{600 + os.getpid() / 1e7 + random.random() / 1e8:.9f}"


def runs(slept: str) -> list[str]:
    return [str(DISKLAB), "run", *DISK, "--", "sh", "-c", COMMAND.replace("SLEPT", slept)]


def left(lab: Lab, slept: str) -> list[object]:
    """Return all that is there yet."""
    folders = [*lab.root.glob("disklab-run-*"), *lab.root.glob("disklab-pytest-*")]
    hosts = [*lab.run_dir.glob("hosts/*"), *lab.data_dir.glob("*/*.img")]
    return [
        *lab.devices(),
        *lab.mounts(),
        *lab.processes(),
        *lab.keepers(),
        *folders,
        *hosts,
        *running(slept),
    ]


def running(word: str) -> list[str]:
    """Return the commands that have this word in them."""
    listed = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if word in line]


def assert_gone(lab: Lab, slept: str, since: float, stays: Sequence[object] = ()) -> None:
    def there() -> list[object]:
        return [thing for thing in left(lab, slept) if thing not in stays]

    while there() and time.monotonic() - since < BESIDE_LOAD * GONE_SECONDS:
        time.sleep(0.1)
    assert not there(), f"after {time.monotonic() - since:.1f} s"


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout.readline() == "ready\n"


def kill_at_random_moments(lab: Lab, count: int) -> None:
    moments = random.Random(count)
    for _ in range(count):
        slept, moment = sleeper(), moments.uniform(0.2, 6)
        with started(lab, runs(slept)) as process:
            time.sleep(moment)
            process.kill()
            process.wait()
            assert_gone(lab, slept, time.monotonic())


def test_run_at_random_moments(lab: Lab) -> None:
    kill_at_random_moments(lab, 3)


@pytest.mark.long
def test_run_at_twenty_random_moments(lab: Lab) -> None:
    kill_at_random_moments(lab, 20)


@pytest.mark.parametrize("who", ["alone", "root's part", "the caller's part"])
def test_a_command_that_does_not_listen_ends_with_who_ran_it(lab: Lab, who: str) -> None:
    slept = sleeper()
    sudo = {} if who == "alone" else SUDO
    with started(lab, runs(slept), **sudo) as process:
        ready(process)
        assert left(lab, slept)
        if who == "the caller's part":
            os.kill(parts(process.pid)[0], signal.SIGKILL)
        else:
            process.kill()
        since = time.monotonic()
        process.wait(60)
        assert_gone(lab, slept, since)


def parts(parent: int) -> list[int]:
    """Return the processes of disklab that another one has started."""
    words = ["ps", "--ppid", str(parent), "-o", "pid=,args="]
    listed = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=1) for line in listed.stdout.splitlines()]
    return [int(pid) for pid, args in rows if "disklab run" in args]


MADE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from disklab.cli import main
from disklab.engine import Control
from disklab.hosts import attach as attaching

def interrupted(after):
    def call(*words, **options):
        made = after(*words, **options)
        signal.raise_signal(signal.SIGINT)
        return made
    return call

where, name = {"attached": (attaching, "attach"), "answered": (Control, "attach")}[WHEN]
setattr(where, name, interrupted(getattr(where, name)))
main()
"""


@pytest.mark.parametrize("when", ["attached", "answered"])
def test_a_ctrl_c_when_a_disk_has_just_been_made(lab: Lab, when: str) -> None:
    slept = sleeper()
    words = [sys.executable, "-c", MADE.replace("WHEN", repr(when)), *runs(slept)[1:]]
    with started(lab, words) as process:
        assert process.wait(60) == 130
        assert_gone(lab, slept, time.monotonic())


HOLDING = """
import os, signal
def test_holds(cloud_disk):
    disk = cloud_disk("azure/P10", size_bytes=256 << 20, calibrate=False)
    (disk.path / "file").write_bytes(bytes(1 << 20))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_test_that_holds_a_disk(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "test_holding.py"
    file.write_text(HOLDING)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    with started(lab, [*words, str(file)]) as process:
        assert process.wait(120) == -signal.SIGKILL
        assert_gone(lab, "no such word", time.monotonic())


SLOW = """#!/bin/sh
for device; do :; done
exec 3<"$device"
trap '' TERM
for second in $(seq 90); do sleep 1; done
"""


@pytest.mark.parametrize("stands", [False, True])
def test_an_attach_in_the_middle_of_mkfs(lab: Lab, tmp_path: Path, stands: bool) -> None:
    if stands:
        lab.attach("azure/P10", "--size", "64MiB", "--name", "other")
    # Data of a disk stay until they are cleaned.
    before = [*left(lab, "no such word"), lab.data_dir / "default/data.img"]
    slow = tmp_path / "mkfs.ext4"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    words = [str(DISKLAB), "disk", "attach", "azure/P10", "--size", "64MiB", "--no-calibrate"]
    words += ["--filesystem", "ext4", "--mount", str(lab.root / "mnt")]
    with started(lab, words, PATH=f"{tmp_path}:{os.environ['PATH']}") as process:
        wait_until(lambda: running(str(slow)) != [])
        process.kill()
        since = time.monotonic()
        process.wait()
        assert_gone(lab, str(slow), since, before)
