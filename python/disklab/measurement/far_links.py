"""Links between hosts that a timetable cuts: routes of ours that lead nowhere, and nothing else.

A host whose way to another is cut has a route of its own to that one address, which drops what is
sent (`blackhole`); so has the other one. They carry a protocol number that is ours, are written
down before, and are removed by `join`, at the end of the trial, and by `disklab clean`.

**Divergence:** what an established connection sends is lost, and nobody is told, as on a network
that is dead. A new connection from a cut end fails at once instead of after its time-out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

from disklab.errors import MachineError, Problem
from disklab.hosts.delays import Between, Link
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command, Machine
from disklab.measurement.journal import Change, Journal
from disklab.measurement.routes import add_words

Pair = frozenset[str]


class FarLinks:
    """The links of hosts that exist, as far as a timetable changes them. See `breaking.Links`."""

    def __init__(self, ends: Mapping[str, Sequence[Machine]], journal: Journal) -> None:
        """Take the machines of each end: of a node one, of `client` those that make the load."""
        self._ends = ends
        self._journal = journal
        self._links: set[str] = set()
        self._ways: set[Pair] = set()
        self._cut: dict[Pair, list[tuple[Change, Machine]]] = {}

    def link(self, name: str) -> Link:
        """Return what a host's link is like now; how fast it is, nobody knows."""
        return Link(cut=name in self._links)

    def restore_link(self, name: str) -> None:
        """Let a host's link be as it was at first."""
        self.change_link(name, cut=False)

    def change_link(self, name: str, **parts: object) -> None:
        """Cut a host's whole link, or join it."""
        (self._links.add if parts.get("cut") else self._links.discard)(name)
        self._follow()

    def change_way(self, one: str, other: str, way: Between) -> None:
        """Cut the way between two hosts, or join it."""
        (self._ways.add if way.cut else self._ways.discard)(frozenset((one, other)))
        self._follow()

    def restore(self) -> None:
        """Join everything."""
        self._links.clear()
        self._ways.clear()
        self._follow()

    def _follow(self) -> None:
        """Make the routes what the links are. Raises MachineError."""
        ends = list(self._ends)
        whole = {frozenset((one, other)) for one in self._links for other in ends if one != other}
        wanted = whole | self._ways
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

    def _drop(self, pair: Pair, machine: Machine, other: Machine) -> None:
        change = self._journal.note(machine.name, "join", other.address)
        self._cut[pair].append((change, machine))
        ended = machine.run(Command(add_words(other.address)))
        if ended.code != 0:
            said = ended.stderr.decode(errors="replace").strip()
            raise MachineError(f"{machine.name}: the way to {other.name} cannot be cut: {said}")


def missing(place: str, machine: Machine, others: Mapping[str, str]) -> Iterator[Problem]:
    """Yield why a host's links cannot be cut. `others`: addresses of the hosts it would lose."""
    if isinstance(machine, LocalMachine):
        rule = "links of the machine that disklab runs on are not cut: its SSH goes over them"
        yield Problem(place, machine.name, rule, "measure on other hosts, or leave the cut out")
        return
    ready = machine.run(Command(["sh", "-c", 'command -v ip && [ "$(id -u)" = 0 ]']))
    if ready.code != 0:
        rule = "cutting links needs root on the host, and its program ip (iproute2)"
        yield Problem(place, machine.name, rule, "log in as root, or leave the cut out")
    for name, address in others.items():
        try:
            ip_address(address)
        except ValueError:  # noqa: PERF203 - few hosts, and all problems are told
            rule = f"the way to {name} is cut by its IP address, which is not known"
            yield Problem(place, address, rule, "write it as private_address in the hosts file")
    said = machine.run(Command(["printenv", "SSH_CONNECTION"])).stdout.decode(errors="replace")
    from_here = said.split()[:1]
    for name in [name for name, address in others.items() if [address] == from_here]:
        rule = f"our SSH comes from {name}, so the cut would cut us off as well"
        yield Problem(place, machine.name, rule, "run disklab, or its jump, on another host")
