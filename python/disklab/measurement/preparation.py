"""Everything that is looked at before a host is touched, and the plan that the user agrees to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from disklab import durable
from disklab.catalog import load_catalog
from disklab.errors import DisklabError, MachineError, Problem, UserError, refuse
from disklab.folders import Inside
from disklab.machines.protocol import Command, Machine
from disklab.measurement import (
    clients,
    host_links,
    hosts_file,
    own_database,
    planned_database,
    running_database,
    settings,
)
from disklab.measurement.cluster_stage import ClusterStage
from disklab.measurement.endpoint import Access
from disklab.measurement.formatting import why_not
from disklab.measurement.hosts_file import Host, Hosts, HostsFile
from disklab.measurement.journal import Change, Drop, Journal, forget, remembered, undo_all
from disklab.measurement.machines_of import facts, open_machine
from disklab.measurement.running_database import drop
from disklab.measurement.settings import Placed, Spot, place_trials, volume_of
from disklab.measurement.stage import Measurement, MeasuringSite
from disklab.procedures.jobs import FULL, QUICK
from disklab.procedures.life import Planned
from disklab.procedures.outcome import planned_record
from disklab.procedures.plan import expected_s as usual_s
from disklab.procedures.plan import how_ordered, order
from disklab.procedures.turn import Turn
from disklab.results import (
    ExperimentNote,
    Run,
    RunInfo,
    Status,
    new_run_id,
    pricing,
    utc_now,
)
from disklab.results.run import DEFAULT_OUT
from disklab.spec import Experiment, Trial, parse
from disklab.spec.amounts import LONGEST_S

LEAST_REPEATS = 3
"""The fewest with which a median tells an outlier from a trend."""
HOSTS = "hosts.yaml"
"""The hosts file as it was when the run began, in the run's folder."""
# A real host is measured for as long as the experiment says.
WHOLE = replace(FULL, longest_run_s=float(LONGEST_S))
# Attaching to fio, its short probes, the reports: seconds beside what a trial measures.
BESIDE_S = 6.0


@dataclass(frozen=True)
class Options:
    """How an experiment is to be measured. Stored in the run: `--resume` goes on with the same."""

    repeats: int | None = None
    """None: three, or one for each host where there are more."""
    seed: int = 1
    quick: bool = False
    only: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: object, place: str) -> Options:
        """Return the options that a run was begun with. Raises UserError; `place` is its file."""
        try:
            return TypeAdapter(cls).validate_python(stored)
        except ValidationError as error:
            way_out = "begin another run; this one's file was changed or is damaged"
            rule = f"does not say how the run was started ({error.error_count()} findings)"
            raise UserError(Problem(place, "measure", rule, way_out)) from None


@dataclass(frozen=True)
class Wanted:
    """An experiment on its hosts, before any of them was looked at."""

    experiment: Experiment
    hosts: Hosts
    options: Options
    placed: Placed
    turns: list[Turn]
    """What is left to do, in running order."""
    run: Run | None = None
    """The run that goes on; None: a new one."""

    @property
    def names(self) -> list[str]:
        """The hosts that are needed, in the order of the file."""
        if self.hosts.file.database is not None and self.experiment.kind == "cluster":
            # They are watched, or make the load; where the rows are is the database's business.
            return [*self.hosts.file.hosts]
        used = {spot.host for spot in self.placed.used}
        if used and self.experiment.kind == "cluster":
            used.update(clients.names_of(self.hosts))
        return [name for name in self.hosts.file.hosts if name in used]


def wanted(experiment: Experiment, hosts: Hosts, options: Options) -> Wanted:
    """Return what is to be measured where. Raises UserError when no trial can be."""
    if options.repeats is not None and options.repeats < 1:
        rule = "every trial runs at least once"
        raise UserError(Problem("--repeat", str(options.repeats), rule, "give 1 or more"))
    return _wanted(experiment, hosts, options, frozenset(), None)


