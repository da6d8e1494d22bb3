"""The fixture `cloud_disk` of `pip install disklab[pytest]`: emulated disks for tests.

Imports what makes disks in the fixture alone: pytest loads this module in every session.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from disklab.engine import View
    from disklab.privilege.for_command import CommandDisk


@dataclass(frozen=True)
class Counts:
    """What reached a disk; of two looks, `-` gives what happened between them."""

    reads: int
    writes: int
    flushes: int
    bytes_read: int
    bytes_written: int

    def __sub__(self, before: Counts) -> Counts:
        """Return what happened since an earlier look."""
        return Counts(**{name: value - vars(before)[name] for name, value in vars(self).items()})


@dataclass(frozen=True)
class CloudDisk:
    """An emulated disk with a file system."""

    path: Path
    """The folder that it is mounted on."""
    _disk: CommandDisk

    def view(self) -> View:
        """Return all that the engine tells of it: limits, credits, latencies, faults."""
        from disklab.hosts import running  # noqa: PLC0415

        return running.show(self._disk.target())

    def counts(self) -> Counts:
        """Return what has reached the disk since it was made."""
        operations = self.view().counters.operations
        return Counts(
            reads=operations["read"].ios,
            writes=operations["write"].ios,
            flushes=operations["flush"].ios,
            bytes_read=operations["read"].bytes,
            bytes_written=operations["write"].bytes,
        )

    def fail(self, fault: str) -> None:
        """Break it, or mend it, as `disklab disk fail` does: `slow 10x`, `stall 5s`, `recover`.

        Raises UserError for a fault that there is not.
        """
        from disklab.hosts import changes, running  # noqa: PLC0415

        kind, _, value = fault.partition(" ")
        running.fail(self._disk.target(), changes.fault_of(kind, value or None, None))


def close_left(folder: Path) -> None:
    """Close what this process has left open below a folder whose file system ends.

    A connection that nobody closed would keep it mounted. Its number stays taken, by /dev/null, so
    that whoever closes it later closes nothing else.
    """
    gc.collect()
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            if entry.readlink().is_relative_to(folder):
                with Path(os.devnull).open("r+b") as nothing:
                    os.dup2(nothing.fileno(), int(entry.name))


MakeDisk = Callable[..., CloudDisk]


@pytest.fixture
def cloud_disk() -> Iterator[MakeDisk]:
    """Make emulated disks: `cloud_disk("azure/P10", caching="ReadOnly", size_bytes=1 << 30)`.

    They are gone at the end of the test, with all that was written. Skips the test where no disk
    can be made, with the reason.
    """
    from disklab.hosts import requirements  # noqa: PLC0415

    if problems := list(requirements.problems()):
        pytest.skip("; ".join(f"{problem.place}: {problem.rule}" for problem in problems))
    with ExitStack() as stack:
        yield lambda disks, **options: _made(stack, disks, **options)


def _made(  # noqa: PLR0913 - each is an option of the disk
    stack: ExitStack,
    disks: str,
    *,
    caching: Literal["None", "ReadOnly", "ReadWrite"] = "None",
    vm: str | None = None,
    filesystem: Literal["xfs", "ext4"] = "ext4",
    size_bytes: int | None = 1 << 30,
    calibrate: bool = True,
) -> CloudDisk:
    from disklab.catalog import VolumeRequest, load_catalog  # noqa: PLC0415
    from disklab.privilege.for_command import CommandDisk, Make, taken_away  # noqa: PLC0415

    request = Make(
        volume=VolumeRequest(disks=disks, name="data", caching=caching, size_bytes=size_bytes),
        vm=vm,
        filesystem=filesystem,
        read_ahead_kib=None,
        calibrate=calibrate,
        catalog=load_catalog(),
    )
    disk = CommandDisk("pytest")
    disk.done(request, lambda _: None)
    stack.callback(taken_away, disk.take_away, warnings.warn)
    stack.callback(close_left, disk.folder)
    return CloudDisk(disk.folder, disk)
