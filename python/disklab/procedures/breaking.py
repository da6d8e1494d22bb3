"""What the events of a timetable do: to databases, disks, hosts in namespaces and their links."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, Self

from disklab.databases import Breakable, Database, Growing, Movable, Promoting, Streaming
from disklab.errors import DisklabError, MachineError
from disklab.events import Emit, TimedStep
from disklab.hosts.delays import Between, Link
from disklab.hosts.filesystem import MOUNT_OPTIONS
from disklab.hosts.namespaces import EmulatedHosts
from disklab.hosts.protocol import Node
from disklab.results import StepTaken
from disklab.results.timetable import WHOLE_AFTER
from disklab.spec import Cluster, TimedEvent, newcomers
from disklab.spec.timetable import (
    CLIENT,
    DISK_KINDS,
    LINK_KINDS,
    in_order,
    nodes_of_zone,
)
from disklab.telemetry.sources import CPUS, Machine

USUAL_TIMES = 10
"""`slow`: how many times as long service times are where the event does not say it."""
WHOLE_PPM = 1_000_000


class Links(Protocol):
    """Links that events change."""

    def link(self, name: str) -> Link:
        """Return what a host's link is like now."""

    def restore_link(self, name: str) -> None:
        """Let a host's link be as it was at first."""

    def change_link(self, name: str, **parts: object) -> None:
        """Change a host's link from now on, by the names of `Link`."""

    def change_way(self, one: str, other: str, way: Between) -> None:
        """Change the way between two hosts from now on; `Between()`: as their links are."""


@dataclass
class Ground:
    """What a timetable happens to."""

    nodes: Mapping[str, Node]
    """By name, those that come later as well (`newcomers`)."""
    database: Database
    cluster: Cluster
    memory_of: Callable[[str], int] = lambda _: 0
    """What a VM size has, in bytes."""
    called: Mapping[str, str] = field(default_factory=dict)
    """What the database calls nodes: hosts have names of their own."""
    network: EmulatedHosts | None = None
    """The nodes' hosts in namespaces; None: they share this machine's loopback, or exist."""
    links: Links | None = None
    """None: there is no network between the nodes."""


