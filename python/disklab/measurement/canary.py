"""A short probe of a disk before and after what is measured on it: does somebody else use it too?

What a second of small reads does on a disk that rests depends on nobody but the disk's neighbours,
and it costs a bursting disk next to no credits.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from disklab.errors import DisklabError, MachineError
from disklab.machines.protocol import Command, Machine
from disklab.measurement.journal import OURS, Change, Journal
from disklab.measurement.settings import queue_of
from disklab.probe.cells import KIB, MIB, Cell, Direction, Engine, Plan, Profile
from disklab.probe.fio import Job, Tick
from disklab.probe.target import SPARE_BYTES, Region
from disklab.waiting import Clock, Wait

# The file that fio measures in on a host: made, written in full, removed by the journal.

ENGINE: Engine = "libaio"
FIO = Path("fio")
"""Found on the host's own PATH."""


def make_region(  # noqa: PLR0913, PLR0917 - where, what, and who is told
    machine: Machine, shown: str, directory: str, plan: Plan, journal: Journal, tick: Tick
) -> Region:
    """Make a file of our own in a directory and write all of it. Raises MachineError."""
    _check_space(machine, directory, plan)
    path = PurePosixPath(directory) / f"{OURS}{journal.folder.name}-{secrets.token_hex(8)}"
    journal.note(machine.name, "remove_file", str(path))
    machine.files.write(path, b"")
    region = Region(
        path=Path(path),
        shown=shown,
        size_bytes=plan.size_bytes,
        writable=True,
        condition="own file, written in full before the first read",
    )
    Job(FIO, region.path, writable=True, plan=plan, on=machine).fill(tick)
    return region


def _check_space(machine: Machine, directory: str, plan: Plan) -> None:
    ended = machine.run(Command(["stat", "-f", "-c", "%a %S", "--", directory]))
    words = ended.stdout.split()
    if ended.code != 0 or len(words) != 2:
        raise MachineError(f"{machine.name}: {directory}: {ended.said}")
    free = int(words[0]) * int(words[1])
    if free < plan.size_bytes + SPARE_BYTES:
        raise MachineError(
            f"{machine.name}: {directory} has {free // MIB} MiB free, and "
            f"{(plan.size_bytes + SPARE_BYTES) // MIB} MiB are needed; make room, or name another "
            "directory in the hosts file"
        )


CANARY = Cell(Profile.SYNC, Direction.RANDREAD, 4 * KIB)
CANARY_S = 1.0
BESIDE_BYTES = 256 * MIB
"""Of the file beside a database, whose room it takes: more than such a second reads."""
NOISY_RATIO = 0.2
"""Azure's and AWS's disks repeat such a second within a tenth; the studies' bad hosts had a
seventh of the IOPS (issue of the two clusters, 2022)."""
QUIET_LOOK_S = 0.5
MOST_QUIET_WAIT_S = 15.0
"""What a database still writes after a load (a flush, a compaction) mostly ends sooner; a trial
does not wait longer for a figure beside it."""
QUIET_BUSY_RATIO = 0.02
"""A disk that is busy for less of the time rests: an idle database writes now and then."""
BUSY_MS = 9
"""Documentation/block/stat.rst: of a disk's counters, milliseconds in which it was busy."""

SILENT: Tick = lambda _elapsed_s: None  # noqa: E731 - nobody follows a second


@dataclass
class Canaries:
    """The short probes of a run, by what was probed."""

    _seen: dict[str, list[float]] = field(default_factory=dict)

    def take(self, spot: str, machine: Machine, path: Path, size_bytes: int) -> float:
        """Probe a file of ours, written in full, and return its IOPS."""
        plan = Plan((CANARY,), CANARY_S, size_bytes, ENGINE)
        job = Job(FIO, path, writable=False, plan=plan, on=machine)
        iops = job.measure(CANARY, SILENT).iops
        self._seen.setdefault(spot, []).append(iops)
        return iops

    def doubts(self, spot: str, figures: Sequence[float]) -> list[str]:
        """Return what figures beside a trial tell of others on the same hardware."""
        if not figures:
            return []
        usual = median(self._seen[spot])
        worst = max(figures, key=lambda iops: abs(iops / usual - 1))
        why = "a neighbour was noisy, or the disk's credits ran out"
        if abs(worst / usual - 1) > NOISY_RATIO:
            return [
                f"a short probe of {spot} beside this trial did {worst:,.0f} IOPS where "
                f"{usual:,.0f} are usual in this run: {why}"
            ]
        # The median of a run's first trial lies between its own two.
        if min(figures) / max(figures) < 1 - NOISY_RATIO:
            told = " and ".join(f"{iops:,.0f}" for iops in figures)
            return [f"short probes of {spot} beside this trial did {told} IOPS: {why}"]
        return []


