"""sysbench as a workload: what its program is asked for, for fill, warm-up and measurement."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from disklab.engine.load import KnownVersions, LoadDone, LoadEvent, LoadProgress
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts import requirements
from disklab.machines.child import minimal
from disklab.spec import ClusterTrial, benchmarks
from disklab.workloads.program import Process, done, histogram_of, progress
from disklab.workloads.protocol import Asked, Begin, Target

# What sysbench prints, as the events of a load.
#
# **Source:** sysbench 1.0.20 as in Debian 12. The values of its histogram are the middles of
# logarithmic steps of 1.8 %, also of the last one: the maximum may lie above it.

OPERATION = "transaction"
"""What sysbench counts: the kind of operation of its results."""

INTERVAL = re.compile(
    r"\[ (?P<t>\d+)s \] thds: (?P<threads>\d+) tps: (?P<tps>[\d.]+) .*"
    r"lat \(ms,\d+%\): (?P<ms>[\d.]+) err/s: (?P<errors>[\d.]+) reconn/s: (?P<reconnects>[\d.]+)"
)
BUCKET = re.compile(r"\s*(?P<ms>\d+\.\d+) \|\**\s+(?P<count>\d+)$")
TOTALS = {
    "events": re.compile(r"\s*total number of events:\s+(\d+)"),
    "elapsed_s": re.compile(r"\s*total time:\s+([\d.]+)s"),
    "retried": re.compile(r"\s*ignored errors:\s+(\d+)"),
    "reconnects": re.compile(r"\s*reconnects:\s+(\d+)"),
    "mean_ms": re.compile(r"\s*avg:\s+([\d.]+)"),
    "max_ms": re.compile(r"\s*max:\s+([\d.]+)"),
}


@dataclass
class Told:
    """What sysbench has said so far."""

    totals: dict[str, float] = field(default_factory=dict)
    buckets: list[tuple[float, int]] = field(default_factory=list)
    """Latency in ms and count."""
    time_dilation: int = 1
    """What a second of the result takes in sysbench's time; what is kept here is in the latter."""
    _operations: float = 0.0
    _errors: float = 0.0
    _last_s: int = 0

    def take(self, line: str) -> LoadProgress | None:
        """Take a line; return the interval that it tells of."""
        found = INTERVAL.match(line)
        if found is not None:
            return self._interval(found)
        bucket = BUCKET.match(line)
        if bucket is not None:
            self.buckets.append((float(bucket["ms"]), int(bucket["count"])))
            return None
        for name, pattern in TOTALS.items():
            total = pattern.match(line)
            if total is not None:
                self.totals[name] = float(total[1])
        return None

    def is_whole(self) -> bool:
        """Return whether sysbench has come to its end."""
        return {"events", "elapsed_s"} <= self.totals.keys()

    def done(self, *, cpu_ns: int, started_unix_ns: int, open_loop: bool) -> LoadDone:
        """Return the whole run. Call it when `is_whole`."""
        slow = self.time_dilation
        # A deadlock or a serialization failure: rolled back, and the transaction begun anew.
        errors = {name: int(self.totals.get(name, 0)) for name in ("retried", "reconnects")}
        return done(
            OPERATION,
            int(self.totals["events"]),
            self.totals["elapsed_s"] / slow,
            cpu_ns=cpu_ns,
            started_unix_ns=started_unix_ns,
            is_closed=not open_loop,
            histogram=histogram_of((ms / slow, count) for ms, count in self.buckets),
            latency_ms={
                name: self.totals[f"{name}_ms"] / slow
                for name in ("mean", "max")
                if f"{name}_ms" in self.totals
            },
            errors=errors,
            failed=sum(errors.values()),
        )

    def _interval(self, found: re.Match[str]) -> LoadProgress:
        t_s = int(found["t"])
        length_s = t_s - self._last_s
        self._last_s = t_s
        self._operations += float(found["tps"]) * length_s
        failed = float(found["errors"]) + float(found["reconnects"])
        self._errors += failed * length_s
        return progress(
            t_s / self.time_dilation,
            self._operations,
            float(found["tps"]) * self.time_dilation,
            errors=round(self._errors),
            p99_ms=float(found["ms"]) / self.time_dilation,
            in_flight=int(found["threads"]),
        )


# sysbench's process: started, read, ended in time.

