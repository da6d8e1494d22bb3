"""Whether a program of this machine has ended: by a descriptor of it, where there are such."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from typing import Protocol


class Ending(Protocol):
    """How a program's end is awaited."""

    def come(self, seconds: float | None) -> bool:
        """Wait for it at most so long; None: as long as it takes. Returns whether it is over."""

    def code(self) -> int:
        """Return the exit code, or the negative number of a signal, of what has ended."""

    def close(self) -> None:
        """Give back what was opened for it."""


class ByDescriptor:
    """On Linux: not reaped, so its number stays taken until its whole group was ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._handle = os.pidfd_open(process.pid)

    def come(self, seconds: float | None) -> bool:
        """See `Ending`."""
        if self._process.returncode is not None:
            return True
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def code(self) -> int:
        """See `Ending`."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def close(self) -> None:
        """See `Ending`."""
        os.close(self._handle)


class ByReaping:
    """On other systems, where only an engine that simulates is started: it has no children."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def come(self, seconds: float | None) -> bool:
        """See `Ending`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def code(self) -> int:
        """See `Ending`."""
        return self._process.wait()

    def close(self) -> None:
        """See `Ending`."""


def ending_of(process: subprocess.Popen[bytes]) -> Ending:
    """Return how this system tells the end of a child."""
    return ByDescriptor(process) if sys.platform == "linux" else ByReaping(process)
