"""Programs that this process does not bind to its life: their variables, signals and ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from disklab.machines import programs


def test_a_program_has_the_few_variables_unless_it_is_the_users_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLOUD_KEY", "secret")
    asked = ["sh", "-c", 'echo "$CLOUD_KEY $OWN"; cat; echo gone >&2; exit 3']
    ended = programs.run(asked, 60.0, stdin=b"told", variables={"OWN": "x"})
    assert (ended.code, ended.stdout, ended.said) == (3, b" x\ntold", "gone")
    assert programs.run(asked, 60.0, inherits=True).stdout == b"secret \n"


def test_a_program_that_does_not_end_is_told_of_and_ended() -> None:
    with pytest.raises(TimeoutError, match=r"sleep still ran after 0\.1 s"):
        programs.run(["sleep", "60"], 0.1)
    process = programs.start(["sleep", "60"], stdout=programs.PIPE)
    assert process.ended(0.0) is None
    assert process.outputs(0.0) is None
    process.kill()
    assert process.outputs(60.0) is not None
    assert process.ended(60.0) == -signal.SIGKILL


def test_a_program_is_ended_by_signals_that_disklab_ignores() -> None:
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        process = programs.start(["sleep", "60"])
    finally:
        signal.signal(signal.SIGTERM, before)
    process.terminate()
    assert process.ended(60.0) == -signal.SIGTERM


class InterruptedLock:
    """The lock of Popen, and a Ctrl-C that leaves it taken."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.interrupts = 1

    def acquire(self, blocking: bool = True) -> bool:
        taken: bool = self.lock.acquire(blocking)
        if taken and self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        return taken

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.mark.parametrize("look", [lambda process: process.poll(), lambda process: process.wait(9)])
def test_an_interrupted_look_at_a_program_hangs_no_later_one(
    look: Callable[[programs.Process], object],
) -> None:
    process = programs.start(["true"])
    process._waitpid_lock = InterruptedLock(process._waitpid_lock)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        look(process)
    assert process.ended(20.0) == 0


def test_a_handler_that_signals_an_ended_program_takes_no_code_from_a_wait_for_it() -> None:
    """As where Ctrl-C ends a command, and disklab passes it on to the command that has ended."""
    process = programs.start(["sleep", "60"])

    def pass_on(_number: int, _frame: object) -> None:
        os.kill(process.pid, signal.SIGINT)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        process.send_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, pass_on)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert process.wait() == -signal.SIGINT
        assert programs.start(["true"]).wait(60.0) == 0
    finally:
        signal.signal(signal.SIGALRM, before)
