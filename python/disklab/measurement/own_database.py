"""Trials of a database that disklab builds on hosts: where each can be, its bed, its stage.

Its data lie in folders of ours on the hosts' volumes. A run that was killed and goes on finds them
there, full, and fills nothing again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from disklab.catalog import load_catalog
from disklab.database_facts import facts_of
from disklab.databases import Sizes, record_of
from disklab.databases.record import built_nowhere
from disklab.errors import DisklabError, MachineError
from disklab.events import Emit, PhaseStarted
from disklab.hosts.node import Progress
from disklab.machines import own_folders as folders
from disklab.machines.protocol import Machine
from disklab.measurement import canary
from disklab.measurement import clients as client_hosts
from disklab.measurement.canary import Beside, Canaries
from disklab.measurement.cluster_stage import ClusterStage
from disklab.measurement.existing_hosts import FILLED, ExistingBedHosts, doubts
from disklab.measurement.formatting import format_and_mount
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.journal import Change, undo_all
from disklab.measurement.machines_of import ENGINES, Hosted, HostedDatabase, facts, make
from disklab.measurement.settings import DATA, Placed, Spot, place_trials
from disklab.procedures.bed import Bed
from disklab.procedures.build import Site, request_of
from disklab.procedures.conditions import BedState
from disklab.procedures.outcome import Frame
from disklab.procedures.turn import Turn
from disklab.results import Run, TrialResult
from disklab.spec import ClusterTrial, Experiment, Refusal, Trial, TrialSpec
from disklab.spec.amounts import only
from disklab.spec.timetable import CLIENT, LINK_KINDS

KEPT_SECRET = ".disklab-secret"  # noqa: S105 - the name of a file
"""In a database's folder: what its data directory was made for."""
SENT = ("rows", "tpcc")
"""The loads that our own engine makes, which is on every host."""
ALLOWED_BY = {
    "links": (("cut",), "routes"),
    "network": (("slow_link", "lossy"), "queueing disciplines"),
}
"""By key of `may_change`: events that need it, and what they give a host."""


