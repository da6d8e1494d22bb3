"""Measures a Cassandra's collections: `python -m campaigns.pauses NAME... [--seconds S]` (root).

For each set-up and size of rows a node is started on plain folders, filled, warmed up and flushed;
then reads and half writes are measured. A line a cell goes to `measured.jsonl`, and to the screen.
A busy machine makes pauses longer, not what is allocated; load averages are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from disklab.databases import Conditions, NodePlace, Request, Sizes
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import (
    CQL_PORT,
    JOLOKIA_PORT,
    STORAGE_PORT,
    Installation,
    command_line,
)
from disklab.databases.cassandra.distribution import find_java
from disklab.databases.cassandra.provider import distribution_of, settings_of
from disklab.databases.cassandra.sizing import MemoryPlan
from disklab.engine import LoadDone, run_load, server_account
from disklab.engine.load import ClosedLoop, LoadJob, RowsWorkload, Stop, load_target
from disklab.hosts.addresses import free_addresses
from disklab.hosts.left_databases import make_run_dir, remove_database
from disklab.hosts.places import Places

from campaigns.pauses.twin import KEY_CACHE_BYTES, MEASURED, MIB, Line

NAME = "pauses"
THREADS = 16
WARM_SECONDS = 10.0
AGAIN_SECONDS = 4.0
G1_OPTIONS = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis", "-XX:InitiatingHeapOccupancyPercent")
YOUNG = re.compile(r"Pause (Young|Full|Remark|Cleanup)\b.*? (\d+)M->(\d+)M\(\d+M\) ([\d.]+)ms")


@dataclass(frozen=True)
class Setup:
    """A JVM."""

    heap_mib: int
    threads: int = 2
    parallel: bool = False
    """The young generation of ParNew in Cassandra 3.11, which JDK 17 has no more: HEAP_NEWSIZE."""
    version: str | None = None
    """Of Cassandra; None: the usual."""
    own_options: bool = False
    """Those of Cassandra's jvm17-server.options that a rehearsal has not."""

    @property
    def options(self) -> list[str]:
        """What the JVM is started with, beside its heap."""
        found = [f"-XX:ParallelGCThreads={self.threads}"]
        if self.parallel:
            found += ["-XX:+UseParallelGC", "-Xmn200m", "-XX:SurvivorRatio=8"]
            found += ["-XX:MaxTenuringThreshold=1", "-XX:-UseAdaptiveSizePolicy"]
        if self.own_options:
            found += ["-XX:G1HeapRegionSize=16m", "-XX:MaxTenuringThreshold=1"]
        return found


SETUPS = {
    "g1-1g": Setup(1024),
    "g1-1g-one-thread": Setup(1024, threads=1),
    "g1-4g": Setup(4096),
    "g1-4g-own": Setup(4096, own_options=True),
    "parallel-1g": Setup(1024, parallel=True),
}
ROWS = {200: 1_500_000, 4090: 200_000, 32768: 20_000}
MIXTURES = {"reads": {"read": 1.0}, "half writes": {"read": 0.5, "write": 0.5}}


@contextmanager
def started_with(setup: Setup) -> Iterator[None]:
    """Start nodes with the options of a set-up."""

    def changed(*arguments: Any) -> list[str]:
        words = command_line(*arguments)
        if setup.parallel:
            words = [word for word in words if not word.startswith(G1_OPTIONS)]
        at = next(number for number, word in enumerate(words) if word.startswith("-Xms"))
        return [*words[:at], *setup.options, *words[at:]]

    with patch("disklab.databases.cassandra.node.command_line", changed):
        yield


