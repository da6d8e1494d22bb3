"""The hosts of a bed that exist: who makes its load, what they do meanwhile, what they remember."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from disklab.databases import Database
from disklab.engine.load import EngineLoad, LoadDone
from disklab.errors import MachineError
from disklab.hosts.protocol import Node
from disklab.machines.protocol import Counters, Machine
from disklab.measurement import clients as client_hosts
from disklab.measurement import settings
from disklab.measurement.canary import Beside
from disklab.measurement.clients import Client, ClientsLoad
from disklab.measurement.host_links import HostLinks
from disklab.measurement.journal import Journal
from disklab.measurement.machines_of import Hosted, busy_ratio, cpu_line, stolen_ratio
from disklab.measurement.settings import DATA, queue_of
from disklab.procedures.bed import Bed
from disklab.procedures.breaking import Ground
from disklab.procedures.conditions import Step
from disklab.procedures.turn import Turn
from disklab.results import TrialResult
from disklab.spec import Cluster, ClusterTrial
from disklab.spec.timetable import CLIENT
from disklab.telemetry import Source
from disklab.telemetry.judgement import FULL_MACHINE, MOST_STEAL
from disklab.telemetry.sources import Disk, Growth, Metric, node_suffix
from disklab.telemetry.sources import Machine as WholeMachine
from disklab.workloads.protocol import Begin, Load

# What a database's own hosts do each second: CPUs, memory, disks, network.
#
# After a link was lost for a while, the next rates are means over the gap.

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
                file = str(queue_of(machine, str(folder)).parent / "stat")
                # What two folders of one disk do is that disk's once.
                if file not in self.disks.values():
                    self.disks[volume] = file
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
            "these figures include the effect of its neighbours"
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


FILLED = ".disklab-filled"
"""In a database's folder: which data set it has, and what has become of it."""


