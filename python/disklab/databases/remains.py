"""Processes of a server that was killed, which might still write to its data directory.

PostgreSQL sees them by its System V shared memory. Ours has that in a namespace of its own, so that
nothing of it stays (`Installation.alone`), and looks for them itself. They do not show our mark:
PostgreSQL writes what it is doing over the environment.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

from disklab.waiting import Wait


def end_remains(data: Path, program: Path, seconds: float) -> list[int]:
    """End every process of a server on this data directory; returns those that stay.

    Each of them has the directory as its working directory and runs `program`, the server's. One
    that waits for its disk stays as long as that does not answer; `seconds`: for all of them.
    """
    places = (str(data.resolve()), str(program.resolve()))
    with ExitStack() as open_handles:
        killed = {}
        for pid in _numbers():
            handle = _killed(pid, places)
            if handle is not None:
                open_handles.callback(os.close, handle)
                killed[handle] = pid
        with Wait("what is left of a server ends", seconds, f"{len(killed)} processes") as wait:
            while killed:
                ended, _, _ = select.select([*killed], [], [], wait.left_s)
                if not ended:
                    break
                for handle in ended:
                    del killed[handle]
        return sorted(killed.values())


def _numbers() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _killed(pid: int, places: tuple[str, str]) -> int | None:
    """Kill a process that is there; returns a handle of it, or None: it is none of the server's."""
    # The handle holds on to the process: no other one can get its number after we have looked.
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    if (_link(pid, "cwd"), _link(pid, "exe")) != places:
        os.close(handle)
        return None
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    return handle


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""
