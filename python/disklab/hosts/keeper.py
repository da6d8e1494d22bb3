"""A process that outlives its owner, also one that was killed, and then takes a host away.

It leads a session of its own and waits for the owner's pidfd, by Python's own library alone: what
`disklab clean` needs is loaded when the owner has gone.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disklab.hosts.places import Places
    from disklab.machines.programs import Process

MOST_TRIES = 5
"""An engine that was killed in mid-start, or mkfs, shows itself only after a moment."""
PAUSE_SECONDS = 0.5


def keep(places: Places, host: str) -> Process:
    """Start the keeper of a host of this process; who takes the host away itself kills it.

    Raises OSError when it cannot be started.
    """
    from disklab.machines import programs  # noqa: PLC0415 - the keeper waits without it

    owner = os.pidfd_open(os.getpid())
    try:
        words = [sys.executable, "-I", "-B", __file__, str(owner)]
        return programs.start(
            [*words, str(places.run), str(places.data), host],
            handles=(owner,),
            variables={"LC_ALL": "C.UTF-8"},
        )
    finally:
        os.close(owner)


def main(owner: str, run: str, data: str, host: str) -> None:
    """Wait for the owner's end, then clean what is left of its host."""
    select.select([int(owner)], [], [])
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from disklab.hosts.cleaning import Scope, clean  # noqa: PLC0415
    from disklab.hosts.places import Places  # noqa: PLC0415

    for _ in range(MOST_TRIES):
        if not clean(Places(Path(run), Path(data)), Scope(host=host))[0]:
            return
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
