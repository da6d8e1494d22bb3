"""Where the engine is."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import MachineError

NAME = "disklab-engine"
STATIC_NAME = "disklab-engine-static"

# The parent of an agent's job is its keeper, a process of the engine that was sent there.
SENT_ENGINE = ("sh", "-c", 'exec "/proc/$PPID/exe" "$@"', NAME)


@dataclass(frozen=True)
class AgentFile:
    """The program that serves us on a host."""

    path: Path
    note: str = "give an engine that runs there"
    """What to do when the host cannot run it."""


def find_engine() -> Path:
    """Return the engine that was installed with this package, else the one on PATH.

    `$DISKLAB_ENGINE` names another one. Raises MachineError when there is none.
    """
    if named := os.environ.get("DISKLAB_ENGINE"):
        if os.access(named, os.X_OK):
            return Path(named)
        raise MachineError(f"$DISKLAB_ENGINE: {named}: no such program; unset it or correct it")
    beside = Path(sys.executable).with_name(NAME)
    if os.access(beside, os.X_OK):
        return beside
    if found := shutil.which(NAME):
        return Path(found)
    raise MachineError(
        f"{NAME} is neither beside {sys.executable} nor on PATH; "
        "run `make setup`, or install the disklab wheel again"
    )


def find_agent() -> AgentFile:
    """Return the engine for other hosts: the static one, which runs on any Linux of this kind.

    `$DISKLAB_STATIC_ENGINE` names one; else one that `make static-engine` has put beside this one;
    else this one, which runs on hosts of the same distribution. Raises MachineError for none.
    """
    if named := os.environ.get("DISKLAB_STATIC_ENGINE"):
        if os.access(named, os.X_OK):
            return AgentFile(Path(named))
        raise MachineError(f"$DISKLAB_STATIC_ENGINE: {named}: no such program; correct it")
    own = find_engine()
    static = own.with_name(STATIC_NAME)
    if os.access(static, os.X_OK):
        return AgentFile(static)
    note = (
        f"{own} was sent, which needs the libraries of this distribution: build one that needs "
        "none by `make static-engine` (3 minutes), or set $DISKLAB_STATIC_ENGINE"
    )
    return AgentFile(own, note)
