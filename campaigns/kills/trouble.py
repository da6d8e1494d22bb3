"""Troubles that are not a step of a command: each with a number that chooses its details.

A backing store that is full or answers errors, an engine that stands still while it works, and the
death of each process of a rehearsal in each of its phases. A full memory group has a test of its
own (`tests/hosts/test_full_memory.py`), with a watchdog and nothing beside it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from disklab.engine.process import EngineProcess
from disklab.hosts.cleaning import LOST
from disklab.hosts.control_group import MARK, marked_processes
from disklab.hosts.filesystem import users_of
from disklab.results import Run

from campaigns.kills.lab import FoundError, Lab, memory_groups_of
from campaigns.kills.points import Outcome, Point, read_in_fork
from campaigns.kills.scenarios import CACHED, EXPERIMENT, RAW, Scenario
from campaigns.kills.writer import Writing
from tests.journal import Journal, Promise

TROUBLE = "trouble"
"""The mode of these points, and what stands for a program."""
MIB = 1 << 20
# Ext4 keeps some of it for itself; the writer's blocks need 1 MiB.
OUTER_MIB = 24
BELOW = ("disk", "attach", "azure/P30", "--no-calibrate", "--size", f"{OUTER_MIB}MiB")
REHEARSAL_SECONDS = 400.0
UNMOUNT_SECONDS = 20.0
FULL_SECONDS = 60.0
PHASES = ("build", "fill", "settle", "condition", "warm-up", "measure")
VICTIMS = ("database", "load", "engine", "load and database", "engine and conductor",
           "database and conductor")  # fmt: skip
TROUBLES: dict[str, Callable[[Lab, random.Random], int]] = {}


def trouble(name: str) -> Callable[[Callable[[Lab, random.Random], int]], Callable[..., int]]:
    """Register a trouble under a name. It returns how many blocks or results it looked at."""

    def known(work: Callable[[Lab, random.Random], int]) -> Callable[..., int]:
        TROUBLES[name] = work
        return work

    return known


def try_trouble(name: str, number: int, seed: int) -> Outcome:
    """Make a trouble and look at everything afterwards."""
    began = time.monotonic()
    lab = Lab.make()
    found, checked = "", 0
    try:
        checked = TROUBLES[name](lab, random.Random(f"{seed} {name} {number}"))
        lab.must("clean", "--all", "--data")
        lab.check_empty()
        lab.check_decoys()
    except FoundError as error:
        found = str(error)
    except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
        found = f"{type(error).__name__}: {error}"
    finally:
        if found:
            found += "\n" + lab.said()[-2000:]
        lab.take_away()
    seconds = round(time.monotonic() - began, 2)
    return Outcome(Point(name, TROUBLE, number, TROUBLE), name, found, checked, seconds)


@trouble("backing full")
def backing_full(lab: Lab, chance: random.Random) -> int:
    """The folder of disk images has no room left while a writer works; then it has again."""
    data = lab.root / "data"
    size = chance.randrange(256 << 10, MIB, 4096)
    with _small(data, size):
        lab.must(*chance.choice((RAW, CACHED)))
        journal = _write_until_it_fails(lab, chance)
        device = _device(lab)
        subprocess.run(["mount", "-o", f"remount,size={64 * MIB}", data], check=True)
        promise = Scenario("", RAW, promise=Promise.FLUSHED)
        if violations := read_in_fork(device, journal, promise):
            raise FoundError("lost: " + "; ".join(violations[:10]))
        # There is room again: the disk works.
        Writing.begin(device, chance.randrange(1 << 16)).end()
        lab.must("clean", "--all", "--data")
    return sum(version > 0 for version in journal.flushed)


@trouble("backing errors")
def backing_errors(lab: Lab, chance: random.Random) -> int:
    """The disk below the disk images answers errors: it is an emulated one itself."""
    below = Lab.make()
    try:
        with disk_below(below, lab):
            lab.must(*chance.choice((RAW, CACHED)))
            writing = Writing.begin(_device(lab), chance.randrange(1 << 16))
            time.sleep(chance.uniform(0.0, 0.5))
            fault = chance.choice((("error-rate", "100%"), ("error-rate", "30%"), ("stall", "1s")))
            below.must("disk", "fail", "data", *fault)
            time.sleep(chance.uniform(0.2, 1.0))
            journal = writing.end()
            said = list(writing.failures)
            below.must("disk", "fail", "data", "recover")
            engine = lab.engine()
            if engine is not None and chance.random() < 0.5:
                engine.end()
            lab.must("clean", "--all")
            if "failed to write" in " ".join(lab.said().split()):
                said.append("clean")
        # The page cache of the disk below goes with its mount: what is read now was on it.
        below.must("disk", "detach", "data")
        below.must(*BELOW, "--mount", str(below.point))
        with _shown(below.point, lab.root / "data"):
            _take_as_it_is(lab, said)
            lab.must(*RAW)
            kept = journal
            if said:
                # It may have lost what it had promised; but nothing is newer than what was sent.
                kept = Journal(journal.blocks)
                kept.submitted = journal.submitted
            promise = Scenario("", RAW, promise=Promise.FLUSHED)
            violations = read_in_fork(_device(lab), kept, promise)
            lab.must("clean", "--all", "--data")
        if violations:
            raise FoundError(f"{fault}: lost: " + "; ".join(violations[:10]))
        below.must("clean", "--all", "--data")
        below.check_empty()
    finally:
        below.take_away()
    return 0 if said else sum(version > 0 for version in journal.flushed)


def _take_as_it_is(lab: Lab, said: list[str]) -> None:
    """Let data be attached that the disk has said are not whole."""
    image = lab.root / "data/default/data.img"
    if not image.exists():
        # It was made when the disk below was broken already.
        if not said:
            raise FoundError("the image has gone, and nobody said that data are lost")
    elif LOST in os.listxattr(image):
        said.append(os.getxattr(image, LOST).decode())
        if lab.run(*RAW) == 0:
            raise FoundError("data that are not whole were attached without a word")
        os.removexattr(image, LOST)


@trouble("engine stands still")
def engine_stands_still(lab: Lab, chance: random.Random) -> int:
    """SIGSTOP while a writer works, as a paused virtual machine or a debugger does it."""
    lab.must(*chance.choice((RAW, CACHED)))
    writing = Writing.begin(_device(lab), chance.randrange(1 << 16))
    engine = lab.engine()
    assert engine is not None
    for _ in range(chance.randint(1, 3)):
        time.sleep(chance.uniform(0.0, 0.3))
        os.kill(engine.pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.1, 2.0))
        os.kill(engine.pid, signal.SIGCONT)
    journal = writing.end()
    promise = Scenario("", RAW, promise=Promise.ACKNOWLEDGED)
    if violations := read_in_fork(_device(lab), journal, promise):
        raise FoundError("lost: " + "; ".join(violations[:10]))
    return sum(version > 0 for version in journal.acknowledged)


@trouble("rehearsal loses a process")
def rehearsal_loses_a_process(lab: Lab, chance: random.Random) -> int:
    """One process, or two at once, are killed in a phase of a rehearsal."""
    phase, victims = chance.choice(PHASES), chance.choice(VICTIMS)
    (lab.root / "experiment.yaml").write_text(EXPERIMENT)
    command = lab.words(("rehearse", "LAB/experiment.yaml", "--quick", "--out", "LAB/runs"))
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            lab.child(command)()
        os._exit(0)
    deadline = time.monotonic() + REHEARSAL_SECONDS
    try:
        _await_phase(lab, phase, child, deadline)
        time.sleep(chance.uniform(0.0, 1.0))
        _kill(lab, victims, child, deadline if phase == "measure" else time.monotonic() + 20.0)
        _await_end(child, deadline)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise
    lab.must("clean")
    lab.check_decoys()
    lab.check_empty()
    if left := memory_groups_of(child):
        raise FoundError(f"{victims} in {phase}: memory groups left: {left}")
    (folder,) = (lab.root / "runs").iterdir()
    code = lab.run("rehearse", "--resume", str(folder), "--again", "failed", seconds=400.0)
    if code not in (0, 1):
        raise FoundError(f"{victims} in {phase}: resume ended with {code}")
    run = Run.open(folder)
    bad = [one.status for one in run.results() if one.status not in ("ok", "invalid")]
    if bad or run.finished() != {(0, 0), (1, 0)}:
        raise FoundError(f"{victims} in {phase}: finished are {run.finished()}, {bad}")
    return len(run.finished())


def _await_phase(lab: Lab, phase: str, child: int, deadline: float) -> None:
    while True:
        for log in (lab.root / "runs").glob("*/events.jsonl"):
            for line in log.read_text().splitlines():
                with suppress(ValueError):
                    if json.loads(line).get("phase") == phase:
                        return
        if time.monotonic() > deadline:
            raise FoundError(f"phase {phase} does not come")
        if os.waitpid(child, os.WNOHANG)[0]:
            raise FoundError(f"the rehearsal ended before its phase {phase}")
        time.sleep(0.05)


def _kill(lab: Lab, victims: str, conductor: int, deadline: float) -> None:
    """Kill what is there of the victims; what is not there yet is waited for."""
    wanted = victims.split(" and ")
    while True:
        found = {one: list(_processes(lab, one, conductor)) for one in wanted}
        if all(found.values()) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    for pids in found.values():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes(lab: Lab, what: str, conductor: int) -> Iterator[int]:
    if what == "conductor":
        yield conductor
    elif what == "database":
        yield from (one.pid for one in marked_processes(lab.root / "run"))
    elif what == "engine":
        for host in lab.places.hosts():
            process = EngineProcess.of(host.run)
            if process is not None:
                yield process.pid
    else:
        yield from _children(conductor, ("sysbench", "load"))


def _children(pid: int, words: tuple[str, ...]) -> Iterator[int]:
    """Yield what a process has started, and what that has, with one of the words in its command."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                told = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                marked = MARK.encode() in Path(f"/proc/{child}/environ").read_bytes()
                if not marked and any(Path(os.fsdecode(one)).name in words for one in told):
                    yield child
                yield from _children(child, words)


