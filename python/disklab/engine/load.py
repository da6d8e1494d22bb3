"""Puts load on a database: starts `disklab-engine load` and reads what it says.

The job and the events are docs/contracts/6-load.md. Everything in a job is the whole load; a
generator takes its part of it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError

from disklab.engine.account import client_arguments
from disklab.engine.control import refusal
from disklab.engine.messages import Message
from disklab.errors import EngineError
from disklab.machines.binary import find_engine
from disklab.machines.child import LocalChild

# TPC-C as the load engine does it: its part of a job, and what it says at the end.
#
# **Source:** TPC Benchmark C, Standard Specification, revision 5.11 ("the standard").

TRANSACTIONS = ("new_order", "payment", "order_status", "delivery", "stock_level")
"""The kinds of operations of a run: keys of `operations`, `response` and `service`."""
TPMC_OF_A_WAREHOUSE = 12.86
"""The most new orders a minute that ten terminals with keying and think times can make.
**Source:** the standard, 4.2."""


class JobPart(BaseModel):
    """A part of a job. The engine checks the values; this side knows their names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TpccWorkload(JobPart):
    """TPC-C over PostgreSQL's or MySQL's wire, in stages that are a job each.

    `load` makes the tables anew and fills them (`load.threads` connections; it ends by itself when
    all rows are there), `run` puts the mix of five transactions on them until `stop`, `check` asks
    the twelve consistency conditions. A run or check of tables that were not loaded to the end, or
    for another number of warehouses, is refused. `load.threads` is the number of connections.
    """

    kind: Literal["tpcc"] = "tpcc"
    warehouses: int
    stage: Literal["load", "run", "check"]
    keying_and_thinking: bool = True
    """Run: ten terminals a warehouse that key in, wait for the answer, think, and share the
    connections; response times count from the end of keying in. False: one terminal a connection
    that never rests, which is not TPC-C, and is said so."""
    terminals_per_warehouse: int = 10
    """With keying and thinking. The standard's is 10."""

    @property
    def writes(self) -> bool:
        """Whether the data are other ones afterwards."""
        return self.stage != "check"


class TpccCondition(Message):
    """A consistency condition of the standard (3.3.2), and whether the tables meet it."""

    number: int
    rule: str
    violations: int
    """Districts, orders or customers that break it."""
    passed: bool
    example: str | None
    """One that breaks it."""


class TpccOutcome(Message):
    """What TPC-C says beyond the histograms. What a stage does not have is None or empty."""

    stage: Literal["load", "run", "check"]
    warehouses: int
    rows: dict[str, int]
    """Load: rows written, by table."""
    terminals: int
    keying_and_thinking: bool
    tpmc: float | None
    """Run: new orders a minute, the rolled-back ones included, failed ones not."""
    efficiency_ratio: float | None
    """`tpmc` / (12.86 x warehouses). Above 1 only where terminals do not rest."""
    mix_ratio: dict[str, float]
    """Shares of the transactions done."""
    rolled_back: int
    """New orders with an unused item: undone as the standard asks, and counted as done."""
    skipped_deliveries: int
    """Districts without an order to deliver."""
    remote_payments: int
    remote_lines: int
    """Order lines from another warehouse, of `lines`."""
    lines: int
    by_last_name: int
    """Payments and order status by last name, of all done."""
    retries: dict[str, int] = Field(default_factory=dict)
    """Run: attempts that another transaction undid and that were made again, by SQLSTATE (40001,
    40P01). Response times hold all attempts; what never came through is a failure."""
    remarks: tuple[str, ...]
    """Where the run is not what the standard asks: each begins with `not compliant: `."""
    conditions: tuple[TpccCondition, ...]
    """Check: all twelve, in order."""


END_SECONDS = 10.0
"""After a signal the engine waits a second for operations in flight, then ends."""
READING = ("read", "scan")
"""Operations on rows that change nothing."""
MOST_RATE_PER_S = 10_000_000
"""What the engine takes as a rate: an operation each 100 ns, more than any client's core does."""


class DatabaseTarget(JobPart):
    """A database by its protocol.

    Keys of a protocol that has no class of its own here are the engine's to check.
    """

    model_config = ConfigDict(extra="allow")

    protocol: str
    contact_points: tuple[str, ...]
    """`HOST:PORT` of some of its nodes."""
    request_timeout_ms: int = 12_000

    def __repr__(self) -> str:
        """Name protocol and nodes: among the other keys there may be secrets."""
        return f"{type(self).__name__}({self.protocol}, {', '.join(self.contact_points)})"


class CqlTarget(DatabaseTarget):
    """A Cassandra, and the table that the load is put on."""

    model_config = ConfigDict(extra="forbid")

    protocol: Literal["cql"] = "cql"
    user: str | None = None
    password: str | None = Field(default=None, repr=False)
    """Of the user, where the cluster asks for one."""
    tls: bool = False
    """Whether every connection is encrypted."""
    ca_file: str | None = None
    """Certificates (PEM) that a node's must come from, for its address; none: any is believed."""
    keyspace: str = "disklab"
    table: str = "rows"
    consistency: str = "LOCAL_QUORUM"


