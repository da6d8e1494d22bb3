"""Writes numbered versions to a device until told to stop, as a process of its own.

`python -m campaigns.kills.writer DEVICE BLOCKS SEED`: writes and flushes until its standard input
ends or the device fails, then prints the journal. It is told to nobody but the process that started
it, so whatever happens to the device, what was acknowledged is known.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.journal import Journal, Promise, Writers

BLOCKS = 256
"""Few enough that each is written several times within a second."""


def main() -> None:
    """Write until the end of standard input; print what was promised."""
    device, blocks, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    journal = Journal(blocks)
    writers = Writers(device, journal, seed, threads=2)
    writers.start()
    while not (journal.flushes or writers.failures):
        time.sleep(0.01)
    print("flushed", flush=True)
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        if writers.failures:
            print("failed", flush=True)
            sys.stdin.read()
            break
    writers.join()
    told = {
        "submitted": journal.submitted,
        "acknowledged": journal.acknowledged,
        "flushed": journal.flushed,
        "flushes": journal.flushes,
        "failures": [str(error) for error in writers.failures],
    }
    print(json.dumps(told), flush=True)


@dataclass
class Writing:
    """A writer that runs."""

    process: subprocess.Popen[str]
    failures: tuple[str, ...] = ()
    """What it met, once it has ended."""

    @classmethod
    def begin(cls, device: str, seed: int) -> Writing:
        """Start a writer; it has flushed once when this returns."""
        command = [sys.executable, "-m", "campaigns.kills.writer", device, str(BLOCKS), str(seed)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "flushed\n", process.communicate()
        return cls(process)

    def await_failure(self, seconds: float) -> None:
        """Return when it has met an error, or the time is over."""
        assert self.process.stdout is not None
        select.select([self.process.stdout], [], [], seconds)

    def end(self, seconds: float = 60.0) -> Journal:
        """Stop it and return what it was promised. TimeoutExpired: an I/O hangs."""
        told, errors = self.process.communicate("", timeout=seconds)
        assert self.process.returncode == 0, errors
        kept = json.loads(told.splitlines()[-1])
        self.failures = tuple(kept["failures"])
        journal = Journal(BLOCKS)
        journal.submitted, journal.acknowledged = kept["submitted"], kept["acknowledged"]
        journal.flushed, journal.flushes = kept["flushed"], kept["flushes"]
        return journal

    def kill(self) -> None:
        """End it whatever it does; a thread that waits for a disk ends with the disk."""
        self.process.kill()


def acknowledged(journal: Journal) -> int:
    """Return how many blocks have a write that was acknowledged."""
    return sum(version > 0 for version in journal.acknowledged)


__all__ = ["BLOCKS", "Promise", "Writing", "acknowledged"]

if __name__ == "__main__":
    main()
