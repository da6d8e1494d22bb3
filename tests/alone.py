"""A process in a mount namespace of its own, whose mounts no other program takes a copy of."""

from __future__ import annotations

import os
import sys

MARK = "DISKLAB_TESTS_ALONE"


def run_alone(module: str) -> None:
    """Start this program, `python -m MODULE`, again in a mount namespace of its own, once.

    Somebody who makes a namespace meanwhile, as each rehearsal on emulated hosts does, has a copy
    of all mounts: what is unmounted here would stay in use there, and so would its image.
    """
    if os.environ.get(MARK):
        return
    os.environ[MARK] = "1"
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", module]
    os.execvp(words[0], [*words, *sys.argv[1:]])
