"""What a database that runs says of itself to somebody who only looks.

Each database has an observer in its own folder, named in its `RECORD`. It asks for counters that
the server keeps anyway, changes nothing, and needs no more rights than its documentation says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from disklab.database_facts import facts_of
from disklab.database_settings import Setting, setting_problems
from disklab.errors import MachineError, Problem, UserError
from disklab.reading import MOST_SHOWN, digits
from disklab.terminal import plain


@dataclass(frozen=True)
class Target:
    """Where a running database is, and who asks it."""

    addresses: tuple[str, ...]
    """HOST or HOST:PORT of its nodes; some of them are enough where it tells the others."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str = "postgres"
    """PostgreSQL: the database that is looked at."""
    tls: bool = False
    """Whether every connection is encrypted."""
    ca_file: str | None = None
    """Certificates that the server's must come from, for the address that is connected to."""
    sample: bool = True
    """Whether the lengths of some rows may be measured by reading them."""

    def points(self, port: int) -> list[tuple[str, int]]:
        """Return the addresses as host and port; `port`: where an address names none."""
        found = []
        for one in self.addresses:
            host, _, told = one.rpartition(":")
            number = digits(told, (1 << 16) - 1) if host else port
            if not number:
                rule = "a port is a number from 1 to 65535"
                raise UserError(Problem("--address", one, rule, f"write for example {host}:{port}"))
            found.append((host or one, number))
        return found


@dataclass(frozen=True)
class NodeSeen:
    """A node of the database."""

    address: str
    """HOST:PORT at which it takes operations."""
    folders: tuple[str, ...] = ()
    """Where its data lie on its host; empty: it does not tell."""


@dataclass(frozen=True)
class TableSeen:
    """A table with its rows. None: it could not be seen."""

    name: str
    """With its keyspace or schema."""
    copies: int
    rows: float | None
    """Copies not counted."""
    row_bytes: float | None
    """Bytes of all values of a row beside its key."""
    columns: int
    """Beside the key."""
    stored_bytes: float
    """On the disks of all nodes, copies counted."""
    options: Mapping[str, Setting] = field(default_factory=dict)
    """How it is stored, in the words of `database.table` of an experiment file."""


@dataclass(frozen=True)
class Shape:
    """What does not change while somebody looks."""

    version: str
    """Such as `Cassandra 5.0.6`."""
    nodes: tuple[NodeSeen, ...]
    tables: tuple[TableSeen, ...]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Settings that an experiment file takes, by the database's own names."""
    mean_ms: Mapping[str, float] = field(default_factory=dict)
    """Mean response time by operation since the observer connected, where no percentile is told."""
    unseen: tuple[str, ...] = ()
    """What it could not tell, and why: whole sentences without a full stop."""


