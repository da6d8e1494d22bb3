"""Links between hosts that a timetable changes: routes of ours that lead nowhere, and `shaping`.

A host whose way to another is cut has a route of its own to that one address, which drops what is
sent (`blackhole`); so has the other one. They carry a protocol number that is ours, are written
down before, and are removed by `join`, at the end of the trial, and by `disklab clean`.

**Divergence:** what an established connection sends is lost, and nobody is told, as on a network
that is dead. A new connection from a cut end fails at once instead of after its time-out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from disklab.errors import MachineError, Problem
from disklab.hosts.delays import Between, Link
from disklab.machines.protocol import Child, Command, Machine
from disklab.measurement.journal import HANDLE, ROOT_WORDS, Change, Journal, qdisc_of, route_words

# Slow and lossy ways between hosts that exist: netem for the other hosts' addresses alone.
#
# A host's interface gets a root queueing discipline of ours (`tc`), which sends what goes to an
# address through netem and all else past it. It is written down before and removed by `join`, at
# the end of the trial, and by `disklab clean`; when disklab dies, a guard on the host removes it
# once its lease is over.
#
# **Divergence:** what is shaped is what a host sends, so each way is shaped at both its ends; of
# a host with several addresses, the one that the others know. **Unproven:** no kernel with netem
# was to be had; the commands are those of tc-netem(8), tc-prio(8) and tc-u32(8).

MOST_BANDS = 16
"""**Source:** tc-prio(8), TCQ_PRIO_BANDS. The first one is for all that is not shaped."""
MOST_PACKETS = 100_000
"""That may wait in netem, whose own 1,000 are 1 ms of 10 Gbit/s: beyond them it would lose some."""
GUARD = """trap 'tc qdisc del dev "$1" root handle {handle}; exit 0' TERM
echo ready
while :; do sleep 1 & wait $!; done"""
"""Ends by the signal with which a job is ended whose lease is over, and by ours."""
TRY = (
    "ip link set lo up && tc qdisc add dev lo {root} && "
    "tc qdisc add dev lo parent {handle}2 netem delay 1ms loss 1% rate 8000000bit limit 10 && "
    "tc filter add dev lo parent {handle} protocol ip pref 2 u32 match ip dst 127.0.0.1/32 "
    "flowid {handle}2"
)
"""In a network namespace that ends with it: nothing of the host is changed."""


@dataclass(frozen=True)
class Shape:
    """What is done to what a host sends to another."""

    extra_ns: int = 0
    loss_ppm: int = 0
    bytes_per_s: int | None = None

    def and_also(self, other: Shape) -> Shape:
        """Return both, one after the other."""
        rates = [one for one in (self.bytes_per_s, other.bytes_per_s) if one is not None]
        kept = (1_000_000 - self.loss_ppm) * (1_000_000 - other.loss_ppm) // 1_000_000
        return Shape(self.extra_ns + other.extra_ns, 1_000_000 - kept, min(rates, default=None))

    def words(self) -> list[str]:
        """Return it as netem's arguments."""
        found = ["netem", "limit", str(MOST_PACKETS)]
        if self.extra_ns:
            found += ["delay", f"{self.extra_ns / 1000:.3f}us"]
        if self.loss_ppm:
            found += ["loss", f"{self.loss_ppm / 10_000:.4f}%"]
        if self.bytes_per_s is not None:
            found += ["rate", f"{self.bytes_per_s * 8}bit"]
        return found


