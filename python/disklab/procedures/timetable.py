"""The conductor of a timetable: breaks and mends nodes at their times, beside the load of a pass.

Times are the described system's: under time dilation an event comes as much later here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from disklab.databases import Breakable, Streaming
from disklab.errors import DisklabError, MachineError
from disklab.events import Emit, TimedStep
from disklab.procedures.breaking import Breaker, Ground
from disklab.results import StepTaken
from disklab.results.timetable import WHOLE_AFTER
from disklab.spec import TimedEvent, newcomers
from disklab.spec.timetable import in_order
from disklab.telemetry.sources import CPUS, Machine

THREAD = "timetable"
# While a step is being ended: the process that it starts is killed again and again until the step
# has noticed.
END_POLL_S = 0.5
# A killed process has been waited for; what else a step does ends by the time-outs of its own.
MOST_END_S = 60.0


class _Busy:
    """How much of this machine's processors is used from now on."""

    def __init__(self) -> None:
        self._machine, self._begun = Machine(), time.monotonic()
        deque(self._machine.sample(1.0), maxlen=0)

    def ratio(self) -> float | None:
        """Return the share of its cores until now; None: the kernel does not tell."""
        seen = dict(self._machine.sample(max(time.monotonic() - self._begun, 0.001)))
        cores = seen.get("busy_cores")
        return None if cores is None else round(min(cores / CPUS, 1.0), 3)


@dataclass
class Conductor:
    """Takes the steps of a timetable in a thread of its own. Use it as a context manager.

    Leaving the block in peace waits for a step that is under way, such as a rebuild that takes
    longer than the load. Leaving it by an exception ends the step. A failed step calls `give_up`.
    """

    events: Sequence[TimedEvent]
    ground: Ground
    time_dilation: int
    emit: Emit
    give_up: Callable[[DisklabError], None]
    taken: list[StepTaken] = field(default_factory=list)
    """What was done, in order; times are the described system's, from the start of the load."""
    error: DisklabError | None = None
    _begun: float | None = None
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _breaker: Breaker = field(init=False)

    def __post_init__(self) -> None:
        """Make what does the steps."""
        self._breaker = Breaker(self.ground, self._cancelled)

    def begin(self) -> None:
        """Start the clock: the first operation of the load starts now."""
        if self._thread is not None:
            return
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the step under way, or end it; then raise why a step failed, if one did."""
        if kind is not None:
            self._end()
            return
        if self._thread is not None:
            try:
                self._thread.join()
            except BaseException:
                self._end()
                raise
        if self.error is not None:
            raise self.error

    def _end(self) -> None:
        """Take no further step, and end the one under way."""
        self._cancelled.set()
        thread = self._thread
        deadline = time.monotonic() + MOST_END_S
        while thread is not None and thread.is_alive() and time.monotonic() < deadline:
            node, database = self._breaker.now_on, self.ground.database
            if node is not None and isinstance(database, Breakable):
                with suppress(DisklabError):
                    database.kill_node(node)
            thread.join(END_POLL_S)

    def _run(self) -> None:
        coming = newcomers(self.events)
        for number, event in in_order(self.events):
            wait_s = event.at_s * self.time_dilation - (time.monotonic() - self._started)
            if self._cancelled.wait(max(wait_s, 0.0)):
                return
            try:
                self._take(event, coming.get(number))
            except DisklabError as error:
                if not self._cancelled.is_set():
                    first, _, rest = str(error).partition("\n")
                    at = f"at {event.at_s:g} s: {event.kind} {event.node}"
                    self.error = MachineError(f"{at}: {first}\n{rest}".rstrip())
                    self.give_up(self.error)
                return

    @property
    def _started(self) -> float:
        assert self._begun is not None, "the thread runs when the load has begun"
        return self._begun

    def _time_s(self) -> float:
        return round((time.monotonic() - self._started) / self.time_dilation, 3)

    def _take(self, event: TimedEvent, newcomer: str | None) -> None:
        begun_s, begun_unix = self._time_s(), time.time()
        self.emit(TimedStep(event.kind, event.node, event.at_s, begun_s, None))
        streamed, busy = self._streamed(event), _Busy()
        self._breaker.do(event, newcomer)
        ended_s = self._time_s()
        self.taken.append(
            StepTaken(
                kind=event.kind,
                node=event.node,
                at_s=event.at_s,
                begun_s=begun_s,
                ended_s=ended_s,
                streamed_bytes=_grown(streamed, self._streamed(event)),
                parts_s=self._parts(event, begun_unix),
                cpu_ratio=self._cpu_ratio(event, busy),
            )
        )
        self.emit(TimedStep(event.kind, event.node, event.at_s, begun_s, ended_s))

    def _cpu_ratio(self, event: TimedEvent, busy: _Busy) -> float | None:
        """Return how full this machine was during a step that mends nodes on it."""
        # Hosts that exist are no nodes here, and have processors of their own.
        is_here = bool(self.ground.nodes) and event.kind in WHOLE_AFTER
        return busy.ratio() if is_here else None

    def _parts(self, event: TimedEvent, begun_unix: float) -> dict[str, float]:
        """Return what a step was spent with, in seconds of the described system."""
        database = self.ground.database
        if event.kind not in WHOLE_AFTER or not isinstance(database, Streaming):
            return {}
        spent = database.parts(begun_unix)
        return {part: round(real_s / self.time_dilation, 3) for part, real_s in spent.items()}

    def _streamed(self, event: TimedEvent) -> Mapping[str, int] | None:
        """Return what each node has got by streaming so far; None: the event moves no data."""
        database = self.ground.database
        if event.kind not in WHOLE_AFTER or not isinstance(database, Streaming):
            return None
        return database.streamed()


def _grown(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> int | None:
    """Return what nodes have got between two looks; a node that was started counts from zero."""
    if before is None or after is None:
        return None
    grown = 0
    for name, count in after.items():
        was = before.get(name, 0)
        grown += count - was if count >= was else count
    return grown
