"""Runs of the load engine in which nothing may fail, on a table of equal rows."""

from __future__ import annotations

from dataclasses import dataclass

from disklab.engine.load import (
    ClosedLoop,
    DatabaseTarget,
    LoadDone,
    LoadJob,
    LoadRun,
    OpenLoop,
    RowsWorkload,
    Stop,
)
from disklab.results.histogram import decode


@dataclass(frozen=True)
class Rows:
    """A table that is written once in order and read at random."""

    target: DatabaseTarget
    rows: int
    columns: int
    column_bytes: int

    def fill(self, threads: int) -> None:
        """Write every row."""
        work = self._work("write").model_copy(update={"keys": "sequential"})
        run(self._job(work, ClosedLoop(threads=threads), Stop(operations=self.rows)))

    def reads(self, load: ClosedLoop | OpenLoop, stop: Stop) -> LoadJob:
        """Return a job of reads; every row is compared with what was written."""
        return self._job(self._work("read"), load, stop)

    def _work(self, operation: str) -> RowsWorkload:
        return RowsWorkload(
            rows=self.rows,
            columns=self.columns,
            column_bytes=self.column_bytes,
            operations={operation: 1.0},
        )

    def _job(self, work: RowsWorkload, load: ClosedLoop | OpenLoop, stop: Stop) -> LoadJob:
        return LoadJob(seed=1, target=self.target, workload=work, load=load, stop=stop)


def run(asked: LoadJob) -> LoadDone:
    """Run a job in which nothing may fail."""
    with LoadRun(asked) as load:
        for event in load:
            if isinstance(event, LoadDone):
                assert event.errors == {}, event.last_error
                return event
    raise AssertionError("a run ends with its result or raises")


def late_us(done: LoadDone) -> float:
    """Return by how much the 99th of a hundred arrivals was sent too late, in microseconds."""
    assert done.lateness is not None
    return decode(done.lateness).percentile(99) / 1e3
