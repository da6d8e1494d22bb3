"""`disklab-engine simulate`: jobs in, answers out, as they are done."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import IO, Any

from disklab.engine.binary import find_engine
from disklab.errors import EngineError

# What is quoted of the engine's own words when it dies: a panic has a line or two.
MOST_QUOTED_BYTES = 2000
END_SECONDS = 5.0

# A cell looks up random pages in tables of some hundred MiB, and most of them miss the processor's
# page-table cache when pages are small. glibc 2.35 and newer asks for huge ones under this.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def simulate(jobs: Iterable[dict[str, Any]], *, workers: int | None = None) -> Iterator[Any]:
    """Yield the answer to each job, in the order of completion: `event` is `cell` or `refused`.

    `workers` is how many jobs run at a time; None: one a core. Closing the iterator ends the
    engine. Raises EngineError when it dies.
    """
    command = [str(find_engine()), "simulate"]
    if workers is not None:
        command += ["--jobs", str(workers)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env={**HUGE_PAGES, **os.environ},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        feeder = threading.Thread(target=_feed, args=(process.stdin, jobs), daemon=True)
        feeder.start()
        ended = False
        try:
            for line in process.stdout:
                answer = json.loads(line)
                if answer["event"] == "done":
                    ended = True
                else:
                    yield answer
        finally:
            if not ended:
                process.kill()
            process.wait(END_SECONDS)
            process.stdout.close()
            feeder.join(END_SECONDS)
        if not ended:
            errors.seek(0)
            said = errors.read(MOST_QUOTED_BYTES).decode("utf-8", "replace").strip()
            raise EngineError(f"disklab-engine simulate ended early ({process.returncode}): {said}")


def _feed(stdin: IO[str], jobs: Iterable[dict[str, Any]]) -> None:
    """Write one job a line; the engine reads a few ahead, so this blocks and holds little."""
    try:
        with stdin:
            for job in jobs:
                stdin.write(json.dumps(job, separators=(",", ":")) + "\n")
    except (BrokenPipeError, ValueError):
        return  # the engine has ended, and its answers say why
