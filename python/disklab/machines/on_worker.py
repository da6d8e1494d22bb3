"""What a Ray worker does: it runs the engine on a batch.

Ray sends this module by value: it needs the standard library and nothing of disklab.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
import zlib

_ENGINES: dict[str, int] = {}
"""Per digest: the file in memory of an engine that this process was sent."""


class EngineKilledError(Exception):
    """The engine was killed: by whom has no memory left, say. Another worker may have it."""


class EngineFailedError(Exception):
    """The engine ended with an error, which it would do on any worker."""


def run_batch(
    engine: bytes, digest: str, lines: bytes, variables: dict[str, str]
) -> tuple[bytes, float]:
    """Return what the engine prints of a batch (packed by zlib), and how many seconds it took.

    The engine lies in memory only: nothing of it can be changed by others, and nothing is left.
    """
    if digest not in _ENGINES:
        file = os.memfd_create("disklab-engine", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(engine)
        _ENGINES[digest] = file
    began = time.monotonic()
    program = f"/proc/{os.getpid()}/fd/{_ENGINES[digest]}"
    try:
        done = subprocess.run(
            [program, "simulate", "--jobs", "1"],
            input=lines,
            capture_output=True,
            env={**os.environ, **variables},
            check=False,
        )
    except OSError as error:
        raise EngineFailedError(
            f"it cannot run on {platform.node()} ({platform.system()} {platform.machine()}): "
            f"{error}"
        ) from None
    if done.returncode < 0:
        raise EngineKilledError(f"killed by signal {-done.returncode} on {platform.node()}")
    if done.returncode != 0:
        said = done.stderr[-2000:].decode("utf-8", "replace").strip()
        raise EngineFailedError(f"({done.returncode}) on {platform.node()}: {said}")
    return zlib.compress(done.stdout, 1), time.monotonic() - began