# Beyond the time that it was asked to take: connections with TLS and statements prepared for each
# table, and transactions under way at the end.
GRACE_SECONDS = 60.0
# A table is filled at the speed of a slow disk.
FILL_SECONDS = 3_600.0
TROUBLE = ("FATAL", "ERROR", "error:", "(last message repeated")


class SysbenchProcess(Process):
    """A sysbench that runs."""

    hangs = "its transactions hang"

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], most_s: float
    ) -> None:
        """Start it. `most_s`: after this time it is ended, and that is an error."""
        with _readable(command) as (words, script):
            super().__init__(PROGRAM, words, environment, most_s, script)

    def is_worth_keeping(self, line: str) -> bool:
        """Return whether a line says that something failed."""
        return any(word in line for word in TROUBLE)


class Measuring(SysbenchProcess):
    """A run of transactions."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        seconds: int | None,
        time_dilation: int = 1,
    ) -> None:
        """Start it; `seconds` as it was told, None: it ends after some transactions."""
        self._time_dilation = time_dilation
        self._open_loop = any(word.startswith("--rate=") for word in command)
        most_s = FILL_SECONDS if seconds is None else seconds + GRACE_SECONDS
        super().__init__(command, environment, most_s)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield its intervals, and at last the whole run."""
        told = Told(time_dilation=self._time_dilation)
        for line in self.lines():
            progress = told.take(line)
            if progress is not None:
                yield progress
        if not told.is_whole():
            raise MachineError("sysbench ended without its figures: another version than 1.0?")
        yield told.done(
            cpu_ns=self.cpu_ns(), started_unix_ns=self.started_ns, open_loop=self._open_loop
        )


class Filling(SysbenchProcess):
    """Making or dropping the tables: it says nothing that could be counted."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, rows: int
    ) -> None:
        """Start it; `rows` are there when it has ended."""
        self._rows = rows
        super().__init__(command, environment, FILL_SECONDS)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield the end."""
        for _ in self.lines():
            pass
        elapsed_s = (time.time_ns() - self.started_ns) / 1e9
        yield done(
            OPERATION,
            self._rows,
            elapsed_s,
            cpu_ns=self.cpu_ns(),
            started_unix_ns=self.started_ns,
            is_closed=True,
            latency_ms={},
        )


