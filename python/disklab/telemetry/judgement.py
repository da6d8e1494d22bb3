"""Whether a measurement says something about the disks, or about disklab and this machine.

The client is proved not to be the limit; a run in which it was is marked invalid, with the reason.
What operations waited for that the described system does not have, a late emulator among it, is
judged for each figure by itself: see `spoiled.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from disklab.engine.messages import View
from disklab.errors import DisklabError
from disklab.results.timetable import FULL_MACHINE_RATIO
from disklab.telemetry import gaps
from disklab.telemetry.gaps import METRIC, SUSPENDED, Gaps, Pulse
from disklab.telemetry.sources import CPUS, Source
from disklab.telemetry.spoiled import Wait

# Asks every source once a second, each on a thread of its own: a slow one delays no other.

INTERVAL_S = 1.0
# One that gave no answer is asked again sooner: a short pass would else be over by then.
AWAY_S = 0.1
PEEK_S = 0.1
# Ending waits for a source that is being asked; a database's answer may take this long.
END_SECONDS = 25.0
LEAST_S = 1e-6
OWN = "telemetry"

Sink = Callable[[str, float, str, str, float], None]
"""Takes phase, t_s (since the phase began), source, metric, value: `TelemetryWriter.add`."""


@dataclass
class Course:
    """One metric over one phase, without its single values."""

    count: int = 0
    sum: float = 0.0
    """Of all values: for metrics that are growths, such as dropped messages."""
    seconds: float = 0.0
    weighted: float = 0.0
    """Of all values times the length of their intervals."""
    most: float = float("-inf")
    last: float = 0.0

    @property
    def mean(self) -> float:
        """The mean over time: the last interval of a phase is shorter than the others."""
        return self.weighted / self.seconds

    def add(self, value: float, elapsed_s: float) -> None:
        """Add the value of an interval."""
        # What is no rate is seen before the first interval too.
        weight = max(elapsed_s, LEAST_S)
        self.count += 1
        self.seconds += weight
        self.sum += value
        self.weighted += value * weight
        self.most = max(self.most, value)
        self.last = value


@dataclass(frozen=True)
class Phase:
    """What is going on, since when, and how slowly."""

    name: str
    began: float
    """By the monotonic clock."""
    slow: int = 1
    """Seconds of this machine for each second of what is watched, in whose time the rows are."""


class Sampler:
    """Watches while it is entered, as a context manager.

    A source that fails is told to `on_failure`, on its own thread, within a second, and is asked
    again: a database that a condition restarts is away for a while, and one that dies stays away.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        sink: Sink,
        on_failure: Callable[[DisklabError], None] = lambda _: None,
    ) -> None:
        self.failures: dict[tuple[str, str], DisklabError] = {}
        """By phase and source: why nothing was seen for at least one interval, at first."""
        self._failing: dict[str, Phase] = {}
        self._sink = sink
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._phase = Phase("build", time.monotonic())
        self._lengths: dict[str, float] = {}
        self._pulse = Pulse(partial(self._saw_gap, METRIC), partial(self._saw_gap, SUSPENDED))
        self._ended = False
        self._courses: dict[tuple[str, str, str], Course] = {}
        self._threads = [
            threading.Thread(target=self._watch, args=(source,), name=source.name, daemon=True)
            for source in sources
        ]

    def __enter__(self) -> Sampler:
        """Begin to watch."""
        self._pulse.__enter__()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take a last sample of each source and end."""
        with self._changed:
            self._ended = True
            self._count_length()
            self._changed.notify_all()
        self._pulse.__exit__()
        deadline = time.monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def enter(self, phase: str, slow: int = 1) -> None:
        """Begin a phase. What happened until now is still counted for the one before."""
        with self._changed:
            self._count_length()
            self._phase = Phase(phase, time.monotonic(), slow)
            self._changed.notify_all()

    def course(self, phase: str, source: str, metric: str) -> Course | None:
        """Return how a metric went in a phase; None: it was not seen."""
        with self._changed:
            found = self._courses.get((phase, source, metric))
            return None if found is None else replace(found)

    def mean(self, phase: str, source: str, metric: str) -> float | None:
        """Return the mean of a metric over a phase; None: it was not seen."""
        course = self.course(phase, source, metric)
        return None if course is None else course.mean

    def length_s(self, phase: str) -> float:
        """Return how long a phase that is over took, in the time of what is watched."""
        with self._changed:
            return self._lengths.get(phase, 0.0)

    def _count_length(self) -> None:
        phase = self._phase
        took_s = (time.monotonic() - phase.began) / phase.slow
        self._lengths[phase.name] = self._lengths.get(phase.name, 0.0) + took_s

    def _saw_gap(self, metric: str, gap_s: float) -> None:
        """Take a time in which nothing of this process ran, or this machine was suspended."""
        phase = self._phase
        t_s = (time.monotonic() - phase.began) / phase.slow
        self._take(phase.name, t_s, OWN, metric, gap_s / phase.slow, elapsed_s=gap_s)

    def _watch(self, source: Source) -> None:
        phase = self._phase
        last = time.monotonic()
        cpu = time.thread_time()
        # Remembers where the counters stand.
        stands = self._ask(source, phase, 0.0, keep=True)
        ended = False
        while not ended:
            due = last + (INTERVAL_S if stands else AWAY_S)
            self._wait(source, phase, due)
            with self._changed:
                # A phase that began and ended while this source was being asked has its row too.
                ended = self._ended and self._phase is phase
            now = time.monotonic()
            # Counters that were not seen at the interval's start say nothing of it.
            stands = self._ask(source, phase, now - last, keep=stands)
            used, cpu = time.thread_time() - cpu, time.thread_time()
            if now > last:
                t_s = (now - phase.began) / phase.slow
                row = (phase.name, t_s, OWN, f"cores {source.name}", used / (now - last))
                self._take(*row, elapsed_s=now - last)
            last = now
            phase = self._phase

    def _wait(self, source: Source, phase: Phase, due: float) -> None:
        """Wait for a time, or for the end of the phase; look ten times a second where it helps."""
        peek = getattr(source, "peek", None)
        while (left := due - time.monotonic()) > 0:
            with self._changed:
                if self._ended or self._phase is not phase:
                    return
                self._changed.wait(left if peek is None else min(left, PEEK_S))
            if peek is not None:
                peek()

    def _ask(self, source: Source, phase: Phase, elapsed_s: float, *, keep: bool) -> bool:
        """Ask a source once, and `keep` what it says; returns whether it answered."""
        try:
            seen = list(source.sample(elapsed_s / phase.slow, phase.slow))
        except DisklabError as error:
            self._fail(source, phase, error)
            return False
        except (OSError, ValueError, KeyError) as error:
            # A device or a process that has just gone.
            self._fail(source, phase, DisklabError(f"{source.name}: {error}"))
            return False
        with self._changed:
            self._failing.pop(source.name, None)
        t_s = (time.monotonic() - phase.began) / phase.slow
        for metric, value in seen if keep else ():
            self._take(phase.name, t_s, source.name, metric, value, elapsed_s=elapsed_s)
        return True

    def _take(  # noqa: PLR0913 - a row of the long form
        self, phase: str, t_s: float, source: str, metric: str, value: float, *, elapsed_s: float
    ) -> None:
        with self._changed:
            course = self._courses.setdefault((phase, source, metric), Course())
            course.add(value, elapsed_s)
            self._sink(phase, t_s, source, metric, value)

    def _fail(self, source: Source, phase: Phase, error: DisklabError) -> None:
        with self._changed:
            # What was asked before this phase began may be of servers that were being restarted.
            if self._ended or self._phase is not phase:
                return
            self.failures.setdefault((phase.name, source.name), error)
            if self._failing.get(source.name) is phase:
                return
            self._failing[source.name] = phase
        self._on_failure(error)


# A generator has one thread. At 90 % of a core an operation waits, on average, 4.5 of its own
# service times for it (M/D/1: u / 2(1 - u)): that is no longer the database's latency.
MOST_CLIENT_THREAD = 0.9
FULL_MACHINE = FULL_MACHINE_RATIO
# Client and emulator run elsewhere in the full system. When they take a third of a full machine,
# the database has two thirds of what it would have, and its rate would be half as high again.
MOST_TOOL_SHARE = 1 / 3
# Fewer replies say nothing about how late an emulator is.
FEWEST_REPLIES = 20
# While a FLUSH is under way no write gets through FUSE to an emulated disk; a real one takes it.
MOST_FLUSHING = 0.2
# More CPU stolen by the hypervisor than this makes runs differ among themselves.
MOST_STEAL = 0.05


@dataclass
class Judgement:
    """What is wrong with a measurement."""

    invalid: list[str] = field(default_factory=list)
    """Reasons why its figures must not be used."""
    warnings: list[str] = field(default_factory=list)
    """What a reader should know."""
    cpu_ratio: dict[str, float] = field(default_factory=dict)
    """Share of the machine: `client`, `server`, `emulator`, `telemetry`; 0 to 1."""
    machine_was_full: bool = False
    """Whether no CPU was left: then everything took longer than its disks made it."""
    busy_ratio: float = 0.0
    """How much of the machine was used by whomever, 0 to 1."""
    waits: list[Wait] = field(default_factory=list)
    """What operations waited for that the described system does not have."""
    slowed_cores: float = 0.0
    """How much of client's and server's processor time is theirs only because others run there."""
    spoiled: dict[str, str] = field(default_factory=dict)
    """The figures that such waits spoiled, each with how; see `spoiled.marks`."""


def judge(  # noqa: PLR0913 - what was seen by each
    seen: Sampler,
    phase: str,
    volumes: Mapping[str, tuple[View, View]],
    *,
    generators: int = 1,
    cpus: int = CPUS,
    client: Gaps | None = None,
    on_server: bool = False,
) -> Judgement:
    """Judge a phase by what was seen in it and by each volume's view before and after.

    `generators`: how many load processes ran, each with one thread; `client`: when they stood
    still; `on_server`: whether it is described on the server's own machine.
    """
    made = Judgement()
    for role in ("client", "server", "emulator"):
        cores = seen.mean(phase, f"cpu {role}", "cores")
        if cores is not None:
            made.cpu_ratio[role] = cores / cpus
    _judge_client(made, generators, cpus)
    tools = ("emulator",) if on_server else ("client", "emulator")
    _judge_machine(made, seen, phase, cpus, tools)
    made.waits += _waits_for_cpu(made, seen, phase, cpus)
    made.slowed_cores = _slowed(made, cpus)
    for (name, source), error in seen.failures.items():
        if name == phase:
            first = str(error).partition("\n")[0]
            made.warnings.append(f"{source} was not watched all the time ({first})")
    made.invalid += _stood_still(seen, phase, volumes, client or Gaps())
    for volume, (before, after) in volumes.items():
        made.waits += _waits_for_emulator(seen, phase, volume, before, after)
        _judge_flushes(made, seen, phase, volume)
        if after.failure is not None:
            made.invalid.append(f"volume {volume} failed: {after.failure}")
    return made


def _stood_still(seen: Sampler, phase: str, volumes: Iterable[str], client: Gaps) -> Iterator[str]:
    """Yield who stood still in a phase for too long."""
    stops = {gaps.MACHINE: _gaps(seen, phase, OWN), "the client": client}
    stops |= {
        f"the emulator of volume {volume}": _gaps(seen, phase, f"emulator {volume}")
        for volume in volumes
    }
    for who, stop in stops.items():
        if (reason := stop.reason(who, seen.length_s(phase))) is not None:
            yield reason
    asleep = seen.course(phase, OWN, gaps.SUSPENDED)
    if asleep is not None and (reason := gaps.suspended(asleep.sum)) is not None:
        yield reason


def _gaps(seen: Sampler, phase: str, source: str) -> Gaps:
    course = seen.course(phase, source, gaps.METRIC)
    return Gaps() if course is None else Gaps(course.most, course.sum)


def _judge_client(made: Judgement, generators: int, cpus: int) -> None:
    cores = made.cpu_ratio.get("client", 0.0) * cpus
    if cores > MOST_CLIENT_THREAD * generators:
        threads = "its one thread" if generators == 1 else f"{generators} threads"
        made.invalid.append(
            f"the client was the limit: it used {cores:.2f} cores of {threads} "
            f"(more than {MOST_CLIENT_THREAD:.0%} means that operations wait for the client)"
        )


def _judge_machine(
    made: Judgement, seen: Sampler, phase: str, cpus: int, elsewhere: Sequence[str]
) -> None:
    if not made.cpu_ratio:
        # Nothing of the measurement runs here: this machine only conducts it.
        return
    busy = seen.mean(phase, "machine", "busy_cores")
    steal = seen.mean(phase, "machine", "steal_cores")
    if steal is not None and steal / cpus > MOST_STEAL:
        made.warnings.append(
            f"the hypervisor gave {steal / cpus:.0%} of this machine's CPU to others meanwhile"
        )
    made.busy_ratio = (busy or 0.0) / cpus
    if busy is None or busy / cpus < FULL_MACHINE:
        return
    made.machine_was_full = True
    tools = sum(made.cpu_ratio.get(role, 0.0) for role in elsewhere)
    shares = ", ".join(f"{role} {ratio:.0%}" for role, ratio in made.cpu_ratio.items())
    ours_ = f" (of this run: {shares})" if shares else ""
    if tools > MOST_TOOL_SHARE:
        made.invalid.append(
            f"{' and '.join(elsewhere)} took {tools:.0%} of a machine that had no CPU left "
            f"({shares}): on the full system they run elsewhere"
        )
        return
    ours = sum(made.cpu_ratio.values())
    if busy / cpus - ours > ours:
        made.warnings.append(
            f"other programs kept {busy / cpus - ours:.0%} of this machine's {cpus} cores busy, "
            f"and none was free{ours_}: stop them and repeat it"
        )
    else:
        made.warnings.append(
            f"this machine's CPU was the limit, not the disks: {busy / cpus:.0%} of {cpus} cores "
            f"were busy ({shares})"
        )


FEWEST_TURNS = 100
"""Fewer say nothing of how long one waits."""
ONE_THREAD_RATIO = 0.8
"""Of a server's turns. Redis has threads besides for what it does in the background."""


