"""The load engine on PostgreSQL: statements and transactions a second of its own processor time.

The peers are pgbench (Debian package postgresql-contrib or postgresql-15) and sysbench (package
sysbench), each on one thread or process of its own with as many connections, prepared statements
and one row by its key. Processor time is all of the client's, from start to end, as the kernel
counts it. Server and clients share the machine, so rates are nobody's limit here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from disklab.databases import Database, Request, Sizes
from disklab.databases.postgresql.configuration import DATABASE, PORT, USER
from disklab.databases.postgresql.installation import find_postgresql
from disklab.engine.load import ClosedLoop, LoadDone, OpenLoop, Stop, load_target
from disklab.workloads.tpcc import load_job, run_job

from benches.peers import available, whole
from benches.runs import Rows, late_us, run
from benches.servers import GIB, served
from benches.summary import Row, interleave, summarise

ROWS = 20_000
COLUMN_BYTES = 120
"""As sysbench's column c: a row of one such column."""
CONNECTIONS = 16
OPEN_RATE = 5_000
MOST_LATE_US = 200.0
"""What is asked of the open loop at that rate, on an idle machine."""
LEAST_TRANSACTIONS = 3_000.0
"""What is asked of TPC-C, transactions a second of the client's processor time."""
TERMINALS = 600
MOST_CPU = 20.0
"""What is asked of so many resting terminals on as many connections, in percent of a core."""

PGBENCH = """\\set key random(0, {last})
SELECT c0 FROM rows WHERE key = :key;
"""


def server(*, tls: bool) -> AbstractContextManager[Database]:
    """Return a PostgreSQL of ours, all of the rows in its buffers."""
    # What commits wait for is not the client's matter.
    settings = {"synchronous_commit": False, "max_connections": TERMINALS + 20}
    return served(Request("postgresql", Sizes(4 * GIB), tls=tls, columns=1, settings=settings))


def rows(database: Database) -> Rows:
    """Return the benchmark's rows."""
    return Rows(load_target(database.target), ROWS, 1, COLUMN_BYTES)


def per_cpu_s(done: LoadDone) -> float:
    """Return what was done a second of the engine's processor time."""
    return sum(one.count for one in done.operations.values()) / (done.cpu_ns / 1e9)


def selects(database: Database, seconds: float) -> float:
    """Return point selects a CPU second; every row is compared with what was written."""
    load = ClosedLoop(threads=CONNECTIONS)
    return per_cpu_s(run(rows(database).reads(load, Stop(duration_s=seconds))))


def _environment(database: Database) -> dict[str, str]:
    # Left to itself libpq uses TLS where it can.
    mode = "require" if database.target["tls"] else "disable"
    return {**os.environ, "PGSSLMODE": mode, "PGPASSWORD": str(database.target["password"])}


def _host(database: Database) -> str:
    points: Any = database.target["contact_points"]
    return str(points[0].rsplit(":", 1)[0])


def _counted(command: list[str], database: Database) -> tuple[str, float]:
    """Return what a program printed and the processor time that it took."""
    before = os.times()
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=_environment(database)
    )
    after = os.times()
    user = after.children_user - before.children_user
    return done.stdout, user + after.children_system - before.children_system