def _await_end(child: int, deadline: float) -> None:
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            raise FoundError("the rehearsal hangs")
        time.sleep(0.1)


def _write_until_it_fails(lab: Lab, chance: random.Random) -> Journal:
    writing = Writing.begin(_device(lab), chance.randrange(1 << 16))
    # It ends by itself at the first error; on a full machine that takes a while to come.
    writing.await_failure(FULL_SECONDS)
    journal = writing.end()
    if not writing.failures:
        raise FoundError("the writer met no failure")
    return journal


def _device(lab: Lab) -> str:
    record = lab.volume("data")
    if record is None or record.device is None:
        raise FoundError("volume data has no device")
    return record.device


def _back(kept: Path, folder: Path) -> None:
    _unmount(folder)
    folder.rmdir()
    kept.rename(folder)


def _put_back(undo: ExitStack, kept: Path, folder: Path) -> None:
    """Have the folder put back at the end; that it cannot be is no news when something failed."""

    def back(kind: type[BaseException] | None, *_: object) -> None:
        try:
            _back(kept, folder)
        except FoundError:
            if kind is None:
                raise

    undo.push(back)


def _unmount(folder: Path) -> None:
    # What was killed closes its files when its last I/O has ended.
    deadline = time.monotonic() + UNMOUNT_SECONDS
    while (
        ran := subprocess.run(["umount", folder], check=False, capture_output=True, text=True)
    ).returncode:
        if time.monotonic() > deadline:
            users = ", ".join(users_of(folder)) or "nobody that can be seen"
            raise FoundError(f"{ran.stderr.strip()}; it is in use by {users}")
        time.sleep(0.1)


@contextmanager
def disk_below(below: Lab, lab: Lab) -> Iterator[None]:
    """Let the disk images of a lab lie on an emulated disk of another one inside the block."""
    below.must(*BELOW, "--filesystem", "ext4", "--mount", str(below.point))
    with _shown(below.point, lab.root / "data"):
        yield


@contextmanager
def _small(folder: Path, size: int) -> Iterator[None]:
    """Let a folder have so much room inside the block; what it held is there as before."""
    with ExitStack() as undo:
        kept = folder.with_name("kept")
        folder.rename(kept)
        folder.mkdir(mode=0o755)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=755,size={size}", "lab", folder], check=True
        )
        _put_back(undo, kept, folder)
        yield


@contextmanager
def _shown(source: Path, folder: Path) -> Iterator[None]:
    """Let a folder be another file system inside the block."""
    with ExitStack() as undo:
        kept = folder.with_name("kept")
        folder.rename(kept)
        folder.mkdir(mode=0o755)
        subprocess.run(["mount", "--bind", source, folder], check=True)
        _put_back(undo, kept, folder)
        yield
