"""Nodes that disklab makes, starts, breaks and restarts: what is alike whatever their database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from disklab.databases.place import ServerProcess, Way
from disklab.databases.protocol import Coldness, NodePlace
from disklab.errors import MachineError
from disklab.hosts.left_databases import record_group
from disklab.waiting import Wait

MIB = 1 << 20
POLL_SECONDS = 0.2
NO_GROUP = (
    "no memory group can be made here, so the page cache is not held at its scaled {mib} MiB: "
    "{what} cached that the full system would read from its disks"
)


class Node(ABC):
    """One node on given volumes. What fails raises MachineError with the end of its log."""

    place: NodePlace
    process: ServerProcess

    @property
    @abstractmethod
    def own(self) -> Sequence[Path]:
        """The folders that are the node's alone."""

    @abstractmethod
    def has_data(self) -> bool:
        """Return whether its disks hold what it was."""

    @abstractmethod
    def stop(self) -> None:
        """End it in order."""

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    def check(self) -> None:
        """Raise MachineError when it has ended by itself."""
        self.process.check()

    def wait_until(
        self,
        wanted: str,
        shows: Callable[[], bool | str],
        seconds: float,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """Return when it shows, which is asked for so long; a word is what it still lacks.

        `watch` raises when what has to answer has ended; None: what runs here.
        """
        with Wait(f"{self.place.name} {wanted}", seconds) as wait:
            while (answer := shows()) is not True:
                (watch or self.check)()
                if wait.is_over:
                    late = f"has taken longer than {seconds:g} s until it {wanted}"
                    raise self.failure(f"{late}: {answer}" if answer else late)
                wait.pause(POLL_SECONDS)

    def failure(self, what: str) -> MachineError:
        """Return an error that says what happened, with the end of its log."""
        return self.process.failure(what)

    def sync(self) -> None:
        """Write everything back that is dirty on its volumes."""
        self.place.host.sync(self.place)

    def drop_page_cache(self) -> None:
        """Drop what the page cache holds of its files. It should not run."""
        self.sync()
        if self.place.group is not None:
            self.place.group.reclaim()
        self.place.host.drop_pages(self.own)

    def record(self, limit_bytes: int | None = None) -> None:
        """Note its memory group, so that `clean` finds it after a kill, and give it a limit."""
        if self.place.group is not None:
            record_group(self.place.run_dir, self.place.group)
            if limit_bytes is not None:
                self.place.group.set_limit(limit_bytes)


N = TypeVar("N", bound=Node)


class Nodes(ABC, Generic[N]):
    """What breaks nodes one by one, and restarts them all. See `Breakable` and `Database`."""

    nodes: list[N]

    def __init__(self, title: str, places: Sequence[NodePlace]) -> None:
        """Take the database's name and where its nodes are."""
        self._places = places
        self._way = Way(title, [(place.host, place) for place in places])
        self._away: set[str] = set()
        """Nodes that were taken away on purpose, so silence from them is not a failure."""

    def _scale_notes(
        self, reasons: Sequence[str], page_cache_bytes: int, cached: str = "data are"
    ) -> list[str]:
        """Return in what the scale could not be followed, by these reasons and by the machine."""
        notes = [*self._way.notes, *reasons]
        if any(place.group is None and not place.host.elsewhere for place in self._places):
            notes.append(NO_GROUP.format(mib=page_cache_bytes // MIB, what=cached))
        return notes

    @property
    def secret(self) -> str:
        """What its data are made for: nobody, unless a database has a password."""
        return "none"

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts. Who may, a server's password or files say."""
        del addresses
        self._way.let_in(clients)

    def start(self) -> None:
        """Start every node on its data, the first time on new ones. See `Database`."""
        self._away.clear()
        try:
            self._bring_up()
            self.wait_until_whole()
        except BaseException:
            for node in self.nodes:
                with suppress(MachineError):
                    node.kill()
            raise

    @abstractmethod
    def _bring_up(self) -> None:
        """Start every node and make the schema; returns when they answer."""

    def wait_until_whole(self) -> None:
        """Return when every node has what had been written at the call: each that answers has."""

    @abstractmethod
    def _start_again(self, node: N) -> None:
        """Start a node on its data; returns when it serves."""

    def expect(self, connections: int) -> None:
        """Make no room for clients: one takes a few KiB, or memory is planned once."""

    def _cached(self) -> list[tuple[int, int]]:
        """Return the size of each node's data, and how much of it the page cache holds."""
        return [node.place.host.cached_bytes(node.own) for node in self.nodes]

    def _check(self) -> None:
        """Raise MachineError when a node that is not away has ended."""
        for node in self.nodes:
            if node.place.name not in self._away:
                node.check()

    def stop(self) -> None:
        """End every node in order."""
        for node in self.nodes:
            node.stop()

    def make_cold(self) -> Coldness:
        """Restart without page cache: what a server holds itself is a cache too."""
        self._check()
        self.stop()
        for node in self.nodes:
            node.drop_page_cache()
        self.start()
        size, cached = (sum(each) for each in zip(*self._cached(), strict=True))
        return Coldness("restart", size, cached)

    def kill_node(self, name: str) -> None:
        """End a node's processes at once."""
        self._away.add(name)
        self._named(name).kill()

    def start_node(self, name: str) -> None:
        """Start a killed node on its disks; returns when it serves."""
        node = self._named(name)
        if not node.has_data():
            raise node.failure("cannot be started: its disks are empty")
        self._start_again(node)
        self._away.discard(name)

    def restart_node(self, name: str) -> None:
        """End a node in order, drop its page cache, start it."""
        self._away.add(name)
        node = self._named(name)
        node.stop()
        node.drop_page_cache()
        self.start_node(name)

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        """Take a node that cannot be reached for one that is away: it is asked nothing."""
        change = self._away.discard if reachable else self._away.add
        change(name)

    def _named(self, name: str) -> N:
        return next(node for node in self.nodes if node.place.name == name)
