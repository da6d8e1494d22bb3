"""What every database provider offers, whatever the database is.

A provider is one function, `provision`, which returns a `Database`. It gets mounted directories,
addresses and a memory group, and makes none of them itself: the disks belong to `hosts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol, runtime_checkable

from disklab.database_settings import Setting
from disklab.databases.place import Place, ServerHost
from disklab.databases.this_machine import ThisMachine

Progress = Callable[[str], None]
"""Told what is being done, in a few words."""


def say_nothing(_: str) -> None:
    """Take progress and drop it."""


@dataclass(frozen=True)
class NodePlace(Place):
    """A place, the machine that it is on, and what a cluster makes of it."""

    host: ServerHost = field(default_factory=ThisMachine)
    comes_later: bool = False
    """It is no part of the cluster until it is added (`Growing`)."""
    memory_bytes: int | None = None
    """Memory of its VM, unscaled, where it is another one than the request's."""


@dataclass(frozen=True)
class Sizes:
    """How large the node that this machine stands in for is, and at which scale."""

    memory_bytes: int
    """Memory of the VM, unscaled."""
    scale: Fraction = Fraction(1)
    nodes: int = 1
    """Nodes that share this machine."""
    time_dilation: int = 1
    """Seconds of this machine for each second of the node: the database's own periods and time-outs
    are longer by so much, and its rates lower."""
    heap_bytes: int | None = None
    """Heap of the node, unscaled; None: what the database's own scripts give such a VM."""

    def too_small(self, parts: Iterable[tuple[str, int, int]]) -> list[str]:
        """Return which parts of memory the scale makes too small to work with.

        Each part: its name, its bytes as they are scaled, and the least that it has then.
        """
        return [
            f"{name} {least >> 20} MiB: scaled by {self.scale} it would be "
            f"{max(scaled, 0) / (1 << 20):.1f} MiB, too little to work with"
            for name, scaled, least in parts
            if scaled < least
        ]


@dataclass(frozen=True)
class Request:
    """The database that is asked for: `database` of the experiment, with the table's shape."""

    engine: str
    """`cassandra`, `postgresql`."""
    sizes: Sizes
    replication_factor: int = 1
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Passed through to the database's own configuration, checked against what it knows."""
    table: Mapping[str, Setting] = field(default_factory=dict)
    """Options of the table, such as `compression: none`."""
    collector: str | None = None
    """What collects garbage in its JVM, such as `zgc`; None: the usual."""
    tls: bool = False
    """Whether clients talk through TLS."""
    columns: int = 5
    """Value columns of a row, c0, c1, ...; 0: the workload makes tables of its own."""
    row_bytes: int = 0
    """Bytes of all values of a row, on average; 0: they are not known."""
    connections: int = 30
    """Clients that are connected at once, at most."""
    version: str | None = None
    """Such as `5.0`, `4.1.10`; None: the provider's usual one."""
    kept: str | None = field(default=None, repr=False)
    """What data that are there already were made for (`secret` of such a database)."""
    keyspace: str = "disklab"
    table_name: str = "rows"
    tables_beside: tuple[str, ...] = ()
    """Names of further tables of the same shape, such as one to warm the compiler on."""


@dataclass(frozen=True)
class Conditions:
    """The state that a database shall be in before a trial. What is False is left as it is."""

    empty: bool = False
    """No rows in the table; those beside it are left alone."""
    beside_empty: bool = False
    """No rows in the tables beside it."""
    flushed: bool = True
    """Everything written is in data files on the data volume, and synced."""
    compacted: bool = True
    """No compaction runs or is pending."""
    time_limit_s: float = 1800.0
    """How long compactions may take. Half an hour: what a 100 GB share needs at 64 MB/s."""

    def to_empty(self, request: Request) -> tuple[str, ...]:
        """Return the names of the tables that shall have no rows."""
        measured = (request.table_name,) if self.empty else ()
        return (*measured, *(request.tables_beside if self.beside_empty else ()))


@dataclass(frozen=True)
class Coldness:
    """What became of the page cache of a database."""

    way: str
    """`group reclaim`, `in place` or `restart`."""
    data_bytes: int
    """Size of the data files."""
    cached_bytes: int
    """What of them the page cache still holds, by mincore."""

    @property
    def left_ratio(self) -> float:
        """The share of the data files that is still cached, 0 to 1."""
        return self.cached_bytes / self.data_bytes if self.data_bytes else 0.0


@dataclass(frozen=True)
class Observation:
    """What a database says about itself now, all its nodes together; units are in the names."""

    pids: tuple[int, ...]
    metrics: Mapping[str, float]
    """How things stand: `pending_compactions`, `longest_stop_s` (of those of the last second)."""
    counters: Mapping[str, float]
    """What only grows: `dropped_messages`, `gc_pauses`, `gc_pause_s`, `gc_allocated_bytes`,
    `stopped_s`."""


