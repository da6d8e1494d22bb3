"""Rehearses cells of a bed with the program itself, as a user would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from disklab.databases.mariadb.cluster import METRICS
from disklab.procedures.record import MEASURED
from disklab.results import Run

from campaigns.truth.matrix import Bed
from campaigns.truth.state import Line, experiment_of, line_of

# A trial that is under way is ended by Ctrl-C within seconds; a fill takes longer to give up.
MOST_SECONDS_TO_END = 120.0
GAUGES = frozenset(METRICS.values())


@dataclass(frozen=True)
class Place:
    """Where rehearsals of the matrix live, and how they are started."""

    folder: Path
    through: tuple[str, ...] = ()
    """A program with its arguments that starts each rehearsal, such as `nice`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment, after those of `environment`."""

    def environment(self) -> dict[str, str]:
        """Hosts and data of its own, so that no rehearsal of the user's is touched."""
        return {
            **os.environ,
            "DISKLAB_RUN_DIR": str(self.folder / "run"),
            "DISKLAB_DATA_DIR": os.environ.get("DISKLAB_DATA_DIR", "/var/lib/disklab-truth"),
            "COLUMNS": "200",
            **self.variables,
        }

    def command(self, *words: str) -> list[str]:
        return [*self.through, str(Path(sys.executable).with_name("disklab")), *words]

    @contextmanager
    def rehearsed(self, experiment: Path, *words: str) -> Iterator[Iterator[dict[str, Any]]]:
        """Rehearse inside the block, and give each result as it comes; then the rehearsal is ended.

        As by Ctrl-C, where it still runs: it takes its hosts away.
        """
        runs = ("--json", "--out", str(self.folder / "runs"))
        with (self.folder / "said").open("a", encoding="utf-8") as said:
            process = subprocess.Popen(
                self.command("rehearse", str(experiment), *words, *runs),
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=self.environment(),
                # What it is started through does not pass a signal on, so all of them get it.
                start_new_session=True,
            )
            assert process.stdout is not None
            try:
                yield map(json.loads, process.stdout)
            finally:
                end(process)


def rehearse(bed: Bed, names: Sequence[str], place: Place, deadline: float) -> Iterator[Line]:
    """Yield a line for each cell that was rehearsed before `deadline` (of the monotonic clock)."""
    experiment = experiment_of(bed, place.folder)
    words = [word for name in names for word in ("--only", f"cell={name}")]
    with place.rehearsed(experiment.path, "--quick", *words) as results:
        for result in results:
            counts = counted(place.folder / "runs", result)
            yield line_of(bed, result, os.getloadavg()) | {"server": counts}
            if time.monotonic() > deadline:
                return


def counted(runs: Path, result: Mapping[str, Any]) -> dict[str, float]:
    """Return what the server of a trial counted while it was measured; of gauges their mean."""
    latest = max(runs.iterdir(), key=lambda run: run.stat().st_mtime)
    seen = Run.open(latest.name, runs).telemetry(result["trial"], result["repeat"])
    of_server = seen.filter((pl.col("phase") == MEASURED) & (pl.col("source") == "database"))
    sums, means = pl.col("value").sum().alias("sum"), pl.col("value").mean().alias("mean")
    rows = of_server.group_by("metric").agg(sums, means).sort("metric").collect().iter_rows()
    return {name: mean if name in GAUGES else total for name, total, mean in rows}


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(MOST_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
