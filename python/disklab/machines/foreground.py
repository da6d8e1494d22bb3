"""A command of the user's in a folder, with this process's terminal; all of it is ended."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from disklab.errors import MachineError, Problem, UserError
from disklab.interrupts import heeded
from disklab.machines.child import Started

# From <sys/prctl.h>.
PARENT_DEATH_SIGNAL = 1
CHILD_SUBREAPER = 36
END_SECONDS = 5.0
"""What programs that a command leaves behind have for their end after SIGTERM."""
POLL_SECONDS = 0.05
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    exit_code: int
    """128 and the signal's number where a signal ended it, as shells report it."""
    wall_s: float


def check_command(words: Sequence[str]) -> None:
    """Raise UserError where there is no such program, before a disk is made for it."""
    if shutil.which(words[0]) is None:
        rule = "there is no such program, or it may not be run"
        raise UserError(Problem("COMMAND", repr(words[0]), rule, "give its absolute path"))


def run_command(
    words: Sequence[str],
    folder: Path,
    become: Callable[[], None] = lambda: None,
    variables: Mapping[str, str] | None = None,
    meanwhile: AbstractContextManager[object] | None = None,
) -> Ended:
    """Run a command in a folder, with this process's input, output and terminal.

    Signals go to the command, which decides. Programs that it leaves behind are ended: they would
    hold the disk. What it wrote is on the disk when this returns. `become` is called in the child,
    to give up what the command is not to have; `variables` come beside its environment;
    `meanwhile` ends with the command's own process. Raises UserError where there is no such
    program.
    """
    _libc.prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    others = _children()
    begin = time.monotonic()
    with _passing_on() as pass_on_to, meanwhile or nullcontext():
        try:
            process = Started(
                list(words),
                cwd=folder,
                env={**os.environ, "PWD": str(folder), **(variables or {})},
                preexec_fn=partial(_bind, become),
            )
        except OSError as error:
            rule = f"it cannot be run: {error.strerror}"
            raise UserError(Problem("COMMAND", words[0], rule, "give its path")) from None
        pass_on_to(process)
        code = process.wait()
    _end_left_behind(others)
    _sync(folder)
    wall_s = time.monotonic() - begin
    return Ended(128 - code if code < 0 else code, wall_s)


def _bind(become: Callable[[], None]) -> None:
    """In the child: who runs it, its end with the parent's, and signals as a shell gives them."""
    become()
    _libc.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def _passing_on() -> Iterator[Callable[[Started], None]]:
    """Send signals on to the command that the block names, instead of dying by them.

    The terminal's Ctrl-C reaches it by itself, but for one that came before it was started.
    """
    child: list[Started] = []
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # In root's part a signal of its own says that the user pressed Ctrl-C.
        sent = number if number in PASSED_ON else signal.SIGINT
        if not child:
            early.append(sent)
        elif sent not in {signal.SIGINT, signal.SIGQUIT} or not os.isatty(0):
            child[0].send_signal(sent)

    def pass_on_to(process: Started) -> None:
        child.append(process)
        for sent in early:
            process.send_signal(sent)

    before: dict[int, Any] = {
        number: signal.signal(number, pass_on)
        for number in {*PASSED_ON, *heeded()}
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield pass_on_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_left_behind(others: Collection[int]) -> None:
    """End the programs that a command left behind: this process's children now, but for others."""
    until = time.monotonic() + END_SECONDS
    number = signal.SIGTERM
    while children := [child for child in _children() if child not in others]:
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, number)
        time.sleep(POLL_SECONDS)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        if time.monotonic() > until:
            if number == signal.SIGKILL:
                return
            number, until = signal.SIGKILL, time.monotonic() + END_SECONDS


def _children() -> list[int]:
    with suppress(OSError):
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        return [int(word) for word in text.split()]
    return []


def _sync(folder: Path) -> None:
    """Write out what the file system of a folder holds back: it belongs to the command too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(descriptor) != 0:
            failed = os.strerror(ctypes.get_errno())
            raise MachineError(f"{folder}: what was written is not on the disk: {failed}")
    finally:
        os.close(descriptor)
