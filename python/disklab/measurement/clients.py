"""The hosts that make the load of a database that is built on hosts.

Each has a folder in /tmp while the run lasts. A generator works in it: that is how one is found and
ended that a killed run has left, before it disturbs the run that goes on.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import PurePosixPath
from signal import SIGTERM
from types import TracebackType
from typing import Any

from disklab.databases import remote_host
from disklab.engine import Account
from disklab.engine.load import (
    END_SECONDS,
    Generator,
    LoadDone,
    LoadEvent,
    LoadJob,
    LoadProgress,
    LoadReady,
    OperationSummary,
    event_of,
)
from disklab.errors import EngineError, MachineError
from disklab.machines import own_folders as folders
from disklab.machines.protocol import Child, ClockOffset, Command, Machine
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.journal import Journal
from disklab.results import Histogram, decode, encode, merged
from disklab.telemetry.judgement import MOST_CLIENT_THREAD
from disklab.waiting import Wait

# A load that client hosts make: a generator on each of them, read over its link, added up.
#
# What a generator says is spooled on its host, so that a link that is lost for a while loses none
# of its seconds. Several begin at one moment: each waits, once it is ready, for a file that says
# when, by its own host's clock.

# Several load generators as one: what they say of a second, and of the whole run.
#
# Counts, rates and histograms add up; no percentile is made of percentiles.


def merged_ready(parts: Sequence[LoadReady]) -> LoadReady:
    """Return that all generators are ready; the process is the first one's."""
    whole = None
    if all(one.operations is not None for one in parts):
        whole = sum(one.operations or 0 for one in parts)
    changed = {"slots": sum(one.slots for one in parts), "operations": whole}
    return parts[0].model_copy(update=changed)


def progress(parts: Sequence[LoadProgress], ended: Sequence[LoadProgress] = ()) -> LoadProgress:
    """Return one interval of all generators.

    `ended`: the last lines of those that have ended; their totals still count.
    """
    if len(parts) == 1 and not ended:
        return parts[0]
    histograms = _histograms(one.histograms for one in parts)
    together = merged(histograms.values())
    p50, p99 = together.percentiles([50.0, 99.0]) if together.total else (None, None)
    late = [one.late_ns_p99 for one in parts if one.late_ns_p99 is not None]
    said = [one.last_error for one in parts if one.last_error is not None]
    every = [*parts, *ended]
    return LoadProgress(
        t_s=max(one.t_s for one in parts),
        operations=sum(one.operations for one in every),
        errors=sum(one.errors for one in every),
        ops_per_s=sum(one.ops_per_s for one in parts),
        p50_ms=None if p50 is None else p50 / 1e6,
        p99_ms=None if p99 is None else p99 / 1e6,
        # The worst generator's: a percentile of all would need their histograms.
        late_ns_p99=max(late, default=None),
        in_flight=sum(one.in_flight for one in parts),
        cpu_ns=sum(one.cpu_ns for one in every),
        last_error=said[-1] if said else None,
        histograms={kind: encode(one) for kind, one in histograms.items()},
    )


def merged_done(parts: Sequence[LoadDone]) -> LoadDone:
    """Return the whole run of all generators. It lasts until the last operation of any of them."""
    if len(parts) == 1:
        return parts[0]
    elapsed_s = max(one.elapsed_s for one in parts)
    response = _histograms(one.response for one in parts)
    lateness = [one.lateness for one in parts if one.lateness is not None]
    kinds = dict.fromkeys(kind for one in parts for kind in one.operations)
    operations = {
        kind: _summary(
            [one.operations[kind] for one in parts if kind in one.operations],
            response.get(kind),
            elapsed_s,
        )
        for kind in kinds
    }
    errors: dict[str, int] = {}
    for one in parts:
        for kind, count in one.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    said = [one.last_error for one in parts if one.last_error is not None]
    return LoadDone(
        elapsed_s=elapsed_s,
        ops_per_s=sum(one.count for one in operations.values()) / elapsed_s if elapsed_s else 0.0,
        operations=operations,
        response={kind: encode(one) for kind, one in response.items()},
        service={
            kind: encode(one) for kind, one in _histograms(one.service for one in parts).items()
        },
        lateness=encode(merged(map(decode, lateness))) if lateness else None,
        unsent=sum(one.unsent for one in parts),
        abandoned=sum(one.abandoned for one in parts),
        errors=errors,
        last_error=said[-1] if said else None,
        wrong_rows=sum(one.wrong_rows for one in parts),
        missing_rows=sum(one.missing_rows for one in parts),
        cpu_ns=sum(one.cpu_ns for one in parts),
        started_unix_ns=min(one.started_unix_ns for one in parts),
        interrupted=any(one.interrupted for one in parts),
    )


def _histograms(parts: Iterable[Mapping[str, str]]) -> dict[str, Histogram]:
    """Return the sums of histograms by kind of operation."""
    found: dict[str, list[str]] = {}
    for one in parts:
        for kind, text in one.items():
            found.setdefault(kind, []).append(text)
    return {kind: merged(map(decode, texts)) for kind, texts in found.items()}


def _summary(
    parts: Sequence[OperationSummary], response: Histogram | None, elapsed_s: float
) -> OperationSummary:
    count = sum(one.count for one in parts)
    told: dict[str, float | None] = dict.fromkeys(("mean", "p50", "p95", "p99", "p99.9", "max"))
    if response is not None and response.total:
        told |= response.summary_ms()
    return OperationSummary.model_validate(
        {
            "count": count,
            "failed": sum(one.failed for one in parts),
            "ops_per_s": count / elapsed_s if elapsed_s else 0.0,
            **{f"{name}_ms": value for name, value in told.items()},
        }
    )


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
                yield merged_ready(found)
            if is_ready:
                yield from _whole_seconds(courses)
        yield merged_done([one.done for one in courses if one.done is not None])

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
        """End all generators; a host that is gone hides no error of the body."""
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
        yield progress(parts, ended)