class PostgresqlTarget(DatabaseTarget):
    """A database that speaks PostgreSQL's wire protocol, and the table of the rows workload.

    Each operation in flight has a connection of its own, and the connections are dealt out over
    the contact points in turn; one whose server takes none goes to the next.
    """

    model_config = ConfigDict(extra="forbid")

    protocol: Literal["postgresql"] = "postgresql"
    contact_points: tuple[str, ...]
    """`HOST:PORT`. All take writes, or one of them does (`read_write`)."""
    read_write: bool = False
    """Each connection looks along the list for the server that takes changes, as libpq's
    `target_session_attrs=read-write` does. Otherwise a standby must not be among them."""
    database: str
    user: str
    password: str | None = Field(default=None, repr=False)
    tls: bool
    """Whether every connection is encrypted. What is asked for is done or refused."""
    ca_file: str | None = None
    """Certificates (PEM) that the server's must come from, for the name that is connected to. None:
    encrypted, but whoever answers is believed, as with libpq's sslmode=require."""
    table: str = "rows"
    settings: dict[str, str] = Field(default={})
    """Run-time parameters of each session."""


_TARGETS: dict[str, type[DatabaseTarget]] = {"cql": CqlTarget, "postgresql": PostgresqlTarget}


def load_target(target: Mapping[str, object], *, consistency: str | None = None) -> DatabaseTarget:
    """Return a database's own `target` as a part of a job. Only CQL has consistency levels."""
    asked = {"protocol": "cql", **target}
    if consistency is not None and asked["protocol"] == "cql":
        asked["consistency"] = consistency
    return _TARGETS.get(str(asked["protocol"]), DatabaseTarget).model_validate(asked)


class KnownVersions(JobPart):
    """What is known of the versions of rows: a run tells it, and the one that reads back has it."""

    rows: str = ""
    """Keys and the oldest version that each may show; base64."""
    failed: str = ""
    """Versions whose writes failed: they may be there or not."""
    judged_below: int | None = None


class RowSize(JobPart):
    """One of the sizes that rows have."""

    column_bytes: int
    """Of each column."""
    share_ppm: int
    """Of a million rows."""


class RowsWorkload(JobPart):
    """Whole rows of one table, by key; each byte that is read is compared with what was written."""

    kind: Literal["rows"] = "rows"
    rows: int
    columns: int
    column_bytes: int
    """Of each column; where rows have several sizes, the mean."""
    sizes: list[RowSize] | None = None
    """All sizes; which row has which hangs on its key and `content_seed`. None: all have one."""
    keys: Literal["sequential", "uniform", "gaussian", "zipfian", "latest"] = "uniform"
    asked_rows: int | None = None
    """How many rows are asked for; None: all."""
    theta: float = 0.99
    """Exponent of `zipfian` and `latest`."""
    operations: dict[str, float]
    """Shares by kind, as `disklab.spec.model.OPERATIONS` names them."""
    scan_rows: int = 100
    """Rows of a scan at most."""
    verify: bool = True
    content_seed: int | None = None
    """Seeds what stands in the rows; the job's seed when None. Fill and runs have the same one."""
    versions: KnownVersions | None = None
    """Given: each write has a version, and reads of an older one than was acknowledged are counted.
    The table may have rows with versions then."""

    @property
    def least_column_bytes(self) -> int:
        """Bytes of each column of the smallest rows."""
        return min((one.column_bytes for one in self.sizes or []), default=self.column_bytes)

    @property
    def writes(self) -> bool:
        """Whether the data are other ones afterwards."""
        return any(share > 0 for name, share in self.operations.items() if name not in READING)


class ClosedLoop(JobPart):
    """So many operations always in flight, but for those that a ceiling holds back."""

    threads: int
    at_most_per_s: float | None = None
    """Threads start no operation before it is due at this rate: above 0, at most
    `MOST_RATE_PER_S`. Latency is from when it starts. None: at once."""


class OpenLoop(JobPart):
    """Operations start by the clock, whatever the database does."""

    rate_per_s: float
    """Above 0, at most `MOST_RATE_PER_S`."""
    arrivals: Literal["poisson", "even"] = "poisson"
    max_in_flight: int = 4096


class Stop(JobPart):
    """When a run ends: at the first that is reached."""

    operations: int | None = None
    duration_s: float | None = None
    give_up_s: float = 30.0
    """The run fails when nothing has succeeded for so long."""


class Generator(JobPart):
    """Which of several processes that make a load together."""

    index: int = 0
    count: int = 1


class LoadJob(JobPart):
    """One run of the load engine."""

    seed: int
    target: SerializeAsAny[DatabaseTarget]
    workload: Annotated[RowsWorkload | TpccWorkload, Field(discriminator="kind")]
    load: ClosedLoop | OpenLoop
    stop: Stop
    generator: Generator = Generator()
    begin_file: str | None = None
    """Once ready, the engine waits for this file to say when to begin: a moment of its own host's
    clock, nanoseconds since 1970. None: it begins at once."""
    interval_ms: int = 1000
    time_dilation: int = 1
    """Seconds of this machine for each second of the described system. All times of the job and of
    what the engine says are the described system's, but for `interval_ms` and processor time."""


