"""The process of an emulated host: its start, the proof that it is ours, its end."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

from pydantic import ValidationError

from disklab import reading
from disklab.catalog.profile import HostProfile
from disklab.engine.control import refusal
from disklab.engine.locks import comes_free, is_held, is_here
from disklab.engine.messages import Ready
from disklab.engine.own_folder import new_file
from disklab.errors import EngineError, MachineError
from disklab.machines import programs
from disklab.machines.binary import NAME, find_engine
from disklab.machines.child import LocalChild
from disklab.waiting import Wait

# `disklab-engine simulate`: jobs in, answers out, as they are done.

# What is quoted of the engine's own words when it dies: a panic has a line or two.
MOST_QUOTED_BYTES = 2000
SIMULATION_END_SECONDS = 5.0

# A cell looks up random pages in tables of some hundred MiB, and most of them miss the processor's
# page-table cache when pages are small. glibc 2.35 and newer asks for huge ones under this.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Cluster(Protocol):
    """Other machines that simulate. The same job has the same answer there, byte for byte."""

    def simulate(self, jobs: Iterable[dict[str, Any]]) -> Iterator[Any]:
        """Yield the answer to each job, in the order of completion.

        What a lost machine had is asked again of another one. Raises EngineError when none is left,
        or when a job ends the engine wherever it runs.
        """


Workers = int | Cluster | None
"""How many jobs run at a time on this machine; None: one a core; or the machines that run them."""


def simulate(jobs: Iterable[dict[str, Any]], *, workers: Workers = None) -> Iterator[Any]:
    """Yield the answer to each job, in the order of completion: `event` is `cell` or `refused`.

    Closing the iterator ends the engine. Raises EngineError when it dies.
    """
    if workers is not None and not isinstance(workers, int):
        yield from workers.simulate(jobs)
        return
    command = [str(find_engine()), "simulate"]
    if workers is not None:
        command += ["--jobs", str(workers)]
    variables = {name: os.environ.get(name, value) for name, value in HUGE_PAGES.items()}
    engine = LocalChild.start(command, stdin=None, variables=variables)
    feeder = threading.Thread(target=_feed, args=(engine, jobs), daemon=True)
    try:
        feeder.start()
        for line in engine.lines():
            answer = json.loads(line)
            if answer["event"] == "done":
                return
            yield answer
        raise EngineError(f"disklab-engine simulate ended early {_said(engine)}")
    finally:
        engine.end()
        feeder.join(SIMULATION_END_SECONDS)


Memory = dict[str, Any]
"""Answers by their jobs, which are those of every cell with the same content."""


def simulate_once(
    jobs: Iterable[dict[str, Any]], memory: Memory, *, workers: Workers = None
) -> Iterator[Any]:
    """Yield the answer to each job, as `simulate` does; those in memory first, and none twice.

    A job of several passes has an answer for each, so it is simulated whenever it is given. What is
    known at full fidelity is the answer to a quick job too, and a quick cell that is no smaller
    than the system is a full one.
    """

    def key_of(job: dict[str, Any], **changed: Any) -> str:
        return json.dumps({**job, "cell": 0, **changed}, sort_keys=True)

    waiting: dict[str, list[dict[str, Any]]] = {}
    passes: list[dict[str, Any]] = []
    for job in jobs:
        if job.get("then"):
            passes.append(job)
            continue
        key = key_of(job)
        known = key if key in memory else key_of(job, fidelity="full")
        if known in memory:
            yield {**memory[known], "cell": job["cell"]}
        else:
            waiting.setdefault(key, []).append(job)
    keys = {same[0]["cell"]: key for key, same in waiting.items()}
    new = [*passes, *(same[0] for same in waiting.values())]
    for answer in simulate(new, workers=workers) if new else ():
        if answer["cell"] not in keys:
            yield answer
            continue
        key = keys[answer["cell"]]
        if answer["event"] == "cell":
            memory[key] = answer
            if answer.get("scale") == 1:
                memory[key_of(waiting[key][0], fidelity="full")] = answer
        for job in waiting[key]:
            yield {**answer, "cell": job["cell"]}


def _said(engine: LocalChild) -> str:
    ended = engine.wait(SIMULATION_END_SECONDS)
    if ended is None:
        return "(it still runs)"
    text = ended.stderr[:MOST_QUOTED_BYTES].decode("utf-8", "replace").strip()
    return f"({ended.code}): {text}"


def _feed(engine: LocalChild, jobs: Iterable[dict[str, Any]]) -> None:
    """Write one job a line; the engine reads a few ahead, so this blocks and holds little."""
    # When the engine has ended, its answers say why.
    with suppress(MachineError):
        for job in jobs:
            engine.say(json.dumps(job, separators=(",", ":")).encode() + b"\n")
        engine.hush()


# Calibration measures the machine for a few seconds; a busy machine takes its time over the rest.
READY_SECONDS = 60.0
END_SECONDS = 10.0
POLL_SECONDS = 0.05
ELSEWHERE = "its process lives in another PID namespace, such as a container's: clean it there"


@dataclass(frozen=True)
class EngineProcess:
    """A process that is, or was, an emulated host of ours."""

    pid: int
    start_time: int
    """Field 22 of /proc/PID/stat: a number that is used again has another one."""
    folder: Path
    """The run directory of its host, `<run>/hosts/<host>`."""
    namespace: int | None = None
    """Inode of the PID namespace in which it has this number; None: noted by an older release."""
    boot: str | None = None

    @classmethod
    def recorded(cls, file: Path) -> EngineProcess | None:
        """Return the process that a `pid` file names; None: there is none, or it says nothing."""
        words = (reading.record_text(file, reading.RECORD) or "").split()
        try:
            pid, start_time = map(int, words[:2])
            namespace = int(words[2]) if len(words) > 2 else None
        except ValueError:
            return None
        return cls(pid, start_time, file.parent, namespace, words[3] if len(words) > 3 else None)

    @classmethod
    def of(cls, folder: Path) -> EngineProcess | None:
        """Return the living process of a host: the one recorded, or else the one with its lock.

        Of this PID namespace; whether there may be another one says `unseen`.
        """
        recorded = cls.recorded(folder / "pid")
        if recorded is not None and recorded.is_ours():
            return recorded
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _is_engine_of_here(int(process.name)):
                start_time = start_time_of(int(process.name))
                one = None if start_time is None else cls(int(process.name), start_time, folder)
                if one is not None and one.holds_lock():
                    return one
        return None

    def is_ours(self) -> bool:
        """Return whether it runs since the recorded time, and is the engine of this very folder.

        The folder is compared as the process sees it: the same path in another mount namespace, or
        a record that was copied from another run directory, is not ours.
        """
        if not is_here(self.namespace, self.boot) or not _is_engine_of_here(self.pid):
            return False
        if start_time_of(self.pid) != self.start_time:
            return False
        return self._names_folder() or self.holds_lock()

    def holds_lock(self) -> bool:
        """Return whether the process holds the lock of the host, which a living one always does."""
        lock = self.folder / "lock"
        try:
            wanted = os.lstat(lock)
            numbers = os.listdir(f"/proc/{self.pid}/fd")
        except OSError:
            return False
        return any(_locks(self.pid, number, wanted) for number in numbers)

    def _names_folder(self) -> bool:
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
            ours = os.lstat(self.folder)
        except OSError:
            return False
        options = dict(pairwise(words))
        run, host = options.get(b"--run-dir"), options.get(b"--host")
        if run is None or host is None or os.fsdecode(host) != self.folder.name:
            return False
        base = f"/proc/{self.pid}/{'root' if run.startswith(b'/') else 'cwd'}"
        try:
            theirs = os.stat(f"{base}/{os.fsdecode(run)}/hosts/{self.folder.name}")
        except (OSError, ValueError):
            return False
        return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)

    def wait(self, seconds: float = END_SECONDS) -> bool:
        """Wait for its end; returns whether it has ended."""
        with Wait(f"the engine of {self.folder.name} ends", seconds) as wait:
            while start_time_of(self.pid) == self.start_time:
                if wait.is_over:
                    return False
                wait.pause(POLL_SECONDS)
        return True

    def end(self, sign: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal, if it is ours, and wait for its end. Returns whether it has ended."""
        return end_process(self.pid, self.is_ours, sign, END_SECONDS)


