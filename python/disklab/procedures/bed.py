"""A bed: hosts, a database on them, its data, and what is known of their state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from disklab.databases import Conditions, Database, Filling, Reconfigured
from disklab.engine.load import LoadDone, LoadProgress, LoadReady
from disklab.errors import DisklabError, MachineError
from disklab.hosts.protocol import Node
from disklab.procedures.breaking import Conductor, Ground
from disklab.procedures.conditions import BedState, HostCache, Step
from disklab.procedures.jobs import LEAST_CLIENTS
from disklab.spec import Cluster, ClusterTrial
from disklab.telemetry import Source
from disklab.workloads.protocol import Begin, Load, Target, Workload

OnProgress = Callable[[LoadProgress], None]

# A data set of which a twentieth was added or written anew is still the one that was filled: a
# study that disklab repeats let its own grow by as much in each half hour of inserts.
MOST_WEAR = 0.05


class BedHosts(Protocol):
    """The hosts of a bed: emulated on this machine, or hosts that exist."""

    nodes: Sequence[Node]
    """Those whose disks are emulated: the cluster's, then those that a timetable brings."""
    time_dilation: int
    """Seconds of this machine for each second of its hosts while a trial's load runs. Fills and
    conditions go at full speed: how long they take is nobody's result."""

    def taking(self, step: Step, spec: ClusterTrial, bed: Bed) -> AbstractContextManager[None]:
        """Take the hosts' part of a step, before or after the database's inside the block."""

    def far_ahead(self, bed: Bed) -> AbstractContextManager[None]:
        """Let compactions read far ahead inside the block."""

    def running(self, bed: Bed) -> AbstractContextManager[None]:
        """Let the hosts' time run as a trial's load needs it, and look at them, in the block."""

    def start_load(self, begin: Begin) -> Load:
        """Start a load, on this machine or on others."""

    def sources(self, undo: ExitStack) -> list[Source]:
        """Return what is watched of them each second; `undo` ends it."""

    def ground(self, database: Database, cluster: Cluster) -> Ground:
        """Return what a timetable happens to."""


@dataclass
class Bed:
    """Everything that trials of one bed share. `close` takes all of it away."""

    name: str
    hosts: BedHosts
    database: Database
    state: BedState
    undo: ExitStack
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
        self, step: Step, spec: ClusterTrial, workload: Workload, on_progress: OnProgress
    ) -> None:
        """Take one step towards the condition of a trial, and note where that leads."""
        with self.hosts.taking(step, spec, self):
            match step:
                case "empty":
                    self._empty(workload)
                case "fill":
                    self._fill(workload, on_progress)
                case "settle":
                    self.settle()
                case "change settings":
                    assert isinstance(self.database, Reconfigured), "others share no bed"
                    self.database.reconfigure(spec.database.settings)
                    self.note(settings=spec.database.settings)
                case "drop page cache":
                    left = self.database.make_cold()
                    self.coldness = f"{left.way}, {left.left_ratio:.1%} of the data files left"
                    # After a restart the compiler begins anew.
                    self.is_warm = self.is_warm and not (self.compiles and left.way == "restart")
                case "run the load" | "warm up":
                    raise AssertionError("the procedure runs the load")
                case _:
                    # Disks and their caches are the hosts'.
                    pass

    def settle(self) -> None:
        """Have everything written to data files, and wait for compactions or vacuums."""
        with self.hosts.far_ahead(self):
            self.database.settle(Conditions(flushed=True, compacted=True))
        self.note(settled=True)

    @property
    def target(self) -> Target:
        """Where the load finds the database."""
        return self.database.target

    @property
    def warnings(self) -> list[str]:
        """What a reader must know about the hosts and the database on them."""
        return [
            *(text for node in self.hosts.nodes for text in node.warnings),
            *self.database.notes,
        ]

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
        with self.hosts.running(self):
            with conductor or nullcontext():
                done = self._load(begin, on_progress, conductor)
            wear = workload.wear(done)
            if wear:
                self.wear += wear
                data = "changed" if self.wear > MOST_WEAR else self.state.data
                self.note(data=data, settled=False)
            self.note(host_cache="none" if self.state.host_cache == "none" else "used")
            self._use_credits()
        return done

    def verify(self, begin: Begin, on_progress: OnProgress) -> LoadDone:
        """Run what looks at the data set and changes nothing."""
        return self._load(begin, on_progress)

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
        self.note(data="empty", settled=True)

    def _fill(self, workload: Workload, on_progress: OnProgress) -> None:
        """Make the data set; what does not arrive is a failure of the trial."""
        self.expect(LEAST_CLIENTS)
        database = self.database
        fills = database.fills() if isinstance(database, Filling) else nullcontext()
        with self.hosts.far_ahead(self), fills:
            for begin in workload.fill(self.target):
                self._write(begin, on_progress)
        self.wear = 0.0
        self.note(
            data="filled",
            settled=False,
            host_cache="none" if self.state.host_cache == "none" else "written",
        )
        self._use_credits()

    def _use_credits(self) -> None:
        if self.state.credits != "none":
            self.note(credits="used")

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
            with self.hosts.start_load(begin) as load:
                self.load = load
                return self._done(load, on_progress, conductor)
        except DisklabError:
            if self.failure is not None:
                raise self.failure from None
            self.database.observe()
            raise
        finally:
            self.load = None

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

    def note(self, **changed: Any) -> None:
        """Note what is known of the bed from now on."""
        self.state = replace(self.state, **changed)


def empty_cache(caching: str) -> HostCache:
    """Return what a host cache holds that has just been given to a volume."""
    return "none" if caching == "None" else "empty"
