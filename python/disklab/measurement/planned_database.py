"""What will happen to a host on which a database is built, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from disklab.engine import Account
from disklab.errors import MachineError, Problem
from disklab.machines.protocol import Command, Machine
from disklab.measurement import clients, far_engines, far_server
from disklab.measurement.built import volumes_apart
from disklab.measurement.far_engines import Needed
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.site import DATA, Placed
from disklab.spec import Trial


@dataclass(frozen=True)
class DatabasePlan:
    """The part of a host's plan that is about its database."""

    makes: list[str]
    """Removed at the end."""
    directories: dict[str, str]
    """By volume; what else is asked of them is asked of every directory that is measured in."""
    missing: list[Problem]


def look(
    hosts: Hosts, placed: Placed, name: str, machine: Machine, trials: Sequence[Trial]
) -> DatabasePlan:
    """Look for what a host needs for the databases of trials; changes nothing.

    Raises MachineError.
    """
    place = hosts.place("hosts", name)
    makes: list[str] = []
    missing: list[Problem] = []
    directories: dict[str, str] = {}
    here = [trial for trial in trials if any(spot.host == name for spot in placed.of(trial))]
    for spot in (one for one in placed.used if one.host == name):
        for trial in here:
            for asked in volumes_apart(trial):
                volume = spot.volume if asked == DATA else asked
                directory = hosts.file.hosts[name].volumes[volume].directory
                if directory is None:
                    key = hosts.place("hosts", name, "volumes", volume)
                    rule = "a database is built in directories only"
                    way_out = "make a file system, and name its directory"
                    missing.append(Problem(key, "disk", rule, way_out))
                else:
                    directories[volume] = directory
    engines = {(one.engine, one.version) for one in (trial.spec.database for trial in here) if one}
    for engine, version in sorted(engines, key=str):
        missing += far_engines.missing_here(engine)
        found = _needed(place, engine, version, machine)
        if isinstance(found, Problem):
            missing.append(found)
            continue
        who = "its own user" if found.account is None else f"user {found.account.name}"
        at = ", ".join(f"{machine.address}:{port}" for port in found.ports)
        where = " and ".join(directories.values())
        makes.append(f"{found.title} with its data in {where}, run by {who}, at {at}; stopped")
        taken = far_server.listening(machine, found.ports)
        if taken:
            rule = f"a program listens at its port {', '.join(map(str, taken))} already"
            way_out = "end it there (`ss -ltnp` names it), or choose another host"
            missing.append(Problem(place, machine.address, rule, way_out))
        for volume, directory in directories.items():
            key = hosts.place("hosts", name, "volumes", volume)
            missing += _closed(key, directory, found.account, machine)
    return DatabasePlan(makes, directories, list(dict.fromkeys(missing)))


def _needed(place: str, engine: str, version: str | None, machine: Machine) -> Needed | Problem:
    """Return what a host runs for a node, or what stands in the way."""
    try:
        found = far_engines.needed(engine, version, machine)
    except MachineError as error:
        way_out = "see docs/measure.md, A database that disklab builds"
        return Problem(place, machine.name, str(error), way_out)
    return replace(found, place=place) if isinstance(found, Problem) else found


def missing_user(hosts: Hosts, name: str, machine: Machine) -> Iterator[Problem]:
    """Yield that a client host has no user for the load."""
    try:
        far_server.account(machine, clients.USERS)
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
