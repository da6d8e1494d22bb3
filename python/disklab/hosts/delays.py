"""The network between emulated hosts: the engine's switch each frame as late as in a cloud."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import PurePosixPath

from disklab.engine import find_engine
from disklab.errors import MachineError, Problem, UserError
from disklab.machines.netns import NamespaceMachine
from disklab.machines.protocol import Command

WHOLE_PPM = 1_000_000
# To learn what the machine adds; within a zone a tenth of a second in all.
PINGS = 200
QUICK_PERCENT = 5


@dataclass(frozen=True)
class RoundTrip:
    """How long a round trip takes: points of its quantile function, straight lines between them."""

    points: tuple[tuple[int, int], ...]
    """Parts per million of all round trips, and the time in ns that they stay within; from 0 on."""

    @classmethod
    def of_percentiles(cls, percentiles_us: Mapping[float, float]) -> RoundTrip:
        """Return one from microseconds by percent.

        Raises UserError when they do not rise. Below the first percentile and above the last one it
        is flat.
        """
        points = sorted((round(part * 1e4), round(us * 1e3)) for part, us in percentiles_us.items())
        rising = all(low[1] <= high[1] for low, high in pairwise(points))
        if not points or not rising or points[0][0] < 0 or points[-1][0] > WHOLE_PPM:
            rule = "microseconds by percent from 0 to 100, rising"
            shown = str(dict(percentiles_us))
            raise UserError(Problem("round trip", shown, rule, "order them, such as {50: 300}"))
        if points[0][0] > 0:
            points.insert(0, (0, points[0][1]))
        if points[-1][0] < WHOLE_PPM:
            points.append((WHOLE_PPM, points[-1][1]))
        return cls(tuple(points))

    def at(self, percent: float) -> float:
        """Return the round trip in ns at a percentile."""
        part = percent * 1e4
        for (left, low), (right, high) in pairwise(self.points):
            if part <= right:
                return low + (high - low) * (part - left) / (right - left)
        return self.points[-1][1]


@dataclass(frozen=True)
class Link:
    """What one host's link is like."""

    zone: str = ""
    bytes_per_s: int | None = None
    """What the VM may send; None: as fast as this machine."""
    extra_ns: int = 0
    """Added to each frame's way out, and in."""
    loss_ppm: int = 0
    """The share of its frames, out and in, that is lost."""
    cut: bool = False
    """Nothing comes through, and nobody is told."""


@dataclass(frozen=True)
class Between:
    """What the way between two hosts is like, beside their links."""

    bytes_per_s: int | None = None
    """What each of the two may send to the other; None: what its link allows."""
    extra_ns: int = 0
    """Added to each frame's way."""
    loss_ppm: int = 0
    """The share of frames that is lost."""
    cut: bool = False
    """Nothing comes through, and nobody is told; both still reach the others."""


@dataclass(frozen=True)
class NetworkWish:
    """What the network between the hosts is to be."""

    distances: Mapping[tuple[str, str], RoundTrip] = field(default_factory=dict)
    """Round trips by zones; zones that are not here have no distance."""
    seed: int = 1
    dilation: int = 1
    own_ns: int | None = None
    """What this machine takes of each round trip by itself, taken off the distances. None: it is
    measured when the hosts are there."""

    def between(self, one: str, other: str) -> RoundTrip:
        """Return how far two zones are from each other."""
        none = RoundTrip(((0, 0), (WHOLE_PPM, 0)))
        return self.distances.get((one, other)) or self.distances.get((other, one)) or none


@dataclass(frozen=True)
class PortCounters:
    """What one host has sent, and what of it was lost."""

    frames: int
    wire_bytes: int
    """Of the IP packets."""
    lost_cut: int
    lost_chance: int
    lost_queue: int
    refused: int
    """Frames to the host that its link did not take."""
    late_most_ns: int
    """The latest that a frame to the host was sent after it was due, on this machine's clock."""
    late_sum_ns: int


