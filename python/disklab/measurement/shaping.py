"""Slow and lossy ways between hosts that exist: netem for the other hosts' addresses alone.

A host's interface gets a root queueing discipline of ours (`tc`), which sends what goes to an
address through netem and all else past it. It is written down before and removed by `join`, at the
end of the trial, and by `disklab clean`; when disklab dies, a guard on the host removes it once its
lease is over.

**Divergence:** what is shaped is what a host sends, so each way is shaped at both its ends; of a
host with several addresses, the one that the others know. **Unproven:** no kernel with netem was to
be had; the commands are those of tc-netem(8), tc-prio(8) and tc-u32(8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

from disklab.errors import MachineError, Problem
from disklab.machines.protocol import Child, Command, Machine
from disklab.measurement.journal import Change, Journal
from disklab.measurement.qdiscs import HANDLE, ROOT_WORDS, root_of

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
        raise MachineError(f"{machine.name}: no way to {address} is known there: {ended.said}")
    return words[words.index("dev") + 1]


def missing(place: str, machine: Machine, others: Mapping[str, str]) -> Iterator[Problem]:
    """Yield why a host's ways cannot be made slow or lossy. `others`: addresses, by name."""
    script = TRY.format(root=" ".join(ROOT_WORDS), handle=HANDLE)
    tried = machine.run(Command(["unshare", "--net", "sh", "-c", script]))
    if tried.code != 0:
        said = tried.said.partition("\n")[0]
        rule = f"slow_link and lossy take netem, which this host does not have: {said}"
        way_out = (
            "load it there (`modprobe -a sch_netem sch_prio cls_u32`; Debian has them in its "
            "kernel's package, Fedora in kernel-modules-extra), or leave those events out"
        )
        yield Problem(place, machine.name, rule, way_out)
        return
    if len(others) >= MOST_BANDS:
        rule = f"ways to at most {MOST_BANDS - 1} hosts are made slow or lossy"
        yield Problem(place, str(len(others)), rule, "measure on fewer hosts")
    try:
        devices = {device_to(machine, address) for address in others.values()}
        if len(devices) > 1:
            rule = f"its ways to the other hosts go over several interfaces: {sorted(devices)}"
            yield Problem(place, machine.name, rule, "give addresses of one network")
        for device in devices:
            name, handle = root_of(machine, device)
            if handle not in ("0:", HANDLE):
                rule = (
                    f"its interface {device} has a queueing discipline of yours ({name} {handle})"
                )
                way_out = "remove it there, or leave slow_link and lossy out"
                yield Problem(place, machine.name, rule, way_out)
    except MachineError as error:
        yield Problem(place, machine.name, str(error), "write its private_address")
