"""sysbench as a workload: what its program is asked for, for fill, warm-up and measurement."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from disklab.engine.load import KnownVersions, LoadDone
from disklab.errors import Problem, UserError
from disklab.hosts import requirements
from disklab.machines.environment import minimal
from disklab.spec import TrialSpec
from disklab.workloads.protocol import Asked, Begin, Target
from disklab.workloads.sysbench.run import Filling, Measuring

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
    "oltp_insert": (str(Path(__file__).with_name("oltp_insert.lua")),),
}
# Of the protocols of databases.
DRIVERS = {"postgresql": "pgsql", "mysql": "mysql"}
# Rows that a transaction adds.
ADDED_ROWS = {"oltp_insert": STATEMENTS}


class Sysbench:
    """Point selects, inserts and mixtures by sysbench. See `Workload` for what is promised."""

    headline = None
    makes_tables = True

    def __init__(self, spec: TrialSpec, seed: int, time_dilation: int = 1) -> None:
        """Take the trial as it is run here; UserError when sysbench is not installed."""
        work = spec.workload.sysbench
        assert work is not None, "the workload is sysbench"
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
        common = [*self._common(target, "oltp_read_only", threads)]
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
