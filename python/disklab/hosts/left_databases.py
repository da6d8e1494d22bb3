"""Databases that a crash left: their processes, memory groups and run directories.

A database node has the run directory `<run>/databases/<host>`, named after the emulated host that
it lives on, and ends with that host. From the loss of a VM until its return the node has no host,
and ends with the process that made it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from disklab import reading
from disklab.engine.own_folder import (
    ForeignError,
    folder,
    make_folder,
    remove_tree,
    replace_file,
    why_foreign,
    why_not_removable,
)
from disklab.engine.process import end_process
from disklab.errors import MachineError
from disklab.hosts.control_group import ControlGroup, GroupRoot, MarkedProcess, marked_processes
from disklab.hosts.places import Owner
from disklab.names import NAME

# What `clean` does, as a list of steps: shown by a dry run, and gone through otherwise.

Outcome = tuple[bool, str]
"""Whether it is gone, and a note."""


@dataclass(frozen=True)
class Removed:
    """One thing that was found, and what became of it."""

    kind: str
    """`process`, `host process`, `database process`, `memory group`, `mount`, `mount point`,
    `device`, `fuse mount`, `volume`, `run directory`, `data`."""
    what: str
    host: str
    done: bool
    """Whether it is gone; in a dry run, whether it would be removed."""
    note: str = ""


@dataclass(frozen=True)
class Left:
    """Something that was found and is not proved to be ours."""

    what: str
    why: str


@dataclass(frozen=True)
class Step:
    """One thing to remove. `remove` proves once more that it is ours."""

    kind: str
    what: str
    host: str
    remove: Callable[[], Outcome]
    note: str = ""
    holds: bool = False
    """When it stays, so does what comes after it: that is the proof that it is ours."""
    possible: bool = True
    """False: it is known beforehand that it cannot be removed."""


def planned(steps: Iterable[Step]) -> list[Removed]:
    """Return what the steps would do."""
    return [Removed(one.kind, one.what, one.host, one.possible, one.note) for one in steps]


def applied(steps: Iterable[Step]) -> Iterator[Removed]:
    """Do the steps in their order; yield what became of each.

    After a step that holds the others and failed, only those of its kind are done.
    """
    held_by = None
    for step in steps:
        if held_by in (None, step.kind):
            gone, note = step.remove()
            yield Removed(step.kind, step.what, step.host, gone, note or step.note)
            if not gone and step.holds:
                held_by = step.kind


# A database with a healthy disk ends in seconds; one whose disk is dead does not listen at all.
TERM_SECONDS = 15.0
KILL_SECONDS = 10.0
GROUP, OWNER = "group", "owner"
"""Files in a run directory: the name of the node's memory group, and the process that made it."""


def make_run_dir(run_dir: Path) -> None:
    """Make the run directory of a node, marked as ours. Raises MachineError when it cannot be."""
    root, names = _place(run_dir)
    try:
        ours = make_folder(root, "database", *names)
    except (ForeignError, OSError) as error:
        raise MachineError(f"{run_dir}: it cannot be made: {error}") from error
    if not ours:
        raise MachineError(
            f"{run_dir}: it is not empty, and disklab did not create it; move it away or remove it"
        )
    owner = Owner.keeping(root, *names)
    with folder(root, *names) as at:
        replace_file(at, OWNER, owner.model_dump_json() + "\n")


def record_group(run_dir: Path, group: ControlGroup) -> None:
    """Note which group a node is in, so that `remove_database` finds it."""
    make_run_dir(run_dir)
    root, names = _place(run_dir)
    with folder(root, *names) as at:
        replace_file(at, GROUP, group.name)


def owner_of(run_dir: Path) -> Owner | None:
    """Return the process that made a run directory; None: it does not say."""
    return Owner.recorded(run_dir / OWNER)


def remove_database(run_dir: Path) -> list[Removed]:
    """End and remove what is left of a node; return what became of each thing."""
    return list(applied(steps_of(run_dir)))


def steps_of(run_dir: Path) -> Iterator[Step]:
    """Yield what there is to remove of a node.

    A process is ended only while the kernel shows our mark on it, or has it in the node's memory
    group, where root alone can put it. The run directory stays as long as one of them lives, and
    when it is not ours: `why_left`.
    """
    name = run_dir.name
    marked = marked_processes(run_dir)
    for process in marked:
        end = partial(_end, process)
        yield Step("database process", str(process.pid), name, end, holds=True)
    group = recorded_group(run_dir)
    known = {process.pid for process in marked}
    for pid in group.processes() if group is not None else ():
        if pid == 0:
            # The kernel's number for one that has none here.
            note = "of another PID namespace: end it there"
            stay = partial(lambda note: (False, note), note)
            yield Step("database process", "", name, stay, note, holds=True, possible=False)
        elif group is not None and pid not in known:
            end = partial(_end_member, group, pid)
            yield Step("database process", str(pid), name, end, holds=True)
    if group is not None and group.folder.exists():
        yield Step(
            "memory group", str(group.folder), name, partial(_remove_group, group), holds=True
        )
    if run_dir.exists() and why_left(run_dir) is None:
        yield Step("run directory", str(run_dir), name, partial(_remove_run_dir, run_dir))


def why_left(run_dir: Path) -> str | None:
    """Return why the run directory would be left alone; None: it would be removed."""
    root, names = _place(run_dir)
    return why_not_removable(root, "database", *names)


def recorded_group(run_dir: Path) -> ControlGroup | None:
    """Return the group that a node was in; None: it was in none, or this machine has none."""
    root, names = _place(run_dir)
    if why_foreign(root, "database", *names) is not None:
        return None
    groups = GroupRoot.of_machine()
    name = reading.record_text(run_dir / GROUP, reading.RECORD)
    if name is None:
        return None
    # One name of a folder, never a path.
    return None if groups is None or NAME.fullmatch(name) is None else ControlGroup(name, groups)


def _place(run_dir: Path) -> tuple[Path, tuple[str, str]]:
    """Return the run directory of disklab and the way to that of a node."""
    return run_dir.parent.parent, (run_dir.parent.name, run_dir.name)


def _end(process: MarkedProcess) -> Outcome:
    ended = process.end(signal.SIGTERM, TERM_SECONDS)
    ended = ended or process.end(signal.SIGKILL, KILL_SECONDS)
    return ended, "" if ended else "it waits for its disk"


def _end_member(group: ControlGroup, pid: int) -> Outcome:
    """End a process that shows no mark: PostgreSQL's own overwrite it with their titles.

    They end with their server, but for those that wait for a lock that nobody gives back any more.
    """
    is_inside = partial(_is_in, group, pid)
    ended = end_process(pid, is_inside, signal.SIGKILL, KILL_SECONDS)
    return ended, "" if ended else "it waits for its disk"


def _is_in(group: ControlGroup, pid: int) -> bool:
    return pid in group.processes()


def _remove_group(group: ControlGroup) -> Outcome:
    gone = group.remove()
    return gone, "" if gone else "a process is in it still"


def _remove_run_dir(run_dir: Path) -> Outcome:
    root, names = _place(run_dir)
    why = remove_tree(root, "database", *names)
    return why is None, why or ""
