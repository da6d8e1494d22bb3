"""Trials of a database that is built on hosts: where each can be, its bed, its stage.

PostgreSQL on one host. Its data lie in a folder of ours on the host's volume. A run that was killed
and goes on finds them there, full, and fills nothing again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from disklab.catalog import load_catalog
from disklab.databases import NodePlace, Request, Sizes
from disklab.databases.postgresql.configuration import check_settings
from disklab.databases.postgresql.provider import check as check_request
from disklab.databases.postgresql.sizing import plan_memory
from disklab.engine.load import EngineLoad, LoadDone
from disklab.errors import MachineError, UserError
from disklab.events import Emit, PhaseStarted, Warned
from disklab.hosts.node import Progress
from disklab.hosts.places import Places
from disklab.machines.protocol import Machine
from disklab.measurement import clients as client_hosts
from disklab.measurement import far_postgresql, folders, settings
from disklab.measurement.far_load import Client, FarLoad
from disklab.measurement.far_postgresql import FarPostgreSQL
from disklab.measurement.hosts_file import Host, Hosts
from disklab.measurement.journal import Change, Journal, undo_all
from disklab.measurement.machines_of import cpu_line, facts, stolen_ratio
from disklab.measurement.site import DATA, Placed, Spot, place_trials, volume_of
from disklab.procedures.bed import Bed, OnProgress
from disklab.procedures.build import Site
from disklab.procedures.conditions import BedState, Step
from disklab.procedures.outcome import Frame
from disklab.procedures.rehearsal import Beds, run_turn
from disklab.procedures.timetable import Conductor
from disklab.procedures.turn import Turn
from disklab.results import Mode, Run, TrialResult
from disklab.spec import Experiment, Refusal, Trial, TrialSpec
from disklab.workloads.protocol import Begin, Load, Workload
from disklab.workloads.rows import WARM_UP_TABLE

ENGINES = ("postgresql",)
SENT = ("rows", "tpcc")
"""The loads that our own engine makes, which is on every host."""
FILLED = ".disklab-filled"
"""In a database's folder: which data set it has, and what has become of it."""
KEPT_SECRET = ".disklab-secret"  # noqa: S105 - the name of a file
"""Beside it: the password that its data directory was made for."""


def place_cluster(experiment: Experiment, trials: Sequence[Trial], hosts: Hosts) -> Placed:
    """Return where trials are measured, each on one host; what cannot be is refused."""
    told = []
    for trial in trials:
        why = None if trial.refused is not None else _why_not(experiment, trial, hosts)
        told.append(trial if why is None else replace(trial, refused=why))
    placed = place_trials(experiment, told, hosts)
    as_left = {"host_cache": "as-left"}
    # The cache of the machine below is not ours to fill or to empty.
    changed = [
        replace(
            trial,
            spec=trial.spec.model_copy(
                update={"before": trial.spec.before.model_copy(update=as_left)}
            ),
        )
        for trial in placed.trials
    ]
    return Placed(changed, placed.spots)


def _why_not(experiment: Experiment, trial: Trial, hosts: Hosts) -> Refusal | None:
    spec = trial.spec
    assert spec.cluster is not None, "a cluster experiment"
    assert spec.database is not None, "a cluster has a database"
    place = experiment.document.place
    if spec.database.engine not in ENGINES:
        rule = f"on hosts disklab builds {', '.join(ENGINES)} only"
        way_out = "measure one that runs: `database: {addresses: [...]}` in the hosts file"
        return Refusal(place(("database", "engine")), spec.database.engine, rule, way_out)
    if spec.cluster.nodes != 1:
        rule = "on hosts disklab builds a server on one host"
        value = str(spec.cluster.nodes)
        return Refusal(place(("cluster", "nodes")), value, rule, "write nodes: 1, or rehearse it")
    if spec.workload.kind not in SENT and client_hosts.names_of(hosts):
        rule = f"client hosts make loads of {' and '.join(SENT)} only: they have no other program"
        way_out = "take the hosts of role client out of the hosts file; the load comes from here"
        return Refusal(place(("workload",)), spec.workload.kind, rule, way_out)
    if spec.events:
        rule = "on hosts disklab breaks nothing while a load runs"
        value = f"{len(spec.events)} steps"
        return Refusal(place(("events",)), value, rule, "leave them out, or rehearse it")
    apart = [name for name in spec.cluster.volumes if spec.cluster.device_of(name) != DATA]
    if apart:
        rule = "on hosts a database's files lie on the volume data together"
        way_out = "leave the other volumes out, or rehearse it"
        return Refusal(place(("cluster", "volumes")), ", ".join(apart), rule, way_out)
    return None