@contextmanager
def _readable(command: Sequence[str]) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Yield a command with its script where another user may read it, and the open file.

    Our own script lies in the folder of this program, which may be open to its owner alone.
    """
    program, script, *options = command
    if not script.endswith(".lua"):
        yield [*command], ()
        return
    handle = os.memfd_create("script")
    try:
        os.write(handle, Path(script).read_bytes())
        yield [program, f"/proc/self/fd/{handle}", *options], (handle,)
    finally:
        os.close(handle)


PROGRAM = "sysbench"
# Rows of a table of 182 bytes of text with id and k, in PostgreSQL's page format.
ROW_BYTES = 225
# Tables are filled beside each other: as many as keep two cores and a disk busy.
FILL_THREADS = 8
# Statements of a transaction of the two scripts that have nothing but them.
STATEMENTS = 10

# Script, and what makes it the transaction that the experiment file names.
SCRIPTS: dict[str, tuple[str, ...]] = {
    # Ten point selects and nothing else, between BEGIN and COMMIT.
    "oltp_read": ("oltp_read_only", "--range-selects=off", f"--point-selects={STATEMENTS}"),
    **{name: (str(Path(__file__).with_name(f"{name}.lua")),) for name in ("oltp_insert", "tpcb")},
}
# Of the protocols of databases.
DRIVERS = {"postgresql": "pgsql", "mysql": "mysql"}
# Rows that a transaction adds.
ADDED_ROWS = {"oltp_insert": STATEMENTS, "tpcb": 1}


class Sysbench:
    """Point selects, inserts and mixtures by sysbench. See `Workload` for what is promised."""

    headline = None
    makes_tables = True

    def __init__(self, spec: ClusterTrial, seed: int, time_dilation: int = 1) -> None:
        """Take the trial as it is run here; UserError when sysbench is not installed."""
        work = spec.workload.the(benchmarks.Sysbench)
        self._work = work
        self._rate = spec.workload.load.rate_per_s if spec.workload.load else None
        self._seed = seed
        # sysbench keeps this machine's time: what it is told and what it says is converted.
        self._time_dilation = time_dilation
        self._program = requirements.required_program(PROGRAM, "workload.sysbench")
        self._rows = work.tables * work.rows_per_table
        self.data_bytes = self._rows * ROW_BYTES
        # A thread of sysbench sleeps while its transaction is under way.
        self.generators = min(work.threads, os.cpu_count() or 1)

    def fill(self, target: Target) -> Sequence[Begin]:
        """Return the program that drops what is there, and the one that makes and fills tables."""
        threads = min(self._work.tables, FILL_THREADS)
        (script,) = SCRIPTS["tpcb"] if self._work.script == "tpcb" else ("oltp_read_only",)
        common = [*self._common(target, script, threads)]
        env = environment(target)
        return [
            lambda: Filling([*common, "cleanup"], env, rows=0),
            lambda: Filling([*common, "prepare"], env, rows=self._rows),
        ]

    def warm_up(self, target: Target, operations: int, stream: int) -> Sequence[Begin]:  # noqa: ARG002
        """Return nothing: there is no table beside."""
        return []

    def run(self, target: Target, asked: Asked) -> Begin:
        """Return the program that makes the trial's transactions, for whole seconds."""
        script, *own = SCRIPTS.get(self._work.script, (self._work.script,))
        duration_s = asked.stop.duration_s
        seconds = None if duration_s is None else max(1, round(duration_s * self._time_dilation))
        command = [
            *self._common(target, script, asked.threads or self._work.threads),
            *own,
            *self._statements(),
            # sysbench's seed has 31 bits; 0 means the clock.
            f"--rand-seed={asked.stream % (2**31 - 1) + 1}",
            f"--time={seconds or 0}",
            f"--events={asked.stop.operations or 0}",
            "--report-interval=1",
            "--percentile=99",
            "--histogram=on",
        ]
        if self._rate is not None:
            command.append(f"--rate={max(1, round(self._rate / self._time_dilation))}")
        command.append("run")
        return lambda: Measuring(command, environment(target), seconds, self._time_dilation)

    def check(
        self,
        target: Target,
        known: KnownVersions | None = None,
        consistency: str | None = None,
    ) -> None:
        """Return nothing: sysbench has no check of what it reads."""

    def wear(self, done: LoadDone) -> float:
        """Return the share of rows that were added; updates and deletes leave as many as before."""
        return (
            done.operations["transaction"].count
            * ADDED_ROWS.get(self._work.script, 0)
            / (self._rows)
        )

    def _statements(self) -> list[str]:
        """Return how many statements of each kind a transaction has; else as the script has it."""
        counts = self._work.statements
        return [
            f"--{name.replace('_', '-')}={count}"
            for name, count in (counts.model_dump() if counts else {}).items()
        ]

    def _common(self, target: Target, script: str, threads: int) -> Sequence[str]:
        contact_points = target["contact_points"]
        assert isinstance(contact_points, list | tuple)
        host, _, port = str(contact_points[0]).rpartition(":")
        driver = DRIVERS[str(target["protocol"])]
        if driver == "mysql" and target.get("tls"):
            rule = "sysbench encrypts MariaDB's connections only with certificates of its own"
            raise UserError(Problem("database.tls", "true", rule, "leave it out, or use rows"))
        return (
            self._program,
            script,
            f"--db-driver={driver}",
            f"--{driver}-host={host}",
            f"--{driver}-port={port}",
            f"--{driver}-user={target['user']}",
            f"--{driver}-db={target['database']}",
            f"--tables={self._work.tables}",
            f"--table-size={self._work.rows_per_table}",
            f"--create-secondary={'on' if self._work.secondary_index else 'off'}",
            f"--rand-type={self._work.rand_type}",
            f"--range-size={self._work.range_rows}",
            f"--threads={threads}",
        )


def environment(target: Target) -> dict[str, str]:
    """Return the variables for libpq, which sysbench talks through, and for libmariadb."""
    own = {
        # libpq would choose by itself otherwise, and TLS halves the rate.
        "PGSSLMODE": "require" if target.get("tls") else "disable",
        # No limit of libpq's: before version 17 a jump of the clock of day ends it at once.
        **({"PGPASSWORD": str(target["password"])} if target.get("password") else {}),
        **({"MYSQL_PWD": str(target["password"])} if target.get("password") else {}),
        "LC_ALL": "C",
    }
    return minimal(own)
