"""The conductor of a timetable: breaks and mends nodes at their times, beside the load of a pass.

Times are the described system's: under time dilation an event comes as much later here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from disklab.databases import Breakable, Database, Growing
from disklab.errors import DisklabError, MachineError
from disklab.events import Emit, TimedStep
from disklab.hosts.protocol import Node
from disklab.results import StepTaken
from disklab.spec import TimedEvent, newcomers
from disklab.spec.timetable import DISK_KINDS, NEW_HOST_KINDS, in_order

THREAD = "timetable"
# While a step is being ended: the process that it starts is killed again and again until the step
# has noticed.
END_POLL_S = 0.5
# A killed process has been waited for; what else a step does ends by the time-outs of its own.
MOST_END_S = 60.0
SLOW_PERMILLE = 10_000
"""`slow`: service times are ten times as long."""


@dataclass
class Conductor:
    """Takes the steps of a timetable in a thread of its own. Use it as a context manager.

    Leaving the block in peace waits for a step that is under way, such as a rebuild that takes
    longer than the load. Leaving it by an exception ends the step. A failed step calls `give_up`.
    """

    events: Sequence[TimedEvent]
    nodes: Mapping[str, Node]
    """By name, those that come later as well (`newcomers`)."""
    database: Database
    data_device: str
    time_dilation: int
    emit: Emit
    give_up: Callable[[DisklabError], None]
    taken: list[StepTaken] = field(default_factory=list)
    """What was done, in order; times are the described system's, from the start of the load."""
    error: DisklabError | None = None
    _begun: float | None = None
    _moved: dict[str, str] = field(default_factory=dict)
    """Where nodes that were migrated are now."""
    _now_on: str | None = None
    """The node of the step that is under way."""
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

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
            node = self._now_on
            if node is not None and isinstance(self.database, Breakable):
                with suppress(DisklabError):
                    self.database.kill_node(node)
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
        begun_s = self._time_s()
        self._now_on = newcomer or self._place(event.node)
        self.emit(TimedStep(event.kind, event.node, event.at_s, begun_s, None))
        try:
            self._do(event, newcomer)
        finally:
            self._now_on = None
        ended_s = self._time_s()
        self.taken.append(
            StepTaken(
                kind=event.kind,
                node=event.node,
                at_s=event.at_s,
                begun_s=begun_s,
                ended_s=ended_s,
            )
        )
        self.emit(TimedStep(event.kind, event.node, event.at_s, begun_s, ended_s))

    def _place(self, name: str) -> str:
        """Return where a node of the file is by now."""
        return self._moved.get(name, name)

    def _do(self, event: TimedEvent, newcomer: str | None) -> None:
        name = self._place(event.node)
        if event.kind in NEW_HOST_KINDS:
            assert newcomer is not None, "each of them has one"
            self._bring(event, name, newcomer)
        elif event.kind in DISK_KINDS:
            self._touch_disk(event.kind, self.nodes[name])
        else:
            self._ask_database(event.kind, name)

    def _touch_disk(self, kind: str, node: Node) -> None:
        match kind:
            case "slow":
                fault = {"kind": "slow", "permille": SLOW_PERMILLE, "disk": None}
                node.break_disk(self.data_device, fault)
            case "stall":
                node.break_disk(self.data_device, {"kind": "stall", "for_ns": None})
            case "mend":
                node.break_disk(self.data_device, {"kind": "recover"})
            case "credits":
                node.set_credits(0.0)

    def _bring(self, event: TimedEvent, name: str, newcomer: str) -> None:
        database = self.database
        assert isinstance(database, Growing), "the spec refuses what others cannot do"
        if event.kind == "add":
            database.add_node(newcomer)
            return
        database.add_node(newcomer, near=name)
        if self._cancelled.is_set():
            return
        self._now_on = name
        database.decommission_node(name)
        self._moved[event.node] = newcomer

    def _ask_database(self, kind: str, name: str) -> None:
        database = self.database
        if kind in ("decommission", "repair"):
            assert isinstance(database, Growing), "the spec refuses what others cannot do"
            ask = database.repair_node if kind == "repair" else database.decommission_node
            ask(name)
            return
        assert isinstance(database, Breakable), "the spec refuses what others cannot do"
        match kind:
            case "kill":
                database.kill_node(name)
            case "lose":
                database.kill_node(name)
                self.nodes[name].lose()
            case "start":
                database.start_node(name)
            case "restart":
                database.restart_node(name)
            case "replace":
                database.replace_node(name)