def _is_one_thread(seen: Sampler, phase: str) -> bool:
    """Return whether a server does all operations one after another, in one thread."""
    turns = seen.mean(phase, "cpu server", "turns_per_s") or 0.0
    first = seen.mean(phase, "cpu server", "first_turns_per_s") or 0.0
    return turns > 0 and first >= ONE_THREAD_RATIO * turns


def _waits_for_cpu(made: Judgement, seen: Sampler, phase: str, cpus: int) -> Iterator[Wait]:
    """Yield how long client and server were ready and others had the processors.

    The emulator's waits make its replies late, which is seen by itself.
    """
    stolen = seen.mean(phase, "machine", "steal_cores") or 0.0
    busy = made.busy_ratio * cpus
    ours = sum(made.cpu_ratio.values()) * cpus
    if busy + stolen <= 0:
        return
    # What they waited for each other the described system does too, or it is this machine's limit.
    others = max(busy - ours, 0.0) / busy if busy else 0.0
    # In slow motion turns are counted in seconds of the described system, in which this is too.
    for role in ("client", "server"):
        waiting, turns, held_up_s = (
            seen.mean(phase, f"cpu {role}", name) or 0.0
            for name in ("waiting_cores", "turns_per_s", "held_up_s")
        )
        waiting *= others
        if turns * seen.length_s(phase) >= FEWEST_TURNS:
            yield Wait(
                "for a processor that other programs had",
                waiting,
                held_up_s * others * 1e3,
                blocks=waiting if role == "server" and _is_one_thread(seen, phase) else 0.0,
            )
    if stolen:
        share = stolen * min(ours / busy, 1.0) if busy else 0.0
        yield Wait("for a processor that the hypervisor gave to others", share, 0.0)