def unseen(folder: Path) -> str | None:
    """Return why a host of which no process is seen may live all the same; None: it is gone.

    Waits for a process that was killed, whose lock goes last.
    """
    lock, recorded = folder / "lock", EngineProcess.recorded(folder / "pid")
    here = recorded is not None and is_here(recorded.namespace, recorded.boot)
    if here and comes_free(lock):
        return None
    held = is_held(lock)
    if held:
        return ELSEWHERE
    same_boot = recorded is not None and is_here(None, recorded.boot)
    if held is None and same_boot and not here:
        return "it was made in another PID namespace, and has no lock that tells whether it lives"
    return None


def start_time_of(pid: int) -> int | None:
    """Return when a process started, in the kernel's ticks; None: it is gone, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _is_engine_of_here(pid: int) -> bool:
    """Return whether a process runs the engine, in our own PID namespace and not in one below."""
    try:
        there, here = os.stat(f"/proc/{pid}/ns/pid"), os.stat("/proc/self/ns/pid")
    except OSError:
        return False
    return os.path.samestat(there, here) and _program(pid) == NAME


def _program(pid: int) -> str | None:
    """Return the name of the program that a process runs."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None
    # A reinstalled engine leaves " (deleted)" behind the name of the running one.
    return Path(program.removesuffix(" (deleted)")).name


