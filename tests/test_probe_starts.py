"""The starts of real processes that do direct I/O."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disklab.probe.fio import StartWatch

# Two children, which write one block past the page cache 0.4 s apart and then stay for a while.
PARENT = """
import mmap, os, sys, time
for number in range(2):
    if os.fork() == 0:
        time.sleep(0.4 * number + 0.2)
        file = os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
        os.write(file, mmap.mmap(-1, 4096))
        time.sleep(1)
        os._exit(0)
os.wait(), os.wait()
"""


def test_the_spread_is_that_of_the_first_io(tmp_path: Path) -> None:
    trial = tmp_path / "trial"
    trial.touch()
    try:
        os.close(os.open(trial, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip(f"{tmp_path}: its file system does not support O_DIRECT; set TMPDIR elsewhere")
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)]) as parent:
        watch = StartWatch(parent.pid, jobs=2)
        end = time.monotonic() + 10
        while not watch.over and time.monotonic() < end:
            watch.look()
            time.sleep(0.01)
    assert len(watch.seen) == 2
    # Not exact: a busy machine delays the children, but never to before their time.
    assert 0.3 < watch.spread_s < 3


def test_a_process_that_is_gone_has_no_spread() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
        watch = StartWatch(gone.pid, jobs=4)
        watch.look()
    assert watch.spread_s == 0
