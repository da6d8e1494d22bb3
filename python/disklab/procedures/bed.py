"""A bed: emulated hosts, a database on them, its data, and what is known of their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from disklab.databases import Conditions, Database
from disklab.engine.load import LoadDone, LoadProgress, LoadReady
from disklab.errors import DisklabError, MachineError
from disklab.hosts.control_group import ControlGroup
from disklab.hosts.namespaces import EmulatedHosts
from disklab.hosts.open_files import renew_read_ahead
from disklab.hosts.protocol import Node
from disklab.procedures.breaking import Ground
from disklab.procedures.conditions import BedState, HostCache, Step
from disklab.procedures.jobs import LEAST_CLIENTS
from disklab.procedures.timetable import Conductor
from disklab.spec import Cluster, TrialSpec, Volume
from disklab.telemetry import Source
from disklab.workloads.protocol import Begin, Load, Target, Workload

OnProgress = Callable[[LoadProgress], None]

# A data set of which a twentieth was added or written anew is still the one that was filled: a
# study that disklab repeats let its own grow by as much in each half hour of inserts.
MOST_WEAR = 0.05
# While nothing is measured. At the 8 KiB that Cassandra's data disks have, a compaction waits for a
# cloud disk after every two pages: 4 MB/s (seen on a striped P30), an hour for a scaled data set.
FAR_AHEAD_BYTES = 4 << 20


@dataclass
class Bed:
    """Everything that trials of one bed share. `close` takes all of it away."""

    name: str
    nodes: Sequence[Node]
    """Those of the cluster, then those that a timetable brings later."""
    database: Database
    time_dilation: int
    """Seconds of this machine for each second of its hosts while a trial's load runs. Fills and
    conditions go at full speed: how long they take is nobody's result."""
    groups: list[ControlGroup | None]
    """Of each node: its memory and page cache; None: this machine has no such thing."""
    network: EmulatedHosts | None
    """The nodes' hosts in namespaces; None: they share this machine's loopback."""
    data_device: str
    """The device that holds the tables."""
    state: BedState
    log_folder: Path | None
    undo: ExitStack
    memory_of: Callable[[str], int] = lambda _: 0
    """What a VM size has, in bytes."""
    names: Sequence[str] = ()
    """What a timetable calls the nodes, in order."""
    later: int = 0
    """How many of them, the last ones, a timetable brings later."""
    is_warm: bool = False
    """Whether the database's compiler has seen reads and writes since the last start; always, for
    one without a compiler."""
    compiles: bool = True
    """Whether the database compiles itself while it runs, and begins anew at each start."""
    wear: float = 0.0
    """By which share the data set has changed since its fill."""
    load: Load | None = None
    """The load, while it runs."""
    failure: DisklabError | None = None
    """Why the load was ended before its time."""
    coldness: str = ""
    """How the page cache was dropped the last time, and what was left."""

    def take(
        self, step: Step, spec: TrialSpec, workload: Workload, on_progress: OnProgress
    ) -> None:
        """Take one step towards the condition of a trial, and note where that leads."""
        assert spec.cluster is not None, "a cluster experiment"
        volume = spec.cluster.volumes["data"]
        match step:
            case "empty":
                self._empty(workload)
            case "fill":
                self._fill(workload, on_progress)
            case "settle":
                self.settle()
            case "drop page cache":
                left = self.database.make_cold()
                self.coldness = f"{left.way}, {left.left_ratio:.1%} of the data files left"
                # After a restart the compiler begins anew.
                self.is_warm = self.is_warm and not (self.compiles and left.way == "restart")
            case "set credits":
                for node in self.nodes[: len(self.nodes) - self.later]:
                    node.set_credits(spec.before.credits_ratio)
                self._note(credits=spec.before.credits_ratio)
            case "run the load" | "warm up":
                raise AssertionError("the procedure runs the load")
            case _:
                # Those that come later are new hosts then, and may have other disks.
                for node in self.nodes[: len(self.nodes) - self.later]:
                    self._take_on(node, step, volume)

    def settle(self) -> None:
        """Have everything written to data files, and wait for compactions or vacuums."""
        with self._far_ahead():
            self.database.settle(Conditions(flushed=True, compacted=True))
        self._note(settled=True)

    @contextmanager
    def _far_ahead(self) -> Iterator[None]:
        """Let compactions read far ahead inside the block."""
        try:
            for node in self.nodes:
                self._set_read_ahead(node, FAR_AHEAD_BYTES)
            yield
        finally:
            # A node that has died is told of by what it broke.
            for node in self.nodes:
                with suppress(DisklabError):
                    self._set_read_ahead(node, self.state.read_ahead_bytes)

    def _set_read_ahead(self, node: Node, bytes_: int | None) -> None:
        """Give the data device a read-ahead, and what the database has open on it."""
        node.set_read_ahead(self.data_device, bytes_)
        renew_read_ahead(self.database.observe().pids, node.volumes[self.data_device])

    def _take_on(self, node: Node, step: Step, volume: Volume) -> None:
        """Take a step that concerns the data device of each node."""
        device = self.data_device
        match step:
            case "set caching":
                node.set_caching(device, volume.caching)
                self._note(caching=volume.caching, host_cache=empty_cache(volume.caching))
            case "set read-ahead":
                self._set_read_ahead(node, volume.read_ahead_bytes)
                self._note(read_ahead_bytes=volume.read_ahead_bytes)
            case "drop host cache":
                node.drop_host_cache(device)
                self._note(host_cache="empty")
            case "warm host cache":
                node.warm_host_cache(device)
                self._note(host_cache="written")
            case _:
                raise AssertionError(f"{step!r} is not a step of a device")

    @property
    def target(self) -> Target:
        """Where the load finds the database."""
        return self.database.target

    @property
    def warnings(self) -> list[str]:
        """What a reader must know about the hosts and the database on them."""
        return [*(text for node in self.nodes for text in node.warnings), *self.database.notes]

    def warm_up(self, loads: Sequence[Begin], on_progress: OnProgress) -> None:
        """Let the database's compiler see reads and writes, on the table beside."""
        self.expect(LEAST_CLIENTS)
        for begin in loads:
            self._write(begin, on_progress)
            # Read from files, as the measured reads are, and not from memory.
            self.database.settle(Conditions(flushed=True, compacted=False))
        # A node that is rebuilt later would get these rows too, half as much as small data have.
        self.database.settle(Conditions(beside_empty=True, flushed=False, compacted=False))
        self._use_credits()
        self.is_warm = True

    def expect(self, clients: int) -> None:
        """Let the database have room for a load of so many clients."""
        self.database.expect(clients)

    def run(
        self,
        workload: Workload,
        begin: Begin,
        on_progress: OnProgress,
        conductor: Conductor | None = None,
    ) -> LoadDone:
        """Run a load on the data set, in slow motion; note what it leaves.

        `conductor`: breaks nodes meanwhile; nobody may use the bed for another turn then.
        """
        with self._slow_motion(), conductor or nullcontext():
            done = self._load(begin, on_progress, conductor)
        wear = workload.wear(done)
        if wear:
            self.wear += wear
            data = "changed" if self.wear > MOST_WEAR else self.state.data
            self._note(data=data, settled=False)
        self._note(host_cache=used_cache(self.state.host_cache))
        self._use_credits()
        return done

    def verify(self, begin: Begin, on_progress: OnProgress) -> LoadDone:
        """Run what looks at the data set and changes nothing."""
        return self._load(begin, on_progress)

    @contextmanager
    def _slow_motion(self) -> Iterator[None]:
        """Let the hosts' time run slower inside the block."""
        if self.time_dilation == 1:
            yield
            return
        try:
            for node in self.nodes:
                node.set_time_dilation(self.time_dilation)
            self._dilate_network(self.time_dilation)
            yield
        finally:
            # A host that has died is told of by what it broke.
            for node in self.nodes:
                with suppress(DisklabError):
                    node.set_time_dilation(1)
            with suppress(DisklabError):
                self._dilate_network(1)

    def _dilate_network(self, factor: int) -> None:
        if self.network is not None and self.network.delays is not None:
            self.network.delays.dilate(factor)

    def ground(self, cluster: Cluster) -> Ground:
        """Return what a timetable happens to."""
        nodes = dict(zip(self.names, self.nodes, strict=True))
        return Ground(
            nodes, self.database, self.data_device, cluster, self.memory_of, network=self.network
        )

    def give_up(self, error: DisklabError) -> None:
        """End the load that runs, because of this error. Called from the thread that noticed it."""
        self.failure = self.failure or error
        load = self.load
        if load is not None:
            with suppress(DisklabError):
                load.end()

    @property
    def client_pid(self) -> int | None:
        """The process here that makes the load; None: no load runs, or other machines make it."""
        return None if self.load is None else self.load.pid

    def pending_compactions(self) -> int:
        """Return how many compactions the database has pending."""
        return int(self.database.observe().metrics.get("pending_compactions", 0))

    def close(self) -> None:
        """Stop the database and take the hosts away, data included."""
        self.undo.close()

    def _empty(self, workload: Workload) -> None:
        """Have no rows in the table; a workload that makes its tables drops them as it fills."""
        if not workload.makes_tables:
            self.database.settle(Conditions(empty=True, flushed=False, compacted=False))
        self._note(data="empty", settled=True)

    def _fill(self, workload: Workload, on_progress: OnProgress) -> None:
        """Make the data set; what does not arrive is a failure of the trial."""
        self.expect(LEAST_CLIENTS)
        with self._far_ahead():
            for begin in workload.fill(self.target):
                self._write(begin, on_progress)
        self.wear = 0.0
        self._note(data="filled", settled=False, host_cache=written_cache(self.state.host_cache))
        self._use_credits()

    def _use_credits(self) -> None:
        if self.state.credits != "none":
            self._note(credits="used")

    def _write(self, begin: Begin, on_progress: OnProgress) -> None:
        """Run a load of which every operation must succeed."""
        done = self._load(begin, on_progress)
        errors = {kind: count for kind, count in done.errors.items() if count}
        if errors:
            # A database that has died says more than its client.
            self.database.observe()
            shown = ", ".join(f"{count} x {kind}" for kind, count in errors.items())
            raise MachineError(
                f"rows could not be written or read back: {shown}\n{done.last_error}"
            )

    def _load(
        self, begin: Begin, on_progress: OnProgress, conductor: Conductor | None = None
    ) -> LoadDone:
        """Run a load to its end. A database that has died is told of before its client's errors."""
        self.failure = None
        try:
            with self.start_load(begin) as load:
                self.load = load
                return self._done(load, on_progress, conductor)
        except DisklabError:
            if self.failure is not None:
                raise self.failure from None
            self.database.observe()
            raise
        finally:
            self.load = None

    def sources(self, undo: ExitStack) -> list[Source]:
        """Return what else is watched; `undo` ends it. Other beds have hosts of their own."""
        del undo
        return []

    def start_load(self, begin: Begin) -> Load:
        """Start a load, on this machine; other beds have other machines for it."""
        return begin()

    def _done(self, load: Load, on_progress: OnProgress, conductor: Conductor | None) -> LoadDone:
        for event in load:
            if isinstance(event, LoadReady):
                if conductor is not None:
                    conductor.begin()
            elif isinstance(event, LoadProgress):
                on_progress(event)
            elif isinstance(event, LoadDone):
                if self.failure is not None:
                    raise self.failure
                if event.interrupted:
                    raise KeyboardInterrupt
                return event
        raise AssertionError("a run ends with its result or raises")

    def _note(self, **changed: Any) -> None:
        self.state = replace(self.state, **changed)


def empty_cache(caching: str) -> HostCache:
    """Return what a host cache holds that has just been given to a volume."""
    return "none" if caching == "None" else "empty"


def written_cache(before: HostCache) -> HostCache:
    """Return what a host cache holds after a fill through it."""
    return "none" if before == "none" else "written"


def used_cache(before: HostCache) -> HostCache:
    """Return what is known of a host cache after a load."""
    return "none" if before == "none" else "used"
