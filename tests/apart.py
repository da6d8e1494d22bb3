"""Tests that make mounts, loop devices and servers, of which nothing is left however they end.

A keeper stands between pytest and such a test. It has a mount namespace of its own and becomes the
parent of whatever loses its own. When pytest is gone, by `kill -9` too, it ends them all and takes
away what they have made.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import pytest
from disklab.hosts.control_group import GroupRoot

from campaigns.kills.lab import Lab
from tests.alone import let_go

PREFIX = "disklab-apart-"
OWNER = "/owner"
"""What a laboratory's file ends with that its process keeps open; see `Lab` and `new_lab`."""
# From <sys/prctl.h>, <sched.h> and <sys/mount.h>.
SET_CHILD_SUBREAPER = 36
NEW_MOUNTS = 0x20000
RECURSIVE, PRIVATE = 0x4000, 0x40000
ENDING_SECONDS = 30.0
POLL_SECONDS = 0.05

Given = ParamSpec("Given")
_libc = ctypes.CDLL(None, use_errno=True)


def apart(test: Callable[Given, None]) -> Callable[Given, None]:
    """Run a test in a process of its own, under a keeper."""

    @wraps(test)
    def run(*given: Given.args, **named: Given.kwargs) -> None:
        told, telling = os.pipe()
        # Nobody else has its other end: it closes with this process.
        living, alive = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            os.close(told)
            os.close(alive)
            code = 70
            try:
                code = _Keeper(living, telling).keep(lambda: test(*given, **named))
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        os.close(telling)
        os.close(living)
        try:
            with os.fdopen(told, "rb") as pipe:
                content = pipe.read()
        finally:
            os.close(alive)
            os.waitpid(keeper, 0)
        kind, said = pickle.loads(content) if content else ("failed", "it ended without a word")
        if kind == "skipped":
            pytest.skip(said)
        if kind == "failed":
            pytest.fail(said, pytrace=False)

    return run


class _Keeper:
    """Runs one test, and clears up when pytest has gone or the test is over."""

    def __init__(self, living: int, telling: int) -> None:
        self._living = living
        self._telling = telling
        # Made by fixtures, in pytest's process.
        self._labs = _labs_of(os.getpid())
        self._seen: set[int] = set()

    def keep(self, test: Callable[[], None]) -> int:
        """Run the test to its end or pytest's."""
        # A signal to pytest's group is for pytest.
        os.setsid()
        _call("prctl", SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _call("unshare", NEW_MOUNTS)
        _call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
        let_go()
        box = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        # Databases have a user of their own.
        box.chmod(0o755)
        child = os.fork()
        if child == 0:
            os.close(self._living)
            self._test(test, box)
        os.close(self._telling)
        over = False
        while not (over or select.select([self._living], [], [], POLL_SECONDS)[0]):
            over = os.waitpid(child, os.WNOHANG)[0] != 0
            self._reap(child)
        self._end_all()
        # Fixtures are pytest's as long as it lives.
        self._clear(box, set() if over else self._labs)
        return 0

    def _test(self, test: Callable[[], None], box: Path) -> None:
        tempfile.tempdir = os.environ["TMPDIR"] = str(box)
        said = ("passed", "")
        try:
            test()
        except pytest.skip.Exception as error:
            said = ("skipped", str(error))
        except BaseException:
            said = ("failed", traceback.format_exc())
        with os.fdopen(self._telling, "wb") as pipe:
            pickle.dump(said, pipe)
        os._exit(0)

    def _reap(self, but: int) -> None:
        """Take note of those that have ended here, but for the test."""
        for pid in _children(os.getpid()):
            if pid != but:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _end_all(self) -> None:
        deadline = time.monotonic() + ENDING_SECONDS
        while living := list(_below(os.getpid())):
            for pid in living:
                self._seen.add(pid)
                self._labs |= _labs_of(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap(0)
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)

    def _clear(self, box: Path, labs: set[Path]) -> None:
        # Locks of laboratories are held by every process that has inherited them.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        for root in {*box.glob("*/run"), *(one / "run" for one in labs)}:
            if root.is_dir():
                Lab(root.parent).take_away()
        _clear_below(box)
        groups = GroupRoot.of_machine()
        for group in [] if groups is None else list(groups.memory.iterdir()):
            if {*group.name.split("-")} & {str(pid) for pid in self._seen}:
                with suppress(OSError):
                    group.rmdir()


def _clear_below(box: Path) -> None:
    """Unmount and remove everything in a folder, and the loop devices that show a file of it."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = [line.split()[4] for line in lines if line.split()[4].startswith(f"{box}/")]
    for point in reversed(points):
        subprocess.run(["umount", "-l", point], check=False)
    for block in Path("/sys/block").glob("loop*"):
        with suppress(OSError):
            shown = (block / "loop/backing_file").read_text(encoding="utf-8")
            if shown.startswith(f"{box}/"):
                subprocess.run(["losetup", "-d", f"/dev/{block.name}"], check=False)
    shutil.rmtree(box, ignore_errors=True)


def _labs_of(pid: int) -> set[Path]:
    """Return the laboratories whose files a process keeps open."""
    found = set()
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                shown = os.readlink(link)
                if shown.endswith(OWNER):
                    found.add(Path(shown).parent)
    return found


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            yield from map(int, (task / "children").read_text(encoding="ascii").split())


def _below(pid: int) -> Iterator[int]:
    for child in list(_children(pid)):
        yield child
        yield from _below(child)


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