@dataclass
class Breaker:
    """Does what each event says, and knows where the nodes are by then."""

    ground: Ground
    cancelled: threading.Event
    """Set: the event under way is to end, and nothing more is begun."""
    now_on: str | None = None
    """The node of the event that is under way."""
    _moved: dict[str, str] = field(default_factory=dict)
    """Where nodes that were migrated are now."""
    _gone: set[str] = field(default_factory=set)
    """Nodes that have left the cluster."""
    _off: set[str] = field(default_factory=set)
    """Hosts that were lost: their links are dead until the next one takes their place."""
    _cut: set[tuple[str, ...]] = field(default_factory=set)
    """Links that an event has cut, by their ends."""
    _broken: set[tuple[str, str]] = field(default_factory=set)
    """Nodes, and which of their volumes is slow or serves nothing."""
    own: list[tuple[float, float]] = field(default_factory=list)
    """When disklab took hosts and disks away, by the monotonic clock: no time of the database's."""

    def place(self, name: str) -> str:
        """Return where a node of the file is by now."""
        return self._moved.get(name) or self.ground.called.get(name, name)

    def do(self, event: TimedEvent, newcomer: str | None) -> None:
        """Do what an event says; returns when the database's procedure has ended.

        `newcomer`: the node that it brings. Raises DisklabError.
        """
        if event.kind in LINK_KINDS:
            self._change_link(event)
            return
        if event.kind == "lose_zone":
            named = map(self.place, nodes_of_zone(self.ground.cluster, event.node))
            self._lose([name for name in named if name not in self._gone])
            return
        name = self.place(event.node)
        self.now_on = newcomer or name
        try:
            if newcomer is not None:
                self._bring(event, name, newcomer)
            elif event.kind in DISK_KINDS:
                self._touch_disk(event, name)
            elif event.kind == "move":
                self._move(event, name)
            else:
                self._ask_database(event.kind, name)
        finally:
            self.now_on = None

    def mend(self) -> None:
        """Mend all disks: a database that is to end would wait for them."""
        for name, device in list(self._broken):
            # Its host may be gone.
            with suppress(DisklabError):
                self.ground.nodes[name].break_disk(device, {"kind": "recover"})
        self._broken.clear()

    def _touch_disk(self, event: TimedEvent, name: str) -> None:
        node = self.ground.nodes[name]
        device = self.ground.cluster.device_of(event.volume or "data")
        match event.kind:
            case "slow":
                permille = round((event.times or USUAL_TIMES) * 1000)
                node.break_disk(device, {"kind": "slow", "permille": permille, "disk": None})
                self._broken.add((name, device))
            case "stall":
                node.break_disk(device, {"kind": "stall", "for_ns": None})
                self._broken.add((name, device))
            case "mend":
                self._broken.discard((name, device))
                node.break_disk(device, {"kind": "recover"})
            case "credits":
                node.set_credits(0.0)

    def _bring(self, event: TimedEvent, name: str, newcomer: str) -> None:
        database = self.ground.database
        assert isinstance(database, Growing), "the spec refuses what others cannot do"
        if event.kind == "add":
            database.add_node(newcomer)
            return
        database.add_node(newcomer, near=name)
        if self.cancelled.is_set():
            return
        self.now_on = name
        database.decommission_node(name)
        self._moved[event.node] = newcomer

    def _ask_database(self, kind: str, name: str) -> None:
        database = self.ground.database
        if kind in ("decommission", "repair"):
            assert isinstance(database, Growing), "the spec refuses what others cannot do"
            if kind == "repair":
                database.repair_node(name)
                return
            database.decommission_node(name)
            self._gone.add(name)
            return
        if kind == "promote":
            assert isinstance(database, Promoting), "the spec refuses what others cannot do"
            database.promote_node(name)
            return
        assert isinstance(database, Breakable), "the spec refuses what others cannot do"
        match kind:
            case "kill":
                database.kill_node(name)
            case "lose":
                self._lose([name])
            case "start":
                self._switch_on(name)
                database.start_node(name)
            case "restart":
                database.restart_node(name)
            case "replace":
                self._switch_on(name)
                database.replace_node(name)

    def _lose(self, names: list[str]) -> None:
        """Lose hosts, all at once: nobody hears of it from them, then their disks are gone."""
        database, network = self.ground.database, self.ground.network
        assert isinstance(database, Breakable), "the spec refuses what others cannot do"
        for name in names:
            if network is not None:
                # As in a cloud: no connection is closed, its peers only hear no more of it.
                self._off.add(name)
                network.change_link(name, cut=True)
        for name in names:
            database.kill_node(name)
        with self._ours():
            for name in names:
                with self._out_of_its_host(name):
                    self.ground.nodes[name].lose()

    def _move(self, event: TimedEvent, name: str) -> None:
        database, host = self.ground.database, event.host
        vm, caching = (host.vm, host.caching) if host else (None, None)
        vm = vm or self.ground.cluster.vm
        assert isinstance(database, Movable), "the spec refuses what others cannot do"
        database.leave_disks(name)
        with self._ours(), self._out_of_its_host(name):
            self.ground.nodes[name].move(vm, caching)
        self._switch_on(name)
        database.start_on_moved_disks(name, self.ground.memory_of(vm))

    def _switch_on(self, name: str) -> None:
        """Let the next host take the place of a lost one."""
        network = self.ground.network
        if network is None or name not in self._off:
            return
        self._off.remove(name)
        if (name,) not in self._cut:
            network.change_link(name, cut=False)

    @contextmanager
    def _ours(self) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.own.append((begun, time.monotonic()))

    @contextmanager
    def _out_of_its_host(self, name: str) -> Iterator[None]:
        """Have the volumes of a node unmounted in its host inside the block."""
        network = self.ground.network
        if network is None:
            yield
            return
        node, machine = self.ground.nodes[name], network[name]
        for folder in node.volumes.values():
            machine.unmount(str(folder))
        yield
        for volume in node.attached.values():
            assert volume.filesystem is not None, "volumes of nodes have file systems"
            options = MOUNT_OPTIONS.get(volume.filesystem, "noatime")
            machine.mount(volume.device, str(volume.mount_point), volume.filesystem, options)

    def _change_link(self, event: TimedEvent) -> None:
        network = self.ground.links
        assert network is not None, "the spec refuses links without a network"
        ends = tuple(sorted(map(self.place, event.ends)))
        change = self._cut.add if event.kind == "cut" else self._cut.discard
        change(ends)
        # Before it is cut: whoever looks at a node must not wait for an answer that never comes.
        self._tell_reach(ends)
        extra_ns = round((event.round_trip_s or 0.0) * 1e9 / 2)
        loss_ppm = round((event.loss_ratio or 0.0) * WHOLE_PPM)
        rate, cut = event.bandwidth_bytes_per_s, event.kind == "cut"
        if len(ends) == 2:
            way = Between(bytes_per_s=rate, extra_ns=extra_ns, loss_ppm=loss_ppm, cut=cut)
            network.change_way(*ends, way)
            return
        (end,) = ends
        network.restore_link(end)
        own = network.link(end).bytes_per_s
        narrow = rate if own is None or rate is None else min(own, rate)
        network.change_link(
            end,
            bytes_per_s=own if narrow is None else narrow,
            extra_ns=extra_ns,
            loss_ppm=loss_ppm,
            cut=cut or end in self._off,
        )

    def _tell_reach(self, ends: tuple[str, ...]) -> None:
        """Tell the database of those ends that this machine, in the client's network, reaches."""
        database = self.ground.database
        if not isinstance(database, Breakable):
            return
        for end in ends:
            ways = {(end,), tuple(sorted((end, CLIENT)))}
            if end != CLIENT and (ways & {ends}):
                database.set_reachable(end, reachable=not ways & self._cut)


# The conductor of a timetable: breaks and mends nodes at their times, beside the load of a pass.
#
# Times are the described system's: under time dilation an event comes as much later here.

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
    _started: float = 0.0
    """When the load began, once the thread runs."""
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
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Wait for the step under way, or end it; then raise why a step failed, if one did."""
        try:
            if kind is not None:
                self._end()
                return
            if self._thread is not None:
                try:
                    self._thread.join()
                except BaseException:
                    self._end()
                    raise
        finally:
            self._breaker.mend()
        if self.error is not None:
            raise self.error

    def _end(self) -> None:
        """Take no further step, and end the one under way."""
        self._cancelled.set()
        # What waits for a disk cannot be killed.
        self._breaker.mend()
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

    def own_s(self) -> list[tuple[float, float]]:
        """Return when disklab took hosts and disks away, in times as those of the steps."""
        return [(self._time_s(begun), self._time_s(ended)) for begun, ended in self._breaker.own]

    def _time_s(self, moment: float | None = None) -> float:
        now = time.monotonic() if moment is None else moment
        return round((now - self._started) / self.time_dilation, 3)

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
