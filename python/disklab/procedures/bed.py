"""A bed: emulated hosts, a database on them, its data, and what is known of their state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from disklab.databases import Conditions, Database
from disklab.engine.load import LoadDone, LoadJob, LoadProgress, LoadRun
from disklab.errors import DisklabError, MachineError
from disklab.hosts.control_group import ControlGroup
from disklab.hosts.node import EmulatedNode
from disklab.procedures import jobs
from disklab.procedures.conditions import BedState, HostCache, Step
from disklab.spec import TrialSpec, Volume

OnProgress = Callable[[LoadProgress], None]


@dataclass
class Bed:
    """Everything that trials of one bed share. `close` takes all of it away."""

    name: str
    nodes: list[EmulatedNode]
    database: Database
    warm_up_table: str
    """A small one beside: what warms the compiler must not warm the caches of the large one."""
    seed: int
    """What stands in the rows hangs on it."""
    groups: list[ControlGroup | None]
    """Of each node: its memory and page cache; None: this machine has no such thing."""
    data_device: str
    """The device that holds the tables."""
    state: BedState
    log_folder: Path
    undo: ExitStack
    is_warm: bool = False
    """Whether the database's compiler has seen reads and writes since the last start."""
    client_pid: int | None = None
    """The load engine, while it runs."""
    coldness: str = ""
    """How the page cache was dropped the last time, and what was left."""

    def take(self, step: Step, spec: TrialSpec, on_progress: OnProgress) -> None:
        """Take one step towards the condition of a trial, and note where that leads."""
        assert spec.cluster is not None, "a cluster experiment"
        volume = spec.cluster.volumes["data"]
        match step:
            case "empty":
                self.database.settle(Conditions(empty=True, flushed=False, compacted=False))
                self._note(data="empty", settled=True)
            case "fill":
                self._fill(spec, on_progress)
            case "settle":
                self.database.settle(Conditions(flushed=True, compacted=True))
                self._note(settled=True)
            case "drop page cache":
                left = self.database.make_cold()
                self.coldness = f"{left.way}, {left.left_ratio:.1%} of the data files left"
                # After a restart the compiler begins anew.
                self.is_warm = self.is_warm and left.way != "restart"
            case "run the load":
                raise AssertionError("the procedure runs the load")
            case _:
                for node in self.nodes:
                    self._take_on(node, step, volume)

    def _take_on(self, node: EmulatedNode, step: Step, volume: Volume) -> None:
        """Take a step that concerns the data device of each node."""
        device = self.data_device
        match step:
            case "set caching":
                node.set_caching(device, volume.caching)
                self._note(caching=volume.caching, host_cache=empty_cache(volume.caching))
            case "set read-ahead":
                node.set_read_ahead(device, volume.read_ahead_bytes)
                self._note(read_ahead_bytes=volume.read_ahead_bytes)
            case "drop host cache":
                node.drop_host_cache(device)
                self._note(host_cache="empty")
            case "warm host cache":
                node.warm_host_cache(device)
                self._note(host_cache="written")
            case _:
                raise AssertionError(f"{step!r} is no step of a device")

    @property
    def target(self) -> jobs.Target:
        """Where the load finds the table."""
        return self.database.target

    @property
    def warnings(self) -> list[str]:
        """What a reader must know about the hosts and the database on them."""
        return [*(text for node in self.nodes for text in node.warnings), *self.database.notes]

    def warm_up(
        self, spec: TrialSpec, operations: int, seeds: jobs.Seeds, on_progress: OnProgress
    ) -> None:
        """Let the database's compiler see reads and writes, on the table beside."""
        target = {**self.target, "table": self.warm_up_table}
        self._write(jobs.warm_up_fill(spec, target, self.seed), on_progress)
        # Read from files, as the measured reads are, and not from memory.
        self.database.settle(Conditions(flushed=True, compacted=False))
        self._write(jobs.warm_up(spec, target, seeds, operations), on_progress)
        self.database.settle(Conditions(flushed=True, compacted=False))
        self.is_warm = True

    def run(self, job: LoadJob, on_progress: OnProgress) -> LoadDone:
        """Run a job on the table; note what it leaves."""
        done = self._load(job, on_progress)
        if job.workload.operations.get("write"):
            self._note(data="changed", settled=False)
        self._note(host_cache=used_cache(self.state.host_cache))
        return done

    def pending_compactions(self) -> int:
        """Return how many compactions the database has pending."""
        return int(self.database.observe().metrics.get("pending_compactions", 0))

    def close(self) -> None:
        """Stop the database and take the hosts away, data included."""
        self.undo.close()

    def _fill(self, spec: TrialSpec, on_progress: OnProgress) -> None:
        """Write every row once; what does not arrive is a failure of the trial."""
        self._write(jobs.fill(spec, self.target, self.seed), on_progress)
        self._note(data="filled", settled=False, host_cache=written_cache(self.state.host_cache))

    def _write(self, job: LoadJob, on_progress: OnProgress) -> None:
        """Run a job of which every operation must succeed."""
        done = self._load(job, on_progress)
        errors = {kind: count for kind, count in done.errors.items() if count}
        if errors:
            # A database that has died says more than its client.
            self.database.observe()
            shown = ", ".join(f"{count} x {kind}" for kind, count in errors.items())
            raise MachineError(
                f"rows could not be written or read back: {shown}\n{done.last_error}"
            )

    def _load(self, job: LoadJob, on_progress: OnProgress) -> LoadDone:
        """Run a job to its end. A database that has died is told of before its client's errors."""
        try:
            with LoadRun(job) as load:
                self.client_pid = load.pid
                for event in load:
                    if isinstance(event, LoadProgress):
                        on_progress(event)
                    elif isinstance(event, LoadDone):
                        if event.interrupted:
                            raise KeyboardInterrupt
                        return event
            raise AssertionError("a run ends with its result or raises")
        except DisklabError:
            self.database.observe()
            raise
        finally:
            self.client_pid = None

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
