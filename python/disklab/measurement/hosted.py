"""The databases that disklab builds on hosts: what each needs there, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Protocol, cast

from disklab.database_facts import names
from disklab.databases import Database, NodePlace, Request, provision, record_of
from disklab.databases.record import Needed
from disklab.databases.remote_host import RemoteHost
from disklab.errors import Problem
from disklab.hosts.node import Progress
from disklab.machines.protocol import Machine


class HostedDatabase(Database, Protocol):
    """A database on hosts."""

    @property
    def secret(self) -> str:
        """What its data are made for; kept beside them."""

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts, at these IP addresses."""


@dataclass(frozen=True)
class Hosted:
    """A node of a database on a host, and its folders there, which are ours."""

    machine: Machine
    folders: Mapping[str, PurePosixPath]
    """By volume."""

    @property
    def folder(self) -> PurePosixPath:
        """The one with its data, and what else it needs."""
        return self.folders["data"]

    def place(self, log_folder: Path) -> NodePlace:
        """Return what a provider is given."""
        return NodePlace(
            name=self.machine.name,
            address=self.machine.address,
            volumes={name: Path(folder) for name, folder in self.folders.items()},
            run_dir=Path(self.folder) / "run",
            log_dir=log_folder.absolute(),
            host=RemoteHost(self.machine),
        )


def needed(engine: str, version: str | None, machine: Machine) -> Needed | Problem:
    """Return what will be run on a host, or what it lacks. Raises MachineError; changes nothing."""
    look = record_of(engine).needed_on
    assert look is not None, "asked of ENGINES alone"
    found = look(RemoteHost(machine), version)
    unknown = _without_address(machine) if isinstance(found, Needed) and found.by_ip else None
    return unknown or found


def make(
    request: Request, nodes: Sequence[Hosted], log_folder: Path, say: Progress
) -> HostedDatabase:
    """Return a database that is ready to start, on folders that were made for it.

    Raises UserError for what cannot be asked of it, MachineError for what a host lacks.
    """
    places = [node.place(log_folder) for node in nodes]
    # What has `needed_on` in its record has these two methods more.
    database = cast("HostedDatabase", provision(request, places, say))
    for node in nodes:
        RemoteHost(node.machine).folder(Path(node.folder) / "run")
    return database


def _without_address(machine: Machine) -> Problem | None:
    """Return that a node has no IP address, by which the others know it."""
    try:
        ip_address(machine.address)
    except ValueError:
        rule = "nodes know each other by IP addresses"
        return Problem("", machine.address, rule, "write the host's as private_address")
    return None


ENGINES = tuple(name for name in names() if record_of(name).needed_on)
"""Each is built on one host or on several."""