def resumed(name: str, out: Path, again: list[Status]) -> tuple[Wanted, Run]:
    """Return what is left of a run that was stopped, and that run. Raises UserError."""
    run = Run.open_own(name, out, "--resume")
    stored = (run.info.model_extra or {}).get("measure")
    if run.info.mode != "measure" or stored is None:
        rule = f"is a run of mode {run.info.mode}: only measurements can be resumed here"
        raise UserError(Problem("--resume", str(run.folder), rule, "name a measurement"))
    options = Options.of(stored, str(run.folder / "run.json"))
    experiment = parse(run.experiment_text(), run.info.experiment.file)
    hosts = hosts_file.load(run.inside(HOSTS))
    stays = frozenset(result.key for result in run.results() if result.status not in again)
    return _wanted(experiment, hosts, options, stays, run), run


def _wanted(
    experiment: Experiment,
    hosts: Hosts,
    options: Options,
    finished: frozenset[tuple[int, int]],
    run: Run | None,
) -> Wanted:
    chosen = experiment.only(options.only) if options.only else experiment
    trials = chosen.trials("measure")
    if experiment.kind == "cluster":
        if hosts.file.database is None:
            placed = own_database.place_cluster(experiment, trials, hosts)
        else:
            placed = Placed(running_database.place_cluster(experiment, trials), {})
    elif not hosts.file.hosts:
        rule = "a device experiment is measured on hosts"
        place = str(hosts.document.path)
        raise UserError(Problem(place, "database", rule, "describe them: hosts: {...}"))
    else:
        placed = place_trials(experiment, trials, hosts)
    able = [trial for trial in placed.trials if trial.refused is None]
    refusals = [trial.refused for trial in placed.trials if trial.refused is not None]
    if not able:
        raise UserError(*refusals[0].problems)
    most = max((_sets(placed, trial) for trial in able), default=1)
    repeats = options.repeats or (1 if options.quick else max(LEAST_REPEATS, most))
    decided = replace(options, repeats=repeats)
    effort = QUICK if options.quick else WHOLE
    turns = order(placed.trials, repeats, options.seed, effort, finished)
    return Wanted(experiment, hosts, decided, placed, turns, run)


def _sets(placed: Placed, trial: Trial) -> int:
    """Return how many hosts, or sets of hosts, can measure a trial."""
    spots = len(placed.of(trial))
    return spots // own_database.nodes_of(trial) if trial.spec.cluster is not None else spots


def access_of(wanted: Wanted) -> Access | None:
    """Return the running database that a cluster experiment is measured on."""
    endpoint = wanted.hosts.file.database
    if endpoint is None or wanted.experiment.kind != "cluster":
        return None
    return Access(wanted.hosts, endpoint)


@dataclass(frozen=True)
class HostPlan:
    """What will happen to one host."""

    name: str
    facts: dict[str, Any]
    makes: list[str]
    """Files and folders, by what they are for; removed at the end."""
    formats: list[str]
    changes: list[str]
    """Settings; changed back at the end."""
    missing: list[Problem]
    """What stands in the way."""
    role: str = "node"


def look(wanted: Wanted, machines: Mapping[str, Machine]) -> list[HostPlan]:
    """Look at every host that is needed; changes nothing. Raises MachineError and UserError."""
    access = access_of(wanted)
    if access is not None:
        running_database.check(access, wanted.turns[0] if wanted.turns else None)
    return [_look(wanted, name, machines) for name in wanted.names]


def _left_on(wanted: Wanted) -> set[str]:
    """Return the hosts whose ports and disks a killed start of this run may still use."""
    if wanted.run is None:
        return set()
    kinds = ("remove_database", "unmount", "stop_stripe")
    return {one.host for one in Journal.of(wanted.run.folder).left() if one.kind in kinds}