@dataclass(frozen=True)
class Count:
    """What happened to a table since the server started: only grows."""

    reads: float = 0.0
    """Reads of rows by their key, as clients asked for them."""
    writes: float = 0.0
    scans: float = 0.0
    """Reads of ranges or whole tables."""
    copies_read: float = 0.0
    """Copies that were asked for those reads; 0: it does not tell."""

    def __sub__(self, earlier: Count) -> Count:
        """Return the growth. A server that was restarted in between began at 0 again."""
        grown = {}
        for name, value in vars(self).items():
            before = getattr(earlier, name)
            grown[name] = value - before if value >= before else value
        return Count(**grown)

    def __add__(self, other: Count) -> Count:
        """Return both together."""
        return Count(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class CacheSeen:
    """A cache of the database's own, all nodes together."""

    name: str
    of: Literal["rows", "bytes"]
    """Whether its share of the data is counted in rows, copies included, or in bytes."""
    held: float
    """Rows or bytes that are in it."""
    full: bool
    """Whether it holds as much as it may: otherwise nothing had to leave it."""
    hits: float
    """Since the server started."""
    requests: float


@dataclass(frozen=True)
class Latency:
    """Response times of a table's operations, lately, as the server that was asked sees them."""

    table: str
    operation: Literal["read", "write"]
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Reading:
    """The counters at one moment."""

    at_s: float
    """By the monotonic clock of this machine."""
    tables: Mapping[str, Count]
    caches: tuple[CacheSeen, ...] = ()
    latencies: tuple[Latency, ...] = ()
    pending_compactions: float | None = None
    commits: float | None = None
    """Transactions that changed something, since the server started; None: it does not tell."""


def figure(text: str) -> float:
    """Return a number of an answer. Raises ValueError; also for one that is not finite."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text!r} is not a number")
    return value


OPERATIONS = {"read": ("SELECT",), "write": ("INSERT", "UPDATE", "DELETE", "REPLAC")}
"""The first six letters of SQL statements by what they do."""


def mean_ms(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """Return the mean time of reads and writes, from calls and seconds by a statement's letters."""
    means = {}
    for operation, words in OPERATIONS.items():
        begun = [(after[word], before.get(word, (0.0, 0.0))) for word in words if word in after]
        calls, seconds = (sum(now[i] - then[i] for now, then in begun) for i in (0, 1))
        if calls > 0:
            means[operation] = seconds / calls * 1000
    return means


class Understood:
    """An observer whose answers have been looked at: a server may say anything.

    What no server of its kind says is a MachineError; whatever is read of it is a number.
    """

    def __init__(self, engine: str, connect: Callable[[], Observer]) -> None:
        """Connect. Raises MachineError."""
        self._engine = engine
        with self._taken_apart():
            self._observer = connect()

    def read(self) -> Reading:
        """See `Observer`."""
        with self._taken_apart():
            reading = self._observer.read()
            figures = [*reading.tables.values(), *reading.caches, *reading.latencies]
            self._check(value for part in figures for value in vars(part).values())
            return reading

    def shape(self, tables: Collection[str]) -> Shape:
        """See `Observer`."""
        with self._taken_apart():
            shape = self._observer.shape(tables)
            self._check(value for table in shape.tables for value in vars(table).values())
            self._check(shape.mean_ms.values())
            rows = sum((one.rows or 0) * (one.row_bytes or 0) * one.copies for one in shape.tables)
            whole = max(rows, sum(one.stored_bytes for one in shape.tables))
            if whole > MOST_NODE_BYTES * max(1, len(shape.nodes)):
                raise ValueError(f"data of {whole:.3g} bytes")
            strange = [value for value in shape.settings.values() if not str(value).isprintable()]
            if strange:
                raise ValueError(f"{strange[0]!r} is no setting")
            for problem in setting_problems(self._engine, shape.settings):
                # Said before the window begins: no file with it could be read.
                raise ValueError(f"{problem.place}: {problem.value}: {problem.rule}")
            return shape

    def close(self) -> None:
        """See `Observer`."""
        self._observer.close()

    def _check(self, values: Iterable[object]) -> None:
        for value in values:
            if isinstance(value, int | float) and not 0 <= value < MOST_COUNTED:
                raise ValueError(f"{value!r} counts nothing")

    @contextmanager
    def _taken_apart(self) -> Iterator[None]:
        try:
            yield
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            words = plain(" ".join(repr(error).split()))[:MOST_SHOWN]
            rule = f"what it answered is no answer of {facts_of(self._engine).title}: {words}"
            raise MachineError(f"{rule}; is something else listening there?") from error


MOST_COUNTED = 1e20
"""More than 64 bits count."""
MOST_NODE_BYTES = 3e14
"""With room to grow a volume has no disks for more."""


class Observer(Protocol):
    """A running database that is looked at. Methods raise MachineError when it does not answer."""

    def read(self) -> Reading:
        """Return the counters as they are now."""
        ...

    def shape(self, tables: Collection[str]) -> Shape:
        """Return what it is; of these tables, also how long their rows are and how many."""
        ...

    def close(self) -> None:
        """End the connections."""
        ...
