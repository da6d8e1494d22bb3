"""Trials of clusters on a database that runs already: which can be, their bed, their stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

from disklab.catalog import load_catalog
from disklab.database_facts import facts_of
from disklab.databases import Request, Sizes
from disklab.errors import DisklabError
from disklab.events import Emit, Warned
from disklab.hosts.node import Progress
from disklab.hosts.places import Places
from disklab.machines.protocol import Machine
from disklab.measurement import clients as client_hosts
from disklab.measurement import settings
from disklab.measurement.endpoint import Access, measured, namespace_of
from disklab.measurement.endpoint import check as check_access
from disklab.measurement.far_bed import FarBed, of_clients, of_hosts
from disklab.measurement.far_load import Client
from disklab.measurement.host_counters import doubts
from disklab.measurement.hosted import Hosted
from disklab.measurement.journal import Journal, undo_all
from disklab.measurement.machines_of import cpu_line
from disklab.measurement.site import different
from disklab.procedures.bed import Bed
from disklab.procedures.build import Site
from disklab.procedures.conditions import BedState
from disklab.procedures.outcome import Frame
from disklab.procedures.rehearsal import Beds, run_turn
from disklab.procedures.turn import Turn
from disklab.results import Mode, Run, TrialResult
from disklab.spec import Experiment, Refusal, Trial, TrialSpec
from disklab.workloads.rows import WARM_UP_TABLE

DATABASE = "database"
"""What the journal calls the running database, which is none of the hosts."""
AS_LEFT = {"page_cache": "as-left", "host_cache": "as-left"}


def place_cluster(experiment: Experiment, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials as a running database can have them; what cannot be is refused."""
    able = [trial for trial in trials if trial.refused is None]
    refused: dict[int, Refusal] = {}
    for trial in able:
        if trial.spec.workload.kind != "rows":
            place = experiment.document.place(("workload",))
            rule = "on a running database only reads and writes of rows are measured"
            way_out = "rehearse it: disklab rehearse FILE"
            refused[trial.index] = Refusal(place, trial.spec.workload.kind, rule, way_out)
        elif trial.spec.events:
            place = experiment.document.place(("events",))
            value = f"{len(trial.spec.events)} steps"
            rule = "disklab starts and stops nothing of a database that runs already"
            way_out = "have it built: `hosts` in the hosts file; or rehearse it"
            refused[trial.index] = Refusal(place, value, rule, way_out)
    asked = {trial.index: fixed_parts(trial.spec) for trial in able}
    for key, values in different(list(asked.values())):
        told = ", ".join(map(str, values))
        rule = (
            f"the trials ask for several values of {key} ({told}), and a database that runs "
            "already is as it is"
        )
        place = experiment.document.place(tuple(key.split(".")))
        for index, parts in asked.items():
            why = Refusal(place, str(parts[key]), rule, "measure one level by --only")
            refused.setdefault(index, why)
    return [_as_left(replace(one, refused=refused.get(one.index, one.refused))) for one in trials]


def _as_left(trial: Trial) -> Trial:
    """Return a trial that begins with the caches as they are: they are another machine's."""
    before = trial.spec.before.model_copy(update=AS_LEFT)
    return replace(trial, spec=trial.spec.model_copy(update={"before": before}))


def fixed_parts(spec: TrialSpec) -> dict[str, Any]:
    """Return what disklab does not change of a running database, by key."""
    parts: dict[str, Any] = {}
    if spec.cluster is not None:
        parts |= {"cluster.nodes": spec.cluster.nodes, "cluster.vm": spec.cluster.vm}
        for name, volume in spec.cluster.volumes.items():
            for key in ("disks", "caching", "filesystem", "read_ahead_bytes"):
                shown = key.removesuffix("_bytes")
                parts[f"cluster.volumes.{name}.{shown}"] = getattr(volume, key)
    if spec.database is not None:
        parts |= {
            "database.engine": spec.database.engine,
            "database.version": spec.database.version,
            "database.settings": str(dict(spec.database.settings)),
        }
    parts["before.page_cache"] = spec.before.page_cache
    parts["before.host_cache"] = spec.before.host_cache
    return parts


def request_of(turn: Turn, namespace: str) -> Request:
    """Return the tables that a turn needs."""
    spec = turn.spec
    assert spec.database is not None, "a cluster experiment"
    assert spec.dataset is not None, "rows are of a data set"
    return Request(
        engine=spec.database.engine,
        # Nothing is sized: the memory is the server's.
        sizes=Sizes(memory_bytes=0, scale=Fraction(1)),
        replication_factor=spec.database.replication_factor,
        table=spec.database.table.model_dump(by_alias=True, exclude_none=True),
        columns=spec.dataset.columns,
        keyspace=namespace,
        tables_beside=(WARM_UP_TABLE,),
    )