class DelaySwitch:
    """The engine's switch, in the network namespace in which the hosts' links end."""

    def __init__(
        self, machine: NamespaceMachine, links: Mapping[str, Link], network: NetworkWish
    ) -> None:
        """Start it; `links` by the names of the links' ends. Raises MachineError."""
        # A path of this machine is one of the host as well: its root file system lies below.
        engine = PurePosixPath(find_engine())
        self._child, self._orders = machine.converse(Command([str(engine), "switch"]))
        self._answers = self._child.lines()
        self._links = dict(links)
        distances = [
            {"zones": list(zones), "round_trip_ns": trip.points}
            for zones, trip in network.distances.items()
        ]
        try:
            self._ask(
                op="start",
                ports=[{"name": name, "link": asdict(link)} for name, link in links.items()],
                distances=distances,
                seed=network.seed,
                own_ns=network.own_ns or 0,
                dilation=network.dilation,
            )
        except BaseException:
            self.close()
            raise

    def link(self, name: str) -> Link:
        """Return what a link is like now."""
        return self._links[name]

    def change(self, name: str, **parts: object) -> None:
        """Change a link from now on, by the names of `Link`."""
        changed = replace(self._links[name], **parts)  # type: ignore[arg-type]
        self._ask(op="link", port=name, link=asdict(changed))
        self._links[name] = changed

    def between(self, one: str, other: str, way: Between) -> None:
        """Change the way between two hosts, in both directions."""
        self._ask(op="between", ports=[one, other], link=asdict(way))

    def dilate(self, factor: int) -> None:
        """Let the network's time run slower by this factor from now on."""
        self._ask(op="dilate", factor=factor)

    def set_own(self, own_ns: int) -> None:
        """Set what this machine takes of each round trip by itself."""
        self._ask(op="own", own_ns=own_ns)

    def counters(self) -> dict[str, PortCounters]:
        """Return what each link has carried since the start."""
        ports = self._ask(op="counters")["ports"]
        assert isinstance(ports, dict)
        return {name: PortCounters(**counted) for name, counted in ports.items()}

    def close(self) -> None:
        """End it; the hosts are then without a network."""
        self._orders.close()
        self._child.end()

    def _ask(self, **order: object) -> dict[str, object]:
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            answer: dict[str, object] = json.loads(next(self._answers))
        except (OSError, StopIteration) as error:
            ended = self._child.wait(1.0)
            said = "" if ended is None else ended.said
            raise MachineError(f"the switch of the emulated hosts has ended: {said}") from error
        if answer.get("event") == "refused":
            raise MachineError(f"the switch of the emulated hosts: {answer.get('why')}")
        return answer


def measured_own_ns(one: NamespaceMachine, other: NamespaceMachine, trip: RoundTrip) -> int:
    """Return what the machine adds to a round trip between two hosts that are so far apart.

    By the quickest of a few hundred: the others wait for other programs of the machine. 0 when a
    packet is lost. Takes as many round trips.
    """
    with one.inside_network():
        near = _open(one.address)
    with other.inside_network():
        far = _open(other.address)
    found = []
    with near, far, suppress(OSError):
        for _ in range(PINGS):
            begun = time.monotonic_ns()
            near.sendto(b"?", far.getsockname())
            far.recv(1)
            far.sendto(b"!", near.getsockname())
            near.recv(1)
            found.append(time.monotonic_ns() - begun)
    if len(found) < PINGS:
        return 0
    quick = sorted(found)[int(PINGS * QUICK_PERCENT / 100)]
    return max(0, round(quick - trip.at(QUICK_PERCENT)))


def _open(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    made.settimeout(1.0)
    return made


def names_of(ports: Sequence[str]) -> dict[str, str]:
    """Return the name of each host's link in the switch: names of hosts may be too long for one."""
    return {name: f"h{number}" for number, name in enumerate(ports)}
