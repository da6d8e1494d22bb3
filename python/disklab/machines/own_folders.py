"""Folders of ours on a host: made with a marker, and removed only with the same one in them.

The journal has the marker before the folder is made. What runs in a folder is ended before it is
removed: programs whose working directory it is, and that belong to no terminal. A person who looks
around there keeps the shell.
"""

from __future__ import annotations

import secrets
from pathlib import PurePosixPath

from disklab.errors import MachineError
from disklab.machines.protocol import Command, Machine

PREFIX = ".disklab-"
"""What the names of our files and folders on a host begin with."""
MARKER = ".disklab-marker"
# A program that was killed closes a gigabyte of memory; one that waits for its disk stays.
END_SECONDS = 30
REMOVE_SECONDS = 600.0
# $1: a folder. Ends with 1 when something stays there for $2 tenths of a second.
_END = """i=0
while :; do
  left=
  for p in /proc/[0-9]*; do
    d=$(readlink "$p/cwd" 2>/dev/null) || continue
    case "$d" in "$1"|"$1"/*) ;; *) continue;; esac
    # What follows the name: state, parent, group, session, terminal.
    t=$(sed 's/.*) //' "$p/stat" 2>/dev/null | cut -d' ' -f5)
    case "$t" in 0) kill -KILL "${p#/proc/}" 2>/dev/null; left="$left ${p#/proc/}";; esac
  done
  [ -z "$left" ] && exit 0
  i=$((i + 1)); [ "$i" -gt "$2" ] && { echo "$left"; exit 1; }
  sleep 0.1
done"""


def new_name(what: str) -> tuple[str, str]:
    """Return a name for a folder, and the marker that tells it is ours."""
    token = secrets.token_hex(16)
    return f"{PREFIX}{what}-{token[:8]}", token


def make(machine: Machine, folder: PurePosixPath, token: str) -> None:
    """Make a folder that was written down, with its marker. Everybody may pass through it."""
    _ran(machine, ["mkdir", "-m", "0711", "--", str(folder)])
    machine.files.write(folder / MARKER, token.encode(), 0o600)


def remove(machine: Machine, folder: PurePosixPath, token: str) -> None:
    """End what runs in a folder and remove it with all that is in it; nothing when it is gone.

    Raises MachineError when it has another marker, or none: then it is not ours.
    """
    if not folder.name.startswith(PREFIX) or ".." in folder.parts:
        raise MachineError(f"{machine.name}: {folder} is not named like our folders")
    if folder.name not in machine.files.names(folder.parent):
        return
    if MARKER not in machine.files.names(folder):
        # It was made, and we were killed before it had its marker: then it is empty.
        _ran(machine, ["rmdir", "--", str(folder)])
        return
    found = machine.files.read(folder / MARKER).decode(errors="replace")
    if found != token:
        raise MachineError(
            f"{machine.name}: {folder} has another run's marker: it is not ours to remove"
        )
    end_processes(machine, str(folder))
    words = ["rm", "-rf", "--one-file-system", "--", str(folder)]
    _ran(machine, words, REMOVE_SECONDS)


def end_processes(machine: Machine, folder: str) -> None:
    """Kill every program without a terminal whose working directory is a folder or below.

    Raises MachineError when one stays.
    """
    real = _ran(machine, ["readlink", "-f", "--", folder]).strip()
    if not any(part.startswith(PREFIX) for part in PurePosixPath(real).parts):
        raise MachineError(f"{machine.name}: {folder} is in no folder of ours: nothing is ended")
    words = ["sh", "-c", _END, "disklab", real, str(END_SECONDS * 10)]
    ended = machine.run(Command(words), END_SECONDS * 4)
    if ended.code != 0:
        left = ended.stdout.decode(errors="replace").strip()
        raise MachineError(f"{machine.name}: processes {left} in {folder} wait for their disk")


def _ran(machine: Machine, words: list[str], seconds: float = 60.0) -> str:
    ended = machine.run(Command(words, variables={"LC_ALL": "C.UTF-8"}), seconds)
    if ended.code != 0:
        raise MachineError(f"{machine.name}: {' '.join(words)}: code {ended.code}: {ended.said}")
    return ended.stdout.decode(errors="replace")
