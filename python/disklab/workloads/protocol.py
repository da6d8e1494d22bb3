"""What every workload offers, whoever makes its load: our engine, or a program such as sysbench."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from disklab.engine.load import KnownVersions, LoadDone, LoadEvent, Stop

Target = Mapping[str, object]
"""Where a database is found: `Database.target`."""


class Load(Protocol):
    """A load under way: iterate over it for its events, the last of which is LoadDone.

    Raises UserError for what cannot be asked of it, and MachineError or EngineError when it fails.
    As a context manager it ends what it started.
    """

    @property
    def pid(self) -> int | None:
        """The process on this machine that makes the load; None: other machines make it."""
        ...

    def end(self) -> None:
        """End the load, called from any thread; nothing when it has ended.

        Its iteration then ends with its last event or an error.
        """
        ...

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield events as they come."""
        ...

    def __enter__(self) -> Self:
        """Return itself."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the load if it still runs."""
        ...


Begin = Callable[[], Load]
"""Starts a load."""


@dataclass(frozen=True)
class Asked:
    """One run of a trial's load."""

    stop: Stop
    stream: int
    """Seeds what is drawn at random in it."""
    threads: int | None = None
    """Instead of the trial's."""
    versions: bool = False
    """Whether writes of rows get versions, where they can have them."""


class WorkloadFacts(Protocol):
    """What is known of a load before it runs."""

    @property
    def data_bytes(self) -> int:
        """How large one copy of the data set is, without indexes and journals; about."""
        ...

    @property
    def generators(self) -> int:
        """How many threads with work of their own the load generator has."""
        ...

    @property
    def makes_tables(self) -> bool:
        """Whether a fill drops and makes its tables; otherwise they are the database's to empty."""
        ...

    @property
    def headline(self) -> str | None:
        """The operation whose rate and latency are the trial's; None: all together."""
        ...


class Workload(WorkloadFacts, Protocol):
    """The load of one trial as it is run here (`Trial.here`), and the data it is put on."""

    def fill(self, target: Target) -> Sequence[Begin]:
        """Return what makes the data set, in order. Every operation of it must succeed."""
        ...

    def warm_up(self, target: Target, operations: int, stream: int) -> Sequence[Begin]:
        """Return what lets a just-in-time compiler see the load, on a table beside.

        Nothing when there is no such table.
        """
        ...

    def run(self, target: Target, asked: Asked) -> Begin:
        """Return the trial's own load, in slow motion where the trial has one; all else is not."""
        ...

    def check(
        self,
        target: Target,
        known: KnownVersions | None = None,
        consistency: str | None = None,
    ) -> Begin | None:
        """Return what verifies the data after the last run; None: reads verify them as they go.

        `known`: what that run told of the versions of rows. `consistency`: in place of the trial's.
        """
        ...

    def wear(self, done: LoadDone) -> float:
        """Return by which share of its size a run has changed the data set; 1: it is another."""
        ...
