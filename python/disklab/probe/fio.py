"""Runs fio and reads what it measured."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from disklab.errors import MachineError, Problem, UserError
from disklab.hosts import requirements
from disklab.machines import programs
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Child, Command, Machine
from disklab.probe.cells import MIB, PERCENTILES, Cell, Plan

# How far apart fio's jobs start.
#
# fio fills each job's buffers after it has told the jobs to start, and its report says how long the
# longest job ran, not how long all of them together. With 1 GiB of buffers on two busy CPUs the
# jobs
# began up to 0.6 s apart, and a cell of 2 s showed 251 MB/s on a disk of 200 MB/s (our own
# measurement, 2026-11-21). So the start of each job is observed: it is when the kernel first
# accounts
# direct I/O to its process.

Read = Callable[[PurePosixPath], bytes]


def _of_this_machine(path: PurePosixPath) -> bytes:
    return Path(path).read_bytes()


# A job that has not begun after this long is not waited for: its start is not seen at all on file
# systems without I/O accounting.
WATCHED_S = 15.0


@dataclass
class StartWatch:
    """Watches the jobs of one fio process; look at it often until it is `over`."""

    pid: int
    jobs: int
    read: Read = _of_this_machine
    """Reads a file of the machine on which fio runs; raises OSError or MachineError."""
    began: float = field(default_factory=time.monotonic)
    seen: dict[int, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether every job has begun, or no more is to be expected."""
        return len(self.seen) >= self.jobs or time.monotonic() - self.began > WATCHED_S

    def look(self) -> None:
        """Note the jobs that have begun since the last look."""
        now = time.monotonic()
        for child in children(self.pid, self.read):
            if child not in self.seen and has_begun(child, self.read):
                self.seen[child] = now

    @property
    def spread_s(self) -> float:
        """Time between the first and the last start that was seen."""
        times = self.seen.values()
        return max(times) - min(times) if times else 0.0


def children(pid: int, read: Read = _of_this_machine) -> list[int]:
    """Return the child processes; empty when the process is gone."""
    try:
        text = read(PurePosixPath(f"/proc/{pid}/task/{pid}/children"))
    except (OSError, MachineError):
        return []
    return [int(word) for word in text.split()]


def has_begun(pid: int, read: Read = _of_this_machine) -> bool:
    """Return whether the kernel has accounted disk I/O to the process."""
    try:
        text = read(PurePosixPath(f"/proc/{pid}/io")).decode("ascii", errors="replace")
    except (OSError, MachineError):
        return False
    counts = dict(line.split(": ") for line in text.splitlines() if ": " in line)
    return int(counts.get("read_bytes", 0)) > 0 or int(counts.get("write_bytes", 0)) > 0


SIDES = ("read", "write")
Tick = Callable[[float], None]
"""Called with the seconds since the start, a few times a second."""

POLL_S = 0.2
START_POLL_S = 0.02  # 1 % of the shortest cell of a quick look
# A disk that serves one I/O a second still drains depth 256 x 4 jobs through a queue of 128 in
# this time; what takes longer is stalled.
DRAIN_S = 60.0
# A loop device takes 128 memory segments in one request, so 1 MiB of scattered 4 KiB pages reaches
# it in two or three, and each is a smaller I/O to the disk than the one that is measured.
# Buffers in huge pages arrive whole: fio allocates with malloc, and glibc 2.35 and newer asks for
# huge pages under this tunable; the alignment makes also the smallest buffer large enough for one.
HUGE_PAGE_BYTES = 2 * MIB
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

# What is written while fio measures: arbitrary bytes, none of them zero. Filling a gigabyte of
# buffers with random ones costs two seconds before each cell.
PATTERN = "0x9d3b5ac17e64f28893a5d1476bce12f035e87b946da92c5ff1437ab86e15c9d2"

FILL_DEPTH = 8
FILL_FLOOR_BYTES_PER_S = 2 * MIB  # the smallest disk of the catalogue writes ten times faster


@dataclass(frozen=True)
class Latency:
    """Completion latencies in nanoseconds, from submission to completion (fio's `clat`)."""

    mean_ns: float
    min_ns: int
    max_ns: int
    percentiles_ns: dict[float, int]
    """By [`PERCENTILES`]; fio's histogram bins are up to 1.6 % wide."""


@dataclass(frozen=True)
class Side:
    """The reads of a cell, or its writes."""

    ios: int
    bytes_: int
    latency: Latency


