"""Measures what Cassandra takes of the processor: `python -m campaigns.costs` (root).

A node on plain folders is filled part by part, warmed up, and loaded with reads and with writes at
several numbers of threads; parts of a fill tell what its compactions took with them. A line a cell
goes to `measured.jsonl`, and to the screen. CPU times are of the server's process alone: a
busy machine makes them a little longer (shared caches), and load averages are kept.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

from disklab.databases import Conditions
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.distribution import RELEASES
from disklab.databases.cassandra.jolokia import COMPACTED, FLUSH, STORAGE
from disklab.engine import LoadDone, run_load
from disklab.engine.load import ClosedLoop, LoadJob, RowsWorkload, Stop, load_target

from campaigns.pauses.__main__ import Setup, started

MEASURED = Path(__file__).parent / "measured.jsonl"
ROWS = {200: 2_000_000, 2000: 600_000, 4090: 300_000}
"""About 1 GB of the larger ones."""
PARTS = 4
"""Tables of one size with which size-tiered compaction begins."""
THREADS = (1, 8, 64)
HEAP = Setup(3072)
VERSIONS = tuple(RELEASES)
"""All on the same Java."""


class Costs:
    """One node, and what its process used since the last look."""

    def __init__(self, database: Cassandra, row_bytes: int) -> None:
        self.database, self.row_bytes = database, row_bytes
        self.target = load_target(database.target, consistency="ONE")
        self.rows = ROWS[row_bytes]
        self.looked = self.used_s()

    def used_s(self) -> float:
        """Return the CPU time that the process has used, in seconds."""
        ticks = 0
        for pid in self.database.nodes[0].pids:
            fields = (
                Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            )
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def since(self) -> float:
        """Return the CPU seconds since the last call."""
        before, self.looked = self.looked, self.used_s()
        return self.looked - before

    def compacted_bytes(self) -> int:
        """Return what has been compacted since the start."""
        return int(self.database.nodes[0].jolokia.read((COMPACTED, "Count"))[0])

    def flush(self) -> None:
        """Write memtables."""
        node = self.database.nodes[0]
        node.jolokia.call(STORAGE, FLUSH, self.database.request.keyspace, [])

    def run(
        self, operations: dict[str, float], threads: int, stop: Stop, keys: Any = "uniform"
    ) -> LoadDone:
        """Load the node in a closed loop."""
        columns = 1 if self.row_bytes == 200 else 5
        work = RowsWorkload(
            rows=self.rows,
            columns=columns,
            column_bytes=self.row_bytes // columns,
            keys=keys,
            operations=operations,
        )
        load = ClosedLoop(threads=threads)
        job = LoadJob(seed=1, target=self.target, workload=work, load=load, stop=stop)
        *_, done = run_load(job)
        assert isinstance(done, LoadDone)
        assert not done.errors, done.last_error
        return done

    def line(self, cell: str, seconds: float, done: LoadDone | None = None, **more: Any) -> Any:
        """Return a line of what was used in a cell."""
        count = sum(part.count for part in done.operations.values()) if done else 0
        found = {
            "version": self.database.nodes[0].installation.distribution.version,
            "row_bytes": self.row_bytes,
            "cell": cell,
            "cpu_s": round(seconds, 2),
            "load_average": [round(load, 1) for load in os.getloadavg()],
            "started": datetime.now(timezone.utc).date().isoformat(),
            **more,
        }
        if count:
            found |= {"operations": count, "cpu_us": round(seconds / count * 1e6, 2)}
        return found


def cells(version: str, row_bytes: int, seconds: float) -> Iterator[Any]:
    """Yield a line of each cell."""
    with started(replace(HEAP, version=version)) as database:
        costs = Costs(database, row_bytes)
        costs.run({"write": 1.0}, 16, Stop(operations=costs.rows), "sequential")
        costs.run({"read": 1.0}, 16, Stop(duration_s=seconds))
        database.settle(Conditions())
        costs.since()
        for part in range(PARTS):
            before = costs.compacted_bytes()
            stop = Stop(operations=costs.rows // PARTS)
            done = costs.run({"write": 1.0}, 16, stop)
            costs.flush()
            compacted = costs.compacted_bytes() - before
            yield costs.line("fill", costs.since(), done, part=part, compacted_bytes=compacted)
        database.settle(Conditions())
        for kind in ("read", "write"):
            for threads in THREADS:
                costs.run({kind: 1.0}, threads, Stop(duration_s=seconds / 2))
                costs.since()
                before = costs.compacted_bytes()
                done = costs.run({kind: 1.0}, threads, Stop(duration_s=seconds))
                used, compacted = costs.since(), costs.compacted_bytes() - before
                yield costs.line(kind, used, done, threads=threads, compacted_bytes=compacted)


def main() -> None:
    """Measure the versions and the rows' sizes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, action="append", choices=sorted(ROWS))
    parser.add_argument("--version", action="append", choices=VERSIONS)
    parser.add_argument("--seconds", type=float, default=15.0, help="a cell's time")
    options = parser.parse_args()
    asked = product(options.rows or sorted(ROWS), options.version or VERSIONS[:1])
    for row_bytes, version in asked:
        for line in cells(version, row_bytes, options.seconds):
            text = json.dumps(line)
            print(text, flush=True)
            with MEASURED.open("a", encoding="utf-8") as file:
                file.write(text + "\n")


if __name__ == "__main__":
    main()
