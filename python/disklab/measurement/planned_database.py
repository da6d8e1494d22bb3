"""What will happen to a host on which a database is built, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from disklab.catalog.quantity import about_bytes
from disklab.databases import remote_host
from disklab.databases.record import Needed
from disklab.engine import Account
from disklab.errors import MachineError, Problem
from disklab.hosts import requirements
from disklab.machines.protocol import Command, Machine
from disklab.measurement import canary, clients
from disklab.measurement.formatting import why_not
from disklab.measurement.hosts_file import Hosts, Volume
from disklab.measurement.machines_of import needed
from disklab.measurement.own_database import volumes_apart
from disklab.measurement.settings import DATA, DROP_CACHES, Placed, may_drop_page_cache
from disklab.spec import ClusterTrial, Trial
from disklab.spec.amounts import only


@dataclass(frozen=True)
class DatabasePlan:
    """The part of a host's plan that is about its database."""

    makes: list[str]
    """Removed at the end."""
    directories: dict[str, str]
    """By volume; what else is asked of them is asked of every directory that is measured in."""
    formats: list[str]
    """Disks, in words."""
    missing: list[Problem]


def look(
    hosts: Hosts, placed: Placed, machine: Machine, trials: Sequence[Trial], *, goes_on: bool
) -> DatabasePlan:
    """Look for what a host needs for the databases of trials; changes nothing.

    `goes_on`: its ports and disks may be in use by what a killed start of this run has left there.
    That is gone on with, or undone before anything is made; then they are looked at once more.
    Raises MachineError.
    """
    name = machine.name
    place = hosts.place("hosts", name)
    makes: list[str] = []
    missing: list[Problem] = []
    directories: dict[str, str] = {}
    disks: dict[str, Volume] = {}
    here = [trial for trial in trials if any(spot.host == name for spot in placed.of(trial))]
    for volume, trial in _volumes_on(placed, name, here):
        given = hosts.file.hosts[name].volumes[volume]
        if given.directory is not None:
            directories[volume] = given.directory
        elif volume not in disks:
            disks[volume] = given
            missing += _unfit(hosts, (name, volume), trial, machine, goes_on=goes_on)
    engines = {(one.engine, one.version) for one in (trial.spec.database for trial in here) if one}
    for engine, version in sorted(engines, key=str):
        found = _needed(place, engine, version, machine)
        if isinstance(found, Problem):
            missing.append(found)
            continue
        who = "its own user" if found.account is None else f"user {found.account.name}"
        at = ", ".join(f"{machine.address}:{port}" for port in found.ports)
        where = " and ".join([*directories.values(), *(f"{one}'s disk" for one in disks)])
        makes.append(f"{found.title} with its data in {where}, run by {who}, at {at}; stopped")
        taken = [] if goes_on else remote_host.listening(machine, found.ports)
        if taken:
            rule = f"a program listens at its port {', '.join(map(str, taken))} already"
            way_out = "end it there (`ss -ltnp` names it), or choose another host"
            missing.append(Problem(place, machine.address, rule, way_out))
        for volume, directory in directories.items():
            key = hosts.place("hosts", name, "volumes", volume)
            missing += _closed(key, directory, found.account, machine)
    if makes and canary.is_there(machine):
        size = about_bytes(canary.BESIDE_BYTES)
        makes.append(
            f"a file of {size} beside the data, read for a second before and after each trial"
        )
    missing += _undroppable(hosts, name, machine)
    formats = [text for given in disks.values() for text in disks_in_words(given)]
    return DatabasePlan(makes, directories, formats, list(dict.fromkeys(missing)))


def _volumes_on(placed: Placed, name: str, here: Sequence[Trial]) -> Iterator[tuple[str, Trial]]:
    """Yield the volumes of a host that its trials use, as the hosts file calls them."""
    for spot in (one for one in placed.used if one.host == name):
        for trial in here:
            for asked in volumes_apart(trial):
                yield (spot.volume if asked == DATA else asked), trial


def _undroppable(hosts: Hosts, name: str, machine: Machine) -> Iterator[Problem]:
    """Yield that a page cache may not be dropped, which the hosts file lets us do."""
    if "page_cache" in hosts.file.hosts[name].may_change and not may_drop_page_cache(machine):
        rule = "the user as whom disklab logs in may not drop this host's page cache"
        way_out = "log in as root, or take page_cache out of may_change"
        yield Problem(hosts.place("hosts", name), str(DROP_CACHES), rule, way_out)


def disks_in_words(volume: Volume) -> Iterator[str]:
    """Yield what is done to the disks of a volume, for the plan."""
    for disk in volume.disks:
        named = f"by-id/{disk.by_id}" if disk.by_id is not None else f"LUN {disk.lun}"
        size = about_bytes(disk.size_bytes)
        yield f"disk {named} ({size}, {disk.kind}): all its data will be deleted"
    if volume.stripe is not None:
        chunk = about_bytes(volume.stripe.chunk_bytes)
        yield (
            f"these {len(volume.disks)} as one stripe of chunks of {chunk}, made by mdadm; stopped "
            "at the end, and its superblocks removed"
        )


def _unfit(
    hosts: Hosts, names: tuple[str, str], trial: Trial, machine: Machine, *, goes_on: bool
) -> Iterator[Problem]:
    """Yield why the disks of a volume cannot be formatted for a database."""
    place = hosts.place("hosts", names[0], "volumes", names[1])
    if not goes_on:
        reason = why_not(machine, hosts.file.hosts[names[0]].volumes[names[1]], place)
        yield from () if reason is None else (reason,)
    kinds = {one.filesystem for one in only(ClusterTrial, trial.spec).cluster.volumes.values()}
    yield from missing_mkfs(hosts.place("hosts", names[0]), kinds, machine)


def missing_mkfs(place: str, kinds: Iterable[str], machine: Machine) -> Iterator[Problem]:
    """Yield the programs that make file systems of these kinds and are not on a host."""
    for kind in sorted(kinds):
        program = f"mkfs.{kind}"
        if machine.run(Command(["sh", "-c", f"command -v {program}"])).code != 0:
            rule = "the program is missing on the host; disklab installs nothing"
            way_out = f"install it there: {requirements.how_to_get(program)}"
            yield Problem(place, program, rule, way_out)


def _needed(place: str, engine: str, version: str | None, machine: Machine) -> Needed | Problem:
    """Return what a host runs for a node, or what stands in the way."""
    try:
        found = needed(engine, version, machine)
    except MachineError as error:
        way_out = "see docs/measure.md, A database that disklab builds"
        return Problem(place, machine.name, str(error), way_out)
    return replace(found, place=place) if isinstance(found, Problem) else found


def missing_user(hosts: Hosts, name: str, machine: Machine) -> Iterator[Problem]:
    """Yield that a client host has no user for the load."""
    try:
        remote_host.account(machine, clients.USERS)
    except MachineError as error:
        way_out = "see docs/measure.md, Hosts that make the load"
        yield Problem(hosts.place("hosts", name), name, str(error), way_out)


def _closed(
    place: str, directory: str, account: Account | None, machine: Machine
) -> Iterator[Problem]:
    """Yield that a directory is closed to the user that runs the server."""
    if account is None:
        return
    words = account.command(["test", "-x", directory])
    if machine.run(Command(words)).code != 0:
        rule = f"is closed to the user {account.name}, who runs the server"
        way_out = f"open it and what is above it to pass: chmod o+x {directory}"
        yield Problem(place, directory, rule, way_out)