@dataclass
class ExistingBedHosts:
    """Hosts on which a database was built, or runs. See `BedHosts` for what is promised."""

    hosted: Sequence[Hosted]
    """The hosts of its nodes that are watched."""
    clients: Sequence[Client]
    """Who makes the load; none: this machine."""
    journal: Journal
    undo: ExitStack
    """Of the bed: what is done to links is taken back before the database is stopped, whose nodes
    say goodbye to each other."""
    set_token: str | None = None
    """Which of our folders on hosts belong together; None: the database is not ours."""
    only_reads: Callable[[], bool] = lambda: False
    """Whether the turn that runs leaves the data as they are."""
    may_drop: Sequence[Machine] = ()
    """Hosts of its nodes whose whole clean page cache may be dropped before a cold trial."""
    beside: Beside | None = None
    """The short probes of its disks before and after each trial."""
    ends: dict[str, LoadDone] = field(default_factory=dict)
    """By client: its part of the last run."""
    began_after_ms: Callable[[], dict[str, float]] = dict
    """By client: how long after the first of them it began the last run; empty for one."""
    spent: list[dict[str, Any]] = field(default_factory=list)
    """What each host of nodes and clients did in the last run."""
    nodes: Sequence[Node] = ()
    """Their disks are real."""
    time_dilation: int = 1

    @contextmanager
    def taking(self, step: Step, spec: ClusterTrial, bed: Bed) -> Iterator[None]:
        """Let the hosts know before and after whether data are full; change what may be changed."""
        if step in ("empty", "fill"):
            self.remember(bed, "changing")
        if step == "drop page cache":
            for machine in self.may_drop:
                settings.drop_page_cache(machine)
        yield
        if step == "drop page cache" and self.may_drop:
            names = ", ".join(machine.name for machine in self.may_drop)
            bed.coldness += f", after all clean pages of {names}"
        if step == "set read-ahead" and self.set_token is not None:
            self._change_read_ahead(spec, bed)
        if step in ("empty", "fill", "settle"):
            self.remember(bed, bed.state.data)

    def _change_read_ahead(self, spec: ClusterTrial, bed: Bed) -> None:
        read_ahead_bytes = spec.cluster.volumes[DATA].read_ahead_bytes
        for node in self.hosted:
            name, folder = node.machine.name, str(node.folder)
            settings.ask_read_ahead(name, node.machine, folder, read_ahead_bytes, self.journal)
        bed.note(read_ahead_bytes=read_ahead_bytes)

    def far_ahead(self, bed: Bed) -> nullcontext[None]:
        """Change nothing: the read-ahead is the trial's, or the host's own."""
        del bed
        return nullcontext()

    @contextmanager
    def running(self, bed: Bed) -> Iterator[None]:
        """Look at the hosts before and after. What is killed while it writes loses its data."""
        changes_full_data = bed.state.data == "filled" and not self.only_reads()
        if changes_full_data:
            self.remember(bed, "changing")
        watched = [node.machine for node in self.hosted]
        watched += [client.machine for client in self.clients]
        looks = [Look.at(machine) for machine in watched]
        yield
        self.spent = [
            spent(machine.name, before, Look.at(machine))
            for machine, before in zip(watched, looks, strict=True)
        ]
        if changes_full_data:
            self.remember(bed, bed.state.data)

    def start_load(self, begin: Begin) -> Load:
        """Start it on the client hosts, where there are some."""
        if not self.clients or not isinstance(begin, EngineLoad):
            return begin()
        # TPC-C is made by one generator: the engine refuses more.
        several = begin.job.workload.kind == "rows"
        load = ClientsLoad(begin.job, self.clients if several else self.clients[:1])
        self.ends, self.began_after_ms = load.ends, load.began_after_ms
        return load

    def sources(self, undo: ExitStack) -> list[Source]:
        """Return what the database's hosts do each second."""
        names = [node.machine.name for node in self.hosted]
        counters = [HostCounters(node.machine, dict(node.folders)) for node in self.hosted]
        for own in counters:
            undo.enter_context(own.newest)
        return sources_of(names, counters)

    def ground(self, database: Database, cluster: Cluster) -> Ground:
        """Return the database's nodes, by the order of their hosts, and their links."""
        called = {f"n{number}": node.machine.name for number, node in enumerate(self.hosted, 1)}
        ends: dict[str, Sequence[Machine]] = {
            node.machine.name: (node.machine,) for node in self.hosted
        }
        ends[CLIENT] = [one.machine for one in self.clients]
        links = HostLinks(ends, self.journal)
        self.undo.callback(links.restore)
        return Ground({}, database, cluster, called=called, links=links)

    def remember(self, bed: Bed, data: str) -> None:
        """Write down on the hosts what has become of the data set, where it is ours."""
        if self.set_token is None:
            return
        state = {"bed": bed.name, "data": data, "wear": bed.wear, "settled": bed.state.settled}
        for node in self.hosted:
            beside = {name: str(folder) for name, folder in node.folders.items()}
            own = {**state, "set": self.set_token, "folders": beside}
            node.machine.files.write(node.folder / FILLED, json.dumps(own).encode())

    def spent_by(self, name: str) -> dict[str, Any]:
        """Return what a host did in the last run; nothing when that is not known."""
        return next((one for one in self.spent if one["host"] == name), {})


def of_hosts(
    machines: Sequence[Machine], cpu: Sequence[str], hosts: ExistingBedHosts | None
) -> list[dict[str, Any]]:
    """Return what a result tells of its nodes' hosts. `cpu`: their counters before the turn."""
    told = []
    for machine, before in zip(machines, cpu, strict=True):
        stolen = stolen_ratio(before, cpu_line(machine))
        one: dict[str, Any] = {"host": machine.name, "stolen_ratio": round(stolen, 4)}
        one |= {} if hosts is None else hosts.spent_by(machine.name)
        # A host that is gone is named by the failure already.
        with suppress(MachineError):
            one["clock"] = client_hosts.in_ms(machine.clock())
        told.append(one)
    return told


def of_clients(
    clients: Sequence[Client], turn: Turn, result: TrialResult, hosts: ExistingBedHosts | None
) -> dict[str, Any]:
    """Return what clients add to a result, their faults included."""
    began = {} if hosts is None else hosts.began_after_ms()
    told = client_hosts.seen(clients, {} if hosts is None else hosts.ends, began)
    if hosts is not None:
        told = [one | hosts.spent_by(one["host"]) for one in told]
    if result.status not in {"ok", "invalid"}:
        return {"clients": told}
    load = turn.spec.workload.load
    is_open = load is not None and load.rate_per_s is not None
    invalid, doubts = client_hosts.judged(told, is_open=is_open)
    reasons = [*result.invalid_reasons, *invalid]
    return {
        "clients": told,
        "status": "invalid" if reasons else "ok",
        "valid": not reasons,
        "invalid_reasons": reasons,
        "warnings": [*result.warnings, *doubts],
    }
