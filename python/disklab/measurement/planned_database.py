"""What will happen to a host on which a database is built, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disklab.engine import Account
from disklab.errors import MachineError, Problem
from disklab.hosts import requirements
from disklab.machines.protocol import Command, Machine
from disklab.measurement import clients, far_postgresql
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.site import Placed, volume_of


@dataclass(frozen=True)
class DatabasePlan:
    """The part of a host's plan that is about its database."""

    makes: list[str]
    """Removed at the end."""
    directories: dict[str, str]
    """By volume; what else is asked of them is asked of every directory that is measured in."""
    missing: list[Problem]


def look(hosts: Hosts, placed: Placed, name: str, machine: Machine) -> DatabasePlan:
    """Look for PostgreSQL and its user on a host; changes nothing. Raises MachineError."""
    place = hosts.place("hosts", name)
    makes: list[str] = []
    missing: list[Problem] = []
    installation = None
    try:
        installation = far_postgresql.find(machine)
        if installation is None:
            rule = "the package is missing on the host; disklab installs nothing"
            way_out = "install it there: apt-get install postgresql, dnf install postgresql-server"
            missing.append(Problem(place, "postgresql", rule, way_out))
    except MachineError as error:
        way_out = "see docs/measure.md, A database that disklab builds"
        missing.append(Problem(place, name, str(error), way_out))
    if requirements.find_program("psql") is None:
        rule = "the program is missing on this machine, which asks the server"
        way_out = f"install it: {requirements.how_to_get('psql')}"
        missing.append(Problem("this machine", "psql", rule, way_out))
    directories: dict[str, str] = {}
    for spot in placed.used:
        if spot.host != name:
            continue
        directory = volume_of(hosts, spot).directory
        key = hosts.place("hosts", name, "volumes", spot.volume)
        if directory is None:
            rule = "a database is built in directories only"
            missing.append(Problem(key, "disk", rule, "make a file system, and name its directory"))
            continue
        directories[spot.volume] = directory
        if installation is not None:
            user = installation.account
            who = "its own user" if user is None else f"user {user.name}"
            makes.append(
                f"a PostgreSQL {installation.major} server with its data in {directory}, run by "
                f"{who}, at {machine.address}:5432; stopped"
            )
            missing += _closed(key, directory, user, machine)
    return DatabasePlan(makes, directories, missing)


def missing_user(hosts: Hosts, name: str, machine: Machine) -> Iterator[Problem]:
    """Yield that a client host has no user for the load."""
    try:
        far_postgresql.account(machine, clients.USERS)
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
