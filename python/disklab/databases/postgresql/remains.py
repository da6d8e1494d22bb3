"""Processes of a server that was killed, which might still write to its data directory.

PostgreSQL sees them by its System V shared memory. Ours has that in a namespace of its own, so that
nothing of it stays (`Installation.alone`), and looks for them itself. They do not show our mark:
PostgreSQL writes what it is doing over the environment.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path


def end_remains(data: Path, program: Path, seconds: float) -> list[int]:
    """End every process of a server on this data directory; returns those that stay.

    Each of them has the directory as its working directory and runs `program`, the server's. One
    that waits for its disk stays as long as that does not answer.
    """
    started_in, runs = str(data.resolve()), str(program.resolve())
    return [
        pid for pid in _numbers() if not _end(pid, started_in=started_in, runs=runs, wait_s=seconds)
    ]


def _numbers() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _end(pid: int, *, started_in: str, runs: str, wait_s: float) -> bool:
    # The handle holds on to the process: no other one can get its number after we have looked.
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        if (_link(pid, "cwd"), _link(pid, "exe")) != (started_in, runs):
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended, _, _ = select.select([handle], [], [], wait_s)
        return bool(ended)
    finally:
        os.close(handle)


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""
