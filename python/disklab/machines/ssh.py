"""A host reached over the user's own OpenSSH, with one agent of ours on it.

The connection may go and come: programs are jobs of the host, their output is spooled there, and
what was read is read on from its offset. Nobody has to be there to end them: a job ends when its
conductor has not been heard of for the time of its lease.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from signal import SIGKILL
from typing import Any

from disklab.errors import MachineError
from disklab.machines.binary import SENT_ENGINE, AgentFile
from disklab.machines.link import Agent, Link, LinkLostError, decoded, exit_code, new_token, whole
from disklab.machines.openssh import PERMANENT, Destination, agent_script
from disklab.machines.protocol import ClockOffset, Command, Counters, Finished
from disklab.machines.watched import SpooledCounters, SshChild, SshFiles
from disklab.terminal import plain
from disklab.waiting import Wait

__all__ = ["AgentFile", "Destination", "SshChild", "SshMachine", "SshSettings"]

LEASE_S = 900
"""A job outlives a conductor by so long: a link that is away for longer does not come back."""
PATIENCE_S = 60.0
"""How long a host may be away; a switch that restarts takes 30 s."""
SILENCE_S = 20.0
"""Without a byte for so long, though it was asked each 5 s, a host counts as silent."""
BEAT_S = 5.0
GREET_S = 30.0
CONNECT_S = 12 * GREET_S
"""With the agent, which is sent over any line; see `Link.greet`."""
ASK_S = 60.0
PAGES_S = 10 * ASK_S
"""To write back all that is in memory of a database."""
WAIT_MS = 10_000
STDOUT_BYTES = 256 << 20
"""The most that `run` takes from a program, as on this machine."""
CLOCK_PROBES = 21
_CONDUCTOR = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class SshSettings:
    """How a host is kept."""

    name: str | None = None
    """What the user calls it; None: its destination."""
    address: str | None = None
    """Where other machines reach it; None: the host name that ssh uses."""
    conductor: str | None = None
    """Under which its jobs are found again; None: a new one."""
    lease_s: int = LEASE_S
    patience_s: float = PATIENCE_S


class SshMachine:
    """A host as a `Machine`. It connects when it is first used; end it by `close` or its context.

    The same `conductor` and destination find their jobs again (`resume`), also after this process
    was killed. One process at a time may be a conductor: a later one takes its place.
    """

    def __init__(
        self,
        destination: str | Destination,
        agent: AgentFile,
        settings: SshSettings | None = None,
        told: Callable[[str], None] | None = None,
    ) -> None:
        """Take the host, and the program that serves us there; `told` hears of lost links."""
        self._destination = (
            Destination(destination) if isinstance(destination, str) else destination
        )
        self._agent = agent
        self._settings = settings or SshSettings()
        self._name = self._settings.name or self._destination.text
        self._address = self._settings.address
        self._conductor = self._settings.conductor or new_token()
        if not _CONDUCTOR.fullmatch(self._conductor):
            raise MachineError(
                f"{plain(self._conductor)[:80]}: a conductor is 1 to 64 of a-z, 0-9 and -"
            )
        self._told = told or (lambda _text: None)
        self._lock = threading.RLock()
        self._link: Link | None = None
        self._hello: dict[str, Any] = {}
        self._heard: float | None = None
        self._gone: str | None = None
        self._closed = threading.Event()
        self._beats: threading.Thread | None = None
        self._under_way: dict[str, str] = {}
        self._files = SshFiles(self)

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self._name

    @property
    def address(self) -> str:
        """Where other machines reach it: what was given, else the host name that ssh uses."""
        if self._address is None:
            self._address = self._destination.resolved().get("hostname", self._destination.text)
        return self._address

    @property
    def conductor(self) -> str:
        """Under which its jobs are found again."""
        return self._conductor

    @property
    def is_here(self) -> bool:
        """It is another one."""
        return False

    @property
    def engine(self) -> Sequence[str]:
        """The words that start the engine that was sent as its agent."""
        return SENT_ENGINE

    @property
    def files(self) -> SshFiles:
        """Its files."""
        return self._files

    @property
    def hello(self) -> dict[str, Any]:
        """What its agent says of the host: `boot`, `kernel`, `architecture`, `processors`."""
        self._linked()
        return dict(self._hello)

    def run(self, command: Command, seconds: float = 60.0) -> Finished:
        """Run a program to its end, also when the link is lost meanwhile. See `Machine.run`."""
        job = f"r-{new_token()}"
        fields = _program(job, command)
        fields["timeout_ms"] = max(1, int(seconds * 1000))
        self._under_way[job] = command.words[0]
        try:
            with Wait(f"{self.name}: {PurePosixPath(command.words[0]).name} ends", seconds):
                answer = self.ask("run", seconds=2 * ASK_S, **fields)
                while answer.get("ended") is None and not answer.get("lost"):
                    answer = self.ask("wait", job=job, wait_ms=WAIT_MS)
            code = exit_code(self.name, command.words[0], answer, seconds)
            stdout = bytearray()
            while len(stdout) < whole(self.name, answer, "stdout_bytes"):
                part, ended = self.tail(job, len(stdout), wait_ms=0)
                stdout += part
                if len(stdout) > STDOUT_BYTES:
                    raise MachineError(
                        f"{self.name}: {command.words[0]} wrote more than {STDOUT_BYTES} bytes"
                    )
                if ended or not part:
                    break
            return Finished(code, bytes(stdout), decoded(self.name, answer, "stderr", 64 << 10))
        except BaseException:
            with suppress(MachineError):
                self.signal(job, SIGKILL)
            raise
        finally:
            self.forget(job)

    def start(self, command: Command) -> SshChild:
        """Start a program; it ends with its context, or with its lease."""
        job = f"j-{new_token()}"
        self._under_way[job] = command.words[0]
        try:
            answer = self.ask("job", **_program(job, command))
        except BaseException:
            self._under_way.pop(job, None)
            raise
        return SshChild(self, job, command.words[0], whole(self.name, answer, "pid"))

    def watch(self, files: list[PurePosixPath], interval_ms: int = 1000) -> SshChild:
        """Start a job that prints files at each tick: all at first, then those that changed.

        Each line is `{"t_ns": time of day, "mono_ns": ..., "files": {path: base64 or null}}`. It
        goes on while the link is away, so that no second is lost.
        """
        job = f"w-{new_token()}"
        paths = [str(path) for path in files]
        answer = self.ask("watch", job=job, files=paths, interval_ms=interval_ms)
        self._under_way[job] = "counters"
        return SshChild(self, job, "counters", whole(self.name, answer, "pid"))

    def counters(self, files: Sequence[PurePosixPath]) -> Counters:
        """Have the agent read files once a second. See `Machine.counters`."""
        return SpooledCounters(self.name, files, lambda: self.watch(list(files)))

    def resume(self, job: str, offset: int = 0) -> SshChild:
        """Return a job that an earlier process of this conductor started, from an offset on."""
        for known in self.jobs():
            if known.get("job") == job:
                program = plain(str(known.get("program")))[:80]
                self._under_way[job] = program
                return SshChild(self, job, program, whole(self.name, known, "pid"), offset)
        raise MachineError(f"{self.name}: conductor {self._conductor} has no job {job} there")

    def jobs(self) -> list[dict[str, Any]]:
        """Return what is known of this conductor's jobs: `job`, `program`, `pid`, `ended`."""
        found = self.ask("jobs").get("jobs")
        return [job for job in found if isinstance(job, dict)] if isinstance(found, list) else []

    def clock(self) -> ClockOffset:
        """Return the offset by the shortest of some round trips."""
        best = ClockOffset(0.0, float("inf"))
        for _ in range(CLOCK_PROBES):
            sent = time.time_ns()
            began = time.perf_counter_ns()
            there = whole(self.name, self.ask("clock"), "clock_ns")
            took_ns = time.perf_counter_ns() - began
            if took_ns / 2e9 < best.error_s:
                best = ClockOffset((there - sent - took_ns / 2) / 1e9, took_ns / 2e9)
        return best

    def cached_bytes(self, paths: Sequence[PurePosixPath]) -> tuple[int, int]:
        """Return the bytes of files, and those of them in memory. See `Machine.cached_bytes`."""
        if not paths:
            return 0, 0
        found = self._pages("pages", paths)
        counts = [(one.get("size_bytes"), one.get("resident_bytes")) for one in found]
        sizes = [size for size, _ in counts if isinstance(size, int)]
        cached = [there for _, there in counts if isinstance(there, int)]
        if len(sizes) != len(paths) or len(cached) != len(paths):
            raise self.distrust("it does not say what its page cache holds of each file")
        return sum(sizes), sum(cached)

    def drop_pages(self, paths: Sequence[PurePosixPath]) -> None:
        """Write files back and let go of their pages."""
        self._pages("drop-pages", paths)

    def _pages(self, operation: str, paths: Sequence[PurePosixPath]) -> list[dict[str, Any]]:
        with Wait(f"{self.name}: {len(paths)} files: {operation}", PAGES_S):
            answer = self.ask(operation, seconds=PAGES_S, paths=[str(path) for path in paths])
        found = answer.get("paths")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def read_ahead_kib(self, device: PurePosixPath, set_kib: int | None = None) -> int:
        """Return the read-ahead of a block device, after it was set if so asked."""
        return whole(
            self.name, self.ask("read-ahead", device=str(device), set_kib=set_kib), "read_ahead_kib"
        )

    def disks(self) -> list[dict[str, Any]]:
        """Return the disks with what stands on them and who uses them: docs/contracts/8-node.md."""
        found = self.ask("disks", seconds=2 * ASK_S).get("disks")
        return [disk for disk in found if isinstance(disk, dict)] if isinstance(found, list) else []

    def tail(
        self, job: str, offset: int, *, stream: str = "stdout", wait_ms: int = WAIT_MS
    ) -> tuple[bytes, bool]:
        """Return what a job has said from an offset on, and whether that is the end."""
        most = 256 << 10
        answer = self.ask(
            "tail", job=job, stream=stream, offset=offset, most_bytes=most, wait_ms=wait_ms
        )
        if whole(self.name, answer, "offset") != offset:
            raise self.distrust("it answers with another part of a file than was asked for")
        return decoded(self.name, answer, "data", most), answer.get("ended") is True

    def signal(self, job: str, number: int) -> None:
        """Send a signal to all processes of a job."""
        self.ask("signal", job=job, number=int(number))

    def forget(self, job: str) -> None:
        """Let the host remove what it knows of a job, without waiting for it."""
        self._under_way.pop(job, None)
        link = self._link
        if link is not None:
            with suppress(MachineError, LinkLostError):
                link.send("forget", {"job": job}, ASK_S)

    def ask(self, operation: str, *, seconds: float = ASK_S, **fields: Any) -> dict[str, Any]:
        """Ask the agent; asked again on a new connection when the one was lost meanwhile.

        All that may be asked can be asked twice: a job has its name, a part of a file its offset.
        Raises MachineError: refused, no answer, or the host is gone.
        """
        while True:
            link = self._linked()
            try:
                return link.ask(operation, fields, seconds)
            except LinkLostError as lost:
                self._drop(link, str(lost))

    def send(self, operation: str, **fields: Any) -> Future[dict[str, Any]]:
        """Ask, and return the answer to come; raises LinkLostError, and then nothing is known."""
        link = self._linked()
        try:
            return link.send(operation, fields, ASK_S)
        except LinkLostError as lost:
            self._drop(link, str(lost))
            raise

    def distrust(self, what: str) -> MachineError:
        """Return the error for a host that does what no agent does; it is not asked again."""
        self._gone = f"{self.name}: {what}: it runs something else than our agent, or means harm"
        return MachineError(self._gone)

    def _linked(self) -> Link:
        """Return a living connection; raises MachineError when the host is gone for good."""
        with self._lock:
            if self._gone is not None:
                raise MachineError(self._gone)
            if self._closed.is_set():
                raise MachineError(f"{self.name}: it was closed")
            if self._link is not None and self._link.is_alive:
                return self._link
            if self._heard is None:
                limit_s = CONNECT_S
            else:
                limit_s = max(0.0, self._heard + self._settings.patience_s - time.monotonic())
            with Wait(f"{self.name} is connected", limit_s) as wait:
                return self._connect_in(wait, first=self._heard is None)

    def _connect_in(self, wait: Wait, *, first: bool) -> Link:
        """Return a new connection. At first it is tried once; a host that is away is waited for."""
        pause_s = 0.2
        while True:
            try:
                return self._connect()
            except LinkLostError as lost:
                said = str(lost)
            if first:
                raise MachineError(f"{self.name}: {self._destination.advice(said)}")
            if wait.left_s == 0 or PERMANENT.search(said):
                self._gone = self._farewell(said)
                raise MachineError(self._gone)
            wait.what = said[:300]
            if self._closed.wait(pause_s):
                raise MachineError(f"{self.name}: it was closed")
            pause_s = min(2 * pause_s, 3.0)

    def _connect(self) -> Link:
        if self._link is not None:
            self._link.close()
            self._link = None
        token = new_token()
        agent = _known(self._agent)
        script = agent_script(
            agent, token, self._conductor, self._destination.agent_folder, self._settings.lease_s
        )
        link = Link.start(self._name, self._destination.command(script))
        try:
            self._hello = link.greet(token, agent, GREET_S)
        except BaseException as error:
            link.close()
            if isinstance(error, LinkLostError) and _cannot_run(str(error)):
                raise MachineError(f"{self.name}: {error}; {agent.note}") from error
            raise
        again = self._heard is not None
        self._link, self._heard = link, time.monotonic()
        if again:
            self._told(f"{self.name}: connected again; its jobs went on")
        if self._beats is None:
            self._beats = threading.Thread(
                target=self._beat, name=f"{self.name} beats", daemon=True
            )
            self._beats.start()
        return link

    def _drop(self, link: Link, why: str) -> None:
        with self._lock:
            if self._link is not link or self._gone is not None:
                return
            if link.hostile is not None:
                raise self.distrust(link.hostile)
            self._heard = link.heard
            self._link = None
            link.close()
        if not self._closed.is_set():
            self._told(
                f"{self.name} ({self._destination.text}): the link is lost ({why[:300]}); "
                f"connecting again for {self._settings.patience_s:g} s; {self._work()}"
            )

    def _farewell(self, said: str) -> str:
        return (
            f"{self.name} ({self._destination.text}) is gone: it was not heard of for "
            f"{time.monotonic() - (self._heard or 0.0):.0f} s; {self._work()}; jobs end "
            f"by themselves {self._settings.lease_s} s after they last heard of us. "
            f"{self._destination.advice(said)}"
        )

    def _work(self) -> str:
        names = sorted(set(self._under_way.values()))
        return f"under way there: {', '.join(names[:8]) if names else 'nothing'}"

    def _beat(self) -> None:
        """Keep the lease, and notice a host that says nothing any more."""
        renewed = time.monotonic()
        while not self._closed.wait(min(BEAT_S, self._settings.lease_s / 4)):
            link = self._link
            # Also when nobody else asks: the lease of what is under way there must be kept.
            if link is None or not link.is_alive:
                with suppress(MachineError):
                    self.ask("clock")
                continue
            silent_s = time.monotonic() - link.heard
            with suppress(MachineError):
                if silent_s > SILENCE_S:
                    why = f"it has been silent for {silent_s:.0f} s"
                    link.lose(why)
                    self._drop(link, why)
                    continue
                try:
                    link.send("clock", {}, BEAT_S)
                    if time.monotonic() - renewed > self._settings.lease_s / 20:
                        link.send("beat", {"lease_s": self._settings.lease_s}, BEAT_S)
                        renewed = time.monotonic()
                except LinkLostError as lost:
                    self._drop(link, str(lost))

    def close(self) -> None:
        """End the connection. Jobs that were not ended go on until their lease is over."""
        self._closed.set()
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if self._beats is not None:
            self._beats.join(2 * BEAT_S)

    def __enter__(self) -> SshMachine:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _program(job: str, command: Command) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "job": job,
        "words": list(command.words),
        "stdin": base64.b64encode(command.stdin).decode(),
        "variables": dict(command.variables or {}),
    }
    if command.folder is not None:
        fields["folder"] = str(command.folder)
    return fields


def _known(file: AgentFile) -> Agent:
    """Return the agent by its content."""
    try:
        found = file.path.stat()
        digest = _digest(file.path, found.st_mtime_ns, found.st_size)
    except OSError as error:
        raise MachineError(f"{file.path}: {error.strerror}; run `make setup`") from error
    return Agent(file.path, digest, found.st_size, file.note)


@cache
def _digest(engine: Path, _modified_ns: int, _size: int) -> str:
    digest = hashlib.sha256()
    with engine.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _cannot_run(said: str) -> bool:
    """Return whether the host has the agent and could not run it."""
    words = r"GLIBC|not found|cannot execute|Exec format|error while loading"
    return re.search(words, said) is not None