def _look(wanted: Wanted, name: str, machines: Mapping[str, Machine]) -> HostPlan:
    host, machine = wanted.hosts.file.hosts[name], machines[name]
    makes: list[str] = []
    formats: list[str] = []
    if wanted.experiment.kind == "cluster":
        return _look_for_database(wanted, name, machines)
    missing = [*missing_programs(wanted.hosts, name, machine)]
    size = MeasuringSite(
        wanted.hosts, wanted.placed, {}, Journal(Path()), wanted.options.quick
    ).region_bytes
    for spot in wanted.placed.used:
        if spot.host != name:
            continue
        volume = volume_of(wanted.hosts, spot)
        if volume.directory is not None:
            makes.append(f"a file of {size >> 20} MiB in {volume.directory}")
            missing += missing_directory(wanted.hosts, name, spot.volume, volume.directory, machine)
        else:
            place = wanted.hosts.place("hosts", name, "volumes", spot.volume)
            formats += planned_database.disks_in_words(volume)
            reason = None if name in _left_on(wanted) else why_not(machine, volume, place)
            missing += [reason] if reason else []
            missing += _missing_mkfs(wanted, name, spot, machine)
    changes = [str(change) for change in settings.wanted(name, host, machine)]
    changes += _read_ahead_in_words(wanted, host)
    return HostPlan(name, facts(machine), makes, formats, changes, missing)


def _look_for_database(wanted: Wanted, name: str, machines: Mapping[str, Machine]) -> HostPlan:
    host, machine = wanted.hosts.file.hosts[name], machines[name]
    found = _look_for_server(wanted, name, host, machine)
    able = [one.spec for one in wanted.placed.trials if one.refused is None]
    if not any(map(own_database.changes_links, able)):
        return found
    others = {other: one.address for other, one in machines.items() if other != name}
    place, changes = wanted.hosts.place("hosts", name), [*found.changes]
    lacks = [*host_links.missing(place, machine, others)]
    if any(map(own_database.cuts, able)):
        changes.append("routes to the other hosts that lead nowhere, while a link is cut")
    if any(map(own_database.shapes, able)):
        changes.append("what it sends to the other hosts delayed, lost or slowed by tc (netem)")
        lacks += [] if lacks else host_links.shaping_lacks(place, machine, others)
    return replace(found, changes=changes, missing=[*found.missing, *lacks])


def _look_for_server(wanted: Wanted, name: str, host: Host, machine: Machine) -> HostPlan:
    changes = [str(change) for change in settings.wanted(name, host, machine)]
    if wanted.hosts.file.database is not None and host.role == "node":
        return HostPlan(name, facts(machine), [], [], changes, [*_unwatched(wanted, name, machine)])
    if host.role == "client":
        makes = [f"a folder in {clients.PARENT} for the load"]
        lacks = [*planned_database.missing_user(wanted.hosts, name, machine)]
        return HostPlan(name, facts(machine), makes, [], changes, lacks, host.role)
    placed, goes_on = wanted.placed, name in _left_on(wanted)
    found = planned_database.look(wanted.hosts, placed, machine, placed.trials, goes_on=goes_on)
    missing = [*found.missing]
    for volume, directory in found.directories.items():
        missing += missing_directory(wanted.hosts, name, volume, directory, machine)
    changes += _read_ahead_in_words(wanted, host)
    if "page_cache" in host.may_change and _has_cold(wanted):
        changes.append("its clean page cache dropped before each cold trial")
    return HostPlan(name, facts(machine), found.makes, found.formats, changes, missing)


def _unwatched(wanted: Wanted, name: str, machine: Machine) -> Iterator[Problem]:
    """Yield why a running database's host cannot be watched as it is described."""
    for key, volume in wanted.hosts.file.hosts[name].volumes.items():
        place = wanted.hosts.place("hosts", name, "volumes", key)
        if volume.directory is None:
            rule = (
                "the disks of a database that is already running are in use, so none is formatted"
            )
            way_out = "name the directory of its data: volumes: {data: /var/lib/...}"
            yield Problem(place, "format", rule, way_out)
        elif machine.run(Command(["test", "-d", volume.directory])).code != 0:
            rule = "there is no such directory on the host"
            yield Problem(place, volume.directory, rule, "name the directory of its data")


def _has_cold(wanted: Wanted) -> bool:
    able = [trial for trial in wanted.placed.trials if trial.refused is None]
    return any(trial.spec.before.page_cache == "cold" for trial in able)


