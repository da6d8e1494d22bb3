"""A trace through real fio: iologs of version 3, one for each of its threads, and what fio counted.

fio's asynchronous engines reap I/Os only when their queue is full, so a single job that waits for
times takes the wait for the next I/O into its latencies (324 ms where the disk took 0.2; fio 3.33).
Threads that each do one I/O at a time tell the time of each, and are late only when all of them are
under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import MachineError
from disklab.probe import fio
from disklab.probe.cells import PERCENTILES
from disklab.probe.fio import Latency
from disklab.traces import Trace

MOST_THREADS = 128
"""Twice what a loop device has under way by default; more threads than that wait in the kernel."""
OPEN_THREADS = 64
"""Of an open loop: above the limits of a disk all are busy, below them few."""
BEGIN_US = 1
"""When a log begins. fio takes a time of 0 for none and leaves out the wait that follows: each
thread would do its first I/O at once, and all of them the others in step (fio 3.33, iolog.c)."""
NS_PER_US = 1_000
NS_PER_S = 1_000_000_000
# Beyond twice its time a trace that is not sustained tells nothing new.
LONGEST_FACTOR = 2
LONGEST_SPARE_S = 5.0


@dataclass(frozen=True)
class Replayed:
    """What fio counted and measured, in the disk's time."""

    ios: dict[str, int]
    """By `read` and `write`."""
    bytes_: dict[str, int]
    latency: dict[str, Latency]
    """From when fio sent an I/O until it ended, by `read`, `write` and `mixed`; only of those that
    there were."""
    runtime_s: float
    """From the start to the last end."""
    fio_version: str
    command: tuple[str, ...]

    @property
    def rate_per_s(self) -> float:
        """I/Os a second between the first end and the last, as the simulator counts them."""
        span_s = self.runtime_s - self.latency["mixed"].mean_ns / NS_PER_S
        return (sum(self.ios.values()) - 1) / span_s if span_s > 0 else 0.0


def write_jobs(folder: Path, trace: Trace, device: Path, depth: int | None, slow: int) -> Path:
    """Write fio's job file and the iologs of its threads; return the job file.

    `slow`: seconds of this machine for each second of the disk.
    """
    threads = min(OPEN_THREADS if depth is None else depth, MOST_THREADS, len(trace))
    head = ["fio version 3 iolog", f"{BEGIN_US} {device} add", f"{BEGIN_US} {device} open"]
    logs = [[*head] for _ in range(threads)]
    for number, (at, offset, length, writes) in enumerate(trace.ios()):
        when = BEGIN_US + (0 if depth is not None else at * slow // NS_PER_US)
        action = "write" if writes else "read"
        logs[number % threads].append(f"{when} {device} {action} {offset} {length}")
    longest_s = LONGEST_FACTOR * trace.at_ns[-1] / NS_PER_S * slow + LONGEST_SPARE_S
    job = [
        "[global]",
        "thread",
        "ioengine=psync",
        "direct=1",
        "group_reporting",
        "unified_rw_reporting=both",
        f"buffer_pattern={fio.PATTERN}",
        f"iomem_align={fio.HUGE_PAGE_BYTES}",
        f"percentile_list={':'.join(format(p, 'g') for p in PERCENTILES)}",
        *([] if depth is not None else [f"runtime={round(longest_s * 1000)}ms"]),
    ]
    for number, lines in enumerate(logs):
        log = folder / f"{number}.iolog"
        log.write_text("\n".join(lines) + "\n")
        job += [f"[thread{number}]", f"read_iolog={log}"]
    file = folder / "replay.fio"
    file.write_text("\n".join(job) + "\n")
    return file


def replay(  # noqa: PLR0913, PLR0917 - a run of fio has these parts
    program: Path,
    job: Path,
    limit_s: float,
    slow: int,
    tick: fio.Tick,
    inside: Callable[[list[str]], list[str]] = list,
) -> Replayed:
    """Run fio on a job file; return what it told, in the disk's time."""
    command = inside([str(program), "--output-format=json", str(job)])
    ran = fio.run(command, limit_s, tick)
    (told,) = ran.report["jobs"]  # group_reporting merges the threads' histograms into one
    latency = fio.latencies(told, slow)
    if "mixed" not in latency:
        raise MachineError("fio ended without an I/O of the trace; the device seems to be stalled")
    return Replayed(
        ios={side: int(told[side]["total_ios"]) for side in fio.SIDES},
        bytes_={side: int(told[side]["io_bytes"]) for side in fio.SIDES},
        latency=latency,
        runtime_s=max(told[side]["runtime"] for side in fio.SIDES) / 1000 / slow,
        fio_version=str(ran.report["fio version"]),
        command=tuple(command),
    )
