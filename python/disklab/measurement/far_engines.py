"""The databases that disklab builds on hosts: what each needs there, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Protocol, cast

from disklab.database_facts import names
from disklab.databases import Database, NodePlace, Request, provision, record_of
from disklab.databases.cassandra.configuration import PORTS as CASSANDRA_PORTS
from disklab.databases.cassandra.configuration import Installation
from disklab.databases.cassandra.distribution import exact_version
from disklab.databases.cassandra.java import WANTED
from disklab.databases.cassandra.provider import check as check_cassandra
from disklab.databases.cassandra.provider import distribution_of, settings_of
from disklab.databases.cassandra.sizing import plan_memory as plan_cassandra
from disklab.databases.record import Needed
from disklab.databases.remote_host import RemoteHost, account
from disklab.errors import MachineError, Problem
from disklab.hosts.node import Progress
from disklab.machines.protocol import Command, Machine
from disklab.measurement import far_cassandra
from disklab.measurement.far_cassandra import FarCassandra, Installed, secrets_of


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
    if engine in _LOOKS:
        found = _LOOKS[engine](version, machine)
    else:
        look = record_of(engine).needed_on
        assert look is not None, "asked of ENGINES alone"
        found = look(RemoteHost(machine), version)
    unknown = _without_address(machine) if isinstance(found, Needed) and found.by_ip else None
    return unknown or found


@dataclass(frozen=True)
class Building:
    """A database that is to be made on folders that were made for it."""

    request: Request
    nodes: Sequence[Hosted]
    memory_bytes: int
    """Of the smallest host."""
    log_folder: Path
    kept: str | None
    """The `secret` of data that are there already."""


def make(asked: Building, say: Progress) -> HostedDatabase:
    """Return a database that is ready to start.

    Raises UserError for what cannot be asked of it, MachineError for what a host lacks.
    """
    if asked.request.engine in _MAKERS:
        made = _MAKERS[asked.request.engine](asked, say)
    else:
        places = [node.place(asked.log_folder) for node in asked.nodes]
        request = replace(asked.request, kept=asked.kept)
        # What has `needed_on` in its record has these two methods more.
        made = cast("HostedDatabase", provision(request, places, say))
    for node in asked.nodes:
        RemoteHost(node.machine).folder(Path(node.folder) / "run")
    return made


def _look_for_cassandra(version: str | None, machine: Machine) -> Needed | Problem:
    java = far_cassandra.find_java(machine)
    if java is None:
        rule = f"Cassandra needs Java {WANTED}, up to 23; disklab installs nothing"
        way_out = (
            "install it there: apt-get install openjdk-17-jre-headless, dnf install "
            "java-17-openjdk-headless"
        )
        return Problem("", "java", rule, way_out)
    if machine.run(Command(["sh", "-c", "command -v bash && command -v setpriv"])).code != 0:
        rule = "the programs are missing on the host; disklab installs nothing"
        return Problem("", "bash, setpriv", rule, "install the packages bash and util-linux there")
    unknown = _without_address(machine)
    if unknown is not None:
        return unknown
    runs_it = account(machine, far_cassandra.USERS)
    title = f"a Cassandra {exact_version(version)} node on Java {java.major}"
    return Needed(title, runs_it, CASSANDRA_PORTS)


def _without_address(machine: Machine) -> Problem | None:
    """Return that a node has no IP address, by which the others know it."""
    try:
        ip_address(machine.address)
    except ValueError:
        rule = "nodes know each other by IP addresses"
        return Problem("", machine.address, rule, "write the host's as private_address")
    return None


def _make_cassandra(asked: Building, say: Progress) -> HostedDatabase:
    request, nodes = asked.request, asked.nodes
    places = [node.place(asked.log_folder) for node in nodes]
    check_cassandra(request, places)
    plan = plan_cassandra(request.sizes, asked.memory_bytes)
    local = distribution_of(request, say)
    known = settings_of(request, local)

    def install(node: Hosted) -> Installed:
        java = far_cassandra.find_java(node.machine)
        if java is None:
            raise MachineError(f"{node.machine.name}: Java is there no more")
        runs_it = account(node.machine, far_cassandra.USERS)
        sent = far_cassandra.send(local, node.machine, Path(node.folder))
        installation = Installation(sent, java, known, runs_it, request.collector)
        return Installed(node.place(asked.log_folder), node.machine, installation)

    say(f"sending Cassandra {local.version} to {', '.join(node.machine.name for node in nodes)}")
    with ThreadPoolExecutor(len(nodes)) as pool:
        installed = list(pool.map(install, nodes))
    kept = None if asked.kept is None else secrets_of(asked.kept)
    return FarCassandra(request, installed, plan, kept)


Look = Callable[[str | None, Machine], Needed | Problem]
Make = Callable[[Building, Progress], HostedDatabase]

_LOOKS: Mapping[str, Look] = {
    "cassandra": _look_for_cassandra,
}
_MAKERS: Mapping[str, Make] = {
    "cassandra": _make_cassandra,
}
ENGINES = tuple(name for name in names() if name in _LOOKS or record_of(name).needed_on)
"""Each is built on one host or on several."""
