"""What the events of a timetable do: to databases, disks, hosts in namespaces and their links."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from disklab.databases import Breakable, Database, Growing, Movable, Promoting
from disklab.hosts.delays import Between, Link
from disklab.hosts.filesystem import MOUNT_OPTIONS
from disklab.hosts.namespaces import EmulatedHosts
from disklab.hosts.protocol import Node
from disklab.spec import Cluster, TimedEvent
from disklab.spec.timetable import (
    CLIENT,
    DISK_KINDS,
    LINK_KINDS,
    NEW_HOST_KINDS,
    nodes_of_zone,
)

SLOW_PERMILLE = 10_000
"""`slow`: service times are ten times as long."""
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
    data_device: str
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
            if event.kind in NEW_HOST_KINDS:
                assert newcomer is not None, "each of them has one"
                self._bring(event, name, newcomer)
            elif event.kind in DISK_KINDS:
                self._touch_disk(event.kind, self.ground.nodes[name])
            elif event.kind == "move":
                self._move(event, name)
            else:
                self._ask_database(event.kind, name)
        finally:
            self.now_on = None

    def _touch_disk(self, kind: str, node: Node) -> None:
        device = self.ground.data_device
        match kind:
            case "slow":
                node.break_disk(device, {"kind": "slow", "permille": SLOW_PERMILLE, "disk": None})
            case "stall":
                node.break_disk(device, {"kind": "stall", "for_ns": None})
            case "mend":
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
        for name in names:
            with self._out_of_its_host(name):
                self.ground.nodes[name].lose()

    def _move(self, event: TimedEvent, name: str) -> None:
        database, host = self.ground.database, event.host
        vm = None if host is None else host.vm
        assert host is not None, "checked by the spec"
        assert vm is not None, "checked by the spec"
        assert isinstance(database, Movable), "the spec refuses what others cannot do"
        database.leave_disks(name)
        with self._out_of_its_host(name):
            self.ground.nodes[name].move(vm, host.caching)
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