@dataclass(frozen=True)
class Nest:
    """A file for short probes on the disk of a database's data."""

    machine: Machine
    spot: str
    path: Path
    change: Change
    """What removes it."""
    busy: PurePosixPath | None
    """The counters of that disk; None: it lies on none that has some."""


def is_there(machine: Machine) -> bool:
    """Return whether a host has the program of short probes."""
    with suppress(MachineError):
        return machine.run(Command([str(FIO), "--version"])).code == 0
    return False


def make_nest(machine: Machine, spot: str, directory: str, journal: Journal) -> Nest:
    """Make a file in a directory and write all of it. Raises MachineError: no room, no fio."""
    plan = Plan((CANARY,), CANARY_S, BESIDE_BYTES, ENGINE)
    known = journal.left()
    try:
        region = make_region(machine, spot, directory, plan, journal, SILENT)
    except DisklabError:
        for change in [one for one in journal.left() if one not in known]:
            journal.undo(change, machine)
        raise
    (change,) = [one for one in journal.left() if one not in known]
    busy = None
    with suppress(MachineError):
        busy = queue_of(machine, directory).parent / "stat"
    return Nest(machine, spot, region.path, change, busy)


def wait_until_quiet(nest: Nest, busy: PurePosixPath, clock: Clock = time) -> bool:
    """Wait until a disk rests; False: it did not for as long as a trial waits.

    `busy`: its counters.
    """
    before = _busy_ms(nest.machine, busy)
    with Wait(f"the disk of {nest.spot} rests", MOST_QUIET_WAIT_S, clock=clock) as wait:
        while wait.left_s > 0:
            looked_s = wait.since_s
            wait.pause(QUIET_LOOK_S)
            now = _busy_ms(nest.machine, busy)
            busy_ratio = (now - before) / 1e3 / (wait.since_s - looked_s)
            if busy_ratio <= QUIET_BUSY_RATIO:
                return True
            before, wait.what = now, f"busy for {busy_ratio:.0%} of the time"
    return False


def _busy_ms(machine: Machine, file: PurePosixPath) -> int:
    words = machine.files.read(file).split()
    if len(words) <= BUSY_MS:
        raise MachineError(f"{machine.name}: {file} has no counters of a disk")
    return int(words[BUSY_MS])


@dataclass
class Beside:
    """The short probes beside the trials of one bed, on all its hosts at the same time."""

    canaries: Canaries
    nests: Sequence[Nest]
    lacking: Mapping[str, str] = field(default_factory=dict)
    """By host: why it has no file for them."""
    rests: bool = True
    """Whether nothing was written since the database was settled last. It decides where the disk
    has no counters that could tell."""
    before: dict[str, float] = field(default_factory=dict)
    """By host."""
    after: dict[str, float] = field(default_factory=dict)
    untold: dict[str, str] = field(default_factory=dict)
    """By host: why a figure is missing."""

    def begin(self) -> None:
        """Probe before a trial; what was known of the one before is forgotten."""
        self.after, self.untold = {}, {}
        self.before = self._take("before")

    def end(self, *, only_reads: bool) -> None:
        """Probe after a trial, which has perhaps only read."""
        self.rests = only_reads
        self.after = self._take("after")

    def _take(self, when: str) -> dict[str, float]:
        def one(nest: Nest) -> float | str:
            try:
                if not (self.rests if nest.busy is None else wait_until_quiet(nest, nest.busy)):
                    return f"{when} it, the disk did not rest for {MOST_QUIET_WAIT_S:.0f} s"
                size_bytes = BESIDE_BYTES
                return self.canaries.take(nest.spot, nest.machine, nest.path, size_bytes)
            except DisklabError as error:
                return str(error)

        found: dict[str, float] = {}
        if not self.nests:
            return found
        with ThreadPoolExecutor(len(self.nests)) as threads:
            for nest, told in zip(self.nests, threads.map(one, self.nests), strict=True):
                if isinstance(told, str):
                    known = self.untold.get(nest.machine.name)
                    self.untold[nest.machine.name] = told if known is None else f"{known}; {told}"
                else:
                    found[nest.machine.name] = told
        return found

    def told(self, host: str) -> dict[str, Any]:
        """Return what a result says of a host; None stands for a figure that is missing."""
        figures = {"before": self.before.get(host), "after": self.after.get(host)}
        shown = {key: None if one is None else round(one, 1) for key, one in figures.items()}
        why = self.lacking.get(host, self.untold.get(host))
        return {"canary_iops": shown, **({} if why is None else {"canary_missing": why})}

    def doubts(self) -> list[str]:
        """Return what the figures tell of others on the same hardware."""
        found = []
        for nest in self.nests:
            taken = [self.before.get(nest.machine.name), self.after.get(nest.machine.name)]
            found += self.canaries.doubts(nest.spot, [one for one in taken if one is not None])
        return found