@dataclass
class Shaper:
    """What one host sends to each other one, as far as it is shaped."""

    machine: Machine
    journal: Journal
    _device: str = ""
    _change: Change | None = None
    _guard: Child | None = None
    _bands: dict[str, int] = field(default_factory=dict)
    """By address: its band, from 2 on."""
    _now: dict[str, Shape] = field(default_factory=dict)

    def follow(self, wanted: Mapping[str, Shape]) -> None:
        """Make the shapes by address what is wanted. Raises MachineError."""
        shapes = {address: one for address, one in wanted.items() if one != Shape()}
        if not shapes:
            self._end()
            return
        if self._change is None:
            self._begin(next(iter(shapes)))
        for address in [one for one in self._now if one not in shapes]:
            self._tc("qdisc", "del", "dev", self._device, "parent", self._class(address))
            del self._now[address]
        for address, shape in shapes.items():
            if self._now.get(address) != shape:
                self._shape(address, shape)

    def _begin(self, address: str) -> None:
        self._device = device_to(self.machine, address)
        self._change = self.journal.note(self.machine.name, "unshape", self._device)
        script = GUARD.format(handle=HANDLE)
        self._guard = self.machine.start(Command(["sh", "-c", script, "disklab", self._device]))
        # From here on the first of them to end undoes it.
        next(self._guard.lines())
        self._tc("qdisc", "add", "dev", self._device, *ROOT_WORDS)

    def _shape(self, address: str, shape: Shape) -> None:
        is_new = address not in self._bands
        self._bands.setdefault(address, len(self._bands) + 2)
        verb = "change" if address in self._now else "add"
        to = self._class(address)
        self._tc("qdisc", verb, "dev", self._device, "parent", to, *shape.words())
        self._now[address] = shape
        if is_new:
            is_old_ip = ip_address(address).version == 4
            protocol, kind = ("ip", "ip") if is_old_ip else ("ipv6", "ip6")
            where = ["dev", self._device, "parent", HANDLE, "protocol", protocol]
            whole = f"{address}/{32 if is_old_ip else 128}"
            match = ["pref", str(self._bands[address]), "u32", "match", kind, "dst", whole]
            self._tc("filter", "add", *where, *match, "flowid", to)

    def _class(self, address: str) -> str:
        return f"{HANDLE}{self._bands[address]:x}"

    def _end(self) -> None:
        change, self._change = self._change, None
        guard, self._guard = self._guard, None
        self._bands.clear()
        self._now.clear()
        if guard is not None:
            # It removes it as it ends; what it leaves is removed below.
            with suppress(MachineError):
                guard.__exit__(None, None, None)
        if change is not None and change in self.journal.left():
            self.journal.undo(change, self.machine)

    def _tc(self, *words: str) -> None:
        ended = self.machine.run(Command(["tc", *words]))
        if ended.code != 0:
            raise MachineError(f"{self.machine.name}: tc {' '.join(words)}: {ended.said}")


def device_to(machine: Machine, address: str) -> str:
    """Return the interface through which a host reaches another. Raises MachineError."""
    ended = machine.run(Command(["ip", "-o", "route", "get", address]))
    words = ended.stdout.decode(errors="replace").split()
    if ended.code != 0 or "dev" not in words[:-1]:
        raise MachineError(f"{machine.name}: it has no route to {address}: {ended.said}")
    return words[words.index("dev") + 1]


def shaping_lacks(place: str, machine: Machine, others: Mapping[str, str]) -> Iterator[Problem]:
    """Yield why a host's ways cannot be made slow or lossy. `others`: addresses, by name."""
    script = TRY.format(root=" ".join(ROOT_WORDS), handle=HANDLE)
    tried = machine.run(Command(["unshare", "--net", "sh", "-c", script]))
    if tried.code != 0:
        said = tried.said.partition("\n")[0]
        rule = f"slow_link and lossy need netem, which this host does not have: {said}"
        way_out = (
            "load it there (`modprobe -a sch_netem sch_prio cls_u32`; Debian has them in its "
            "kernel's package, Fedora in kernel-modules-extra), or leave those events out"
        )
        yield Problem(place, machine.name, rule, way_out)
        return
    if len(others) >= MOST_BANDS:
        rule = f"ways to at most {MOST_BANDS - 1} hosts can be made slow or lossy"
        yield Problem(place, str(len(others)), rule, "measure on fewer hosts")
    try:
        devices = {device_to(machine, address) for address in others.values()}
        if len(devices) > 1:
            rule = f"its routes to the other hosts use several interfaces: {sorted(devices)}"
            yield Problem(place, machine.name, rule, "give addresses of one network")
        for device in devices:
            name, handle = qdisc_of(machine, device)
            if handle not in ("0:", HANDLE):
                rule = (
                    f"its interface {device} has a queueing discipline of yours ({name} {handle})"
                )
                way_out = "remove it there, or leave slow_link and lossy out"
                yield Problem(place, machine.name, rule, way_out)
    except MachineError as error:
        yield Problem(place, machine.name, str(error), "write its private_address")


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
        ended = machine.run(Command(route_words(other.address)))
        if ended.code != 0:
            raise MachineError(
                f"{machine.name}: the connection to {other.name} cannot be cut: {ended.said}"
            )


def missing(place: str, machine: Machine, others: Mapping[str, str]) -> Iterator[Problem]:
    """Yield why a host's links cannot be changed. `others`: addresses of the other hosts."""
    if machine.is_here:
        rule = "disklab does not change the links of its own machine, because its SSH uses them"
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
            rule = (
                f"to change the connection to {name} its IP address is needed, which is not known"
            )
            yield Problem(place, address, rule, "write it as private_address in the hosts file")
    said = machine.run(Command(["printenv", "SSH_CONNECTION"])).stdout.decode(errors="replace")
    from_here = said.split()[:1]
    for name in [name for name, address in others.items() if [address] == from_here]:
        rule = f"our SSH comes from {name}, so changing that connection would affect us"
        yield Problem(place, machine.name, rule, "run disklab, or its jump, on another host")
