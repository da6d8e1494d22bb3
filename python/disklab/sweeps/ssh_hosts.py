"""Hosts over SSH that simulate: the engine is sent to each, and runs a batch on each core."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from disklab.engine.process import HUGE_PAGES
from disklab.errors import EngineError, MachineError
from disklab.events import Emit, Warned
from disklab.machines.binary import find_agent
from disklab.machines.protocol import Command
from disklab.machines.ssh import PATIENCE_S, Destination, SshMachine, SshSettings
from disklab.sweeps.batches import Batch, Batches

MOST_SECONDS = 3600.0
"""A batch that takes longer than its largest cell can: the host is taken as lost."""


@contextmanager
def ssh_hosts(
    destinations: Sequence[str | Destination], emit: Emit, patience_s: float = PATIENCE_S
) -> Iterator[SshHosts]:
    """Yield hosts that are connected to. Raises MachineError with all that cannot be reached.

    A host whose link is away for more than `patience_s` is lost.
    """
    agent = find_agent()
    with ExitStack() as stack:
        hosts = [
            SshMachine(destination, agent, SshSettings(patience_s=patience_s))
            for destination in destinations
        ]
        for host in hosts:
            stack.callback(host.close)
        if problems := [why for host in hosts if (why := _why_not(host))]:
            raise MachineError("\n".join(problems))
        yield SshHosts(hosts, emit)


def _why_not(host: SshMachine) -> str | None:
    """Return why a host cannot be reached; None: it can."""
    try:
        _ = host.hello
    except MachineError as error:
        return str(error)
    return None


class SshHosts:
    """Hosts as a `Cluster`."""

    def __init__(self, hosts: Sequence[SshMachine], emit: Emit) -> None:
        self._hosts = hosts
        self._emit = emit

    def simulate(self, jobs: Iterable[dict[str, Any]]) -> Iterator[Any]:
        """See `Cluster.simulate`."""
        sweep = _Sweep(Batches(jobs), self._emit)
        threads = [
            threading.Thread(target=sweep.serve, args=(host,), daemon=True)
            for host in self._hosts
            for _ in range(host.hello["processors"])
        ]
        sweep.begin(len(threads))
        try:
            for thread in threads:
                thread.start()
            yield from sweep.answers()
        finally:
            sweep.end()


class _Sweep:
    """A sweep under way; each core of a host has a thread here, which waits for its batch."""

    def __init__(self, batches: Batches, emit: Emit) -> None:
        self._batches = batches
        self._emit = emit
        self._lock = threading.Condition()
        self._under_way = 0
        self._living = 0
        self._ended = False
        self._gone: dict[int, str] = {}
        self._out: queue.Queue[list[Any] | Warned | BaseException | None] = queue.Queue()

    def begin(self, threads: int) -> None:
        self._living = threads

    def answers(self) -> Iterator[Any]:
        while (found := self._out.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            if isinstance(found, Warned):
                self._emit(found)
            else:
                yield from found

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._lock.notify_all()

    def serve(self, host: SshMachine) -> None:
        """Let one core of a host work until nothing is left, or the host is gone."""
        try:
            while (batch := self._next(host)) is not None:
                self._serve_one(host, batch)
        except BaseException as error:
            self._out.put(error)
            self.end()
        finally:
            with self._lock:
                self._living -= 1
                if self._living == 0:
                    self._out.put(self._last_word())

    def _next(self, host: SshMachine) -> Batch | None:
        with self._lock:
            while not self._ended and id(host) not in self._gone:
                batch = self._batches.take(self._living)
                if batch is not None:
                    self._under_way += 1
                    batch.starts()
                    return batch
                if self._under_way == 0:
                    self._lock.notify_all()
                    return None
                # Another host may be lost yet, and leave what it had.
                self._lock.wait()
        return None

    def _serve_one(self, host: SshMachine, batch: Batch) -> None:
        command = Command(
            [*host.engine, "simulate", "--jobs", "1"], stdin=batch.lines, variables=HUGE_PAGES
        )
        lost, answers = "", None
        try:
            done = host.run(command, MOST_SECONDS)
            if done.code < 0:
                lost = f"{host.name}: the engine was killed by signal {-done.code}"
                self._out.put(Warned(f"{lost}: its {batch.jobs} cells run again"))
            elif done.code != 0:
                said = done.stderr[-2000:].decode("utf-8", "replace").strip()
                raise EngineError(
                    f"disklab-engine simulate ended early on {host.name} ({done.code}): {said}"
                )
            else:
                answers = batch.answers(done.stdout)
        except MachineError as error:
            lost = str(error)
            self._note_gone(host, lost)
        with self._lock:
            self._under_way -= 1
            if answers is None:
                self._batches.again(batch, lost)
            else:
                self._batches.took(batch, time.monotonic() - batch.sent)
            self._lock.notify_all()
        if answers is not None:
            self._out.put(answers)

    def _note_gone(self, host: SshMachine, why: str) -> None:
        with self._lock:
            first = id(host) not in self._gone
            self._gone[id(host)] = why
        if first:
            self._out.put(Warned(f"{why}; what it had runs on the other hosts"))

    def _last_word(self) -> EngineError | None:
        """Return why the sweep is not whole; None: it is."""
        batch = None if self._ended else self._batches.take()
        if batch is None:
            return None
        return EngineError("no host is left: " + "; ".join(self._gone.values()))