class Told(Protocol):
    """What a database says of itself. `observe` raises as every method of `Database` does."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures should know: where the scale could not be followed."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of its programs, as far as they are known before it has started."""
        ...

    @property
    def target(self) -> Mapping[str, object]:
        """The `target` of a load job (contract C2), without consistency and time-outs."""
        ...

    def observe(self) -> Observation:
        """Return what the database says now. Cheap enough for once a second."""
        ...


class Database(Told, Protocol):
    """A database on its nodes.

    Every method raises UserError for what cannot be asked of it, and MachineError, with the last
    lines of its log, when it fails or has died.
    """

    def start(self) -> None:
        """Start every node and make the schema; returns when the first query is answered.

        A database that was stopped starts again on its data.
        """
        ...

    def expect(self, connections: int) -> None:
        """Make room for a load of so many clients at once, and no more than that.

        Never more than the request has.
        """
        ...

    def settle(self, conditions: Conditions) -> None:
        """Bring the database into these conditions."""
        ...

    def make_cold(self) -> Coldness:
        """Drop the page cache of the database, in place or by a restart, and look what is left."""
        ...

    def stop(self) -> None:
        """Drain and end every node. Data stay. Stopping what is stopped does nothing."""
        ...


@runtime_checkable
class Filling(Protocol):
    """A database whose settings, not a session's, make each row of a fill wait for a disk."""

    def fills(self) -> AbstractContextManager[None]:
        """Let rows last with the next `settle`, and not one by one, while the table is filled."""
        ...


@runtime_checkable
class Reconfigured(Protocol):
    """A database with settings that a restart changes (`restart_settings` of its facts)."""

    def reconfigure(self, settings: Mapping[str, Setting]) -> None:
        """Have these settings from the next restart on, which `make_cold` is."""
        ...


@runtime_checkable
class Breakable(Protocol):
    """A database whose nodes can be taken away and come back while the others serve.

    `name` is that of a `NodePlace`. A node that was taken away is no failure of the database.
    Methods may be called from any thread; `kill_node` ends another that waits for the same node.
    """

    def kill_node(self, name: str) -> None:
        """End its processes at once. Killing a dead one does nothing."""
        ...

    def start_node(self, name: str) -> None:
        """Start a killed node on what its disks hold; returns when it answers queries."""
        ...

    def restart_node(self, name: str) -> None:
        """End a node in order, drop its page cache, start it; returns when it answers queries."""
        ...

    def replace_node(self, name: str) -> None:
        """Put an empty node in the place of a dead one; returns when it has its data."""
        ...

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        """Say whether this machine reaches a node, which runs: otherwise it is asked nothing."""
        ...


@runtime_checkable
class Promoting(Protocol):
    """A database one node of which takes changes, and another one can in its place."""

    def promote_node(self, name: str) -> None:
        """Let a node take the primary's place, which is away; returns when it takes changes."""
        ...


@runtime_checkable
class Movable(Protocol):
    """A database whose nodes' disks can be moved to another VM, which goes on from them."""

    def leave_disks(self, name: str) -> None:
        """End a node in order, so that nothing of it uses its disks. Fine for a dead one."""
        ...

    def start_on_moved_disks(self, name: str, memory_bytes: int) -> None:
        """Start a node on its disks, on a VM with so much memory (unscaled).

        Returns when it answers queries.
        """
        ...


@runtime_checkable
class Streaming(Protocol):
    """A database whose nodes get data from each other, and count them."""

    def streamed(self) -> Mapping[str, int]:
        """Return the bytes that each node that serves has got since it started, by name."""
        ...

    def parts(self, begun_unix: float) -> Mapping[str, float]:
        """Return what a procedure that began then has spent its seconds with, by part.

        Empty: nothing is known.
        """
        ...

    def wait_until_whole(self) -> None:
        """Return when every node sees all others. Raises MachineError when that takes too long."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A database to which nodes come, and from which they go, while it serves.

    Each by its own procedure, which streams data. `name` is that of a `NodePlace`.
    """

    def add_node(self, name: str, near: str | None = None) -> None:
        """Let a node join that comes later; returns when it has its data and answers queries.

        `near`: it takes over what this node has, which is to leave. Otherwise it takes half of
        what the node with the largest share has.
        """
        ...

    def decommission_node(self, name: str) -> None:
        """Let a node leave in order; returns when the others have its data and it has ended."""
        ...

    def repair_node(self, name: str) -> None:
        """Let a node compare what it has with the other copies; returns when they are alike."""
        ...
