"""A test that hangs fails with its name and the stacks of all threads, and the others go on.

Each test has so many seconds of its own, its fixtures included, or those of its mark `most`. When
they are over, an alarm raises in the main thread, whatever it waits for; what does not end then
(a loop that catches everything, a call of a library that cannot be interrupted) ends the process
of the test a minute later, with the stacks on its standard error.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

# The slowest test of `make test` took 5 minutes beside a load of 10; a long one is a study.
MOST_SECONDS = 600
MOST_SECONDS_LONG = 3600
# Taken from the environment, so that the plugin's own tests need not wait.
SECONDS = "DISKLAB_TEST_SECONDS"
# After the first alarm: fixtures take away what they have made.
ENDING_SECONDS = 60


class HungError(BaseException):
    """A test took too long. No `except Exception` on its way stops it."""


def pytest_configure(config: pytest.Config) -> None:
    """Know the mark."""
    config.addinivalue_line("markers", "most(seconds): how long this test may take")


def most_seconds(item: pytest.Item) -> float:
    """Return how long a test may take, with its fixtures."""
    mark = item.get_closest_marker("most")
    if mark is not None:
        return float(mark.args[0])
    usual = MOST_SECONDS if item.get_closest_marker("long") is None else MOST_SECONDS_LONG
    return float(os.environ.get(SECONDS, usual))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Bound the making of fixtures."""
    with bounded(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Bound the test."""
    with bounded(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Bound the end of fixtures."""
    with bounded(item):
        yield


@contextmanager
def bounded(item: pytest.Item) -> Iterator[None]:
    """Fail the test when the block takes too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seconds = most_seconds(item)

    def fail(_number: int, _frame: FrameType | None) -> None:
        raise HungError(f"{item.nodeid} hung: not done after {seconds:g} s\n{stacks()}")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + ENDING_SECONDS, exit=True, file=_STANDARD_ERROR)
    hung = ""
    try:
        yield
    except HungError as error:
        hung = str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
    if hung:
        pytest.fail(hung, pytrace=False)


def stacks() -> str:
    """Return where every thread is."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


# pytest puts a file of its own in the place of descriptor 2 while a test runs.
_STANDARD_ERROR = os.dup(2)