@dataclass(frozen=True)
class Measurement:
    """What fio measured in one cell."""

    cell: Cell
    sides: dict[str, Side]
    """By `read` and `write`: those that the cell has."""
    latency: Latency
    """Of all its I/Os."""
    runtime_s: float
    fio_version: str
    command: tuple[str, ...]

    @property
    def ios(self) -> int:
        """I/Os of both directions."""
        return sum(side.ios for side in self.sides.values())

    @property
    def iops(self) -> float:
        """I/Os a second, of both directions."""
        return self.ios / self.runtime_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second, of both directions."""
        return sum(side.bytes_ for side in self.sides.values()) / self.runtime_s


def check_memory(plan: Plan) -> None:
    """Refuse a plan whose buffers would push this machine into swapping or killing.

    Every outstanding I/O has a buffer: 1 MiB blocks under the async profile take 1 GiB.
    """
    needed = max(cell.load.outstanding * cell.block_bytes for cell in plan.cells)
    available = requirements.available_memory_bytes()
    if needed > available // 2:  # the other half is the machine's and the emulator's
        rule = (
            f"the I/Os outstanding need {needed // MIB} MiB of memory, and "
            f"{available // MIB} MiB are available"
        )
        raise UserError(Problem("--bs", "async", rule, "choose smaller blocks or --profile sync"))


def find_fio(engine: str) -> Path:
    """Return fio's path; a clear error when it or its engine is missing."""
    found = shutil.which("fio")
    if found is None:
        way_out = "install it: apt-get install fio, or dnf install fio"
        raise UserError(Problem("disklab probe", "fio", "the probe runs fio, not found", way_out))
    listing = programs.run([found, "--enghelp"]).stdout.decode(errors="replace")
    engines = {line.strip() for line in listing.splitlines()}
    if engine not in engines:
        way_out = "choose another --engine, or install a fio that was built with it"
        raise UserError(Problem("--engine", engine, "this fio does not have it", way_out))
    return Path(found)


@dataclass(frozen=True)
class Ran:
    """What a run of fio told, and what was seen of it."""

    report: dict[str, Any]
    spread_s: float
    """Time between the starts of its first and its last job."""


@dataclass(frozen=True)
class Job:
    """fio on one region, as often as it is needed."""

    program: Path
    path: Path
    """The device or file that fio opens."""
    writable: bool
    """False: fio itself is told to refuse every write."""
    plan: Plan
    inside: Callable[[list[str]], list[str]] = list
    """Puts a command where it is to run, such as into a control group."""
    on: Machine = field(default_factory=LocalMachine)
    """Where fio runs."""

    def measure(self, cell: Cell, tick: Tick) -> Measurement:
        """Run one cell."""
        command = self.cell_command(cell)
        ran = self._run(command, self.machine_s + DRAIN_S, tick, cell.load.jobs)
        return parse(ran, cell, command, self.plan.time_dilation)

    @property
    def machine_s(self) -> float:
        """How long a cell takes by fio's own clock."""
        return self.plan.duration_s * self.plan.time_dilation

    def fill(self, tick: Tick) -> None:
        """Write the whole region, so that no later read finds a hole."""
        limit_s = self.plan.size_bytes / FILL_FLOOR_BYTES_PER_S + DRAIN_S
        self._run(self.fill_command(), limit_s, tick)

    def _run(self, command: Sequence[str], limit_s: float, tick: Tick, jobs: int = 1) -> Ran:
        return FioOn(self.on)(self.inside([*command]), limit_s, tick, jobs)

    def cell_command(self, cell: Cell) -> tuple[str, ...]:
        """Return the command line that measures `cell`.

        No ramp_time: fio 3.33 then counts I/Os that straddle its end in the bytes but not in the
        I/Os, and at depth 256 the two rates of a short run differ by a quarter.
        """
        return (
            str(self.program),
            *(() if self.writable else ("--readonly",)),
            "--output-format=json",
            "--name=probe",
            f"--filename={self.path}",
            f"--size={self.plan.size_bytes}",
            f"--rw={cell.direction.rw}",
            f"--rwmixread={cell.direction.read_percent}",
            "--unified_rw_reporting=both",
            f"--bs={cell.block_bytes}",
            f"--ioengine={self.plan.engine}",
            "--direct=1",
            f"--iodepth={cell.load.depth}",
            f"--numjobs={cell.load.jobs}",
            "--group_reporting",
            "--time_based",
            f"--runtime={round(self.machine_s * 1000)}ms",
            "--allow_file_create=0",
            f"--buffer_pattern={PATTERN}",
            f"--iomem_align={HUGE_PAGE_BYTES}",
            f"--percentile_list={':'.join(format(p, 'g') for p in PERCENTILES)}",
        )

    def fill_command(self) -> tuple[str, ...]:
        """Return the command line that writes every byte of the region once, in order."""
        return (
            str(self.program),
            "--output-format=json",
            "--name=fill",
            f"--filename={self.path}",
            f"--size={self.plan.size_bytes}",
            "--rw=write",
            f"--bs={MIB}",
            f"--ioengine={self.plan.engine}",
            "--direct=1",
            f"--iodepth={FILL_DEPTH}",
            "--end_fsync=1",
            # Incompressible and never the same twice: a disk must not make a hole or a copy of it.
            "--refill_buffers",
        )


MOST_OUTPUT_BYTES = 64 << 20
"""fio's report has some ten KiB; more is none."""


