"""What disklab asks of a machine: run a program, move files, say its address and its clock.

A kind is a file of its own: `local` (this machine), `netns` (an emulated host in namespaces), `ssh`
(a host reached over the user's own OpenSSH). Code above this room names no /proc, no /sys and no
program of a machine that it does not run on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol


@dataclass(frozen=True)
class Finished:
    """How a program ended."""

    code: int
    """Its exit code; the negative number of the signal that ended it."""
    stdout: bytes
    stderr: bytes
    """At most the last 64 KiB."""

    @property
    def said(self) -> str:
        """What it complained of: its standard error as text."""
        return self.stderr.decode(errors="replace").strip()


@dataclass(frozen=True)
class Command:
    """A program with everything that it starts with."""

    words: Sequence[str]
    """The program and its arguments. No shell reads them."""
    stdin: bytes = b""
    variables: Mapping[str, str] | None = None
    """Added to the few that every program has: `machines/programs.py`."""
    folder: PurePosixPath | None = None
    """Its working directory; None: `/`."""


@dataclass(frozen=True)
class ClockOffset:
    """How far a machine's clock is from this one's."""

    ahead_s: float
    """Seconds that its clock shows more than ours; 0 for this machine."""
    error_s: float
    """The offset lies within this of `ahead_s`: half of the shortest round trip."""


class Child(Protocol):
    """A program that runs. As a context manager it is ended, with its children, at the end."""

    @property
    def pid(self) -> int:
        """Its number on its machine."""

    def lines(self) -> Iterator[bytes]:
        """Yield each line of standard output as it comes, without its end.

        A machine that is lost for a while loses no line: they are in the order they were written.
        Raises MachineError when the machine is gone for good.
        """

    def signal(self, number: int) -> None:
        """Send a signal to it and its children; none when it has ended."""

    def wait(self, seconds: float | None = None) -> Finished | None:
        """Wait for its end; None: it still runs after so many seconds. `stdout` is empty."""

    def __enter__(self) -> Child:
        """Return itself."""

    def __exit__(self, *_: object) -> None:
        """End it: SIGTERM, 5 seconds, SIGKILL."""


class Files(Protocol):
    """The files of a machine. Paths are absolute; a link at the end is never followed to write."""

    def read(self, path: PurePosixPath, most_bytes: int = 1 << 20) -> bytes:
        """Return a file (of /proc and /sys too); raises MachineError: absent, or larger."""

    def write(self, path: PurePosixPath, data: bytes, mode: int = 0o600) -> None:
        """Write a file whole: it is the old one or the new one; in place below /proc and /sys."""

    def names(self, folder: PurePosixPath) -> list[str]:
        """Return the sorted names in a folder; raises MachineError when there is none."""

    def put(self, source: Path, path: PurePosixPath, mode: int = 0o600) -> None:
        """Copy a file of this machine there; nothing is sent when it is there with this content."""

    def get(self, path: PurePosixPath, target: Path) -> None:
        """Copy a file from there to a new file of this machine."""


class Counters(Protocol):
    """Files of a machine that count, such as /proc/stat: the newest of each, while it is entered.

    A machine that cannot be watched, or is gone, is told of by others: it has no news.
    """

    def latest(self) -> tuple[float, Mapping[str, str]]:
        """Return when they were read, in seconds of a clock of the machine, and what they held.

        Nothing before the first look.
        """

    def __enter__(self) -> Counters:
        """Begin to watch."""

    def __exit__(self, *_: object) -> None:
        """End it."""


class Machine(Protocol):
    """A machine that disklab may use."""

    @property
    def name(self) -> str:
        """What the user calls it: `n1`, `this machine`."""

    @property
    def address(self) -> str:
        """Where the other machines of its cluster reach it: an IP address."""

    @property
    def is_here(self) -> bool:
        """Whether it is the machine that disklab runs on, and SSH begins at."""

    @property
    def engine(self) -> Sequence[str]:
        """The words that start our engine there. Raises MachineError where there is none."""

    @property
    def files(self) -> Files:
        """Its files."""

    def run(self, command: Command, seconds: float = 60.0) -> Finished:
        """Run a program to its end.

        Raises MachineError when it cannot be started, or still runs after so many seconds (it is
        killed then), or when the machine is gone. Its exit code raises nothing.
        """

    def start(self, command: Command) -> Child:
        """Start a program; it ends with this process, or with its lease on a far machine."""

    def cached_bytes(self, paths: Sequence[PurePosixPath]) -> tuple[int, int]:
        """Return (bytes of files and of what is below folders, bytes of it in the page cache)."""

    def drop_pages(self, paths: Sequence[PurePosixPath]) -> None:
        """Let go of the clean pages of files, and of all files below folders."""

    def counters(self, files: Sequence[PurePosixPath]) -> Counters:
        """Return the newest of these small files, not yet watched."""

    def clock(self) -> ClockOffset:
        """Return how far its clock is from this machine's, as of now."""
