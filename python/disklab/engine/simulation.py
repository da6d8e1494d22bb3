"""`disklab-engine simulate`: jobs in, answers out, as they are done."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from disklab.errors import EngineError, MachineError
from disklab.machines.binary import find_engine
from disklab.machines.child import LocalChild

# What is quoted of the engine's own words when it dies: a panic has a line or two.
MOST_QUOTED_BYTES = 2000
END_SECONDS = 5.0

# A cell looks up random pages in tables of some hundred MiB, and most of them miss the processor's
# page-table cache when pages are small. glibc 2.35 and newer asks for huge ones under this.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Cluster(Protocol):
    """Other machines that simulate. The same job has the same answer there, byte for byte."""

    def simulate(self, jobs: Iterable[dict[str, Any]]) -> Iterator[Any]:
        """Yield the answer to each job, in the order of completion.

        What a lost machine had is asked again of another one. Raises EngineError when none is left,
        or when a job ends the engine wherever it runs.
        """


Workers = int | Cluster | None
"""How many jobs run at a time on this machine; None: one a core; or the machines that run them."""


def simulate(jobs: Iterable[dict[str, Any]], *, workers: Workers = None) -> Iterator[Any]:
    """Yield the answer to each job, in the order of completion: `event` is `cell` or `refused`.

    Closing the iterator ends the engine. Raises EngineError when it dies.
    """
    if workers is not None and not isinstance(workers, int):
        yield from workers.simulate(jobs)
        return
    command = [str(find_engine()), "simulate"]
    if workers is not None:
        command += ["--jobs", str(workers)]
    variables = {name: os.environ.get(name, value) for name, value in HUGE_PAGES.items()}
    engine = LocalChild.start(command, stdin=None, variables=variables)
    feeder = threading.Thread(target=_feed, args=(engine, jobs), daemon=True)
    try:
        feeder.start()
        for line in engine.lines():
            answer = json.loads(line)
            if answer["event"] == "done":
                return
            yield answer
        raise EngineError(f"disklab-engine simulate ended early {_said(engine)}")
    finally:
        engine.end()
        feeder.join(END_SECONDS)


Memory = dict[str, Any]
"""Answers by their jobs, which are those of every cell with the same content."""


def simulate_once(
    jobs: Iterable[dict[str, Any]], memory: Memory, *, workers: Workers = None
) -> Iterator[Any]:
    """Yield the answer to each job, as `simulate` does; those in memory first, and none twice.

    A job of several passes has an answer for each, so it is simulated whenever it is given.
    """
    waiting: dict[str, list[dict[str, Any]]] = {}
    passes: list[dict[str, Any]] = []
    for job in jobs:
        if job.get("then"):
            passes.append(job)
            continue
        key = json.dumps({**job, "cell": 0}, sort_keys=True)
        if key in memory:
            yield {**memory[key], "cell": job["cell"]}
        else:
            waiting.setdefault(key, []).append(job)
    keys = {same[0]["cell"]: key for key, same in waiting.items()}
    new = [*passes, *(same[0] for same in waiting.values())]
    for answer in simulate(new, workers=workers) if new else ():
        if answer["cell"] not in keys:
            yield answer
            continue
        key = keys[answer["cell"]]
        if answer["event"] == "cell":
            memory[key] = answer
        for job in waiting[key]:
            yield {**answer, "cell": job["cell"]}


def _said(engine: LocalChild) -> str:
    ended = engine.wait(END_SECONDS)
    if ended is None:
        return "(it still runs)"
    text = ended.stderr[:MOST_QUOTED_BYTES].decode("utf-8", "replace").strip()
    return f"({ended.code}): {text}"


def _feed(engine: LocalChild, jobs: Iterable[dict[str, Any]]) -> None:
    """Write one job a line; the engine reads a few ahead, so this blocks and holds little."""
    # When the engine has ended, its answers say why.
    with suppress(MachineError):
        for job in jobs:
            engine.say(json.dumps(job, separators=(",", ":")).encode() + b"\n")
        engine.hush()