def _locks(pid: int, number: str, lock: os.stat_result) -> bool:
    """Return whether a descriptor of a process holds flock(2) on this file."""
    try:
        found = os.stat(f"/proc/{pid}/fd/{number}")
        if (found.st_dev, found.st_ino) != (lock.st_dev, lock.st_ino):
            return False
        told = Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="ascii")
    except OSError:
        return False
    return any(line.startswith("lock:") and "FLOCK" in line for line in told.splitlines())


def end_process(
    pid: int, is_ours: Callable[[], bool], sign: signal.Signals, seconds: float
) -> bool:
    """Send a signal to a process that is ours and wait for its end; returns whether it has ended.

    A pidfd holds on to the process, so that no other one can get its number between the proof and
    the signal.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not is_ours():
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, sign)
        ended, _, _ = select.select([handle], [], [], seconds)
        return bool(ended)
    finally:
        os.close(handle)


def start_host(  # noqa: PLR0913 - each is an option of the engine
    profile: HostProfile,
    name: str,
    run_dir: Path,
    data_dir: Path,
    *,
    calibrate: bool = True,
    measure_anew: bool = False,
    transport: str = "auto",
) -> tuple[Ready, list[str]]:
    """Start an emulated host of its own session; return its first event and its warnings.

    The host's run directory is there, and ours. Raises UserError when the machine refuses,
    EngineError when the engine dies or says nothing. Then no process is left.
    """
    log_path = run_dir / "hosts" / name / "log"
    command = [str(find_engine()), "emulate", "--host", name]
    command += ["--run-dir", str(run_dir), "--data-dir", str(data_dir)]
    command += ["--transport", transport]
    command += [] if calibrate else ["--no-calibrate"]
    command += ["--measure-anew"] if measure_anew else []
    # Lines are read from the log: a pipe would break when this process ends before the host.
    log_handle = new_file(run_dir, "hosts", name, "log")
    with open(log_handle, "wb") as log, log_path.open("rb") as events:
        # Ours: it has what disklab itself was given.
        child = programs.start(command, stdin=programs.PIPE, stdout=log, stderr=log, inherits=True)
        try:
            with suppress(BrokenPipeError), programs.piped(child.stdin) as stdin:
                stdin.write(profile.model_dump_json().encode())
            return _first_event(child, events, log_path)
        except BaseException:
            _end(child)
            raise


def _end(child: programs.Process) -> None:
    """End an engine that is not wanted any more: by itself, so that its mount and devices go too.

    While it measures the machine it has both. Killed is what does not end in time; a second Ctrl-C
    waits for that (`interrupts.ended_once`).
    """
    try:
        child.terminate()
        child.ended(END_SECONDS)
    finally:
        child.kill()
        child.wait()


def _first_event(child: programs.Process, events: IO[bytes], log: Path) -> tuple[Ready, list[str]]:
    with Wait(f"the engine of {log.parent.name} is ready", READY_SECONDS) as wait:
        return _ready(wait, child, events, log)


def _ready(
    wait: Wait, child: programs.Process, events: IO[bytes], log: Path
) -> tuple[Ready, list[str]]:
    warnings: list[str] = []
    pending = b""
    while True:
        ended = child.poll() is not None
        pending += events.read()
        *lines, pending = pending.split(b"\n")
        for line in lines:
            event = _event(line)
            if event.get("event") == "warning":
                warnings.append(str(event.get("text")))
            elif event.get("event") == "failed":
                child.wait()
                raise refusal(event.get("error"))
            elif event.get("event") == "ready":
                try:
                    return Ready.model_validate(event), warnings
                except ValidationError as error:
                    raise EngineError(
                        f"{log}: the engine is of another release: {error}"
                    ) from error
        if ended:
            said = (b" ".join(lines) + pending).decode(errors="replace").strip() or "nothing"
            raise EngineError(f"the engine ended with code {child.returncode}; it said: {said}")
        if wait.is_over:
            raise EngineError(f"the engine was not ready within {READY_SECONDS:.0f} s; see {log}")
        wait.pause(POLL_SECONDS)


def _event(line: bytes) -> dict[str, object]:
    """Return a line as an event; what is none (standard error goes to the same log) is empty."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