def pgbench_selects(database: Database, seconds: float) -> float:
    """Return the same figure of pgbench."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "select.sql")
        script.write_text(PGBENCH.format(last=ROWS - 1), encoding="utf-8")
        program = find_postgresql().program("pgbench")
        command = [program, "-n", "-M", "prepared", "-f", str(script), "-T", str(whole(seconds))]
        command += ["-c", str(CONNECTIONS), "-j", "1", "-h", _host(database), "-p", str(PORT)]
        said, cpu_s = _counted([*command, "-U", USER, DATABASE], database)
    (line,) = [line for line in said.splitlines() if "actually processed" in line]
    return int(line.split(":")[1].split("/")[0]) / cpu_s


def _sysbench(database: Database, *words: str) -> tuple[str, float]:
    command = ["sysbench", "oltp_point_select", "--db-driver=pgsql", "--tables=1"]
    command += [f"--pgsql-host={_host(database)}", f"--pgsql-port={PORT}", f"--pgsql-user={USER}"]
    command += [f"--pgsql-db={DATABASE}", f"--table-size={ROWS}", *words]
    return _counted(command, database)


def sysbench_selects(database: Database, seconds: float) -> float:
    """Return the same figure of sysbench."""
    words = (f"--threads={CONNECTIONS}", f"--time={whole(seconds)}", "--rand-type=uniform")
    said, cpu_s = _sysbench(database, *words, "run")
    (line,) = [line for line in said.splitlines() if "transactions:" in line]
    return int(line.split()[1]) / cpu_s


def point_selects(tls: bool, repeats: int, seconds: float) -> Iterator[Row]:
    """Yield rows of point selects, and of how late they are sent at a rate."""
    with server(tls=tls) as database:
        rows(database).fill(threads=8)
        contenders: list[tuple[str, Callable[[], float]]] = [
            ("disklab", lambda: selects(database, seconds))
        ]
        # pgbench comes with the server on some systems, and in a package of its own on others.
        if shutil.which(find_postgresql().program("pgbench")):
            contenders.append(("pgbench", lambda: pgbench_selects(database, seconds)))
        if available("sysbench"):
            _sysbench(database, "prepare")
            contenders.append(("sysbench", lambda: sysbench_selects(database, seconds)))
        case = f"point selects, {CONNECTIONS} connections, {'TLS' if tls else 'plain'}"
        for name, values in interleave(repeats, contenders).items():
            yield summarise("sql", case, name, "selects a CPU second", values)
        open_loop = OpenLoop(rate_per_s=OPEN_RATE, max_in_flight=CONNECTIONS)
        asked = rows(database).reads(open_loop, Stop(duration_s=seconds))
        late = [late_us(run(asked)) for _ in range(repeats)]
        case = f"point selects, {OPEN_RATE:,}/s open loop, {'TLS' if tls else 'plain'}"
        yield replace(summarise("sql", case, "disklab", "us late at p99", late), asked=MOST_LATE_US)


def transactions(repeats: int, seconds: float) -> Iterator[Row]:
    """Yield rows of TPC-C on one warehouse."""
    with server(tls=False) as database:
        run(load_job(database.target, 1, 1))
        stop = Stop(duration_s=seconds)
        restless = run_job(
            database.target, 1, 1, stop, connections=CONNECTIONS, keying_and_thinking=False
        )
        rates = [per_cpu_s(run(restless)) for _ in range(repeats)]
        case = f"TPC-C without rests, {CONNECTIONS} connections"
        row = summarise("sql", case, "disklab", "transactions a CPU second", rates)
        yield replace(row, asked=LEAST_TRANSACTIONS)
        # Rests make the rate: 600 terminals are 29 transactions a second, wherever they stand.
        resting = run_job(database.target, 1, 1, stop, connections=TERMINALS)
        work = resting.workload.model_copy(update={"terminals_per_warehouse": TERMINALS})
        used = []
        for _ in range(repeats):
            done = run(resting.model_copy(update={"workload": work}))
            used.append(100 * done.cpu_ns / 1e9 / seconds)
        case = f"TPC-C, {TERMINALS} resting terminals and connections"
        yield replace(summarise("sql", case, "disklab", "% of a core", used), asked=MOST_CPU)


def bench(repeats: int, seconds: float) -> list[Row]:
    """Return rows of every figure."""
    return [
        # Small, it is the same again without TLS.
        *(point_selects(False, repeats, seconds) if seconds >= 1 else ()),
        *point_selects(True, repeats, seconds),
        *transactions(repeats, seconds),
    ]