@contextmanager
def started(setup: Setup) -> Iterator[Cassandra]:
    """Yield a node on plain folders; all of it is removed afterwards."""
    with started_with(setup), tempfile.TemporaryDirectory(prefix="disklab-pauses-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("data", "logs", "run", "hosts"):
            (folder / part).mkdir()
        run_dir = Places(folder / "run", folder / "hosts").database(NAME)
        make_run_dir(run_dir)
        address = free_addresses(1, (CQL_PORT, STORAGE_PORT, JOLOKIA_PORT))[0]
        place = NodePlace(
            name=NAME,
            address=address,
            volumes={"data": folder / "data"},
            run_dir=run_dir,
            log_dir=folder / "logs",
            group=None,
        )
        sizes, table = Sizes(8 << 30, Fraction(1)), {"compression": "none"}
        request = Request("cassandra", sizes, table=table, version=setup.version)
        heap = setup.heap_mib * MIB
        plan = MemoryPlan(heap, heap // 4, 1024 * MIB, KEY_CACHE_BYTES, 2 << 30, ())
        distribution = distribution_of(request, lambda *_: None)
        settings = settings_of(request, distribution)
        installation = Installation(distribution, find_java(), settings, server_account())
        database = Cassandra(request, [(place, installation)], plan)
        try:
            database.start()
            yield database
        finally:
            database.stop()
            remove_database(run_dir)


def cells(setup: Setup, row_bytes: int, seconds: float) -> Iterator[Line]:
    """Yield a line of each mixture."""
    columns, rows = (5 if row_bytes == 4090 else 1), ROWS[row_bytes]
    with started(setup) as database:
        target = load_target(database.target, consistency="ONE")

        def run(operations: dict[str, float], stop: Stop, keys: Any = "uniform") -> LoadDone:
            work = RowsWorkload(
                rows=rows,
                columns=columns,
                column_bytes=row_bytes // columns,
                keys=keys,
                operations=operations,
            )
            load = ClosedLoop(threads=THREADS)
            *_, done = run_load(LoadJob(seed=1, target=target, workload=work, load=load, stop=stop))
            assert isinstance(done, LoadDone)
            assert not done.errors, done.last_error
            return done

        run({"write": 1.0}, Stop(operations=rows), "sequential")
        run(MIXTURES["half writes"], Stop(duration_s=WARM_SECONDS))
        database.settle(Conditions())
        log = database.nodes[0].files.gc_log
        for mixture, operations in MIXTURES.items():
            run(operations, Stop(duration_s=AGAIN_SECONDS))
            begun = log.stat().st_size
            done = run(operations, Stop(duration_s=seconds))
            told = collected(log.read_bytes()[begun:].decode())
            yield {
                "collector": "Parallel" if setup.parallel else "G1",
                "own_options": setup.own_options,
                "heap_mib": setup.heap_mib,
                "threads": setup.threads,
                "row_bytes": row_bytes,
                "rows": rows,
                "mixture": mixture,
                "operations": sum(one.count for one in done.operations.values()),
                "seconds": round(done.elapsed_s, 2),
                **told,
                "load_average": [round(one, 1) for one in os.getloadavg()],
                "started": datetime.now(timezone.utc).date().isoformat(),
            }


def collected(log: str) -> dict[str, float]:
    """Return what a part of a JVM's log tells: collections, their time, and what was allocated.

    What was allocated before the first and after the last of them is taken as in between.
    """
    found = [
        (kind, int(before), int(after), float(ms)) for kind, before, after, ms in YOUNG.findall(log)
    ]
    between = sum(max(two[1] - one[2], 0) for one, two in pairwise(found))
    young = [ms for kind, _, _, ms in found if kind == "Young"]
    whole = between * MIB * len(found) / (len(found) - 1) if len(found) > 1 else 0
    return {
        "collections": len(young),
        "allocated_bytes": round(whole),
        "pause_ms": round(sum(young), 2),
    }


def main() -> None:
    """Measure the named set-ups, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SETUPS))
    parser.add_argument("--rows", type=int, nargs="*", default=[*ROWS], help="bytes of a row")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each cell")
    parser.add_argument("--out", type=Path, default=MEASURED)
    asked = parser.parse_args()
    for name in asked.names or SETUPS:
        for row_bytes in asked.rows:
            for line in cells(SETUPS[name], row_bytes, asked.seconds):
                with asked.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
                each_bytes = line["allocated_bytes"] / line["operations"]
                pause_ms = line["pause_ms"] / max(line["collections"], 1)
                sys.stdout.write(
                    f"{name}, {row_bytes} B, {line['mixture']}: {line['collections']} collections, "
                    f"{each_bytes:,.0f} B an operation, {pause_ms:.2f} ms each\n"
                )


if __name__ == "__main__":
    main()
