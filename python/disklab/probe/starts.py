"""How far apart fio's jobs start.

fio fills each job's buffers after it has told the jobs to start, and its report says how long the
longest job ran, not how long all of them together. With 1 GiB of buffers on two busy CPUs the jobs
began up to 0.6 s apart, and a cell of 2 s showed 251 MB/s on a disk of 200 MB/s (our own
measurement, 2026-11-21). So the start of each job is observed: it is when the kernel first accounts
direct I/O to its process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from disklab.errors import MachineError

Read = Callable[[PurePosixPath], bytes]


def _of_this_machine(path: PurePosixPath) -> bytes:
    return Path(path).read_bytes()


# A job that has not begun after this long is not waited for: its start is not seen at all on file
# systems without I/O accounting.
WATCHED_S = 15.0


@dataclass
class StartWatch:
    """Watches the jobs of one fio process; look at it often until it is `over`."""

    pid: int
    jobs: int
    read: Read = _of_this_machine
    """Reads a file of the machine on which fio runs; raises OSError or MachineError."""
    began: float = field(default_factory=time.monotonic)
    seen: dict[int, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether every job has begun, or no more is to be expected."""
        return len(self.seen) >= self.jobs or time.monotonic() - self.began > WATCHED_S

    def look(self) -> None:
        """Note the jobs that have begun since the last look."""
        now = time.monotonic()
        for child in children(self.pid, self.read):
            if child not in self.seen and has_begun(child, self.read):
                self.seen[child] = now

    @property
    def spread_s(self) -> float:
        """Time between the first and the last start that was seen."""
        times = self.seen.values()
        return max(times) - min(times) if times else 0.0


def children(pid: int, read: Read = _of_this_machine) -> list[int]:
    """Return the child processes; empty when the process is gone."""
    try:
        text = read(PurePosixPath(f"/proc/{pid}/task/{pid}/children"))
    except (OSError, MachineError):
        return []
    return [int(word) for word in text.split()]


def has_begun(pid: int, read: Read = _of_this_machine) -> bool:
    """Return whether the kernel has accounted disk I/O to the process."""
    try:
        text = read(PurePosixPath(f"/proc/{pid}/io")).decode("ascii", errors="replace")
    except (OSError, MachineError):
        return False
    counts = dict(line.split(": ") for line in text.splitlines() if ": " in line)
    return int(counts.get("read_bytes", 0)) > 0 or int(counts.get("write_bytes", 0)) > 0
