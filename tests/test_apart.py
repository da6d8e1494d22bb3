"""What a test leaves that is killed together with pytest: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.apart import PREFIX, apart
from tests.hosts.conftest import new_lab

pytestmark = [pytest.mark.machine, pytest.mark.alone]
SECONDS = 120.0
NAME = "somebody-apart"
LINES = "[0-9]*/cmdline"


def leave_everything(told: Path) -> None:
    """Make one of each thing that a killed test leaves, tell of them, and stay."""
    import tests.procedures.test_random_timetables as timetables  # noqa: PLC0415 - read it but here

    with timetables.decoys() as decoys, new_lab() as lab:
        lab.attach("azure/P10", "--size", "16MiB", "--filesystem", "ext4")
        # Of another session, and nobody's child.
        detached = f"setsid bash -c 'exec -a {NAME} sleep 1000' &"
        subprocess.run(["bash", "-c", detached], check=True)
        assert lab.devices()
        # The number of a device is soon another's.
        shown = [
            one for one in (*decoys, lab.root) if one.parts[1] != "sys" or "block" not in one.parts
        ]
        told.with_suffix(".new").write_text("\n".join(map(str, shown)), encoding="utf-8")
        told.with_suffix(".new").rename(told)
        time.sleep(1000)


def loops_and_processes() -> list[str]:
    """Return what is there of the tests apart: files that loop devices show, and processes."""
    found = []
    for file in (*Path("/sys/block").glob("loop*/loop/backing_file"), *Path("/proc").glob(LINES)):
        with suppress(OSError):
            found.append(file.read_text(encoding="utf-8", errors="replace"))
    return [one for one in found if PREFIX in one or one.startswith(NAME)]


def test_nothing_is_left_of_a_test_that_is_killed_with_pytest(tmp_path: Path) -> None:
    told = tmp_path / "told"
    words = "import pathlib, sys, tests.test_apart as one"
    words += "; one.apart(one.leave_everything)(pathlib.Path(sys.argv[1]))"
    process = subprocess.Popen(
        [sys.executable, "-c", words, str(told)], cwd=Path(__file__).parents[1]
    )
    deadline = time.monotonic() + SECONDS
    try:
        while not told.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # Two loop devices, an engine, a holder of a namespace and a process of another session.
        assert len(loops_and_processes()) >= 4
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    made = [Path(line) for line in told.read_text(encoding="utf-8").splitlines()]
    assert len(made) >= 3
    while loops_and_processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert loops_and_processes() == []
    # Folders go last.
    while any(os.path.lexists(one) for one in made) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [one for one in made if os.path.lexists(one)] == []


def test_a_test_apart_tells_what_became_of_it() -> None:
    @apart
    def fails() -> None:
        number = 1
        assert number == 2

    @apart
    def skips() -> None:
        pytest.skip("there is nothing to do")

    with pytest.raises(pytest.fail.Exception, match="AssertionError"):
        fails()
    with pytest.raises(pytest.skip.Exception, match="nothing to do"):
        skips()
