"""etcd on hosts: the provider of rehearsals, with everything done through machines.

A host has etcd and curl: its members are asked with the client's certificate by programs of their
own hosts, so that no port is open to this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.databases import NodePlace, Request
from disklab.databases.etcd.certificates import Pair
from disklab.databases.etcd.cluster import NEVER_COLD, Etcd, Member
from disklab.databases.etcd.configuration import CLIENT_PORT, PORTS
from disklab.databases.etcd.gateway import Gateway
from disklab.databases.etcd.installation import (
    PROGRAM,
    TOO_OLD,
    Installation,
    flags_of,
    version_of,
)
from disklab.databases.etcd.log import LOG
from disklab.databases.etcd.sizing import MemoryPlan
from disklab.engine import Account
from disklab.errors import MachineError
from disklab.machines.protocol import Command, Machine
from disklab.measurement.far_pages import cached_below, drop_pages
from disklab.measurement.far_server import FarProcess, OnHosts, ServerFiles, account, sync

USERS = ("disklab", "etcd")
"""Who may run a member for root: our own user, else the one that etcd's packages make."""
# What curl takes beside its own time-out, on a busy host.
BESIDE_SECONDS = 30.0


@dataclass(frozen=True)
class FarInstallation(Installation):
    """The program of a host."""

    machine: Machine

    def known_settings(self) -> frozenset[str]:
        """Return the flags of this version, without their dashes."""
        return flags_of(_said(self.machine, self.program, "--help"))


def missing_programs(machine: Machine) -> list[str]:
    """Return those of the programs that a member needs which a host does not have."""
    return [name for name in (PROGRAM, "curl") if not _path_of(machine, name)]


def find(machine: Machine) -> FarInstallation:
    """Return the etcd of a host, who runs it. Raises MachineError for none that can be used."""
    program = _path_of(machine, PROGRAM)
    said = _said(machine, program, "--version") if program else ""
    version = version_of(said)
    if version is None:
        raise MachineError(f"{machine.name}: {(said.splitlines() or ['no etcd'])[0]}: {TOO_OLD}")
    return FarInstallation(program, version, account(machine, USERS), machine)


def _path_of(machine: Machine, program: str) -> str:
    found = machine.run(Command(["sh", "-c", f"command -v {program}"]))
    return found.stdout.decode(errors="replace").strip()


def _said(machine: Machine, program: str, option: str) -> str:
    ended = machine.run(Command([program, option], variables={"LC_ALL": "C"}))
    return (ended.stdout + ended.stderr).decode(errors="replace")


class FarGateway(Gateway):
    """One member, asked by the curl of its host."""

    def __init__(self, machine: Machine, address: str, folder: Path) -> None:
        super().__init__(address, CLIENT_PORT, folder)
        self._machine = machine

    def _request(self, method: str, path: str, body: str | None, seconds: float) -> tuple[int, str]:
        folder = self._folder
        words = ["curl", "-q", "-sS", "--noproxy", "*", "--max-time", f"{seconds:g}", "-X", method]
        words += ["--cacert", f"{folder}/authority.pem", "--cert", f"{folder}/client.pem"]
        words += ["--key", f"{folder}/client.key", "-H", "Content-Type: application/json"]
        words += [] if body is None else ["--data-binary", "@-"]
        # The status comes as the last line.
        words += ["-w", "\\n%{http_code}", f"https://{self._address}:{self._port}{path}"]
        asked = Command(words, stdin=(body or "").encode(), variables={"LC_ALL": "C"})
        ended = self._machine.run(asked, seconds + BESIDE_SECONDS)
        if ended.code != 0:
            told = ended.stderr.decode(errors="replace").strip()
            raise OSError(f"{self._machine.name}: {told}")
        text, _, status = ended.stdout.decode(errors="replace").rpartition("\n")
        return int(status), text


class FarMember(Member):
    """A member on a host. Its folder there was made for it and is removed with it."""

    def __init__(
        self, place: NodePlace, pair: Pair, client: Pair, installation: FarInstallation
    ) -> None:
        """Take its place, the certificates, and the program of its host."""
        super().__init__(place, pair, client)
        self._machine = installation.machine
        self._own = installation
        self._far = ServerFiles(self._machine, installation.account)
        self.process = FarProcess("etcd", self._machine, place, PORTS, LOG)
        self.gateway = FarGateway(self._machine, place.address, self.files.configuration)

    @property
    def machine(self) -> Machine:
        """The host that it is on."""
        return self._machine

    def launch(
        self, installation: Installation, authority: str, told: list[str], limit: int
    ) -> None:
        """Start it by the program of its own host; returns at once."""
        del installation
        super().launch(self._own, authority, told, limit)

    def drop_page_cache(self) -> None:
        """Drop what the host's page cache holds of its files, and of no others."""
        self.sync()
        drop_pages(self._machine, [PurePosixPath(one) for one in self.place.volumes.values()])

    def sync(self) -> None:
        """Write everything back that is dirty on the file systems of its volumes."""
        sync(self._machine, self.place)

    def cached_bytes(self) -> tuple[int, int]:
        """Return the size of its database, and how much of it the host's page cache holds."""
        return cached_below(self._machine, PurePosixPath(self.files.database))

    def has_data(self) -> bool:
        """Return whether its disks hold what it was."""
        words = ["test", "-e", str(self.files.data / "member")]
        return self._machine.run(Command(words)).code == 0

    def pids(self) -> Iterator[int]:
        """Yield nothing: they are numbers of another machine."""
        yield from ()

    def _own_folder(self, folder: Path, account: Account | None) -> None:
        del account
        self._far.own_folder(folder)

    def _put(self, name: str, text: str) -> None:
        self._far.folder(self.files.configuration)
        self._far.put(self.files.configuration / name, text)

    def _put_secret(self, name: str, text: str, account: Account | None) -> None:
        ServerFiles(self._machine, account).put_secret(self.files.configuration / name, text)


class FarEtcd(OnHosts, Etcd):
    """A cluster on hosts, filled and loaded from here or from client hosts."""

    def __init__(
        self,
        request: Request,
        places: Sequence[NodePlace],
        installations: Sequence[FarInstallation],
        plan: MemoryPlan,
    ) -> None:
        """Take what is asked for, and where, and the program of each host."""
        there = {place.name: one for place, one in zip(places, installations, strict=True)}

        def make(place: NodePlace, pair: Pair, client: Pair) -> Member:
            return FarMember(place, pair, client, there[place.name])

        super().__init__(request, list(places), installations[0], plan, make)
        told = [f"{there[place.name].machine.name} ({place.address})" for place in places]
        self._built_on = ", ".join(told)

    @property
    def secret(self) -> str:
        """What its data are made for: nobody. Each start has certificates of its own."""
        return "none"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures should know."""
        return (
            self.built_note("etcd"),
            *([NEVER_COLD] if self._was_cold else []),
            *self.plan.reasons,
            *self._deaths.values(),
        )
