"""What a database's own hosts do each second: CPUs, memory, disks, network.

After a link was lost for a while, the next rates are means over the gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from disklab.errors import MachineError
from disklab.machines.protocol import Counters, Machine
from disklab.measurement.machines_of import busy_ratio, cpu_line, stolen_ratio
from disklab.measurement.settings import queue_of
from disklab.telemetry.judgement import FULL_MACHINE, MOST_STEAL
from disklab.telemetry.sources import Disk, Growth, Metric, Source, node_suffix
from disklab.telemetry.sources import Machine as WholeMachine

NETWORK = "/proc/net/dev"
LOOPBACK = "lo"
# proc(5): of an interface, bytes received come first and bytes sent ninth.
RECEIVED, SENT = 0, 8
MOST_NETWORK = 0.9
"""Above it packets wait for the VM's bandwidth, or are dropped."""


class HostCounters:
    """The newest counters of a host, and which files they are of."""

    def __init__(self, machine: Machine, folders: dict[str, PurePosixPath]) -> None:
        """Take the host, and by volume a folder on each disk that is watched."""
        self.disks: dict[str, str] = {}
        """By volume: the file of its disk's counters. A folder on no disk has none."""
        for volume, folder in folders.items():
            with suppress(MachineError):
                self.disks[volume] = str(queue_of(machine, str(folder)).parent / "stat")
        files = [*WholeMachine.FILES, NETWORK, *self.disks.values()]
        self.newest: Counters = machine.counters([PurePosixPath(file) for file in files])


class _Ticks:
    """How much time has passed between the counters of two looks."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._last_s: float | None = None

    def next(self) -> tuple[float, Mapping[str, str]] | None:
        """Return seconds since the last look, 0 at the first, and the counters; None: no news."""
        at_s, texts = self._counters.latest()
        if not texts or at_s == self._last_s:
            return None
        took_s = 0.0 if self._last_s is None else at_s - self._last_s
        self._last_s = at_s
        return took_s, texts


class HostMachine:
    """CPUs and memory of a host: as `telemetry.Machine` of this one."""

    def __init__(self, name: str, counters: Counters) -> None:
        self.name = f"host {name}"
        self._whole = WholeMachine(self.name)
        self._ticks = _Ticks(counters)

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:  # noqa: ARG002 - the host's
        """Yield cores in use, cores that the hypervisor gave to others, and free memory."""
        found = self._ticks.next()
        if found is not None:
            took_s, texts = found
            stat, meminfo = (texts.get(file, "") for file in WholeMachine.FILES)
            yield from self._whole.metrics(stat, meminfo, took_s or 1.0)


class HostNetwork:
    """Bytes that a host received and sent, over all its interfaces but loopback."""

    def __init__(self, name: str, counters: Counters) -> None:
        self.name = f"network {name}"
        self._growth = Growth()
        self._ticks = _Ticks(counters)

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:  # noqa: ARG002 - the host's
        """Yield bytes a second in both directions."""
        found = self._ticks.next()
        if found is None:
            return
        took_s, texts = found
        received, sent = traffic(texts.get(NETWORK, ""))
        for what, count in (("received", received), ("sent", sent)):
            grown = self._growth.of(what, count)
            if grown is not None and took_s:
                yield f"{what}_bytes_per_s", grown / took_s


class HostDisk:
    """A disk of a host: as `telemetry.Disk` of this one."""

    def __init__(self, volume: str, file: str, counters: Counters) -> None:
        self._disk = Disk(volume, Path("/dev") / "null")
        self.name = self._disk.name
        self._file = file
        self._ticks = _Ticks(counters)

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:  # noqa: ARG002 - the host's
        """Yield IOPS, bytes a second, mean queue and mean latency of what ended."""
        found = self._ticks.next()
        if found is not None and self._file in found[1]:
            yield from self._disk.metrics(found[1][self._file], found[0] or 1.0)


def traffic(text: str) -> tuple[int, int]:
    """Return the bytes received and sent of all interfaces but loopback, of /proc/net/dev."""
    received = sent = 0
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and name.strip() != LOOPBACK and len(words) > SENT:
            received += int(words[RECEIVED])
            sent += int(words[SENT])
    return received, sent


def sources_of(names: Sequence[str], counters: Sequence[HostCounters]) -> list[Source]:
    """Return what is watched of hosts. Disks are called as a rehearsal calls its nodes' disks."""
    found: list[Source] = []
    for number, (name, own) in enumerate(zip(names, counters, strict=True), 1):
        found += [HostMachine(name, own.newest), HostNetwork(name, own.newest)]
        for volume, file in own.disks.items():
            found.append(HostDisk(f"{volume}{node_suffix(number)}", file, own.newest))
    return found


@dataclass(frozen=True)
class Look:
    """The counters of a host at one moment."""

    at_s: float
    cpu: str
    received: int
    sent: int

    @classmethod
    def at(cls, machine: Machine) -> Look | None:
        """Look at a host now; None: it is gone, which others tell of."""
        with suppress(MachineError):
            received, sent = traffic(
                machine.files.read(PurePosixPath(NETWORK)).decode("ascii", "replace")
            )
            return cls(time.monotonic(), cpu_line(machine), received, sent)
        return None


def spent(name: str, before: Look | None, after: Look | None) -> dict[str, Any]:
    """Return what a host did between two looks: shares of its CPUs, MB/s of its network."""
    told: dict[str, Any] = {"host": name}
    if before is None or after is None or after.at_s <= before.at_s:
        return told
    took_s = after.at_s - before.at_s
    return told | {
        "busy_ratio": round(busy_ratio(before.cpu, after.cpu), 4),
        "stolen_ratio": round(stolen_ratio(before.cpu, after.cpu), 4),
        "received_mb_per_s": round((after.received - before.received) / took_s / 1e6, 3),
        "sent_mb_per_s": round((after.sent - before.sent) / took_s / 1e6, 3),
    }


def doubts(told: Mapping[str, Any], mbit_per_s: float | None) -> Iterator[str]:
    """Yield that something else of a host than its disks was the limit, of `spent`.

    `mbit_per_s`: what its VM size has; None: the catalogue does not know.
    """
    name, busy = told["host"], told.get("busy_ratio", 0.0)
    if busy > FULL_MACHINE:
        yield f"the CPUs of {name} were the limit, not its disks: {busy:.0%} of them were busy"
    if told.get("stolen_ratio", 0.0) > MOST_STEAL:
        yield (
            f"the host below took {told['stolen_ratio']:.0%} of the CPU time of {name} (steal): "
            "its neighbours are in these figures"
        )
    if mbit_per_s is None:
        return
    for way, text in (("received", "received"), ("sent", "sent")):
        share = told.get(f"{way}_mb_per_s", 0.0) * 8 / mbit_per_s
        if share > MOST_NETWORK:
            yield (
                f"the network of {name} was the limit: it {text} "
                f"{told[f'{way}_mb_per_s']:.0f} MB/s, {share:.0%} of what its VM size has"
            )
