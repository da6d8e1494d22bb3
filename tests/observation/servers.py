"""Databases of disklab's own, loaded in a way that is known, and `observe` as a user starts it."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

from disklab.databases import Conditions, Database, Request, Sizes
from disklab.engine import LoadDone, LoadJob, LoadRun, run_load
from disklab.engine.load import ClosedLoop, OpenLoop, RowsWorkload, Stop, load_target

from tests.databases.servers import GIB, points_of, running
from tests.programs import ended

IN_FLIGHT = 16
"""Fewer than the connections that PostgreSQL allows."""
ROWS, COLUMNS, COLUMN_BYTES = 20_000, 5, 100


@contextmanager
def cassandra(version: str | None = None, nodes: int = 1) -> Iterator[Database]:
    """Yield running nodes, with an empty table `rows` of five columns."""
    asked = Request(
        "cassandra",
        Sizes(64 * GIB, Fraction(1, 40), nodes=nodes),
        replication_factor=nodes,
        columns=COLUMNS,
        version=version,
    )
    with running(asked, "data") as database:
        yield database


def fill(database: Database) -> None:
    """Write every row once, and let it reach the disk."""
    asked = job(database, 0.0, ClosedLoop(threads=16), Stop(operations=ROWS), keys="sequential")
    *_, done = run_load(asked)
    assert isinstance(done, LoadDone)
    assert done.errors == {}
    database.settle(Conditions(compacted=False))


@contextmanager
def loaded(
    database: Database, rate_per_s: float, read_ratio: float, *, asked_rows: int | None = None
) -> Iterator[LoadRun]:
    """Yield while reads and writes come at a rate; `asked_rows`: of so many rows alone."""
    load = OpenLoop(rate_per_s=rate_per_s, arrivals="even", max_in_flight=IN_FLIGHT)
    asked = job(database, read_ratio, load, Stop(duration_s=600.0), asked_rows=asked_rows)
    with LoadRun(asked) as run:
        events = iter(run)
        # It is ready, and has said what the first interval was.
        next(events)
        next(events)
        # A load whose pipe is full waits.
        reader = threading.Thread(target=lambda: deque(events, maxlen=0), daemon=True)
        reader.start()
        try:
            yield run
        finally:
            run.stop()
            reader.join(30.0)


def job(  # noqa: PLR0913 - each is a part of a job
    database: Database,
    read_ratio: float,
    load: ClosedLoop | OpenLoop,
    stop: Stop,
    *,
    keys: str = "uniform",
    asked_rows: int | None = None,
) -> LoadJob:
    kinds = {"read": read_ratio, "write": 1 - read_ratio}
    consistency = {"consistency": "QUORUM"} if database.target["protocol"] == "cql" else {}
    return LoadJob(
        seed=3,
        target=load_target({**database.target, **consistency}),
        workload=RowsWorkload.model_validate(
            {
                "rows": ROWS,
                "columns": COLUMNS,
                "column_bytes": COLUMN_BYTES,
                "keys": keys,
                "asked_rows": asked_rows,
                "operations": {kind: share for kind, share in kinds.items() if share},
            }
        ),
        load=load,
        stop=stop,
        interval_ms=500,
    )


DISKLAB = Path(sys.executable).with_name("disklab")
VARIABLE = "OBSERVED_PASSWORD"
SECONDS = 240


class Known(Protocol):
    """Where a database is, and who asks it."""

    @property
    def target(self) -> Mapping[str, object]:
        """As a load job has it."""
        ...


class AsRole:
    """A database as another role reaches it."""

    def __init__(self, database: Known, user: str, password: str) -> None:
        """Keep address and schema."""
        self.target = {**database.target, "user": user, "password": password}


def command(engine: str, database: Known, out: Path, *options: str) -> list[str]:
    """Return the command that looks at a database."""
    points = points_of(database.target)
    who = ("--user", str(database.target["user"]), "--password-variable", VARIABLE)
    asked = ("--address", points[0], *who, "--out", str(out), "--json")
    return [str(DISKLAB), "observe", engine, *asked, *options]


def variables(database: Known) -> dict[str, str]:
    """Return the environment with the password."""
    return {**os.environ, VARIABLE: str(database.target["password"])}


def observed(engine: str, database: Known, out: Path, *options: str) -> dict[str, Any]:
    """Return what it says of a database."""
    ran = ended(
        command(engine, database, out, *options), most_s=SECONDS, env=variables(database), code=0
    )
    assert str(database.target["password"]) not in ran.stdout + ran.stderr + out.read_text()
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