class FioOn:
    """Runs fio on a machine, near or far, and reads what it measured there."""

    def __init__(self, machine: Machine) -> None:
        """Take the machine."""
        self._machine = machine

    def __call__(self, command: Sequence[str], limit_s: float, tick: Tick, jobs: int = 1) -> Ran:
        """Run fio to its end; on any exception it is ended before that is passed on."""
        started = time.monotonic()
        with self._machine.start(Command(command, variables=HUGE_PAGES)) as child:
            output = _Output(child)
            watch = StartWatch(child.pid, jobs, self._machine.files.read)
            while True:
                ended = child.wait(POLL_S if watch.over or jobs == 1 else START_POLL_S)
                if ended is not None:
                    break
                if jobs > 1 and not watch.over:
                    watch.look()
                elapsed_s = time.monotonic() - started
                if elapsed_s > limit_s:
                    raise MachineError(
                        f"{self._machine.name}: fio did not end within {limit_s:.0f} s: the disk "
                        "seems to be stalled (`disklab disk show` says so if it is one of ours)"
                    )
                tick(elapsed_s)
            text = output.text()
        complaints = ended.stderr.decode(errors="replace")
        try:
            return Ran(read_report(command, ended.code, text, complaints), watch.spread_s)
        except MachineError as error:
            raise MachineError(f"{self._machine.name}: {error}") from None


class _Output:
    """The standard output of a program, read by a thread so that it never waits for us."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._lines: list[bytes] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._read, name="fio's output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        size = 0
        try:
            for line in self._child.lines():
                size += len(line)
                if size > MOST_OUTPUT_BYTES:
                    raise MachineError(f"fio wrote more than {MOST_OUTPUT_BYTES >> 20} MiB")
                self._lines.append(line)
        except Exception as error:  # it is raised where the output is wanted
            self._failure = error

    def text(self) -> str:
        """Return what came until the end of the program."""
        self._thread.join(10.0)
        if self._failure is not None:
            raise self._failure
        return b"\n".join(self._lines).decode(errors="replace")


def read_report(
    command: Sequence[str], returncode: int, output: str, complaints: str
) -> dict[str, Any]:
    """Return fio's JSON, or raise what it complained of."""
    start = output.find("{")  # fio prints warnings before its report
    report: dict[str, Any] = {}
    if start >= 0:
        try:
            report = json.loads(output[start:])
        except json.JSONDecodeError:
            report = {}
    errors = [job for job in report.get("jobs", []) if job.get("error")]
    if returncode != 0 or errors or not report:
        said = "; ".join(line for line in complaints.splitlines() if line.strip()) or output[:400]
        raise MachineError(
            f"fio failed (exit code {returncode}): {said}\ncommand: {' '.join(command)}"
        )
    return report


def parse(ran: Ran, cell: Cell, command: Sequence[str], slow: int = 1) -> Measurement:
    """Return the cell's figures from fio's JSON report, in a time that is so much slower."""
    (job,) = ran.report["jobs"]  # --group_reporting merges the jobs' histograms into one
    latency = latencies(job, slow)
    if "mixed" not in latency:
        raise MachineError(
            f"{cell.title}: no I/O completed while fio measured; the device is stalled or too slow "
            "for this duration: give a longer --duration"
        )
    # fio gives the longest job's time; all of them together took longer by the spread.
    longest_s = max(job[side]["runtime"] for side in SIDES) / 1000
    return Measurement(
        cell=cell,
        sides={
            side: Side(int(job[side]["total_ios"]), int(job[side]["io_bytes"]), latency[side])
            for side in SIDES
            if side in latency
        },
        latency=latency["mixed"],
        runtime_s=(longest_s + ran.spread_s) / slow,
        fio_version=str(ran.report["fio version"]),
        command=tuple(command),
    )


def latencies(job: dict[str, Any], slow: int) -> dict[str, Latency]:
    """Return what fio tells of reads, writes and both together (`mixed`), where there are any."""
    found = {}
    for side in (*SIDES, "mixed"):
        clat = job[side]["clat_ns"]
        if job[side]["total_ios"]:
            latency = latency_of(clat, slow)
            if set(latency.percentiles_ns) == set(PERCENTILES):
                found[side] = latency
    return found


def latency_of(times: Mapping[str, Any], slow: int = 1) -> Latency:
    """Return times of fio's report, in a time that is so much slower."""
    percentiles = {float(key): int(ns) // slow for key, ns in times.get("percentile", {}).items()}
    if not all(0 <= percent <= 100 and ns >= 0 for percent, ns in percentiles.items()):
        raise ValueError("a percentile lies between 0 and 100, and takes no negative time")
    return Latency(
        mean_ns=float(times["mean"]) / slow,
        min_ns=int(times["min"]) // slow,
        max_ns=int(times["max"]) // slow,
        percentiles_ns=dict(sorted(percentiles.items())),
    )
