"""A process in a mount namespace of its own, whose mounts no other program takes a copy of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MARK = "DISKLAB_TESTS_ALONE"


def run_alone(module: str) -> None:
    """Start this program, `python -m MODULE`, again in a mount namespace of its own, once.

    Somebody who makes a namespace meanwhile, as each rehearsal on emulated hosts does, has a copy
    of all mounts: what is unmounted here would stay in use there, and so would its image. For the
    same reason this one keeps nothing of theirs.
    """
    if os.environ.get(MARK):
        let_go()
        return
    os.environ[MARK] = "1"
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", module]
    os.execvp(words[0], [*words, *sys.argv[1:]])


def let_go() -> None:
    """Take others' loop devices and FUSE mounts out of this process's own mount namespace.

    Those who unmount and remove them elsewhere would be told that they are in use here.
    """
    needed = [Path(sys.prefix), Path(sys.base_prefix), Path.cwd(), Path(__file__)]
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    for line in reversed(lines):
        # proc(5): the mount point is the fifth; after the dash come file system and source.
        point, (kind, source) = line.split()[4], line.partition(" - ")[2].split()[:2]
        ours = kind.startswith("fuse") or source.startswith(("/dev/loop", "/dev/ublk"))
        if ours and not any(one.is_relative_to(point) for one in needed):
            # What has a blank in its path is nobody's of ours; that it fails does no harm.
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)
