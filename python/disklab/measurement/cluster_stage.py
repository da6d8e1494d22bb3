"""The stage of a measured database: its beds on hosts, one turn after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from disklab.catalog import load_catalog
from disklab.errors import DisklabError
from disklab.events import Emit, Warned
from disklab.hosts.node import Progress
from disklab.hosts.places import Places
from disklab.machines.protocol import Machine
from disklab.measurement import clients as client_hosts
from disklab.measurement import settings
from disklab.measurement.clients import Client
from disklab.measurement.existing_hosts import ExistingBedHosts, of_clients, of_hosts
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.journal import Journal
from disklab.measurement.machines_of import cpu_line
from disklab.measurement.settings import Spot
from disklab.procedures.bed import Bed
from disklab.procedures.build import Site
from disklab.procedures.outcome import Frame
from disklab.procedures.rehearsal import Beds, run_turn
from disklab.procedures.turn import Turn
from disklab.results import Mode, Run, TrialResult


@dataclass
class ClusterStage(ABC):
    """The stage of a measured database, built by disklab or already running."""

    hosts: Hosts
    machines: Mapping[str, Machine]
    """The hosts of the hosts file: nodes of the database are watched, clients make the load."""
    journal: Journal
    run: Run
    seed: int
    mode: Mode = "measure"
    told: list[str] = field(default_factory=list)
    """Messages about what could not be undone; read after `close`."""
    clients: list[Client] = field(default_factory=list)
    latest: Bed | None = None
    """The bed of the turn under way. That of a timetable is closed when its turn has ended."""
    _beds: dict[tuple[Spot, ...], Beds] = field(default_factory=dict)
    _hosts_of: dict[tuple[Spot, ...], ExistingBedHosts] = field(default_factory=dict)

    def begin(self, emit: Emit) -> None:
        """Undo what a killed start of this run has left; then change what the plan says."""
        for text in self.undone(goes_on=True):
            emit(Warned(text))
        settings.apply_all(self.hosts, self.machines, self.journal, emit)
        self.clients = client_hosts.make(
            self.hosts, self.machines, self.journal, self.authorities()
        )

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn. A failure of the turn is its result."""
        spots = self.spots_of(turn)
        if spots not in self._beds:
            self._close_overlapping(spots)
            site = Site(load_catalog(), Places.usual(), self.run.folder / "logs", self.seed)
            self._beds[spots] = Beds(site, self.run.info.id, self._make)
        machines = self.watched(spots)
        cpu = [cpu_line(machine) for machine in machines]
        self.latest = self.standing(spots)
        self.before(turn, spots, emit)
        result = run_turn(turn, self._beds[spots], run, frame, emit)
        hosts = self.hosts_of(spots)
        seen = self.seen(turn, spots, of_hosts(machines, cpu, hosts), emit)
        seen["warnings"] = [*result.warnings, *seen.get("warnings", ())]
        if self.clients:
            seen |= of_clients(self.clients, turn, result.model_copy(update=seen), hosts)
        return result.model_copy(update=seen)

    def _make(self, turn: Turn, prefix: str, site: Site, say: Progress) -> Bed:
        del prefix
        self.latest, hosts = self.make(turn, site, say)
        self._hosts_of[self.spots_of(turn)] = hosts
        return self.latest

    def standing(self, spots: Sequence[Spot]) -> Bed | None:
        """Return the bed that stands on hosts."""
        return self._beds[tuple(spots)].standing

    def hosts_of(self, spots: Sequence[Spot]) -> ExistingBedHosts | None:
        """Return the hosts of the latest bed; None: it could not be made."""
        return None if self.latest is None else self._hosts_of[tuple(spots)]

    def _close_overlapping(self, spots: tuple[Spot, ...]) -> None:
        """Take beds away that stand on hosts which are needed otherwise now."""
        for others, beds in self._beds.items():
            if {spot.host for spot in others} & {spot.host for spot in spots}:
                beds.close()

    def close(self) -> None:
        """Take the databases away, as far as they are ours; change back what was changed."""
        for beds in self._beds.values():
            try:
                beds.close()
            except DisklabError as error:  # noqa: PERF203 - one host holds up no other
                self.told.append(str(error))
        self.told += self.undone(goes_on=False)

    def authorities(self) -> bytes | None:
        """Return the certificates that clients get, for a server that is known by them."""
        return None

    def spots_of(self, turn: Turn) -> tuple[Spot, ...]:
        """Return where a turn's nodes are; empty: that is the database's business."""
        del turn
        return ()

    def before(self, turn: Turn, spots: Sequence[Spot], emit: Emit) -> None:
        """Do what comes before a turn on a bed that stands already: here nothing."""
        del turn, spots, emit

    @abstractmethod
    def undone(self, *, goes_on: bool) -> list[str]:
        """Undo what the journal has, but for what a run goes on with; return what could not be."""

    @abstractmethod
    def watched(self, spots: Sequence[Spot]) -> list[Machine]:
        """Return the hosts of nodes that are watched."""

    @abstractmethod
    def seen(
        self, turn: Turn, spots: Sequence[Spot], nodes: list[dict[str, Any]], emit: Emit
    ) -> dict[str, Any]:
        """Return what hosts add to a result. `nodes`: of `of_hosts`."""

    @abstractmethod
    def make(self, turn: Turn, site: Site, say: Progress) -> tuple[Bed, ExistingBedHosts]:
        """Return a bed whose database answers. Raises DisklabError; then nothing is left."""
