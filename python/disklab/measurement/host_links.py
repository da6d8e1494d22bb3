"""Links between hosts that a timetable changes: routes of ours that lead nowhere, and `shaping`.

A host whose way to another is cut has a route of its own to that one address, which drops what is
sent (`blackhole`); so has the other one. They carry a protocol number that is ours, are written
down before, and are removed by `join`, at the end of the trial, and by `disklab clean`.

**Divergence:** what an established connection sends is lost, and nobody is told, as on a network
that is dead. A new connection from a cut end fails at once instead of after its time-out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from disklab.errors import MachineError, Problem
from disklab.hosts.delays import Between, Link
from disklab.machines.protocol import Command, Machine
from disklab.measurement.journal import Change, Journal
from disklab.measurement.routes import add_words
from disklab.measurement.shaping import Shape, Shaper

Pair = frozenset[str]


class HostLinks:
    """The links of hosts that exist, as a timetable changes them. See `breaking.Links`."""

    def __init__(self, ends: Mapping[str, Sequence[Machine]], journal: Journal) -> None:
        """Take the machines of each end: of a node one, of `client` those that make the load."""
        self._ends = ends
        self._journal = journal
        self._links: dict[str, Link] = {}
        self._ways: dict[Pair, Between] = {}
        self._shapers: dict[str, Shaper] = {}
        self._cut: dict[Pair, list[tuple[Change, Machine]]] = {}

    def link(self, name: str) -> Link:
        """Return what is done to a host's link now; how fast it is itself, nobody knows."""
        return self._links.get(name, Link())

    def restore_link(self, name: str) -> None:
        """Let a host's link be as it was at first."""
        self._links.pop(name, None)
        self._follow()

    def change_link(self, name: str, **parts: Any) -> None:
        """Change a host's whole link, by the names of `Link`."""
        self._links[name] = replace(self.link(name), **parts)
        self._follow()

    def change_way(self, one: str, other: str, way: Between) -> None:
        """Change the way between two hosts; `Between()`: as their links are."""
        self._ways[frozenset((one, other))] = way
        self._follow()

    def restore(self) -> None:
        """Join everything."""
        self._links.clear()
        self._ways.clear()
        self._follow()

    def _follow(self) -> None:
        """Make the routes what the links are. Raises MachineError."""
        ends = list(self._ends)
        dead = [name for name, link in self._links.items() if link.cut]
        whole = {frozenset((one, other)) for one in dead for other in ends if one != other}
        wanted = whole | {pair for pair, way in self._ways.items() if way.cut}
        for pair in [one for one in self._cut if one not in wanted]:
            for change, machine in self._cut[pair]:
                if change in self._journal.left():
                    self._journal.undo(change, machine)
            del self._cut[pair]
        for pair in wanted - self._cut.keys():
            one, other = sorted(pair)
            self._cut[pair] = []
            for left in self._ends[one]:
                for right in self._ends[other]:
                    self._drop(pair, left, right)
                    self._drop(pair, right, left)
        self._shape()

    def _shape(self) -> None:
        """Make what each host sends to the others as slow and lossy as the links are."""
        for one, machines in self._ends.items():
            for machine in machines:
                wanted = {
                    far.address: self._shape_of(one, other)
                    for other, fars in self._ends.items()
                    if other != one
                    for far in fars
                }
                if machine.name not in self._shapers and set(wanted.values()) <= {Shape()}:
                    continue
                shaper = self._shapers.setdefault(machine.name, Shaper(machine, self._journal))
                shaper.follow(wanted)

    def _shape_of(self, one: str, other: str) -> Shape:
        """Return what is done to what one end sends to another."""
        way = self._ways.get(frozenset((one, other)), Between())
        shape = Shape(way.extra_ns, way.loss_ppm, way.bytes_per_s)
        for link in (self.link(one), self.link(other)):
            shape = shape.and_also(Shape(link.extra_ns, link.loss_ppm, link.bytes_per_s))
        return shape

    def _drop(self, pair: Pair, machine: Machine, other: Machine) -> None:
        change = self._journal.note(machine.name, "join", other.address)
        self._cut[pair].append((change, machine))
        ended = machine.run(Command(add_words(other.address)))
        if ended.code != 0:
            raise MachineError(
                f"{machine.name}: the way to {other.name} cannot be cut: {ended.said}"
            )


def missing(place: str, machine: Machine, others: Mapping[str, str]) -> Iterator[Problem]:
    """Yield why a host's links cannot be changed. `others`: addresses of the other hosts."""
    if machine.is_here:
        rule = "links of the machine that disklab runs on are not changed: its SSH goes over them"
        yield Problem(
            place, machine.name, rule, "measure on other hosts, or leave those events out"
        )
        return
    ready = machine.run(Command(["sh", "-c", 'command -v ip && [ "$(id -u)" = 0 ]']))
    if ready.code != 0:
        rule = "changing links needs root on the host, and its program ip (iproute2)"
        yield Problem(place, machine.name, rule, "log in as root, or leave those events out")
    for name, address in others.items():
        try:
            ip_address(address)
        except ValueError:  # noqa: PERF203 - few hosts, and all problems are told
            rule = f"the way to {name} is changed by its IP address, which is not known"
            yield Problem(place, address, rule, "write it as private_address in the hosts file")
    said = machine.run(Command(["printenv", "SSH_CONNECTION"])).stdout.decode(errors="replace")
    from_here = said.split()[:1]
    for name in [name for name, address in others.items() if [address] == from_here]:
        rule = f"our SSH comes from {name}, so what is done to that way is done to us"
        yield Problem(place, machine.name, rule, "run disklab, or its jump, on another host")
