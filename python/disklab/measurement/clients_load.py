"""A load that client hosts make: a generator on each of them, read over its link, added up.

What a generator says is spooled on its host, so that a link that is lost for a while loses none of
its seconds. Several begin at one moment: each waits, once it is ready, for a file that says when,
by its own host's clock.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from signal import SIGTERM
from types import TracebackType

from disklab.engine import Account
from disklab.engine.load import (
    END_SECONDS,
    Generator,
    LoadDone,
    LoadEvent,
    LoadJob,
    LoadProgress,
    LoadReady,
    event_of,
)
from disklab.errors import EngineError, MachineError
from disklab.machines.protocol import Child, ClockOffset, Command, Machine
from disklab.measurement import merged_load
from disklab.waiting import Wait

LEAST_LEAD_S = 0.5
"""From the decision to the common moment: a generator looks for it each 5 ms, and a host that is
busy runs our agent late."""
LEAD_ROUND_TRIPS = 4
"""The moment is written to one client after the other, and a round trip may be a slow one."""


@dataclass(frozen=True)
class Client:
    """A host that makes load."""

    name: str
    machine: Machine
    account: Account | None
    """Who its generator runs as; None: who is logged in, who is not root."""
    folder: PurePosixPath
    """Its generator's working directory, by which it is found and ended."""
    ca_file: PurePosixPath | None = None
    """Where it has the certificates that a server's must come from; None: it needs none."""

    def command(self, job: LoadJob) -> Command:
        """Return the program that runs a job there."""
        rights = [] if self.account is None else self.account.arguments()
        if self.ca_file is not None:
            target = job.target.model_copy(update={"ca_file": str(self.ca_file)})
            job = job.model_copy(update={"target": target})
        text = job.model_dump_json(exclude_none=True).encode()
        return Command([*self.machine.engine, "load", *rights], stdin=text, folder=self.folder)


Said = LoadEvent | BaseException


@dataclass
class _Course:
    """What a generator has said that was not passed on yet."""

    ready: LoadReady | None = None
    lines: deque[LoadProgress] = field(default_factory=deque)
    last: LoadProgress | None = None
    done: LoadDone | None = None


class ClientsLoad:
    """A load of several hosts as one `Load`. Raises MachineError when one of them is gone."""

    pid = None
    """Its processes are of other machines."""

    def __init__(self, job: LoadJob, clients: Sequence[Client]) -> None:
        """Start a generator on each client; the job is that of the whole load."""
        assert clients, "somebody makes the load"
        self._clients = list(clients)
        self._said: queue.SimpleQueue[tuple[int, Said]] = queue.SimpleQueue()
        self._children: list[Child] = []
        self.ends: dict[str, LoadDone] = {}
        """By client: its own part of the whole run, once that is over."""
        self.clocks: dict[str, ClockOffset] = {}
        """By client, where several begin together: its clock when the moment was chosen."""
        self._begin_file = f"begin-{secrets.token_hex(4)}" if len(self._clients) > 1 else None
        with ExitStack() as undo:
            for index, client in enumerate(self._clients):
                part = Generator(index=index, count=len(self._clients))
                changed = {"generator": part, "begin_file": self._begin_file}
                own = job.model_copy(update=changed)
                undo.callback(self._forget_moment, client)
                child = client.machine.start(client.command(own))
                self._children.append(undo.enter_context(child))
            self._undo = undo.pop_all()

    def end(self) -> None:
        """End all generators, from any thread. A host that is gone holds up no other."""
        for child in self._children:
            with suppress(MachineError):
                child.signal(SIGTERM)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield what all say together: a second once each of them has said it."""
        for index in range(len(self._children)):
            name = f"load of {self._clients[index].name}"
            threading.Thread(target=self._read, args=(index,), name=name, daemon=True).start()
        courses = [_Course() for _ in self._children]
        is_ready = False
        while any(one.done is None for one in courses):
            index, said = self._said.get()
            course = courses[index]
            match said:
                case LoadReady():
                    course.ready = said
                case LoadProgress():
                    course.lines.append(said)
                case LoadDone():
                    course.done = said
                    self.ends[self._clients[index].name] = said
                case _:
                    raise said
            found = [one.ready for one in courses if one.ready is not None]
            if not is_ready and len(found) == len(courses):
                is_ready = True
                self._begin()
                yield merged_load.ready(found)
            if is_ready:
                yield from _whole_seconds(courses)
        yield merged_load.done([one.done for one in courses if one.done is not None])

    def _begin(self) -> None:
        """Tell all generators, which are ready, when they begin; return when they do."""
        if self._begin_file is None:
            return
        for client in self._clients:
            self.clocks[client.name] = client.machine.clock()
        # An error is half of a round trip.
        trips_s = sum(2 * clock.error_s for clock in self.clocks.values())
        moment_ns = time.time_ns() + int((LEAST_LEAD_S + LEAD_ROUND_TRIPS * trips_s) * 1e9)
        for client in self._clients:
            there_ns = moment_ns + int(self.clocks[client.name].ahead_s * 1e9)
            file = client.folder / self._begin_file
            # Nothing secret, and read by the user that the generator runs as.
            client.machine.files.write(file, str(there_ns).encode(), 0o644)
        left_s = max(0.0, (moment_ns - time.time_ns()) / 1e9)
        with Wait("all clients begin", left_s) as wait:
            wait.pause(left_s)

    def _forget_moment(self, client: Client) -> None:
        # Else a long run would leave a file for each of its loads until its end.
        if self._begin_file is not None and client.name in self.clocks:
            with suppress(MachineError):
                file = str(client.folder / self._begin_file)
                client.machine.run(Command(["rm", "-f", "--", file]))

    def began_after_ms(self) -> dict[str, float]:
        """Return, by client, how long after the first of them it began, by the clocks of `clocks`.

        Empty before all have ended, and where there is one client.
        """
        if self.clocks.keys() != self.ends.keys():
            return {}
        began = {
            name: done.started_unix_ns / 1e6 - self.clocks[name].ahead_s * 1e3
            for name, done in self.ends.items()
        }
        first = min(began.values(), default=0.0)
        return {name: round(at - first, 3) for name, at in began.items()}

    def _read(self, index: int) -> None:
        """Pass on what a generator says, and at last its end or an error."""
        child, name = self._children[index], self._clients[index].name
        try:
            for line in child.lines():
                event = event_of(line)
                self._said.put((index, event))
                if isinstance(event, LoadDone):
                    return
            ended = child.wait(END_SECONDS)
            reason = "it still runs"
            if ended is not None:
                reason = ended.said or f"exit code {ended.code}"
            raise EngineError(f"{name}: the load engine ended without a result: {reason}")
        except BaseException as error:
            # Raised again where the load is read.
            self._said.put((index, error))

    def __enter__(self) -> ClientsLoad:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all generators."""
        self._undo.__exit__(kind, error, trace)


def _whole_seconds(courses: Sequence[_Course]) -> Iterator[LoadProgress]:
    """Yield the intervals that every generator that still runs has told of."""
    while any(one.lines for one in courses) and all(
        one.lines or one.done is not None for one in courses
    ):
        ended = [one.last for one in courses if not one.lines and one.last is not None]
        parts = []
        for one in courses:
            if one.lines:
                one.last = one.lines.popleft()
                parts.append(one.last)
        yield merged_load.progress(parts, ended)
