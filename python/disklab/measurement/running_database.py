"""Trials of clusters on a database that runs already: which can be, their bed, their stage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from disklab.database_facts import facts_of
from disklab.databases import Request, Sizes
from disklab.events import Emit
from disklab.hosts.node import Progress
from disklab.machines.protocol import Machine
from disklab.measurement.cluster_stage import ClusterStage
from disklab.measurement.endpoint import Access, measured, namespace_of
from disklab.measurement.endpoint import check as check_access
from disklab.measurement.existing_hosts import ExistingBedHosts, doubts
from disklab.measurement.journal import undo_all
from disklab.measurement.machines_of import Hosted
from disklab.measurement.settings import Spot, different
from disklab.procedures.bed import Bed
from disklab.procedures.build import Site, request_of
from disklab.procedures.conditions import BedState
from disklab.procedures.turn import Turn
from disklab.spec import Experiment, Refusal, Trial, TrialSpec

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
            rule = "disklab does not start or stop a database that is already running"
            way_out = "have it built: `hosts` in the hosts file; or rehearse it"
            refused[trial.index] = Refusal(place, value, rule, way_out)
    asked = {trial.index: fixed_parts(trial.spec) for trial in able}
    for key, values in different(list(asked.values())):
        told = ", ".join(map(str, values))
        rule = (
            f"the trials need several values of {key} ({told}), but disklab does not change a "
            "database that is already running"
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


@dataclass
class RunningDatabaseStage(ClusterStage):
    """The stage of a measurement of a running database."""

    access: Access = field(kw_only=True)

    def authorities(self) -> bytes | None:
        """Return those that its server is known by."""
        return self.access.authorities()

    def undone(self, *, goes_on: bool) -> list[str]:
        """Undo everything: drop our tables, too."""
        del goes_on
        return undo_all(
            self.journal,
            dict(self.machines),
            lambda change: drop(self.access, change.before, change.path),
        )

    def watched(self, spots: Sequence[Spot]) -> list[Machine]:
        """Return the database's own hosts, as far as the hosts file has them."""
        del spots
        return [node.machine for node in self._hosted()]

    def seen(
        self, turn: Turn, spots: Sequence[Spot], nodes: list[dict[str, Any]], emit: Emit
    ) -> dict[str, Any]:
        """Return what was seen of the database's hosts."""
        del turn, spots, emit
        warnings = [text for node in nodes for text in doubts(node, None)]
        return {"hosts": nodes, "warnings": warnings} if nodes else {}

    def _hosted(self) -> list[Hosted]:
        """Return the database's own hosts, each with the directories on its disks."""
        found = []
        for name, machine in self.machines.items():
            host = self.hosts.file.hosts[name]
            if host.role == "node":
                given = {key: one.directory for key, one in host.volumes.items()}
                on = {key: PurePosixPath(one) for key, one in given.items() if one is not None}
                found.append(Hosted(machine, on))
        return found

    def make(self, turn: Turn, site: Site, say: Progress) -> tuple[Bed, ExistingBedHosts]:
        """Make our tables in it."""
        del site
        spec = turn.on_cluster
        namespace = namespace_of(self.run.info.id)
        # Nothing is sized: the memory is the server's.
        request = replace(request_of(turn, Sizes(memory_bytes=0)), keyspace=namespace)
        names = [client.name for client in self.clients]
        database = measured(self.access, request, namespace, names)
        change = self.journal.note(DATABASE, "drop", namespace, before=request.engine)
        with ExitStack() as undo:
            undo.callback(lambda: self.journal.undo_by(change, database.drop))
            undo.callback(database.stop)
            say(f"making {namespace}")
            database.start()
            volume = spec.cluster.volumes[spec.cluster.device_of("data")]
            state = BedState(
                data="empty",
                settled=True,
                caching=volume.caching,
                read_ahead_bytes=volume.read_ahead_bytes,
            )
            compiles, taken_back = facts_of(request.engine).compiles, ExitStack()
            hosts = ExistingBedHosts(self._hosted(), self.clients, self.journal, taken_back)
            taken_back.push(undo.pop_all())
            bed = Bed(turn.bed, hosts, database, state, taken_back, not compiles, compiles)
            return bed, hosts


def check(access: Access, turn: Turn | None) -> None:
    """Raise UserError for what the running database cannot be asked for. Reaches nothing."""
    if turn is not None and turn.spec.database is not None:
        check_access(access, turn.spec.database.engine)


def drop(access: Access, engine: str, namespace: str) -> None:
    """Drop what a killed run has left in a running database."""
    request = Request(engine=engine, sizes=Sizes(memory_bytes=0), keyspace=namespace)
    measured(access, request, namespace).drop()
