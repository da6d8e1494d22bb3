"""Ctrl-C, SIGTERM and SIGHUP: the first ends what runs, what is taken back is taken back whole."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from disklab import interrupts
from disklab.interrupts import ended_once, held_back, passed_on, uninterrupted

from tests.programs import ended, wait_until

ALL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    """These tests hold under nohup and in a script's background, too."""
    before = {one: signal.getsignal(one) for one in ALL}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for one in ALL[1:]:
        signal.signal(one, signal.SIG_DFL)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.parametrize("number", ALL)
def test_the_first_ends_what_runs_and_no_other_disturbs_its_end(number: signal.Signals) -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), ended_once():  # noqa: PT012
        try:
            signal.raise_signal(number)
            steps.append("went on")
        finally:
            for _ in range(6):
                signal.raise_signal(number)
            steps.append("taken back")
    assert steps == ["taken back"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("number", ALL)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_python_ignores_is_raised_again(number: signal.Signals) -> None:
    class Ignoring:
        def __del__(self) -> None:
            # As in a hook around a fork: what is raised here goes no further.
            signal.raise_signal(number)

    steps = []
    with pytest.raises(KeyboardInterrupt), ended_once():  # noqa: PT012
        try:
            Ignoring()
            steps.append("ignored")
            time.sleep(20)
            steps.append("went on")
        finally:
            signal.raise_signal(number)
            steps.append("taken back")
    assert steps == ["ignored", "taken back"]


def test_one_inside_another_ends_with_the_outer_one() -> None:
    with pytest.raises(KeyboardInterrupt), ended_once():  # noqa: PT012
        try:
            with ended_once():
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            with ended_once():
                signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_once():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", ALL)
def test_one_that_is_held_back_comes_at_the_end(number: signal.Signals) -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), ended_once():  # noqa: PT012
        with held_back(), ended_once(), held_back():
            signal.raise_signal(number)
            signal.raise_signal(number)
            steps.append("whole")
        steps.append("went on")
    assert steps == ["whole"]


def test_nothing_comes_of_one_while_all_is_taken_away() -> None:
    with ended_once(), uninterrupted():
        for number in ALL:
            signal.raise_signal(number)


def test_one_that_is_passed_on_counts_as_the_first() -> None:
    passed: list[int] = []
    with pytest.raises(KeyboardInterrupt), ended_once():  # noqa: PT012
        try:
            with passed_on(passed.append):
                signal.raise_signal(signal.SIGINT)
            raise KeyboardInterrupt
        finally:
            signal.raise_signal(signal.SIGINT)
            with uninterrupted(), passed_on(passed.append):
                signal.raise_signal(signal.SIGINT)
    assert passed == [signal.SIGINT]


@pytest.mark.parametrize("block", [ended_once, held_back, uninterrupted])
def test_one_that_is_ignored_stays_ignored(
    block: Callable[[], AbstractContextManager[None]],
) -> None:
    """As nohup and a script's `&` want it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts.end_as_ctrl_c()
    with block():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signal.raise_signal(signal.SIGHUP)


def test_another_thread_has_none_of_this() -> None:
    done = []

    def run() -> None:
        with ended_once(), held_back(), uninterrupted():
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]


LOST = """
import sys, time
from pathlib import Path
from disklab.interrupts import ended_once
try:
    with ended_once():
        print("ready", flush=True)
        time.sleep(60)
finally:
    print("to nobody", flush=True)
    Path(sys.argv[1]).write_text("taken back")
"""


def test_a_lost_terminal_ends_a_program_in_order(tmp_path: Path) -> None:
    """What it still says fails nothing: the terminal is gone."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", LOST, str(tmp_path / "done")])
    assert select.select([terminal], [], [], 60)[0]
    assert b"ready" in os.read(terminal, 1000)
    os.close(terminal)
    wait_until(lambda: os.waitpid(child, os.WNOHANG) != (0, 0))
    assert (tmp_path / "done").read_text() == "taken back"


def test_a_started_program_does_not_ignore_what_is_held_back_here() -> None:
    script = "import signal; print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    with uninterrupted():
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert ran.stdout == b"True\n"


WRAPPED = """
import signal, sys
from disklab.cli import main

def imports() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise ValueError("a schema could not be built") from None

sys.modules["disklab.cli.app"].app = imports
main()
"""


def test_a_ctrl_c_that_a_library_made_an_error_of_is_still_one() -> None:
    ran = ended([sys.executable, "-c", WRAPPED])
    assert (ran.returncode, ran.stderr) == (130, "")


IGNORED = """
import signal, sys, time
from disklab.cli import main

class Ignoring:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)

def works() -> None:
    Ignoring()
    time.sleep(20)
    print("went on")

sys.modules["disklab.cli.app"].app = works
main()
"""


def test_a_ctrl_c_that_python_ignores_ends_a_command() -> None:
    """As in a look-up of a library's table of compiled expressions, at the start of `predict`."""
    ran = subprocess.run(
        [sys.executable, "-c", IGNORED], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


STARTING = """
import signal, sys
from pathlib import Path
from disklab.machines import foreground

class Interrupted(foreground.Started):
    def __init__(self, *words, **options) -> None:
        signal.raise_signal(signal.SIGINT)
        super().__init__(*words, **options)

foreground.Started = Interrupted
print(foreground.run_command(["sleep", "60"], Path(sys.argv[1])).exit_code)
"""


@pytest.mark.machine
def test_a_ctrl_c_while_a_command_is_started_reaches_it(tmp_path: Path) -> None:
    ran = ended([sys.executable, "-c", STARTING, tmp_path])
    assert (ran.stdout, ran.stderr) == ("130\n", "")


LEAVING = """
import sys
from pathlib import Path
from disklab.machines import foreground

foreground.END_SECONDS = 0.1
left = ["sh", "-c", "trap '' TERM; sleep 60 & exit 7"]
print(foreground.run_command(left, Path(sys.argv[1])).exit_code, foreground._children())
"""


def test_what_a_command_leaves_behind_is_ended_though_it_does_not_listen(tmp_path: Path) -> None:
    assert ended([sys.executable, "-c", LEAVING, tmp_path], code=0).stdout == "7 []\n"
