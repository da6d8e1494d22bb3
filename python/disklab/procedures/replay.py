"""A trace on one emulated volume, without a database and without a file system: fio replays it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from disklab import traces
from disklab.engine import Control
from disklab.engine.locks import own_name
from disklab.engine.messages import View
from disklab.errors import Problem, UserError
from disklab.events import Emit, PhaseStarted
from disklab.hosts.places import Places
from disklab.hosts.running import Target
from disklab.machines.local import LocalMachine
from disklab.probe import fio
from disklab.probe.cells import MIB, PERCENTILES, Cell, Direction, Profile
from disklab.probe.emulated import ATTACH_S, attached, known_of
from disklab.probe.fio import Measurement
from disklab.probe.fio_results import figures_of
from disklab.probe.known import disk_of
from disklab.probe.run import CellResult, slow_motion
from disklab.probe.verdict import invalid_reasons, spoiled, telemetry
from disklab.procedures import outcome
from disklab.procedures.device import DeviceWatch
from disklab.procedures.outcome import Frame
from disklab.procedures.turn import Turn
from disklab.results import TraceRecord, TrialResult
from disklab.spec import DeviceTrial
from disklab.spec.amounts import only
from disklab.spec.replay import Replay, TraceReplay, loop_of, record_of
from disklab.traces import Trace

# A trace through real fio: iologs of version 3, one for each of its threads, and what fio counted.
#
# fio's asynchronous engines reap I/Os only when their queue is full, so a single job that waits for
# times takes the wait for the next I/O into its latencies (324 ms where the disk took 0.2; fio
# 3.33). Threads that each do one I/O at a time tell the time of each, and are late only when all of
# them are under way.

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


def rate_per_s(measured: Measurement) -> float:
    """Return I/Os a second between the first end and the last, as the simulator counts them."""
    span_s = measured.runtime_s - measured.latency.mean_ns / NS_PER_S
    return (measured.ios - 1) / span_s if span_s > 0 else 0.0


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


def replay_log(
    program: Path,
    job: Path,
    limit_s: float,
    slow: int,
    tick: fio.Tick,
) -> Measurement:
    """Run fio on a job file; return what it told, in the disk's time."""
    command = [str(program), "--output-format=json", str(job)]
    return fio.parse(fio.FioOn(LocalMachine())(command, limit_s, tick), ANY, command, slow)


ENGINE = "psync"
NS_PER_MS = 1_000_000
# Stands for a trace where counters are read: it has reads and writes.
ANY = Cell(Profile.ASYNC, Direction(random=True, read_percent=50), traces.SECTOR_BYTES)
# An I/O waited for a limit where all of them waited for this share of their time.
THROTTLED_RATIO = 0.01


@dataclass(frozen=True)
class ReplayTurn:
    """What is replayed for a turn."""

    turn: Turn

    @property
    def replay(self) -> Replay:
        """The trace, as long as the effort allows."""
        whole = self.turn.trial.replay
        assert whole is not None, "the trial was checked: its workload is a trace"
        most_ns = round(self.turn.effort.longest_run_s * NS_PER_S)
        cut = traces.first(whole.placed, most_ns)
        return whole if cut is whole.placed else Replay(cut, traces.mixture(cut.trace))

    @property
    def slow(self) -> int:
        """Seconds of this machine for each second of the disk."""
        return self.turn.trial.share.time_dilation

    @property
    def depth(self) -> int | None:
        """I/Os under way; None: at the trace's times."""
        return self.turn.trial.spec.workload.the(TraceReplay).depth


def check(turn: Turn) -> None:
    """Raise UserError when fio, or the room for what the trace writes, is missing.

    Root's part of a rehearsal under sudo has no trace before its turn: it is told what to expect.
    """
    fio.find_fio(ENGINE)
    wanted = ReplayTurn(turn)
    if wanted.depth is not None and wanted.depth > MOST_THREADS:
        rule = f"a rehearsal keeps at most {MOST_THREADS} I/Os of a trace under way"
        way_out = "use a smaller depth, or `disklab predict`"
        raise UserError(Problem("workload.trace.depth", str(wanted.depth), rule, way_out))
    if turn.trial.replay is not None:
        check_room(wanted.replay.mixture.written_bytes)


def check_room(needed_bytes: int) -> None:
    """Raise UserError when what a trace writes does not fit where disks' images lie."""
    folder, free = Places.usual().room()
    if free < needed_bytes:
        rule = f"{folder} has {free // MIB} MiB free, the trace writes {needed_bytes // MIB} MiB"
        way_out = "set DISKLAB_DATA_DIR, or replay less of it: workload.stop"
        raise UserError(Problem("workload.trace", "its writes", rule, way_out))


