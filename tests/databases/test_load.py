"""The load engine against a real Cassandra: verified rows, both loops, statements."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

import pytest
from disklab.engine import CqlQuery, LoadDone, LoadJob, LoadProgress, LoadReady, LoadRun
from disklab.engine.control import QueryError
from disklab.engine.load import (
    ClosedLoop,
    Generator,
    OpenLoop,
    RowsWorkload,
    Stop,
    load_target,
)
from disklab.errors import EngineError, UserError

from tests.databases.conftest import OnDisk
from tests.databases.servers import asking_cql
from tests.databases.servers import done as last

pytestmark = pytest.mark.machine

ROWS = 2_000
TABLE = "load_test"


@pytest.fixture(scope="module")
def query(cassandra: OnDisk) -> CqlQuery:
    return asking_cql(cassandra.database.target)


@pytest.fixture(scope="module")
def target(cassandra: OnDisk, query: CqlQuery) -> Mapping[str, object]:
    """A table of this module's own, filled by two generators."""
    known = {**cassandra.database.target, "table": TABLE, "consistency": "ONE"}
    query.ask(
        f"CREATE TABLE {known['keyspace']}.{TABLE} "
        "(key bigint PRIMARY KEY, c0 blob, c1 blob, c2 blob)"
    )
    for index in range(2):
        done = last(job(known, {"write": 1.0}, keys="sequential", generator=(index, 2)))
        assert done.errors == {}
        assert done.operations["write"].count == ROWS // 2
    return known


def job(  # noqa: PLR0913 - each is a part of a job
    target: Mapping[str, object],
    operations: dict[str, float],
    *,
    keys: str = "uniform",
    load: ClosedLoop | OpenLoop | None = None,
    stop: Stop | None = None,
    generator: tuple[int, int] = (0, 1),
) -> LoadJob:
    return LoadJob(
        seed=5,
        target=load_target(target),
        workload=RowsWorkload.model_validate(
            {
                "rows": ROWS,
                "columns": 3,
                "column_bytes": 301,
                "keys": keys,
                "operations": operations,
            }
        ),
        load=load or ClosedLoop(threads=16),
        stop=stop or Stop(operations=ROWS),
        generator=Generator(index=generator[0], count=generator[1]),
        interval_ms=200,
    )


def test_threads_keep_to_a_ceiling(target: Mapping[str, object]) -> None:
    paced = ClosedLoop(threads=16, at_most_per_s=50)
    done = last(job(target, {"read": 1.0}, load=paced, stop=Stop(duration_s=2.0)))
    assert done.errors == {}
    # A busy machine may end the run before the last few of a hundred.
    assert 80 < done.operations["read"].count <= 100
    assert (done.unsent, done.lateness) == (0, None)


def test_a_run_that_is_stopped_says_what_it_has(target: Mapping[str, object]) -> None:
    endless = job(target, {"read": 1.0}, stop=Stop(duration_s=60.0))
    with LoadRun(endless) as run:
        for event in run:
            if isinstance(event, LoadProgress):
                run.stop()
    assert isinstance(event, LoadDone)
    assert event.interrupted
    assert event.operations["read"].count > 0
    assert event.elapsed_s < 30


def test_a_run_that_is_left_early_leaves_no_process(target: Mapping[str, object]) -> None:
    with LoadRun(job(target, {"read": 1.0}, stop=Stop(duration_s=60.0))) as run:
        next(iter(run))
        assert os.path.exists(f"/proc/{run.pid}")
    assert not os.path.exists(f"/proc/{run.pid}")


def test_what_cannot_be_is_said_in_four_parts(target: Mapping[str, object]) -> None:
    with pytest.raises(UserError, match=r"target\.table: disklab\.nowhere"):
        last(job({**target, "table": "nowhere"}, {"read": 1.0}))
    with pytest.raises(UserError) as refused:
        last(job(target, {"read": -1.0}, load=ClosedLoop(threads=0)))
    assert "workload.operations" in str(refused.value)
    assert "load.threads" in str(refused.value)


def test_an_engine_that_is_killed_is_an_error(target: Mapping[str, object]) -> None:
    with LoadRun(job(target, {"read": 1.0}, stop=Stop(duration_s=60.0))) as run:
        events = iter(run)
        assert isinstance(next(events), LoadReady)
        os.kill(run.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="without a result"):
            list(events)


def test_statements_are_answered_by_rows_or_reasons(query: CqlQuery) -> None:
    (row,) = query.ask("SELECT key, release_version, tokens FROM system.local")
    assert row["key"] == "local"
    assert row["release_version"].count(".") == 2
    assert isinstance(row["tokens"], list)
    with pytest.raises(QueryError, match="syntax error"):
        query.ask("SELECT nonsense")
    assert query.ask("SELECT * FROM system.peers") == []
