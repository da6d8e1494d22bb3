"""Ctrl-C, SIGTERM and the loss of the terminal: how they end what runs, and when they wait.

All three end a command in order, so that nothing is left. The first one ends what is under way, and
what was begun is taken back in peace: further ones wait. Whoever started disklab may ignore one, as
nohup and a script's `&` do; then it stays ignored. Signals come to the first thread: in another one
nothing here does anything.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], None]

AGAIN_S = 0.05
"""When a Ctrl-C is raised again that Python has ignored. **Reason:** what it did then is over."""

NULL_DEVICE = 1
"""The major number of /dev/null, which is no terminal."""


class _State:
    """What this process is doing about signals; only the first thread changes it."""

    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    is_once = False
    """Whether `ended_once` is around what runs."""
    is_held = False
    """Whether `held_back` or `uninterrupted` is."""
    came = 0
    """How many have come since the outermost of these began."""
    last: int = signal.SIGINT
    """Which one came last."""
    has_raised = False
    """Whether one has ended what was under way: others were heard by a handler of its own."""


def end_as_ctrl_c() -> None:
    """Let SIGTERM and the loss of the terminal end what runs as Ctrl-C does, from now on."""
    for number in heeded():
        if number != signal.SIGINT:
            signal.signal(number, _raise)


def remember_ctrl_c() -> None:
    """Remember a Ctrl-C from now on, before it ends what runs: see `was_interrupted`."""
    if _is_first_thread() and signal.SIGINT in heeded():
        signal.signal(signal.SIGINT, _raise)


def was_interrupted() -> bool:
    """Return whether a Ctrl-C was to end what ran: a library may have made its own error of it.

    pydantic does, while it builds a model.
    """
    return _State.has_raised


def take_back_ctrl_c() -> None:
    """Hear Ctrl-C as before, when a library has put a handler of its own in front of ours.

    polars does when it is loaded, and what waits in the kernel is restarted behind it: Python would
    not hear of a Ctrl-C before the other side of a pipe says something.
    """
    if _is_first_thread() and (handler := signal.getsignal(signal.SIGINT)) is not None:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def ended_once() -> Iterator[None]:
    """Let the first one raise KeyboardInterrupt inside, and no other one.

    What is taken back meanwhile is taken back whole, however often somebody presses Ctrl-C.
    """
    if not _is_first_thread() or _State.is_once or _State.is_held:
        yield
        return

    def first(number: int, _frame: FrameType | None) -> None:
        if _note(number) == 1:
            _State.has_raised = True
            raise KeyboardInterrupt

    _State.came = 0
    with _handled(first), raised_again():
        _State.is_once = True
        try:
            yield
        finally:
            _State.is_once = False


@contextmanager
def raised_again() -> Iterator[None]:
    """Raise KeyboardInterrupt again where Python ignored it, as in its hooks around a fork."""
    ordinary = sys.unraisablehook
    waiting: list[threading.Timer] = []

    def again() -> None:
        waiting.clear()
        signal.pthread_kill(threading.main_thread().ident or 0, _State.last)

    def ignored(what: sys.UnraisableHookArgs) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            ordinary(what)
            return
        _State.came = 0
        waiting.append(threading.Timer(AGAIN_S, again))
        waiting[-1].daemon = True
        waiting[-1].start()

    sys.unraisablehook = ignored
    try:
        yield
        if waiting:
            raise KeyboardInterrupt
    finally:
        sys.unraisablehook = ordinary
        for timer in waiting:
            timer.cancel()


@contextmanager
def held_back() -> Iterator[None]:
    """Let them wait for the end of the block, where the first one is heeded."""
    came: list[int] = []
    try:
        with _holding(came.append):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let none end the block: it ends what was begun, and nothing comes after it."""
    with _holding(lambda _: None):
        yield


@contextmanager
def passed_on(to: Callable[[int], None]) -> Iterator[None]:
    """Let another process decide inside: each one is passed on, but for those that must wait."""
    if _State.is_held:
        yield
        return

    def passes(number: int, _frame: FrameType | None) -> None:
        _note(number)
        to(number)

    with _handled(passes):
        yield


def disregard() -> None:
    """Ignore all of them from now on: everything is taken back, and the program ends."""
    for number in heeded():
        signal.signal(number, signal.SIG_IGN)


def listen_to(number: int) -> None:
    """Heed this signal alone from now on, and no Ctrl-C: as root's part does.

    The caller of this has its own way with the other ones.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Not ignored: a program that is started would ignore it as well.
        signal.signal(signal.SIGINT, _pass_over)
    signal.signal(number, _pass_over)
    _State.numbers = (number,)


def _pass_over(number: int, _frame: FrameType | None) -> None:
    _note(number)


def _raise(number: int, _frame: FrameType | None) -> None:
    _note(number)
    _State.has_raised = True
    raise KeyboardInterrupt


def _note(number: int) -> int:
    """Count a signal; returns the how many-th it is."""
    if number == signal.SIGHUP:
        _leave_terminal()
    _State.last = number
    _State.came += 1
    return _State.came


def _leave_terminal() -> None:
    """Write to nowhere from now on: what says to a lost terminal what it does would fail."""
    for number in range(3):
        with suppress(OSError):
            file = os.fstat(number)
            if stat.S_ISCHR(file.st_mode) and os.major(file.st_rdev) != NULL_DEVICE:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, number)
                os.close(nowhere)


@contextmanager
def _holding(note: Callable[[int], None]) -> Iterator[None]:
    if not _is_first_thread() or _State.is_held:
        yield
        return

    def comes(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        note(number)

    with _handled(comes):
        _State.is_held = True
        try:
            yield
        finally:
            _State.is_held = False


@contextmanager
def _handled(handler: _Handler) -> Iterator[None]:
    """Let a handler have them inside the block, but for those that are ignored."""
    before: dict[int, Any] = {}
    if _is_first_thread():
        before = {number: signal.signal(number, handler) for number in heeded()}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def heeded() -> list[int]:
    """Return the signals that end what runs: those that nobody wants ignored."""
    # None: a handler that Python has not set, and could not put back.
    passed_over = (signal.SIG_IGN, None)
    return [one for one in _State.numbers if signal.getsignal(one) not in passed_over]


def _is_first_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