@dataclass
class RunningStage:
    """The stage of a measurement of a running database."""

    access: Access
    machines: Mapping[str, Machine]
    """The hosts of the hosts file: those of the database are watched, clients make the load."""
    journal: Journal
    run: Run
    seed: int
    mode: Mode = "measure"
    told: list[str] = field(default_factory=list)
    """What could not be undone, for whoever closes."""
    _beds: Beds | None = None
    _clients: list[Client] = field(default_factory=list)
    _latest: FarBed | None = None

    def begin(self, emit: Emit) -> None:
        """Undo what a killed start of this run has left; make the clients' folders."""
        for text in self._undo():
            emit(Warned(text))
        hosts = self.access.hosts
        settings.apply_all(hosts, self.machines, self.journal, emit)
        self._clients = client_hosts.make(
            hosts, self.machines, self.journal, self.access.authorities()
        )
        places = Places.usual()
        site = Site(load_catalog(), places, self.run.folder / "logs", self.seed)
        self._beds = Beds(site, self.run.info.id, self._make)

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn. A failure of the turn is its result."""
        assert self._beds is not None, "begin() makes it"
        watched = [node.machine for node in self._watched()]
        cpu = [cpu_line(machine) for machine in watched]
        result = run_turn(turn, self._beds, run, frame, emit)
        bed = self._latest
        seen: dict[str, Any] = {}
        if watched:
            nodes = of_hosts(watched, cpu, bed)
            told = [text for one in nodes for text in doubts(one, None)]
            seen |= {"hosts": nodes, "warnings": [*result.warnings, *told]}
        if self._clients:
            seen |= of_clients(self._clients, turn, result.model_copy(update=seen), bed)
        return result.model_copy(update=seen)

    def _watched(self) -> list[Hosted]:
        """Return the database's own hosts, each with the directories on its disks."""
        found = []
        for name, machine in self.machines.items():
            host = self.access.hosts.file.hosts[name]
            if host.role == "node":
                given = {key: one.directory for key, one in host.volumes.items()}
                on = {key: PurePosixPath(one) for key, one in given.items() if one is not None}
                found.append(Hosted(machine, on))
        return found

    def close(self) -> None:
        """Drop our tables."""
        if self._beds is not None:
            try:
                self._beds.close()
            except DisklabError as error:
                self.told.append(str(error))
        self.told += self._undo()

    def _undo(self) -> list[str]:
        return undo_all(
            self.journal,
            dict(self.machines),
            lambda change: drop(self.access, change.before, change.path),
        )

    def _make(self, turn: Turn, prefix: str, site: Site, say: Progress) -> Bed:
        del prefix
        spec = turn.spec
        assert spec.cluster is not None, "a cluster experiment"
        namespace = namespace_of(self.run.info.id)
        request = request_of(turn, namespace)
        names = [one.name for one in self._clients]
        database = measured(self.access, request, namespace, names)
        change = self.journal.note(DATABASE, "drop", namespace, before=request.engine)
        with ExitStack() as undo:
            undo.callback(lambda: self.journal.undo_by(change, database.drop))
            undo.callback(database.stop)
            say(f"making {namespace}")
            database.start()
            volume = spec.cluster.volumes[spec.cluster.device_of("data")]
            self._latest = bed = FarBed(
                name=turn.bed,
                nodes=[],
                database=database,
                time_dilation=1,
                groups=[],
                network=None,
                data_device=spec.cluster.device_of("data"),
                state=BedState(
                    data="empty",
                    settled=True,
                    caching=volume.caching,
                    read_ahead_bytes=volume.read_ahead_bytes,
                ),
                compiles=facts_of(request.engine).compiles,
                is_warm=not facts_of(request.engine).compiles,
                log_folder=site.log_folder,
                undo=ExitStack(),
                hosted=self._watched(),
                clients=self._clients,
            )
            bed.undo = undo.pop_all()
            return bed


def check(access: Access, turn: Turn | None) -> None:
    """Raise UserError for what the running database cannot be asked for. Reaches nothing."""
    if turn is not None and turn.spec.database is not None:
        check_access(access, turn.spec.database.engine)


def drop(access: Access, engine: str, namespace: str) -> None:
    """Drop what a killed run has left in a running database."""
    request = Request(engine=engine, sizes=Sizes(memory_bytes=0), keyspace=namespace)
    measured(access, request, namespace).drop()
