"""What was changed on hosts and is to be changed back, written down before it is done.

A line of `changes.jsonl` in the run's folder is on the disk before the host is touched; another
follows when it is undone. So whoever ends a run - its end, Ctrl-C, `disklab clean` after kill -9 -
finds all of it. A note in the user's state folder says in which folders there are such lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict

from disklab import durable, reading
from disklab.errors import DisklabError, MachineError
from disklab.folders import Inside
from disklab.machines import own_folders as folders
from disklab.machines.protocol import Command, Machine
from disklab.measurement import striping
from disklab.measurement.striping import Stripe

# Routes of ours that drop what is sent to an address.

PROTOCOL = "219"
"""In each of our routes. **Source:** iproute2's rt_protos gives this number to nobody."""


def route_words(address: str) -> list[str]:
    """Return the command that drops what is sent to an address."""
    return ["ip", "route", "add", "blackhole", address, "proto", PROTOCOL]


def remove_route(machine: Machine, address: str) -> None:
    """Remove our route to an address; nothing when it is gone. Raises MachineError."""
    listed = ["ip", "route", "show", "type", "blackhole", "proto", PROTOCOL, address]
    if ":" in address:
        listed.insert(1, "-6")
    found = machine.run(Command(listed))
    if found.code == 0 and not found.stdout.strip():
        return
    ended = machine.run(Command(["ip", "route", "del", *route_words(address)[3:]]))
    if ended.code != 0:
        raise MachineError(f"{machine.name}: our route to {address} stays: {ended.said}")


# The root queueing discipline of ours on a host's interface: known by its handle.

HANDLE = "d15c:"
"""Of ours. The kernel gives out handles from 8001: on, and its own defaults have 0:."""
ROOT_WORDS = ("root", "handle", HANDLE, "prio", "bands", "16", "priomap", *("0" * 16))
"""tc-prio(8): whatever its priority, a packet goes to the first band unless a filter says else."""


def qdisc_of(machine: Machine, device: str) -> tuple[str, str]:
    """Return kind and handle of an interface's root. Raises MachineError."""
    ended = machine.run(Command(["tc", "qdisc", "show", "dev", device]))
    for line in ended.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if ended.code == 0 and words[:1] == ["qdisc"] and words[3:4] == ["root"]:
            return words[1], words[2]
    raise MachineError(f"{machine.name}: tc does not show the discipline of {device}: {ended.said}")


def remove_qdisc(machine: Machine, device: str) -> None:
    """Remove our root from an interface; nothing when it is gone. Raises MachineError."""
    if qdisc_of(machine, device)[1] != HANDLE:
        return
    ended = machine.run(Command(["tc", "qdisc", "del", "dev", device, "root", "handle", HANDLE]))
    if ended.code != 0:
        raise MachineError(f"{machine.name}: our discipline on {device} stays: {ended.said}")


CHANGES = "changes.jsonl"
KIND = reading.Kind(
    "a record of changes", 64 << 20, "undo by hand what it lists", most_line_bytes=1 << 20
)
OURS = ".disklab-"
"""What the names of our files and folders on a host begin with."""

UndoKind = Literal[
    "remove_file",
    "remove_folder",
    "write",
    "swapon",
    "unmount",
    "drop",
    "remove_database",
    "end_load",
    "stop_stripe",
    "join",
    "unshape",
]


class Change(BaseModel):
    """One thing that was done to a host, and how it is undone."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    number: int
    host: str
    kind: UndoKind
    path: str
    """A file, a folder, a setting below /sys, a swap area, a mount point, an address, or the name
    of an interface."""
    before: str = ""
    """What a setting was; of a stripe, its UUID; of a mount, the stripe of ours that it shows."""
    now: str = ""
    """What we set it to: another value is somebody else's, and stays. Of a stripe, its members."""


class Line(BaseModel):
    """A line: a change that begins, or one that is undone."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    change: Change | None = None
    undone: int | None = None


@dataclass
class Journal:
    """The changes of one run."""

    folder: Path
    _open: dict[int, Change] = field(default_factory=dict)
    _next: int = 0

    @classmethod
    def of(cls, folder: Path) -> Journal:
        """Return the journal of a run with what is still to be undone."""
        journal = cls(folder)
        path = Inside(folder, CHANGES)
        if path.exists():
            durable.set_torn_end_aside(path)
            for text in reading.lines(path, KIND):
                line = _line(text)
                if line is None:
                    continue
                if line.change is not None:
                    journal._open[line.change.number] = line.change
                    journal._next = max(journal._next, line.change.number + 1)
                elif line.undone is not None:
                    journal._open.pop(line.undone, None)
        return journal

    def left(self) -> list[Change]:
        """Return what is to be undone, the last first."""
        return sorted(self._open.values(), key=lambda one: one.number, reverse=True)

    def note(self, host: str, kind: UndoKind, path: str, before: str = "", now: str = "") -> Change:
        """Write down a change that is about to be made."""
        change = Change(number=self._next, host=host, kind=kind, path=path, before=before, now=now)
        self._next += 1
        remember(self.folder)
        self._append({"change": change.model_dump(mode="json")})
        self._open[change.number] = change
        return change

    def undo(self, change: Change, machine: Machine) -> str | None:
        """Undo a change; return what a user must know about it, if anything.

        Raises MachineError when it cannot be undone: then it stays written down.
        """
        told = _UNDO[change.kind](machine, change)
        self._append({"undone": change.number})
        self._open.pop(change.number, None)
        return told

    def undo_by(self, change: Change, act: Callable[[], None]) -> None:
        """Undo a change by a function; nothing when that is done already."""
        if change.number in self._open:
            act()
            self._append({"undone": change.number})
            self._open.pop(change.number, None)

    def done(self) -> None:
        """Forget the run where nothing of it is left to be undone."""
        if not self._open:
            forget(self.folder)

    def _append(self, line: dict[str, object]) -> None:
        durable.append_line(Inside(self.folder, CHANGES), json.dumps(line, ensure_ascii=False))


def _line(text: bytes | None) -> Line | None:
    if text is None or not text.strip():
        return None
    with suppress(reading.NotAsExpectedError):
        return reading.parse(Line, text)
    return None


def state_folder() -> Path:
    """Return where notes of runs are kept that have something to be undone."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "disklab" / "measurements"