def place_cluster(experiment: Experiment, trials: Sequence[Trial], hosts: Hosts) -> Placed:
    """Return where trials are measured, each on its nodes' hosts; what cannot be is refused.

    The spots of a trial are whole sets of nodes, one set after the other.
    """
    told = []
    for trial in trials:
        why = None if trial.refused is not None else _why_not(experiment, trial, hosts)
        told.append(trial if why is None else replace(trial, refused=why))
    placed = place_trials(experiment, told, hosts)
    as_left = {"host_cache": "as-left"}
    changed, spots = [], {}
    for trial in placed.trials:
        before = trial.spec.before.model_copy(update=as_left)
        # The cache of the machine below is not ours to fill or to empty.
        one = replace(trial, spec=trial.spec.model_copy(update={"before": before}))
        if one.refused is None:
            found = placed.spots[trial.index]
            nodes = nodes_of(one)
            spots[one.index] = found[: len(found) // nodes * nodes]
            why = _why_not_there(experiment, one, hosts, found)
            one = one if why is None else replace(one, refused=why)
        changed.append(one)
    able = {one.index for one in changed if one.refused is None}
    return Placed(changed, {index: where for index, where in spots.items() if index in able})


def nodes_of(trial: Trial) -> int:
    """Return how many hosts a trial's database is on."""
    return trial.spec.nodes


def volumes_apart(trial: Trial) -> list[str]:
    """Return the volumes of a node that lie on devices of their own, the data's first."""
    cluster = only(ClusterTrial, trial.spec).cluster
    names = [name for name in cluster.volumes if cluster.device_of(name) == name]
    return [DATA, *(name for name in names if name != DATA)]


def _why_not(experiment: Experiment, trial: Trial, hosts: Hosts) -> Refusal | None:
    spec = only(ClusterTrial, trial.spec)
    place = experiment.document.place
    if record_of(spec.database.engine).needed_on is built_nowhere:
        rule = f"on hosts disklab builds {', '.join(ENGINES)} and kits only"
        way_out = "rehearse it on this machine, or predict it"
        return Refusal(place(("database", "engine")), spec.database.engine, rule, way_out)
    if spec.workload.kind not in SENT and client_hosts.names_of(hosts):
        rule = f"client hosts make loads of {' and '.join(SENT)} only: they have no other program"
        way_out = "take the hosts of role client out of the hosts file; the load comes from here"
        return Refusal(place(("workload",)), spec.workload.kind, rule, way_out)
    if spec.events and len(client_hosts.names_of(hosts)) > 1:
        # Which version of a row was acknowledged last is known to one generator alone.
        rule = (
            "with a timetable a single client generates the load, because only it knows "
            "what was acknowledged last"
        )
        value = ", ".join(client_hosts.names_of(hosts))
        way_out = "take all but one of them out of the hosts file"
        return Refusal(place(("events",)), value, rule, way_out)
    return _why_not_changed(experiment, spec, hosts)


def _why_not_changed(experiment: Experiment, spec: TrialSpec, hosts: Hosts) -> Refusal | None:
    """Return why links cannot be what a timetable says."""
    place = experiment.document.place
    for key, (kinds, what) in ALLOWED_BY.items():
        asked = [kind for kind in kinds if any(event.kind == kind for event in spec.events)]
        lacks = [name for name, one in hosts.file.hosts.items() if key not in one.may_change]
        if asked and lacks:
            rule = f"this needs {what} of ours on the hosts, and not all of them allow it"
            way_out = f"write may_change: [{key}] at {', '.join(lacks)}"
            return Refusal(place(("events",)), ", ".join(asked), rule, way_out)
    narrow = [e for e in spec.events if e.bandwidth_bytes_per_s is not None and len(e.ends) == 1]
    if narrow:
        rule = "on hosts a bandwidth applies to the connection between two, not to a whole link"
        way_out = f"write slow_link: {narrow[0].ends[0]}-{CLIENT}, and the same for the others"
        return Refusal(place(("events",)), f"slow_link: {narrow[0].ends[0]}", rule, way_out)
    if changes_links(spec) and not client_hosts.names_of(hosts):
        rule = "the load comes from this machine, and so does SSH, so its links are not changed"
        way_out = "add a host of role client to the hosts file"
        return Refusal(place(("events",)), "links", rule, way_out)
    return None


def changes_links(spec: TrialSpec) -> bool:
    """Return whether a trial's timetable changes links."""
    return any(event.kind in LINK_KINDS for event in spec.events)


def cuts(spec: TrialSpec) -> bool:
    """Return whether it cuts them."""
    return any(event.kind in ALLOWED_BY["links"][0] for event in spec.events)


def shapes(spec: TrialSpec) -> bool:
    """Return whether it makes them slow or lossy."""
    return any(event.kind in ALLOWED_BY["network"][0] for event in spec.events)


def _why_not_there(
    experiment: Experiment, trial: Trial, hosts: Hosts, found: Sequence[Spot]
) -> Refusal | None:
    """Return why the hosts that have a trial's levels are not enough."""
    nodes, place = nodes_of(trial), experiment.document.place
    if len(found) < nodes:
        there = ", ".join(spot.host for spot in found)
        rule = f"each node needs a host of its own, and there are {len(found)} ({there})"
        way_out = "add hosts of role node to the hosts file, or lower the number of nodes"
        return Refusal(place(("cluster", "nodes")), str(nodes), rule, way_out)
    for name in volumes_apart(trial):
        lacks = [spot.host for spot in found if name not in hosts.file.hosts[spot.host].volumes]
        if lacks and name != DATA:
            rule = f"the hosts {', '.join(lacks)} have no volume of this name"
            way_out = f"name a directory: volumes: {{{name}: /mnt/{name}}}, or leave the volume out"
            return Refusal(place(("cluster", "volumes", name)), name, rule, way_out)
    return None


@dataclass
class Kept:
    """What a killed start has left of a bed, full: its folders, in the order of its nodes."""

    nodes: list[dict[str, Change]]
    """By volume."""
    state: dict[str, Any]


@dataclass
class OwnDatabaseStage(ClusterStage):
    """The stage of a measurement that builds its database on hosts."""

    placed: Placed = field(kw_only=True)
    _only_reads: bool = False
    _canaries: Canaries = field(default_factory=Canaries)

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn. A failure of the turn is its result."""
        work = turn.spec.workload
        self._only_reads = (
            work.kind == "rows" and work.operations is not None and not work.operations.changes
        )
        return super().turn(turn, run, frame, emit)

    def undone(self, *, goes_on: bool) -> list[str]:
        """Undo everything, but for full data that a run goes on with."""
        stays = [*self._full()] if goes_on else []
        return undo_all(self.journal, dict(self.machines), stays=stays)

    def watched(self, spots: Sequence[Spot]) -> list[Machine]:
        """Return the hosts of a turn's nodes."""
        return [self.machines[spot.host] for spot in spots]

    def seen(
        self, turn: Turn, spots: Sequence[Spot], nodes: list[dict[str, Any]], emit: Emit
    ) -> dict[str, Any]:
        """Return where a turn was measured, and what its disks were beside it."""
        bed, noise = self.latest, []
        hosts = self.hosts_of(spots)
        if hosts is not None and hosts.beside is not None:
            if bed is self.standing(spots):
                emit(PhaseStarted("condition", "a short probe of the disks, after it"))
                hosts.beside.end(only_reads=self._only_reads)
            nodes = [one | hosts.beside.told(str(one["host"])) for one in nodes]
            noise = hosts.beside.doubts()
        seen: dict[str, Any] = {"host": ", ".join(map(str, spots))}
        seen["stolen_ratio"] = max(one["stolen_ratio"] for one in nodes)
        seen["hosts"] = nodes
        seen |= {"clock": nodes[0].get("clock")} if len(nodes) == 1 else {}
        seen["warnings"] = [*_doubts(turn, nodes), *noise]
        if bed is not None and turn.spec.before.page_cache == "cold":
            seen["page_cache"] = bed.coldness
        return seen

    def before(self, turn: Turn, spots: Sequence[Spot], emit: Emit) -> None:
        """Probe the disks of a bed that stands already; one that is built is probed there."""
        bed, hosts = self.latest, self.hosts_of(spots)
        if bed is None or hosts is None or bed.name != turn.bed or hosts.beside is None:
            return
        emit(PhaseStarted("condition", "a short probe of the disks, before it"))
        hosts.beside.begin()

    def _nests(self, spots: Sequence[Spot], nodes: Sequence[Hosted], undo: ExitStack) -> Beside:
        """Make a file for short probes on each node's data disk, and probe them."""
        nests, lacking = [], {}
        for spot, node in zip(spots, nodes, strict=True):
            directory = str(node.folder.parent)
            try:
                nest = canary.make_nest(node.machine, str(spot), directory, self.journal)
            except DisklabError as error:
                lacking[spot.host] = str(error)
            else:
                undo.callback(self._undo, nest.change, node.machine)
                nests.append(nest)
        beside = Beside(self._canaries, nests, lacking)
        beside.begin()
        return beside

    def spots_of(self, turn: Turn) -> tuple[Spot, ...]:
        """Return where the nodes of a turn are: repeats take sets of hosts in turn."""
        spots, nodes = self.placed.spots[turn.trial.index], nodes_of(turn.trial)
        first = turn.repeat % (len(spots) // nodes) * nodes
        return tuple(spots[first : first + nodes])

    def _full(self) -> Iterator[Change]:
        """Yield the folders of a killed start that belong to full data."""
        left = [one for one in self.journal.left() if one.kind == "remove_database"]
        for change in left:
            state = self._state(change)
            if state.get("data") == "filled":
                beside = state.get("folders")
                paths = beside.values() if isinstance(beside, dict) else [change.path]
                kept = [one for one in left if one.host == change.host and one.path in paths]
                yield from kept
                # What they lie on stays mounted.
                for one in kept:
                    yield from self._mounts_of(one)

    def _state(self, change: Change) -> dict[str, Any]:
        """Return what a host's folder says of its data; nothing where it is none of ours."""
        machine, folder = self.machines.get(change.host), PurePosixPath(change.path)
        if machine is None:
            return {}
        with suppress(MachineError, ValueError):
            marker = machine.files.read(folder / folders.MARKER).decode("ascii")
            state = json.loads(machine.files.read(folder / FILLED, 64 << 10))
            if marker == change.before and isinstance(state, dict):
                return state
        return {}

    def _kept(self, turn: Turn, spots: Collection[Spot]) -> Kept | None:
        """Return the full database of a turn's bed that a killed start has left on its hosts.

        What else is left there goes: the disks are needed.
        """
        hosts = [spot.host for spot in spots]
        left = [one for one in self.journal.left() if one.kind == "remove_database"]
        left = [one for one in left if one.host in hosts]
        found: dict[str, tuple[dict[str, Change], dict[str, Any]]] = {}
        for change in left:
            state = self._state(change)
            beside = state.get("folders")
            if state.get("bed") != turn.bed or state.get("data") != "filled":
                continue
            if isinstance(beside, dict):
                own = {one.path: one for one in left if one.host == change.host}
                if set(beside.values()) <= own.keys():
                    ours = {name: own[path] for name, path in beside.items()}
                    found[change.host] = (ours, state)
        sets = {str(state.get("set")) for _, state in found.values()}
        if set(found) == set(hosts) and len(sets) == 1:
            return Kept([found[host][0] for host in hosts], found[hosts[0]][1])
        for change in left:
            self.journal.undo(change, self.machines[change.host])
        return None

    def make(self, turn: Turn, site: Site, say: Progress) -> tuple[Bed, ExistingBedHosts]:
        """Build the database of a turn, or go on with the full one that a killed start left."""
        spots = self.spots_of(turn)
        kept = self._kept(turn, spots)
        with ExitStack() as undo:
            nodes = []
            for number, spot in enumerate(spots):
                own = None if kept is None else kept.nodes[number]
                nodes.append(self._hosted(turn, spot, own, say, undo))
            say("short probes of the disks, for which a file is written")
            beside = self._nests(spots, nodes, undo)
            # Of machines that are the same, the smallest decides for all nodes.
            sizes = [int(facts(node.machine).get("memory_bytes", 0)) for node in nodes]
            heap_bytes = turn.on_cluster.database.jvm.heap_bytes
            request = request_of(turn, Sizes(memory_bytes=min(sizes), heap_bytes=heap_bytes))
            if kept is not None:
                secret = nodes[0].machine.files.read(nodes[0].folder / KEPT_SECRET)
                request = replace(request, kept=secret.decode("ascii"))
            database = make(request, nodes, site.logs(spots[0].host), say)
            for node in nodes:
                node.machine.files.write(node.folder / KEPT_SECRET, database.secret.encode())
            undo.callback(database.stop)
            if self.clients:
                names = [one.name for one in self.clients]
                addresses = client_hosts.addresses(self.clients, nodes[0].machine)
                database.let_in(names, [*addresses])
            say(f"starting the database on {', '.join(spot.host for spot in spots)}")
            database.start()
            bed, hosts = self._bed(turn, database, nodes, {} if kept is None else kept.state)
            hosts.beside = beside
            bed.undo.push(undo.pop_all())
            return bed, hosts

    def _hosted(
        self,
        turn: Turn,
        spot: Spot,
        kept: Mapping[str, Change] | None,
        say: Progress,
        undo: ExitStack,
    ) -> Hosted:
        """Return a node's folders on its host: those that are kept, or new ones."""
        machine = self.machines[spot.host]
        found: dict[str, PurePosixPath] = {}
        for name in volumes_apart(turn.trial):
            if kept is not None:
                change = kept[name]
                say(f"{spot.host}: continuing with the complete data in {change.path}")
                # The server of the killed start may still run, and hold its ports.
                folders.end_processes(machine, change.path)
            else:
                # The volume of the tables may be called otherwise: `groups` can say so.
                volume = spot.volume if name == DATA else name
                directory = self._directory(turn, spot, (name, volume), say, undo)
                own, token = folders.new_name(str(turn.spec.engine).replace(":", "-"))
                path = PurePosixPath(directory) / own
                say(f"{spot.host}: making {path}")
                change = self.journal.note(spot.host, "remove_database", str(path), before=token)
                undo.callback(self._remove, change, machine)
                folders.make(machine, path, token)
            if kept is not None:
                for below in self._mounts_of(change):
                    undo.callback(self._undo, below, machine)
                undo.callback(self._remove, change, machine)
            found[name] = PurePosixPath(change.path)
        return Hosted(machine, found)

    def _directory(
        self,
        turn: Turn,
        spot: Spot,
        names: tuple[str, str],
        say: Progress,
        undo: ExitStack,
    ) -> str:
        """Return where a volume's folder is to be; a disk is formatted and mounted for it.

        `names`: what the experiment and what the hosts file call it.
        """
        asked, known = names
        volume, machine = self.hosts.file.hosts[spot.host].volumes[known], self.machines[spot.host]
        if volume.directory is not None:
            return volume.directory
        filesystem = turn.on_cluster.cluster.volumes[asked].filesystem
        say(f"{spot.host}: creating and mounting {filesystem} for {known}")
        place = self.hosts.place("hosts", spot.host, "volumes", known)
        directory, changes = format_and_mount(machine, volume, filesystem, self.journal, place)
        # Its folder is removed before, then it is unmounted, then its mount point goes.
        for change in reversed(changes):
            undo.callback(self._undo, change, machine)
        return directory

    def _undo(self, change: Change, machine: Machine) -> None:
        if change in self.journal.left():
            self.journal.undo(change, machine)

    def _mounts_of(self, change: Change) -> list[Change]:
        """Return the stripe that a folder lies on, its mount point, its mount: those of ours."""
        above = str(PurePosixPath(change.path).parent)
        left = [one for one in self.journal.left() if one.host == change.host]
        ours = [one for one in left if one.path == above]
        mounts = [one for one in ours if one.kind in ("remove_folder", "unmount")][::-1]
        shown = {one.before for one in mounts if one.before}
        return [one for one in left if one.kind == "stop_stripe" and one.path in shown] + mounts

    def _remove(self, change: Change, machine: Machine) -> None:
        self.journal.undo_by(
            change, lambda: folders.remove(machine, PurePosixPath(change.path), change.before)
        )

    def _bed(
        self,
        turn: Turn,
        database: HostedDatabase,
        nodes: Sequence[Hosted],
        state: dict[str, Any],
    ) -> tuple[Bed, ExistingBedHosts]:
        cluster = turn.on_cluster.cluster

        def may_change(node: Hosted, what: str) -> bool:
            return what in self.hosts.file.hosts[node.machine.name].may_change

        volume, undo = cluster.volumes[DATA], ExitStack()
        may = all(may_change(node, "read_ahead") for node in nodes)
        compiles = facts_of(turn.on_cluster.database.engine).compiles
        hosts = ExistingBedHosts(
            hosted=nodes,
            clients=self.clients,
            journal=self.journal,
            undo=undo,
            set_token=str(state.get("set") or secrets.token_hex(8)),
            only_reads=lambda: self._only_reads,
            may_drop=[node.machine for node in nodes if may_change(node, "page_cache")],
        )
        known = BedState(
            data="filled" if state else "empty",
            settled=bool(state.get("settled", True)),
            caching=volume.caching,
            read_ahead_bytes=None if may else volume.read_ahead_bytes,
            settings=turn.on_cluster.database.settings,
        )
        bed = Bed(turn.bed, hosts, database, known, undo, not compiles, compiles)
        bed.wear = float(state.get("wear", 0.0))
        return bed, hosts


def _doubts(turn: Turn, nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what else of the nodes' hosts than their disks was the limit."""
    cluster = turn.on_cluster.cluster
    vm = load_catalog().vms.get(cluster.vm)
    for one in nodes:
        yield from doubts(one, None if vm is None else vm.facts.net_mbit_per_s)