def request_of(turn: Turn, memory_bytes: int) -> Request:
    """Return the database that a turn and the others of its bed ask for, on a host."""
    spec = turn.spec
    assert spec.database is not None, "a cluster has a database"
    rows = spec.workload.kind == "rows" and spec.dataset is not None
    return Request(
        engine=spec.database.engine,
        version=spec.database.version,
        sizes=Sizes(memory_bytes=memory_bytes),
        replication_factor=spec.database.replication_factor,
        settings=spec.database.settings,
        table=spec.database.table.model_dump(by_alias=True, exclude_none=True),
        tls=spec.database.tls,
        columns=spec.dataset.columns if rows and spec.dataset else 0,
        connections=turn.connections,
        tables_beside=(WARM_UP_TABLE,),
    )


@dataclass
class BuiltBed(Bed):
    """A bed on a host: its data set is written down there, beside the data."""

    machine: Machine | None = None
    folder: PurePosixPath = field(default_factory=PurePosixPath)
    journal: Journal | None = None
    host: str = ""
    only_reads: Callable[[], bool] = lambda: False
    """Whether the turn that runs leaves the data as they are."""
    clients: Sequence[Client] = ()
    """Who makes the load; none: this machine."""
    ends: dict[str, LoadDone] = field(default_factory=dict)
    """By client: its part of the last run."""

    def start_load(self, begin: Begin) -> Load:
        """Start a load on the client hosts, where there are some."""
        if not self.clients or not isinstance(begin, EngineLoad):
            return begin()
        # TPC-C is made by one generator: the engine refuses more.
        several = begin.job.workload.kind == "rows"
        load = FarLoad(begin.job, self.clients if several else self.clients[:1])
        self.ends = load.ends
        return load

    def take(
        self, step: Step, spec: TrialSpec, workload: Workload, on_progress: OnProgress
    ) -> None:
        """Take a step; see `Bed.take`. The host knows before and after whether data are full."""
        if step in ("empty", "fill"):
            self.remember("changing")
        super().take(step, spec, workload, on_progress)
        if step == "set read-ahead":
            self._change_read_ahead(spec)
        if step in ("empty", "fill", "settle"):
            self.remember(self.state.data)

    def run(
        self,
        workload: Workload,
        begin: Begin,
        on_progress: OnProgress,
        conductor: Conductor | None = None,
    ) -> LoadDone:
        """Run a load; see `Bed.run`. What is killed while it writes has no data to go on with."""
        filled = self.state.data == "filled"
        if filled and not self.only_reads():
            self.remember("changing")
        done = super().run(workload, begin, on_progress, conductor)
        if filled and not self.only_reads():
            self.remember(self.state.data)
        return done

    def remember(self, data: str) -> None:
        """Write down on the host what has become of the data set."""
        assert self.machine is not None, "a built bed has a machine"
        told = {"bed": self.name, "data": data, "wear": self.wear, "settled": self.state.settled}
        self.machine.files.write(self.folder / FILLED, json.dumps(told).encode())

    def _change_read_ahead(self, spec: TrialSpec) -> None:
        assert self.machine is not None, "a built bed has a machine"
        assert self.journal is not None, "and a journal"
        assert spec.cluster is not None, "a cluster experiment"
        asked = spec.cluster.volumes[DATA].read_ahead_bytes
        folder = str(self.folder)
        settings.ask_read_ahead(self.host, self.machine, folder, asked, self.journal)
        self._note(read_ahead_bytes=asked)