def remember(folder: Path) -> None:
    """Leave word where a run is that changes hosts. Raises MachineError."""
    note = state_folder() / folder.name
    try:
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not note.exists():
            durable.write_whole(note, f"{folder.absolute()}\n")
    except OSError as error:
        raise MachineError(
            f"{note}: {error.strerror}: without this note `disklab clean` would not find what a "
            "killed run has changed; set XDG_STATE_HOME to a folder that you may write to"
        ) from error


def forget(folder: Path) -> None:
    """Remove the word of a run that has nothing left to be undone."""
    with suppress(OSError):
        (state_folder() / folder.name).unlink()


def remembered() -> Iterator[Path]:
    """Yield the folders of runs that may have something to be undone."""
    with suppress(OSError):
        for note in sorted(state_folder().iterdir()):
            if note.name.startswith("."):
                continue
            text = reading.text(note, KIND).strip()
            yield Path(text)


def _ran(machine: Machine, *words: str) -> None:
    ended = machine.run(Command(words, variables={"LC_ALL": "C.UTF-8"}))
    if ended.code != 0:
        raise MachineError(f"{machine.name}: {' '.join(words)}: code {ended.code}: {ended.said}")


def _remove_file(machine: Machine, change: Change) -> str | None:
    if not PurePosixPath(change.path).name.startswith(OURS):
        raise MachineError(f"{machine.name}: {change.path} is not named like our files")
    _ran(machine, "rm", "-f", "--", change.path)
    return None


def _remove_folder(machine: Machine, change: Change) -> str | None:
    path = PurePosixPath(change.path)
    if not path.name.startswith(OURS):
        raise MachineError(f"{machine.name}: {path} is not named like our folders")
    if path.name in machine.files.names(path.parent):
        _ran(machine, "rmdir", "--", str(path))
    return None


def _remove_database(machine: Machine, change: Change) -> str | None:
    folders.remove(machine, PurePosixPath(change.path), change.before)
    return None


def _unmount(machine: Machine, change: Change) -> str | None:
    mounts = machine.files.read(PurePosixPath("/proc/self/mounts"), 16 << 20)
    if f" {change.path} ".encode() in mounts:
        _ran(machine, "umount", "--", change.path)
    return None


def _stop_stripe(machine: Machine, change: Change) -> str | None:
    return striping.undo(machine, Stripe(change.path, change.before, json.loads(change.now)))


def _join(machine: Machine, change: Change) -> str | None:
    remove_route(machine, change.path)
    return None


def _unshape(machine: Machine, change: Change) -> str | None:
    remove_qdisc(machine, change.path)
    return None


def _write(machine: Machine, change: Change) -> str | None:
    path = PurePosixPath(change.path)
    try:
        found = setting(machine, path)
    except MachineError:
        return f"{machine.name}: {path} is gone, so it cannot be set back to {change.before}"
    if found not in {change.now, change.before}:
        return (
            f"{machine.name}: {path} is {found}, and we had set it to {change.now}: somebody else "
            f"has changed it, so it stays (before the run it was {change.before})"
        )
    machine.files.write(path, change.before.encode())
    return None


def _swapon(machine: Machine, change: Change) -> str | None:
    swaps = machine.files.read(PurePosixPath("/proc/swaps")).decode(errors="replace")
    if any(line.split()[:1] == [change.path] for line in swaps.splitlines()):
        return None
    _ran(machine, "swapon", "--priority", change.before, "--", change.path)
    return None


_UNDO = {
    "remove_file": _remove_file,
    "remove_folder": _remove_folder,
    "write": _write,
    "swapon": _swapon,
    "unmount": _unmount,
    "remove_database": _remove_database,
    # Of a folder that a load works in: the same.
    "end_load": _remove_database,
    "stop_stripe": _stop_stripe,
    "join": _join,
    "unshape": _unshape,
}


def setting(machine: Machine, path: PurePosixPath) -> str:
    """Return a setting of the kernel as one line."""
    return machine.files.read(path).decode(errors="replace").strip()


Drop = Callable[[Change], None]
"""Drops a namespace of ours in a running database."""


def undo_all(
    journal: Journal,
    machines: dict[str, Machine],
    drop: Drop | None = None,
    stays: Collection[Change] = (),
) -> list[str]:
    """Undo what is left on the hosts given, the last change first; return what to tell.

    `stays`: what a run that goes on still needs. One that fails holds up none of the others, and
    stays written down.
    """
    told = [
        text
        for change in journal.left()
        if change not in stays and (text := _undone(journal, change, machines, drop)) is not None
    ]
    journal.done()
    return told


def _undone(
    journal: Journal, change: Change, machines: dict[str, Machine], drop: Drop | None
) -> str | None:
    machine = machines.get(change.host)
    try:
        if change.kind == "drop":
            if drop is not None:
                journal.undo_by(change, lambda: drop(change))
            return None
        return None if machine is None else journal.undo(change, machine)
    except DisklabError as error:
        return f"{error}; `disklab clean` tries it again"