def most_written_bytes(turns: Iterable[Turn]) -> int:
    """Return what a trace of these turns writes, at most; 0: none has one."""
    # Repeats, and cells that replay alike, share the object.
    shared = {(id(one.trial.replay), one.effort): one for one in turns if one.trial.replay}
    each = (ReplayTurn(one).replay.mixture.written_bytes for one in shared.values())
    return max(each, default=0)


def run(turn: Turn, frame: Frame, started: str, emit: Emit) -> TrialResult:
    """Make the disk, replay, remove the disk; return the result."""
    wanted, volume = ReplayTurn(turn), only(DeviceTrial, turn.trial.spec).device.volume
    replay, disk = wanted.replay, disk_of(turn.trial)
    trace = replay.placed.trace
    emit(PhaseStarted("build", f"{disk.disks} on {disk.vm}, no file system"))
    with ExitStack() as undo:
        target, path = undo.enter_context(attached(disk, own_name("trace"), volume.size_bytes))
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="disklab-trace-")))
        job = write_jobs(folder, trace, path, wanted.depth, wanted.slow)
        if turn.trial.spec.before.host_cache == "warm" and volume.caching != "None":
            warm(target, trace)
        known = known_of(target)
        emit(PhaseStarted("measure", f"{len(trace)} I/Os of the trace"))
        limit_s = fio_limit_s(replay, wanted.slow)
        before = known.show()
        watch = DeviceWatch.of(emit, "measure", path, known.show, wanted.slow)
        with slow_motion(known, wanted.slow):
            program = fio.find_fio(ENGINE)
            measured = replay_log(program, job, limit_s, wanted.slow, watch.tick)
        after = known.show()
    return result_of(turn, frame, started, replay, measured, (before, after))


def expected_s(turn: Turn) -> float:
    """Return a guess of how long a turn takes, once its trace has been read."""
    wanted = ReplayTurn(turn)
    return ATTACH_S + wanted.replay.mixture.duration_s * wanted.slow


def fio_limit_s(replay: Replay, slow: int) -> float:
    """Return after how long a replay counts as stalled, in this machine's time."""
    trace_s = replay.mixture.duration_s * slow
    return trace_s * (LONGEST_FACTOR + 1) + fio.DRAIN_S * slow


def warm(target: Target, trace: traces.Trace) -> None:
    """Fill the host cache with what the trace touches, in its order."""
    ranges = [(offset, length) for _, offset, length, _ in trace.ios()]
    with Control(target.host.socket) as control:
        control.warm(target.volume, ranges)


def result_of(  # noqa: PLR0913, PLR0917 - a result has these parts
    turn: Turn,
    frame: Frame,
    started: str,
    replay: Replay,
    measured: Measurement,
    views: tuple[View, View],
) -> TrialResult:
    """Return a replay as a result: no promise is known for a trace."""
    spec = turn.trial.spec
    # The trace's blocks differ: into how many pieces the kernel split each is not known.
    counted = replace(telemetry(*views, ANY), pieces=math.inf)
    invalid = invalid_reasons(measured, counted)
    marks = spoiled(measured, counted)
    cell = CellResult("", "", measured, telemetry=counted, invalid=invalid, spoiled=marks)
    figures = figures_of(cell)
    for name in ("mb_per_s", "promise", "verdict"):
        del figures[name]
    base = outcome.base(frame, turn.trial, turn.repeat)
    return TrialResult.model_validate(
        {
            **dict(base),
            **figures,
            "warnings": [*figures["warnings"], *replay.notes(), *_notes(turn, replay, measured)],
            "ops_per_s": rate_per_s(measured),
            "loop": loop_of(replay, spec),
            "trace": TraceRecord.model_validate(record_of(replay, spec)),
            "started": started,
        }
    )


def _notes(turn: Turn, replay: Replay, measured: Measurement) -> Iterator[str]:
    whole, asked = turn.trial.replay, len(replay.placed.trace)
    if whole is not None and len(whole.placed.trace) > asked:
        yield (
            f"the first {replay.mixture.duration_s:.3g} s of the trace: {asked} of "
            f"{len(whole.placed.trace)} I/Os"
        )
    done = measured.ios
    if done < asked:
        yield f"fio had replayed {done} of {asked} I/Os when twice the trace's time was over"
    yield (
        "the disk is new: blocks that the trace reads but has not written are zeros, which take an "
        "emulated disk as long as anything else; fio measures latency from when it sends an I/O"
    )