SLOWED_BY_OTHERS = 0.5
"""How much longer work takes on a machine that others fill: they use its caches and memory too.
Redis' median took 1.4 to 1.5 times as long beside copies of memory, a compiler and a rehearsal
(docs/busy.md)."""


def _slowed(made: Judgement, cpus: int) -> float:
    """Return the cores of client and server that others' use of caches and memory takes."""
    ours = made.cpu_ratio.get("client", 0.0) + made.cpu_ratio.get("server", 0.0)
    others = max(made.busy_ratio - sum(made.cpu_ratio.values()), 0.0)
    return ours * cpus * others * SLOWED_BY_OTHERS


def _waits_for_emulator(
    seen: Sampler, phase: str, volume: str, before: View, after: View
) -> Iterator[Wait]:
    """Yield how late the replies of an emulated disk were: its backing file, or a processor."""
    replies = after.emulator.replies - before.emulator.replies
    length_s = seen.length_s(phase)
    if replies < FEWEST_REPLIES or not length_s:
        return
    lateness = after.emulator.lateness_ns.since(before.emulator.lateness_ns)
    # Its counters are read at the first pass and after the last; between passes little is asked.
    per_s = lateness.whole_ns / 1e9 / length_s
    # A disk with one I/O under way holds all up that waits for it; one with ten, a tenth of it.
    queue = max(seen.mean(phase, f"disk {volume}", "queue") or 0.0, 1.0)
    blocks = per_s / queue if _is_one_thread(seen, phase) else 0.0
    what = f"for replies of volume {volume} that this machine made late"
    yield Wait(what, per_s, lateness.p99 / 1e6, blocks)


def _judge_flushes(made: Judgement, seen: Sampler, phase: str, volume: str) -> None:
    each_ms = seen.mean(phase, f"disk {volume}", "flush_latency_ms")
    per_s = seen.mean(phase, f"disk {volume}", "flush_iops")
    if each_ms is None or per_s is None:
        return
    ratio = per_s * each_ms / 1e3
    if ratio > MOST_FLUSHING:
        made.warnings.append(
            f"a FLUSH of volume {volume} was under way {ratio:.0%} of the time; meanwhile no "
            "write reaches an emulated disk, although a real one would accept it"
        )