PARENT = PurePosixPath("/tmp")  # noqa: S108 - a new name in it, made by mkdir alone
AUTHORITIES = "authorities.pem"
USERS = (*remote_host.USERS, "nobody")
"""Who a generator runs as for root: it reads and writes no file."""
MOST_AHEAD_MS = 5.0
"""An open loop's arrivals are merged by the clocks of those that make them."""

MOST_APART_MS = 50.0
"""A twentieth of the second that the course is told in; on hosts that rest it is a millisecond."""


def names_of(hosts: Hosts) -> list[str]:
    """Return the hosts that make load, in the order of the file."""
    return [name for name, host in hosts.file.hosts.items() if host.role == "client"]


def make(
    hosts: Hosts,
    machines: Mapping[str, Machine],
    journal: Journal,
    authorities: bytes | None = None,
) -> list[Client]:
    """Return the hosts that make load, each with a new folder, which is written down before.

    `authorities`: certificates (PEM) that it gets, for a server that is known by them.
    """
    made = []
    for name in names_of(hosts):
        machine = machines[name]
        account = remote_host.account(machine, USERS)
        folder_name, token = folders.new_name("load")
        folder = PARENT / folder_name
        journal.note(name, "end_load", str(folder), before=token)
        folders.make(machine, folder, token)
        known = None
        if authorities is not None:
            known = folder / AUTHORITIES
            # Public, and read by the user that the generator runs as.
            machine.files.write(known, authorities, 0o644)
        made.append(Client(name, machine, account, folder, known))
    return made


def addresses(clients: Sequence[Client], server: Machine) -> Iterator[str]:
    """Yield the IP addresses from which clients reach a server. Raises MachineError for none."""
    for client in clients:
        told = client.machine.address
        try:
            yield str(ip_address(told))
        except ValueError:
            found = server.run(Command(["getent", "ahosts", told])).stdout.decode(errors="replace")
            known = {line.split()[0] for line in found.splitlines() if line.split()}
            if not known:
                raise MachineError(
                    f"{client.name}: {server.name} does not know its address {told}: write its IP "
                    "address as private_address in the hosts file"
                ) from None
            yield from sorted(known)


def seen(
    clients: Sequence[Client], ends: Mapping[str, LoadDone], began_after_ms: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return for each client its part of the last run and how far its clock is from ours.

    `began_after_ms`: how long after the first client each began, where there are several.
    """
    found = []
    for client in clients:
        told: dict[str, Any] = {"host": client.name}
        # A host that is gone is named by the failure already.
        with suppress(MachineError):
            told["clock"] = in_ms(client.machine.clock())
        done = ends.get(client.name)
        if done is not None:
            told["operations"] = sum(one.count for one in done.operations.values())
            told["cores"] = round(done.cpu_ns / 1e9 / done.elapsed_s, 3) if done.elapsed_s else 0.0
        if client.name in began_after_ms:
            told["began_after_ms"] = began_after_ms[client.name]
        found.append(told)
    return found


def in_ms(clock: ClockOffset) -> dict[str, float]:
    """Return a clock's offset as results have it."""
    return {
        "ahead_ms": round(clock.ahead_s * 1e3, 3),
        "error_ms": round(clock.error_s * 1e3, 3),
    }


def judged(told: Sequence[Mapping[str, Any]], *, is_open: bool) -> tuple[list[str], list[str]]:
    """Return why a result is invalid, and what it must be doubted for, of `seen`."""
    invalid: list[str] = []
    doubts = [*_apart(told)]
    for one in told:
        cores = one.get("cores", 0.0)
        if cores > MOST_CLIENT_THREAD:
            invalid.append(
                f"the client was the limit: {one['host']} used {cores:.2f} cores of its one thread "
                f"(more than {MOST_CLIENT_THREAD:.0%} means that operations wait for the client); "
                "add client hosts"
            )
        clock = one.get("clock")
        if clock is None or not is_open:
            continue
        ahead, error = abs(clock["ahead_ms"]), clock["error_ms"]
        if ahead - error > MOST_AHEAD_MS:
            invalid.append(
                f"the clock of {one['host']} is {ahead:.1f} ms off this machine's (known to "
                f"{error:.1f} ms), and an open loop's may be {MOST_AHEAD_MS:g} ms: set it by NTP"
            )
        elif ahead + error > MOST_AHEAD_MS:
            doubts.append(
                f"the clock of {one['host']} is known to {error:.1f} ms only: whether it is within "
                f"the {MOST_AHEAD_MS:g} ms of an open loop cannot be told over this link"
            )
    return invalid, doubts


def _apart(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield that generators did not begin together, as far as their clocks can tell."""
    began = [one for one in told if "began_after_ms" in one]
    if len(began) < 2:
        return
    first = min(began, key=lambda one: one["began_after_ms"])
    last = max(began, key=lambda one: one["began_after_ms"])
    apart_ms = last["began_after_ms"] - first["began_after_ms"]
    error_ms = sum(one.get("clock", {}).get("error_ms", 0.0) for one in (first, last))
    if apart_ms - error_ms > MOST_APART_MS:
        yield (
            f"the load of {last['host']} began {apart_ms:.0f} ms after that of {first['host']}: "
            "their seconds are added up as if they were the same ones"
        )
