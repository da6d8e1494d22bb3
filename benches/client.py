"""The load engine: operations a second of its own processor time, lateness of arrivals, memory.

The peer is latte, on the scylla driver; `cargo install latte-cli` puts it
on the PATH. Processor time is all of the client's process, from start to end, as the kernel counts
it; both run for as long.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from disklab.databases import Request, Sizes
from disklab.engine.load import (
    ClosedLoop,
    CqlTarget,
    LoadProgress,
    LoadRun,
    OpenLoop,
    Stop,
    load_target,
)

from benches.peers import available, whole
from benches.runs import Rows, late_us, run
from benches.servers import GIB, served
from benches.summary import Row, interleave, summarise

ROOT = Path(__file__).parent.parent
ROWS, COLUMNS, COLUMN_BYTES = 20_000, 5, 818
PROFILE = "checked"
THREADS = 128
OPEN_RATE = 20_000
MOST_LATE_US = 200.0
"""What is asked of the open loop at that rate, on an idle machine."""

LATTE = """
use latte::*;
pub async fn prepare(db) {
  db.prepare("get", "SELECT c0, c1, c2, c3, c4 FROM disklab.rows WHERE key = :key").await?;
}
pub async fn run(db, i) {
  db.execute_prepared("get", [hash(i) % %ROWS%]).await?;
}
"""


def rows(target: CqlTarget) -> Rows:
    """Return the benchmark's rows."""
    return Rows(target, ROWS, COLUMNS, COLUMN_BYTES)


@contextmanager
def cassandra() -> Iterator[CqlTarget]:
    """Yield where to find a filled Cassandra of ours."""
    # Heap and caches for all of the rows: this is about the client.
    asked = Request("cassandra", Sizes(4 * GIB), table={"compression": "none"})
    with served(asked) as database:
        target = load_target(database.target, consistency="LOCAL_ONE")
        assert isinstance(target, CqlTarget)
        rows(target).fill(THREADS)
        yield target


@contextmanager
def fake() -> Iterator[CqlTarget]:
    """Yield where to find the tests' small database, filled. It answers at once."""
    # The whole workspace in the profile of `make test`, which has built it: another selection has
    # other features, and this bench does not measure the small database itself.
    build = ["cargo", "build", "--profile", PROFILE, "--locked", "--quiet", "--workspace"]
    subprocess.run([*build, "--example", "fake_cassandra"], check=True, cwd=ROOT)
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = built / PROFILE / "examples" / "fake_cassandra"
    # It ends when its standard input does: with this process at the latest.
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        points = (process.stdout.readline().strip(),)
        target = CqlTarget(contact_points=points, consistency="LOCAL_ONE")
        rows(target).fill(THREADS)
        yield target
        assert process.stdin is not None
        process.stdin.close()


def _cpu_s() -> float:
    """Return the processor time of all programs that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reads_per_cpu_s(target: CqlTarget, seconds: float) -> float:
    """Return operations per second of the engine's processor time."""
    before = _cpu_s()
    stop = Stop(duration_s=seconds)
    done = run(rows(target).reads(ClosedLoop(threads=THREADS), stop))
    return done.operations["read"].count / (_cpu_s() - before)


def latte_reads_per_cpu_s(target: CqlTarget, seconds: float) -> float:
    """Return the same figure of latte, on one thread with as many requests in flight."""
    with tempfile.TemporaryDirectory() as folder:
        script, report = Path(folder, "read.rn"), Path(folder, "report.json")
        script.write_text(LATTE.replace("%ROWS%", str(ROWS)))
        command = ["latte", "run", str(script), *target.contact_points]
        command += [
            "--duration",
            f"{whole(seconds)}s",
            "--warmup",
            "1",
            "--threads",
            "1",
            "--concurrency",
            str(THREADS),
        ]
        command += ["--consistency", "LOCAL_ONE", "--quiet", "--drop-sampling-log"]
        before = _cpu_s()
        login = {"CASSANDRA_USER": target.user or "", "CASSANDRA_PASSWORD": target.password or ""}
        subprocess.run(
            [*command, "--output", str(report)],
            check=True,
            capture_output=True,
            cwd=folder,
            env={**os.environ, **login},
        )
        used_s = _cpu_s() - before
        done = json.loads(report.read_text(encoding="utf-8"))["result"]
    assert done["error_count"] == 0
    return float(done["cycle_count"]) / used_s


def lateness_us(target: CqlTarget, seconds: float) -> float:
    """Return by how much the 99th of a hundred arrivals was sent too late, in microseconds."""
    load = OpenLoop(rate_per_s=OPEN_RATE)
    return late_us(run(rows(target).reads(load, Stop(duration_s=seconds))))


def resident_mib(target: CqlTarget, operations: int) -> float:
    """Return the most memory that a run of so many operations had resident."""
    asked = rows(target).reads(ClosedLoop(threads=THREADS), Stop(operations=operations))
    with LoadRun(asked) as load:
        # A short run may have ended before its first progress is read, and has no memory then.
        most = _resident_mib(load.pid)
        for event in load:
            if isinstance(event, LoadProgress):
                most = max(most, _resident_mib(load.pid))
    return most


def _resident_mib(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines.get("VmHWM", "0 kB").split()[0]) / 1024


def reads(target: CqlTarget, server: str, repeats: int, seconds: float) -> Iterator[Row]:
    """Yield rows of closed loops of reads; latte reads from real servers only."""
    # Ours first: its run also lets the server's compiler see the reads.
    run(rows(target).reads(ClosedLoop(threads=THREADS), Stop(duration_s=2.0 * seconds)))
    contenders = [("disklab", lambda: reads_per_cpu_s(target, seconds))]
    if server == "Cassandra" and available("latte"):
        contenders.append(("latte", lambda: latte_reads_per_cpu_s(target, seconds)))
    case = f"4 KB reads, {THREADS} in flight, {server}"
    for name, values in interleave(repeats, contenders).items():
        yield summarise("client", case, name, "reads a CPU second", values)


def bench(repeats: int, seconds: float) -> list[Row]:
    """Return rows of every figure."""
    found: list[Row] = []
    is_small = seconds < 1
    if not is_small:
        with cassandra() as target:
            found += reads(target, "Cassandra", repeats, seconds)
    with fake() as target:
        # A Cassandra takes half a minute to start, and what is read from is not what is measured.
        if is_small:
            found += reads(target, "fake server", repeats, seconds)
        case = f"4 KB reads, {OPEN_RATE:,}/s open loop, fake server"
        late = [lateness_us(target, seconds) for _ in range(repeats)]
        row = summarise("client", case, "disklab", "us late at p99", late)
        found.append(replace(row, asked=MOST_LATE_US))
        # A million and ten million in the large size.
        million = round(40_000 * repeats * seconds)
        for operations in (million, 10 * million):
            case = f"memory after {operations:,} operations"
            used = [resident_mib(target, operations)]
            found.append(summarise("client", case, "disklab", "MiB", used))
    return found