def _read_ahead_in_words(wanted: Wanted, host: Host) -> Iterator[str]:
    """Yield that trials ask for a read-ahead, where the host's may be changed."""
    asked: set[int | None] = set()
    for trial in wanted.placed.trials:
        if trial.spec.device is not None:
            asked.add(trial.spec.device.volume.read_ahead_bytes)
        elif trial.spec.cluster is not None:
            asked.add(trial.spec.cluster.volumes["data"].read_ahead_bytes)
    told = sorted(one >> 10 for one in asked if one is not None)
    if told and "read_ahead" in host.may_change:
        sizes = ", ".join(map(str, told))
        yield f"read-ahead of the volume's disk: {sizes} KiB, as a trial requires"


def _missing_mkfs(wanted: Wanted, name: str, spot: Spot, machine: Machine) -> Iterator[Problem]:
    """Yield the programs that make the file systems of a spot's trials and are not there."""
    kinds = {
        trial.spec.device.volume.filesystem
        for trial in wanted.placed.trials
        if spot in wanted.placed.spots.get(trial.index, []) and trial.spec.device is not None
    }
    yield from planned_database.missing_mkfs(wanted.hosts.place("hosts", name), kinds, machine)


def missing_programs(hosts: Hosts, name: str, machine: Machine) -> Iterator[Problem]:
    """Yield the programs that fio trials need and a host does not have."""
    place = hosts.place("hosts", name)
    try:
        ended = machine.run(Command(["fio", "--version"]))
    except MachineError:
        ended = None
    if ended is None or ended.code != 0:
        rule = "the package fio is missing on the host; disklab installs nothing"
        yield Problem(place, "fio", rule, "install it there: apt-get install fio, dnf install fio")


def missing_directory(
    hosts: Hosts, name: str, volume: str, directory: str, machine: Machine
) -> Iterator[Problem]:
    """Yield why a directory of a host cannot be measured in."""
    place = hosts.place("hosts", name, "volumes", volume)
    try:
        machine.files.names(PurePosixPath(directory))
    except MachineError as error:
        yield Problem(place, directory, str(error), "make it there, on the disk to be measured")
        return
    if machine.run(Command(["test", "-w", directory])).code != 0:
        rule = "may not be written by the user as whom disklab logs in"
        yield Problem(place, directory, rule, "let that user write there, or log in as another")


def prepare(
    wanted: Wanted, plans: list[HostPlan], machines: Mapping[str, Machine], out: Path = DEFAULT_OUT
) -> tuple[Planned, Measurement | ClusterStage]:
    """Make the run's folder, or take the one that goes on. Raises UserError for what is missing."""
    refuse(problem for plan in plans for problem in plan.missing)
    run = wanted.run or create(wanted, plans, out)
    if wanted.run is not None and run.info.ended is not None and wanted.turns:
        run.plan_again({"ended": None})
    planned = Planned(
        experiment=wanted.experiment,
        trials=wanted.placed.trials,
        turns=wanted.turns,
        expected_s=[expected_s(turn) for turn in wanted.turns],
        seed=wanted.options.seed,
        run=run,
        catalog=load_catalog(),
    )
    journal, access = Journal.of(run.folder), access_of(wanted)
    if wanted.experiment.kind == "cluster":
        parts = (wanted.hosts, machines, journal, run, wanted.options.seed)
        if access is not None:
            return planned, running_database.RunningDatabaseStage(*parts, access=access)
        return planned, own_database.OwnDatabaseStage(*parts, placed=wanted.placed)
    quick = wanted.options.quick
    return planned, Measurement(
        MeasuringSite(wanted.hosts, wanted.placed, machines, journal, quick)
    )


def expected_s(turn: Turn) -> float:
    """Return how long a turn is expected to take, in seconds."""
    stop = turn.spec.workload.stop
    asked = stop.duration_s if stop is not None and stop.duration_s is not None else 5.0
    if turn.spec.device is None:
        return usual_s([turn])[0]
    return min(asked, turn.effort.longest_run_s) + BESIDE_S


