"""The bound of each test, on a suite of three in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.hanging import SECONDS
from tests.programs import ended

ROOT = Path(__file__).parents[1]
SUITE = """
import threading, time
import pytest

def waits():
    threading.Event().wait()

@pytest.fixture
def stuck():
    threading.Event().wait()

def test_one_hangs():
    thread = threading.Thread(target=waits, name="beside", daemon=True)
    thread.start()
    try:
        time.sleep(1000)
    except Exception:
        pass

def test_its_fixture_hangs(stuck):
    pass

@pytest.mark.most(30)
def test_another_has_more_time():
    time.sleep(2.5)

def test_the_last_one_is_fine():
    pass
"""


@pytest.mark.parametrize("processes", [(), ("--numprocesses", "2")])
def test_a_hung_test_fails_with_its_name_and_stacks_and_the_others_go_on(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "tests.hanging", "-p", "no:cacheprovider"]
    ran = ended(
        [*command, "-q", "-c", os.devnull, "--rootdir", str(tmp_path), *processes, str(tmp_path)],
        env={**os.environ, SECONDS: "2", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        code=1,
    )
    for count in ("1 failed", "2 passed", "1 error"):
        assert count in ran.stdout.splitlines()[-1], ran.stdout
    for name in ("test_one_hangs", "test_its_fixture_hangs"):
        assert f"test_suite.py::{name} hung: not done after 2 s" in ran.stdout
    # Of the test and of the thread beside it.
    assert "in waits" in ran.stdout
    assert "in test_one_hangs" in ran.stdout