class LoadReady(Message):
    """The database answers and the statements are prepared: operations start now."""

    pid: int
    version: str
    loop: Literal["closed", "open"]
    slots: int
    nodes: int
    operations: int | None = None
    """How many there are, where the workload ends by itself."""


class LoadProgress(Message):
    """What happened since the last one."""

    t_s: float
    """The end of the interval, from the start of the run."""
    operations: int
    """Succeeded since the start of the run."""
    errors: int
    """Failed since the start of the run."""
    ops_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    late_ns_p99: int | None
    in_flight: int
    cpu_ns: int
    """Processor time of the engine since the start of the run."""
    last_error: str | None
    histograms: dict[str, str]
    """Response times of each kind of operation: HdrHistogram V2, base64."""


class OperationSummary(Message):
    """One kind of operation over the whole run. Latencies are response times of successes."""

    count: int
    failed: int
    ops_per_s: float
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None = Field(alias="p99.9_ms")
    max_ms: float | None


class SeenVersions(Message):
    """What a load with versions saw of them."""

    judged_reads: int
    """Reads of rows of which a version had been acknowledged."""
    stale_reads: int
    """Of these, reads that showed an older version than was acknowledged before they began."""
    not_remembered_writes: int
    """Acknowledged writes of rows beyond those that there is memory for; they are not judged."""
    known: KnownVersions = Field(repr=False)


class LoadDone(Message):
    """The whole run."""

    elapsed_s: float
    """Until the last operation ended."""
    ops_per_s: float
    operations: dict[str, OperationSummary]
    response: dict[str, str]
    """From the intended start; HdrHistogram V2, base64."""
    service: dict[str, str]
    """From the sending. In a closed loop the same as `response`."""
    lateness: str | None
    """From the intended start to the sending; None in a closed loop."""
    unsent: int
    """Arrivals that were due before the end and never sent."""
    abandoned: int
    """Operations in flight that an interrupted run did not wait for."""
    errors: dict[str, int]
    last_error: str | None
    wrong_rows: int
    missing_rows: int
    cpu_ns: int
    started_unix_ns: int
    interrupted: bool
    versions: SeenVersions | None = None
    """Of a load whose writes have versions."""
    tpcc: TpccOutcome | None = None
    """What TPC-C says beyond that."""


LoadEvent = LoadReady | LoadProgress | LoadDone
LEAST_VERSIONED_BYTES = 8
"""Size of a column that a version has room in."""
EVENTS: dict[str, type[LoadReady | LoadProgress | LoadDone]] = {
    "ready": LoadReady,
    "progress": LoadProgress,
    "done": LoadDone,
}


def event_of(line: bytes) -> LoadEvent:
    """Return what a line of the engine says.

    Raises UserError when it refuses the job or gives up, EngineError for what it cannot have said.
    """
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise EngineError(f"the load engine said {line!r}: {error}") from error
    if not isinstance(said, dict):
        raise EngineError(f"the load engine said {line!r}, which is not an event")
    if said.get("event") == "failed":
        raise refusal(said.get("error"))
    known = EVENTS.get(str(said.get("event")))
    if known is None:
        raise EngineError(f"the load engine said {line!r}, which this release does not know")
    try:
        return known.model_validate(said)
    except ValidationError as error:
        raise EngineError(f"the load engine is of another release: {error}") from error


class LoadRun:
    """A running load: iterate over it for its events, the last of which is LoadDone.

    Raises UserError when the engine refuses the job or cannot reach the database, or gives up
    because nothing succeeds; EngineError when it dies. As a context manager it ends the process.
    """

    def __init__(self, job: LoadJob) -> None:
        self._child = LocalChild.start(
            [str(find_engine()), "load", *client_arguments()],
            stdin=job.model_dump_json(exclude_none=True).encode(),
        )

    @property
    def pid(self) -> int:
        """The engine's process."""
        return self._child.pid

    def stop(self) -> None:
        """Ask the run to end; it says what it has, with `interrupted` set."""
        self._child.signal(signal.SIGINT)

    def end(self) -> None:
        """End the run, from any thread; nothing when it has ended."""
        self._child.signal(signal.SIGTERM)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield events as they come."""
        for line in self._child.lines():
            event = event_of(line)
            yield event
            if isinstance(event, LoadDone):
                return
        raise EngineError(f"the load engine ended without a result; it said: {self._said()}")

    def _said(self) -> str:
        ended = self._child.wait(END_SECONDS)
        if ended is None:
            return "nothing, and it still runs"
        return ended.said or f"nothing, and its exit code was {ended.code}"

    def __enter__(self) -> LoadRun:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs."""
        self._child.end()


@dataclass(frozen=True)
class EngineLoad:
    """A load that our engine makes: called, it starts here; client hosts take its job instead."""

    job: LoadJob

    def __call__(self) -> LoadRun:
        """Start it on this machine."""
        return LoadRun(self.job)


def run_load(job: LoadJob) -> Iterator[LoadEvent]:
    """Run a job to its end; yield its events. Closing the generator ends the load."""
    with LoadRun(job) as run:
        yield from run
