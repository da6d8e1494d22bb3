"""A world without disks and servers: nodes, a database and its load, which can fail at any step.

Every call of a fake is a step of the world. A test lets the world raise at one of them, and asks
afterwards what is left standing.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from disklab.catalog import Caching, Catalog
from disklab.databases import Coldness, Conditions, NodePlace, Observation, Request
from disklab.engine import Envelope, View
from disklab.engine.load import KnownVersions, LoadDone, LoadEvent, LoadProgress, LoadReady
from disklab.errors import MachineError
from disklab.hosts.attach import Attached
from disklab.hosts.node import NodeWish
from disklab.hosts.places import HostPlace, Places
from disklab.procedures.breaking import THREAD
from disklab.results.histogram import Histogram, encode
from disklab.spec import TrialSpec
from disklab.workloads.protocol import Asked, Begin, Target

Progress = Callable[[str], None]
OPERATIONS = 4_000


@dataclass
class World:
    """What stands, what was done, and what is to go wrong."""

    folder: Path
    fail_at: int | None = None
    """The step at which `error` is raised, once; steps are counted from 1."""
    error: Callable[[str], BaseException] = MachineError
    broken: dict[str, BaseException] = field(default_factory=dict)
    """Steps that fail whenever they are taken, by name."""
    steps: list[str] = field(default_factory=list)
    standing: set[str] = field(default_factory=set)
    """Nodes, databases and loads that were made and not taken away."""
    latency_ms: Callable[[int | None], float] = lambda _threads: 1.0
    """What every operation takes, by the threads that a run was asked to have."""

    def step(self, name: str) -> None:
        """Take a step. Telemetry looks from threads of its own, as often as it likes."""
        thread = threading.current_thread()
        if thread is not threading.main_thread() and thread.name != THREAD:
            return
        self.steps.append(name)
        if len(self.steps) == self.fail_at:
            if self.error is KeyboardInterrupt and thread.name == THREAD:
                # Ctrl-C is the main thread's, whoever is at work.
                _thread.interrupt_main()
                return
            raise self.error(f"{name} failed")
        if name in self.broken:
            raise self.broken[name]

    def make_node(
        self, catalog: Catalog, wish: NodeWish, places: Places, progress: Progress
    ) -> FakeNode:
        """Stand in for `EmulatedNode.build`."""
        del catalog, progress
        self.step("node: build")
        return FakeNode(self, wish, places.host(wish.name))

    def provision(
        self, request: Request, nodes: list[NodePlace], progress: Progress
    ) -> FakeDatabase:
        """Stand in for a provider."""
        del progress
        self.step("database: provision")
        return FakeDatabase(self, request, nodes)

    def workload(self, spec: TrialSpec, seed: int, time_dilation: int = 1) -> FakeRows:
        """Stand in for `workload_of`."""
        del seed, time_dilation
        return FakeRows(self, spec)


class FakeNode:
    """See `Node`."""

    def __init__(self, world: World, wish: NodeWish, place: HostPlace) -> None:
        self._world = world
        self._wish = wish
        self.place = place
        self.pid = os.getpid()
        self.attached: Mapping[str, Attached] = {}
        self.warnings: list[str] = []
        self.envelope: Envelope | None = None
        self.volumes: dict[str, Path] = {}
        for name in wish.volumes:
            self.volumes[name] = world.folder / wish.name / name
            self.volumes[name].mkdir(parents=True, exist_ok=True)
        world.standing.add(self.name)

    @property
    def name(self) -> str:
        return self._wish.name

    def show(self, volume: str) -> View:
        raise AssertionError(f"{volume}: a fake has no devices to show")

    def set_caching(self, volume: str, caching: Caching) -> None:
        self._world.step(f"node: caching of {volume}: {caching}")

    def set_read_ahead(self, volume: str, bytes_: int | None) -> None:
        self._world.step(f"node: read-ahead of {volume}: {bytes_}")

    def set_time_dilation(self, factor: int) -> None:
        self._world.step(f"node: time dilation {factor}")

    def drop_host_cache(self, volume: str) -> None:
        self._world.step(f"node: drop host cache of {volume}")

    def warm_host_cache(self, volume: str) -> int:
        self._world.step(f"node: warm host cache of {volume}")
        return 0

    def has_credits(self, volume: str) -> bool:
        del volume
        return True

    def set_credits(self, share: float) -> None:
        self._world.step(f"node: credits {share:g}")

    def break_disk(self, volume: str, fault: Mapping[str, object]) -> None:
        self._world.step(f"node: {fault['kind']} of {volume}")

    def lose(self) -> None:
        self._world.step("node: lose")

    def move(self, vm: str, caching: Caching | None = None) -> None:
        self._world.step(f"node: move to {vm}" + (f", {caching}" if caching else ""))

    def remove(self) -> None:
        self._world.standing.discard(self.name)
        self._world.step("node: remove")


class FakeDatabase:
    """See `Database`."""

    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = {"fake": "1"}
    target: Mapping[str, object] = {"protocol": "fake"}

    def __init__(self, world: World, request: Request, nodes: Sequence[NodePlace]) -> None:
        self._world = world
        self._name = f"database on {nodes[0].run_dir.name}"
        self.request = request
        self._streamed = 0

    def start(self) -> None:
        self._world.standing.add(self._name)
        self._world.step("database: start")

    def expect(self, connections: int) -> None:
        del connections
        self._world.step("database: expect")

    def settle(self, conditions: Conditions) -> None:
        self._world.step("database: empty" if conditions.empty else "database: settle")

    def make_cold(self) -> Coldness:
        self._world.step("database: make cold")
        return Coldness("restart", 1_000_000, 0)

    def kill_node(self, name: str) -> None:
        self._world.step(f"database: kill {name}")

    def start_node(self, name: str) -> None:
        self._world.step(f"database: start {name}")

    def restart_node(self, name: str) -> None:
        self._world.step(f"database: restart {name}")

    def replace_node(self, name: str) -> None:
        self._world.step(f"database: replace {name}")

    def add_node(self, name: str, near: str | None = None) -> None:
        self._world.step(f"database: add {name}" + (f" near {near}" if near else ""))

    def decommission_node(self, name: str) -> None:
        self._world.step(f"database: decommission {name}")

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        self._world.step(f"database: {name} {'within' if reachable else 'out of'} reach")

    def leave_disks(self, name: str) -> None:
        self._world.step(f"database: {name} leaves its disks")

    def start_on_moved_disks(self, name: str, memory_bytes: int) -> None:
        self._world.step(f"database: start {name} with {memory_bytes >> 30} GiB")

    def streamed(self) -> Mapping[str, int]:
        # Each look finds more, as if something always came in.
        self._streamed += 1_000
        return {"n1": self._streamed}

    def parts(self, begun_unix: float) -> Mapping[str, float]:
        del begun_unix
        return {"process": 2.0, "stream": 0.5}

    def wait_until_whole(self) -> None:
        self._world.step("database: is whole")

    def repair_node(self, name: str) -> None:
        self._world.step(f"database: repair {name}")

    def stop(self) -> None:
        self._world.standing.discard(self._name)
        self._world.step("database: stop")

    def observe(self) -> Observation:
        self._world.step("database: observe")
        return Observation((), {}, {})


class FakeLoad:
    """See `Load`. Two progress lines and an end, in no time."""

    pid = 1 << 30
    """No process has this number."""

    def __init__(
        self, world: World, kind: str, lasts_s: float = 0.0, threads: int | None = None
    ) -> None:
        self._world = world
        self._kind = kind
        self._lasts_s = lasts_s
        self._threads = threads

    def __iter__(self) -> Iterator[LoadEvent]:
        self._world.step(f"load: {self._kind} begins")
        yield _ready()
        # A timetable of fakes has its times within a twentieth of a second.
        time.sleep(self._lasts_s)
        for second in (1, 2):
            self._world.step(f"load: {self._kind} second {second}")
            yield _progress(second)
        yield _done(self._kind, self._world.latency_ms(self._threads))

    def end(self) -> None:
        """Do nothing: it ends in no time by itself."""

    def __enter__(self) -> Self:
        self._world.standing.add("load")
        return self

    def __exit__(self, *_: object) -> None:
        self._world.standing.discard("load")


class FakeRows:
    """See `Workload`."""

    data_bytes = 1_000_000
    generators = 1
    makes_tables = False
    headline: str | None = None

    def __init__(self, world: World, spec: TrialSpec) -> None:
        self._world = world
        self._events = spec.events
        work = spec.workload.operations
        assert work is not None, "the fake knows rows"
        self._kind = "write" if work.write else "read"

    def fill(self, target: Target) -> Sequence[Begin]:
        del target
        return [lambda: FakeLoad(self._world, "fill")]

    def warm_up(self, target: Target, operations: int, stream: int) -> Sequence[Begin]:
        del target, operations, stream
        return []

    def run(self, target: Target, asked: Asked) -> Begin:
        del target
        lasts_s = 0.05 if self._events else 0.0
        return lambda: FakeLoad(self._world, self._kind, lasts_s, asked.threads)

    def check(
        self,
        target: Target,
        known: KnownVersions | None = None,
        consistency: str | None = None,
    ) -> Begin | None:
        del target, known, consistency
        return (lambda: FakeLoad(self._world, "check")) if self._events else None

    def wear(self, done: LoadDone) -> float:
        return 1.0 if "write" in done.operations else 0.0


def _ready() -> LoadReady:
    return LoadReady.model_validate(
        {"pid": 1 << 30, "version": "1", "loop": "closed", "slots": 4, "nodes": 2}
    )


def _progress(second: int) -> LoadProgress:
    return LoadProgress.model_validate(
        {
            **{"t_s": float(second), "operations": second * OPERATIONS // 2, "errors": 0},
            **{"ops_per_s": OPERATIONS / 2, "p50_ms": 1.0, "p99_ms": 2.0, "late_ns_p99": None},
            **{"in_flight": 4, "cpu_ns": 0, "last_error": None, "histograms": {}},
        }
    )


def _done(kind: str, latency_ms: float) -> LoadDone:
    times = encode(Histogram.of([round(latency_ms * 1e6)] * OPERATIONS))
    summary: dict[str, Any] = {"count": OPERATIONS, "failed": 0, "ops_per_s": OPERATIONS / 2}
    summary |= dict.fromkeys(
        ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "p99.9_ms", "max_ms"), latency_ms
    )
    return LoadDone.model_validate(
        {
            **{"elapsed_s": 2.0, "ops_per_s": OPERATIONS / 2, "operations": {kind: summary}},
            **{"response": {kind: times}, "service": {kind: times}, "lateness": None},
            **{"unsent": 0, "abandoned": 0, "errors": {}, "last_error": None, "wrong_rows": 0},
            **{"missing_rows": 0, "cpu_ns": 1, "started_unix_ns": 1, "interrupted": False},
        }
    )