def create(wanted: Wanted, plans: list[HostPlan], out: Path, run_id: str | None = None) -> Run:
    """Make the run's folder. Hosts that are made for a run have its name before they exist."""
    experiment, options, trials = wanted.experiment, wanted.options, wanted.placed.trials
    file, catalog = str(experiment.path), load_catalog()
    info = RunInfo(
        id=run_id or new_run_id(file, "measure"),
        mode="measure",
        experiment=ExperimentNote(title=experiment.title, source=experiment.source, file=file),
        seed=options.seed,
        repeats=options.repeats,
        command=_command(file, wanted),
        started=utc_now(),
        environment={"hosts": {plan.name: plan.facts for plan in plans}},
        versions={"disklab": version("disklab")},
        prices=pricing.prices(catalog, trials),
        notes=[_how_ordered(wanted), *settings.not_brought_about(trials)],
    ).model_copy(update={"measure": TypeAdapter(Options).dump_python(options, mode="json")})
    planned = [planned_record(trial) for trial in trials]
    for one in planned:
        one.spec["before"].pop("credits_ratio")
    text, beside = experiment.document.text, {HOSTS: wanted.hosts.document.text}
    return Run.create(out, info, experiment_text=text, planned=planned, beside=beside)


def _how_ordered(wanted: Wanted) -> str:
    if not wanted.names:
        return how_ordered(wanted.turns, int(wanted.options.repeats or 1), wanted.options.seed)
    hosts = ", ".join(wanted.names)
    return (
        f"{wanted.options.repeats} repeats as the outer loop, in random order within each "
        f"(seed {wanted.options.seed}); hosts that can measure a trial take its repeats in turn "
        f"({hosts}), so that what differs between hosts is in the intervals"
    )


def _command(file: str, wanted: Wanted) -> list[str]:
    """Return the one command that redoes the run."""
    options = wanted.options
    command = ["disklab", "measure", file, "--hosts", str(wanted.hosts.document.path)]
    command += ["--seed", str(options.seed), "--repeat", str(options.repeats)]
    if options.quick:
        command.append("--quick")
    for name, levels in options.only.items():
        command += [word for level in levels for word in ("--only", f"{name}={level}")]
    return command


def in_words(wanted: Wanted, plans: list[HostPlan]) -> Iterator[str]:
    """Yield the plan line by line, for the user to agree to."""
    seconds = sum(expected_s(turn) for turn in wanted.turns)
    refused = sum(trial.refused is not None for trial in wanted.placed.trials)
    yield (
        f"{len(wanted.turns)} measurements, about {max(1, round(seconds / 60))} min"
        + (f"; {refused} trials cannot be measured here" if refused else "")
    )
    yield from settings.not_brought_about(wanted.placed.trials)
    access = access_of(wanted)
    if access is not None:
        points = ", ".join(access.endpoint.addresses)
        yield f"{points}: make a keyspace or schema disklab_...; dropped with its rows at the end"
    for plan in plans:
        known = [str(plan.facts[key]) for key in ("vm_size", "cpu", "kernel") if key in plan.facts]
        yield f"{plan.name}: {', '.join(known)}"
        if plan.role == "client":
            yield "  load    comes from here"
        for text in plan.formats:
            yield f"  format  {text}"
        for text in plan.makes:
            yield f"  make    {text}; removed at the end"
        for text in plan.changes:
            yield f"  change  {text}; changed back at the end"
        for problem in plan.missing:
            yield f"  missing {problem.value}: {problem.rule}; {problem.way_out}"
        if not (plan.formats or plan.makes or plan.changes or plan.missing):
            yield "  nothing is changed"
    if wanted.experiment.kind == "cluster" and all(plan.role != "client" for plan in plans):
        yield "The load comes from this machine: no host has `role: client`."
    yield "Nothing else of a host is changed."


# What killed measurements have left on hosts, for `disklab clean`.

Done = tuple[str, bool]
"""A line for the user, and whether all is well: False where something is left."""


def clean_left(*, dry_run: bool = False) -> Iterator[Done]:
    """Undo what measurements have left that are gone; yield what was done, line by line.

    A run that goes on is left alone. Without anything left it yields nothing and reaches no host.
    """
    for folder in remembered():
        yield from _clean_folder(folder, dry_run=dry_run)


