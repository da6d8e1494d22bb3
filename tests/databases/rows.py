"""Rows written and counted by the real load engine."""

from __future__ import annotations

from collections.abc import Mapping

from disklab.engine import CqlLogin, CqlQuery, LoadDone, LoadJob, run_load
from disklab.engine.load import ClosedLoop, RowsWorkload, Stop, load_target

THREADS = 16
# Counting reads the whole table.
COUNT_MS = 30_000


def job(target: Mapping[str, object], rows: int, **operations: float) -> LoadJob:
    """Return a job of as many operations as there are rows of 5 x 818 bytes."""
    return LoadJob(
        seed=1,
        target=load_target(target, consistency="ONE"),
        workload=RowsWorkload(
            rows=rows, columns=5, column_bytes=818, keys="sequential", operations=operations
        ),
        load=ClosedLoop(threads=THREADS),
        stop=Stop(operations=rows),
    )


def write_rows(target: Mapping[str, object], rows: int) -> None:
    *_, done = run_load(job(target, rows, write=1.0))
    assert isinstance(done, LoadDone)
    assert done.errors == {}


def asking_cql(target: Mapping[str, object], timeout_ms: int = COUNT_MS) -> CqlQuery:
    """Return a connection to the nodes of a target, by its own user."""
    points = target["contact_points"]
    assert isinstance(points, list)
    login = CqlLogin(str(target["user"]), str(target["password"]))
    return CqlQuery(points, timeout_ms=timeout_ms, consistency="ONE", login=login)


def count_rows(target: Mapping[str, object]) -> int:
    with asking_cql(target) as query:
        (row,) = query.ask(f"SELECT count(*) FROM {target['keyspace']}.{target['table']}")
    return int(row["count"])