@dataclass
class BuiltStage:
    """The stage of a measurement that builds its database on hosts."""

    hosts: Hosts
    placed: Placed
    machines: Mapping[str, Machine]
    journal: Journal
    run: Run
    seed: int
    mode: Mode = "measure"
    told: list[str] = field(default_factory=list)
    """What could not be undone, for whoever closes."""
    _beds: dict[str, Beds] = field(default_factory=dict)
    _only_reads: bool = False
    _clients: list[Client] = field(default_factory=list)

    def begin(self, emit: Emit) -> None:
        """Undo what a killed start of this run has left, but for full data; then change."""
        kept = [one for one in self.journal.left() if self._is_full(one)]
        for text in undo_all(self.journal, dict(self.machines), stays=kept):
            emit(Warned(text))
        for name, machine in self.machines.items():
            for change in settings.wanted(name, self.hosts.file.hosts[name], machine):
                emit(PhaseStarted("build", f"{name}: {change}"))
                settings.apply(change, machine, self.journal)
        self._clients = client_hosts.make(self.hosts, self.machines, self.journal)

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn. A failure of the turn is its result."""
        spot = self.spot_of(turn)
        machine = self.machines[spot.host]
        work = turn.spec.workload
        self._only_reads = (
            work.kind == "rows" and work.operations is not None and not work.operations.write
        )
        if spot.host not in self._beds:
            site = Site(load_catalog(), Places.usual(), self.run.folder / "logs", self.seed)
            self._beds[spot.host] = Beds(site, self.run.info.id, self._make)
        cpu = cpu_line(machine)
        result = run_turn(turn, self._beds[spot.host], run, frame, emit)
        stolen = stolen_ratio(cpu, cpu_line(machine))
        seen: dict[str, Any] = {"host": str(spot), "stolen_ratio": round(stolen, 4)}
        bed = self._beds[spot.host].standing
        if bed is not None and turn.spec.before.page_cache == "cold":
            seen["page_cache"] = bed.coldness
        # A host that is gone is named by the failure already.
        with suppress(MachineError):
            seen["clock"] = client_hosts.in_ms(machine.clock())
        if self._clients:
            seen |= self._of_clients(turn, result, bed)
        return result.model_copy(update=seen)

    def _of_clients(self, turn: Turn, result: TrialResult, bed: Bed | None) -> dict[str, Any]:
        """Return what the clients add to a result, their faults included."""
        ends = bed.ends if isinstance(bed, BuiltBed) else {}
        told = client_hosts.seen(self._clients, ends)
        if result.status not in {"ok", "invalid"}:
            return {"clients": told}
        load = turn.spec.workload.load
        is_open = load is not None and load.rate_per_s is not None
        invalid, doubts = client_hosts.judged(told, is_open=is_open)
        reasons = [*result.invalid_reasons, *invalid]
        return {
            "clients": told,
            "status": "invalid" if reasons else "ok",
            "valid": not reasons,
            "invalid_reasons": reasons,
            "warnings": [*result.warnings, *doubts],
        }

    def spot_of(self, turn: Turn) -> Spot:
        """Return where a turn is measured: repeats take the hosts in turn."""
        spots = self.placed.spots[turn.trial.index]
        return spots[turn.repeat % len(spots)]

    def close(self) -> None:
        """Stop the databases, remove their data, change back what was changed."""
        for beds in self._beds.values():
            try:
                beds.close()
            except MachineError as error:  # noqa: PERF203 - one host holds up no other
                self.told.append(str(error))
        self.told += undo_all(self.journal, dict(self.machines))

    def _is_full(self, change: Change) -> bool:
        """Return whether a change of a killed start is a database whose data are full."""
        return change.kind == "remove_database" and self._state(change).get("data") == "filled"

    def _state(self, change: Change) -> dict[str, Any]:
        machine, folder = self.machines.get(change.host), PurePosixPath(change.path)
        if machine is None:
            return {}
        with suppress(MachineError, ValueError):
            marker = machine.files.read(folder / folders.MARKER).decode("ascii")
            state = json.loads(machine.files.read(folder / FILLED, 64 << 10))
            if marker == change.before and isinstance(state, dict):
                return state
        return {}

    def _kept(self, turn: Turn, host: str) -> tuple[Change | None, dict[str, Any]]:
        """Return the full database of a turn's bed that a killed start has left on a host."""
        for change in self.journal.left():
            if change.kind == "remove_database" and change.host == host:
                state = self._state(change)
                if state.get("bed") == turn.bed and state.get("data") == "filled":
                    return change, state
                # Of another bed: the disk is needed for this one.
                self.journal.undo(change, self.machines[host])
        return None, {}

    def _make(self, turn: Turn, prefix: str, site: Site, say: Progress) -> Bed:
        del prefix
        spot = self.spot_of(turn)
        machine = self.machines[spot.host]
        host = self.hosts.file.hosts[spot.host]
        directory = volume_of(self.hosts, spot).directory
        assert directory is not None, "the plan refuses disks"
        installation = far_postgresql.find(machine)
        if installation is None:
            raise MachineError(f"{machine.name}: PostgreSQL is there no more")
        request = request_of(turn, int(facts(machine).get("memory_bytes", 0)))
        change, state = self._kept(turn, spot.host)
        if change is None:
            name, token = folders.new_name("postgresql")
            folder = PurePosixPath(directory) / name
            say(f"{spot}: making {folder}")
            change = self.journal.note(spot.host, "remove_database", str(folder), before=token)
            folders.make(machine, folder, token)
        else:
            folder = PurePosixPath(change.path)
            say(f"{spot}: going on with the full data in {folder}")
        with ExitStack() as undo:
            made = change
            undo.callback(lambda: self._remove(made, machine))
            database = self._database(installation, request, folder, site, is_kept=bool(state))
            undo.callback(database.stop)
            if self._clients:
                names = [one.name for one in self._clients]
                database.let_in(names, [*client_hosts.addresses(self._clients, machine)])
            say(f"starting PostgreSQL {installation.major} on {spot.host}")
            database.start()
            bed = self._bed(turn, database, host, site, state, undo)
            bed.machine, bed.folder, bed.journal, bed.host = (
                machine,
                folder,
                self.journal,
                spot.host,
            )
            bed.only_reads = lambda: self._only_reads
            bed.clients = self._clients
            bed.undo = undo.pop_all()
            return bed

    def _remove(self, change: Change, machine: Machine) -> None:
        self.journal.undo_by(
            change, lambda: folders.remove(machine, PurePosixPath(change.path), change.before)
        )

    def _database(
        self,
        installation: far_postgresql.FarInstallation,
        request: Request,
        folder: PurePosixPath,
        site: Site,
        *,
        is_kept: bool,
    ) -> FarPostgreSQL:
        machine = installation.machine
        place = NodePlace(
            name=machine.name,
            address=machine.address,
            volumes={DATA: Path(folder)},
            run_dir=Path(folder) / "run",
            log_dir=site.logs(machine.name),
        )
        problems = [*check_request(request, [place])]
        known = installation.known_settings()
        problems += check_settings(request.settings, known, installation.major)
        if problems:
            raise UserError(*problems)
        password = machine.files.read(folder / KEPT_SECRET).decode("ascii") if is_kept else None
        plan = plan_memory(request.sizes)
        database = FarPostgreSQL(request, place, installation, plan, password)
        machine.files.write(folder / KEPT_SECRET, database.password.encode())
        far_postgresql.ran(machine, "mkdir", "-p", "-m", "0711", "--", str(folder / "run"))
        return database

    def _bed(  # noqa: PLR0913, PLR0917 - what a bed is made of
        self,
        turn: Turn,
        database: FarPostgreSQL,
        host: Host,
        site: Site,
        state: dict[str, Any],
        undo: ExitStack,
    ) -> BuiltBed:
        cluster = turn.spec.cluster
        assert cluster is not None, "a cluster experiment"
        volume = cluster.volumes[DATA]
        may = "read_ahead" in host.may_change
        return BuiltBed(
            name=turn.bed,
            nodes=[],
            database=database,
            time_dilation=1,
            groups=[],
            network=None,
            data_device=DATA,
            state=BedState(
                data="filled" if state else "empty",
                settled=bool(state.get("settled", True)),
                caching=volume.caching,
                read_ahead_bytes=None if may else volume.read_ahead_bytes,
            ),
            compiles=False,
            is_warm=True,
            log_folder=site.log_folder,
            undo=undo,
            wear=float(state.get("wear", 0.0)),
        )