def give_up(host: str, *, dry_run: bool = False) -> Iterator[str]:
    """Forget what is to be undone on a host that is gone for good; yield it, line by line.

    `host`: its name in the hosts file, or its address. Raises UserError where nothing is left on
    such a host, or where a name is that of several.
    """
    left = list(_left_by_run())
    addresses = {address for _, change, address in left if change.host == host}
    if len(addresses) > 1:
        several = ", ".join(sorted(addresses))
        rule = f"the hosts files of several runs have a host of this name: {several}"
        raise UserError(Problem("--forget", host, rule, "give the address of the one that is gone"))
    forgotten = [one for one in left if host in (one[1].host, one[2])]
    if not forgotten:
        names = ", ".join(sorted({f"{change.host} ({address})" for _, change, address in left}))
        rule = f"no run has left anything on such a host (left: {names or 'nothing'})"
        raise UserError(Problem("--forget", host, rule, "give the name as the hosts file has it"))
    for folder in dict.fromkeys(folder for folder, *_ in forgotten):
        with durable.sole_writer(folder):
            journal = Journal.of(folder)
            for change in (change for where, change, _ in forgotten if where == folder):
                if not dry_run:
                    journal.undo_by(change, lambda: None)
                verb = "would give up" if dry_run else "gave up"
                yield f"{verb} {undoing(change)}, of the run {folder.name}: it stays as it is"
            journal.done()


def _left_by_run() -> Iterator[tuple[Path, Change, str]]:
    """Yield what is to be undone: the run's folder, the change, and its host's address."""
    for folder in remembered():
        if folder.is_dir():
            hosts = hosts_file.load(Inside(folder, HOSTS)).file.hosts
            for change in Journal.of(folder).left():
                given = hosts.get(change.host)
                yield folder, change, (given.address if given else None) or "this machine"


def _clean_folder(folder: Path, *, dry_run: bool) -> Iterator[Done]:
    if not folder.is_dir():
        # Without the run's folder nobody knows what was changed; the hosts have the answer.
        yield f"{folder} is gone, and with it the record of what it changed on its hosts", False
        forget(folder)
        return
    try:
        with durable.sole_writer(folder):
            yield from _clean_run(folder, dry_run=dry_run)
    except UserError as error:
        yield f"left alone {folder}: {error.problems[0].rule}", True


def _clean_run(folder: Path, *, dry_run: bool) -> Iterator[Done]:
    journal = Journal.of(folder)
    left = journal.left()
    if dry_run:
        yield from ((f"would undo {undoing(change)}", True) for change in left)
        return
    if not left:
        journal.done()
        return
    hosts = hosts_file.load(Inside(folder, HOSTS))
    with ExitStack() as undo:
        machines: dict[str, Machine] = {}
        for name in dict.fromkeys(one.host for one in left if one.kind != "drop"):
            found = _opened(name, hosts.file, undo)
            if isinstance(found, str):
                yield found, False
            else:
                machines[name] = found
        told = undo_all(journal, machines, _dropper(hosts))
    still = {change.number for change in journal.left()}
    for change in left:
        if change.number not in still:
            yield f"undid {undoing(change)}", True
    yield from ((line, not still) for line in told)


def _dropper(hosts: Hosts) -> Drop | None:
    """Return what drops our tables in the running database of a hosts file, if it has one."""
    endpoint = hosts.file.database
    if endpoint is None:
        return None
    access = Access(hosts, endpoint)
    return lambda change: drop(access, change.before, change.path)


def _opened(name: str, given: HostsFile, undo: ExitStack) -> Machine | str:
    """Return a host as a machine, or why it cannot be reached."""
    try:
        return open_machine(name, given.hosts[name], given.ssh_config, undo)
    except (DisklabError, KeyError) as error:
        return f"could not undo what is left on {name}: {error}"


def undoing(change: Change) -> str:
    """Return a change on one line."""
    what = {
        "drop": f"the schema or keyspace {change.path}",
        "remove_database": f"the database in {change.path}",
        "end_load": f"the load that works in {change.path}",
        "remove_file": f"the file {change.path}",
        "remove_folder": f"the folder {change.path}",
        "unmount": f"the mount at {change.path}",
        "stop_stripe": f"the stripe {change.path} of {change.now}",
        "join": f"the way to {change.path} cut",
        "swapon": f"swapping to {change.path} switched off",
        "write": f"{change.path} set from {change.before} to {change.now}",
    }[change.kind]
    return f"{what} on host {change.host}"
