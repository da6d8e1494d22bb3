"""Keeps results as JSON lines; adds to a folder and never overwrites what is there."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from disklab.errors import Problem, UserError
from disklab.probe.record import record
from disklab.probe.request import Output
from disklab.probe.run import CellEnded, Event
from disklab.terminal import json_line


def environment() -> dict[str, Any]:
    """Return what must be known of the machine to judge or redo a run."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def create_results(folder: Path) -> TextIO:
    """Open a new file of results in `folder`, named by the time; makes the folder when missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        # Two probes in one second get different names; ten thousand do not happen.
        for number in range(10_000):
            suffix = f"-{number}" if number else ""
            try:
                return (folder / f"probe-{stamp}{suffix}.jsonl").open("x", encoding="utf-8")
            except FileExistsError:
                continue
    except OSError as error:
        way_out = "name a folder that you may write to"
        rule = f"cannot be written: {error.strerror}"
        raise UserError(Problem("--out", str(folder), rule, way_out)) from None
    raise UserError(Problem("--out", str(folder), "has no free name", "name another folder"))


class Recorder:
    """A listener that writes each finished cell at once, so that a crash loses none of them."""

    def __init__(self, streams: Sequence[TextIO], experiment: str | None = None) -> None:
        """Take the streams to write to, such as standard output and a file of results."""
        self.streams = streams
        self.experiment = experiment
        self.environment = environment()
        self.trials = 0

    def __call__(self, event: Event) -> None:
        """Write one JSON object a line."""
        if isinstance(event, CellEnded):
            told = record(event.result, self.trials, self.experiment)
            line = json_line({**told, "environment": self.environment})
            self.trials += 1
            for stream in self.streams:
                stream.write(line)
                stream.flush()


@contextmanager
def recorder(output: Output, experiment: str | None = None) -> Iterator[Recorder]:
    """Yield a recorder to what the user asked for: standard output, a folder, both or neither."""
    with ExitStack() as opened:
        streams: list[TextIO] = [sys.stdout] if output.json else []
        if output.folder is not None:
            results = opened.enter_context(create_results(output.folder))
            print(f"results: {results.name}", file=sys.stderr)  # noqa: T201
            streams.append(results)
        yield Recorder(streams, experiment)
