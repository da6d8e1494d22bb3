"""Where the engine is."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from disklab.errors import MachineError

NAME = "disklab-engine"


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
