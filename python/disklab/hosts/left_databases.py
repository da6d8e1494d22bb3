"""Databases that a crash left: their processes, memory groups and run directories.

A database node has the run directory `<run>/databases/<host>`, named after the emulated host that
it lives on, and ends with that host.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from disklab.hosts.control_group import ControlGroup, GroupRoot
from disklab.hosts.processes import marked_processes

# A database with a healthy disk ends in seconds; one whose disk is dead does not listen at all.
TERM_SECONDS = 15.0
KILL_SECONDS = 10.0
GROUP = "group"
"""The file in a run directory that names the node's memory group."""


def record_group(run_dir: Path, group: ControlGroup) -> None:
    """Note which group a node is in, so that `remove_database` finds it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / GROUP).write_text(group.name, encoding="utf-8")


def remove_database(run_dir: Path) -> Iterator[tuple[str, str, bool, str]]:
    """End and remove what is left of a node: kind, what, whether it is gone, a note.

    A process is ended only while the kernel shows our mark on it. The run directory stays as long
    as one of them lives, or somebody is in the group.
    """
    gone = True
    for process in marked_processes(run_dir):
        ended = process.end(signal.SIGTERM, TERM_SECONDS)
        ended = ended or process.end(signal.SIGKILL, KILL_SECONDS)
        gone = gone and ended
        note = "" if ended else "it waits for its disk"
        yield "database process", str(process.pid), ended, note
    if not gone:
        return
    group = recorded_group(run_dir)
    if group is not None and group.folder.exists():
        # PostgreSQL's own processes overwrite the mark with their titles, and end by themselves.
        gone = group.remove()
        yield "memory group", str(group.folder), gone, "" if gone else "a process is in it still"
    if gone and run_dir.exists():
        # Configuration only: data and logs lie elsewhere, and nothing is ever mounted here.
        shutil.rmtree(run_dir)
        yield "run directory", str(run_dir), True, ""


def planned(run_dir: Path) -> Iterator[tuple[str, str, bool, str]]:
    """Yield what `remove_database` would remove."""
    for process in marked_processes(run_dir):
        yield "database process", str(process.pid), True, ""
    group = recorded_group(run_dir)
    if group is not None and group.folder.exists():
        yield "memory group", str(group.folder), True, ""
    if run_dir.exists():
        yield "run directory", str(run_dir), True, ""


def recorded_group(run_dir: Path) -> ControlGroup | None:
    """Return the group that a node was in; None: it was in none, or this machine has none."""
    root = GroupRoot.of_machine()
    try:
        name = (run_dir / GROUP).read_text(encoding="utf-8")
    except OSError:
        return None
    # One name of a folder, never a path.
    return None if root is None or not name or "/" in name else ControlGroup(name, root)
