"""An etcd of our own: one member, or several of which a majority confirms each write."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from disklab.databases.etcd.configuration import (
    CLIENT_PORT,
    ETCD,
    PEER_PORT,
    PORTS,
    MemberFiles,
    MemoryPlan,
    arguments,
    plan_memory,
    url,
)
from disklab.databases.etcd.gateway import Gateway, added, read
from disklab.databases.etcd.installation import Installation, find_etcd
from disklab.databases.log import LogForm
from disklab.databases.nodes import Node, Nodes
from disklab.databases.place import write
from disklab.databases.protocol import (
    Conditions,
    Database,
    NodePlace,
    Observation,
    Progress,
    Request,
)
from disklab.errors import MachineError, refuse
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command

# How etcd writes its log: a JSON object a line (`--logger=zap`).

LOG = LogForm(
    entry=re.compile(r'\{"level":"'),
    bad=re.compile(r'\{"level":"(warn|error|dpanic|panic|fatal)"'),
    # The stack of a panic.
    cause=re.compile(r"panic: |goroutine "),
    error=re.compile(r'\{"level":"(error|dpanic|panic|fatal)"'),
)


# The certificates of one cluster: nobody without one of them is answered.
#
# The authority's key is thrown away once the members and the one client have theirs, so that no
# further certificate can be made.

DAYS = "365"
SECONDS = 60.0
LOOPBACK = "127.0.0.1"
"""Where a connection between two loopback addresses comes from; a member compares that with the
addresses of the certificate that it is shown."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Certificates:
    """Everything that a cluster and its client show each other."""

    authority: str
    members: tuple[Pair, ...]
    client: Pair


def make_certificates(addresses: Sequence[str]) -> Certificates:
    """Return new certificates for members at these addresses and for one client.

    Raises MachineError when openssl is not there or fails.
    """
    # Only this user may enter it, and it goes with the authority's key.
    with tempfile.TemporaryDirectory(prefix="disklab-etcd-") as name:
        folder = Path(name)
        authority = _issued(folder, "authority", ["basicConstraints=critical,CA:TRUE"], "")
        members = tuple(
            _issued(folder, f"member{number}", _of_member(address), "authority")
            for number, address in enumerate(addresses)
        )
        client = _issued(folder, "client", ["basicConstraints=critical,CA:FALSE"], "authority")
    return Certificates(authority.certificate, members, client)


def _of_member(address: str) -> list[str]:
    names = ",".join(f"IP:{one}" for one in dict.fromkeys((address, LOOPBACK)))
    return ["basicConstraints=critical,CA:FALSE", f"subjectAltName={names}"]


def _issued(folder: Path, name: str, extensions: list[str], issuer: str) -> Pair:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-nodes", "-days", DAYS, "-subj", f"/CN=disklab {name}"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    for extension in extensions:
        command += ["-addext", extension]
    if issuer:
        command += ["-CA", str(folder / f"{issuer}.pem"), "-CAkey", str(folder / f"{issuer}.key")]
    command += ["-out", str(certificate), "-keyout", str(key)]
    if shutil.which("openssl") is None:
        raise MachineError("openssl is not installed; it makes etcd's certificates")
    ran = LocalMachine().run(Command(command), SECONDS)
    if ran.code != 0:
        raise MachineError(f"openssl failed with code {ran.code}\n{ran.said}")
    return Pair(certificate.read_text(encoding="ascii"), key.read_text(encoding="ascii"))


# 0.3 s on an idle machine; after a crash it replays its log and maps its database, which it reads
# as a whole, at the speed of the disk.
READY_SECONDS = 300.0
STOP_SECONDS = 60.0
NEVER_COLD = (
    "etcd maps its database and reads all of it as it starts: a page cache that was dropped is "
    "warm again before the first operation"
)


class Member(Node):
    """One member of a cluster, on its host."""

    def __init__(
        self, place: NodePlace, installation: Installation, pair: Pair, client: Pair
    ) -> None:
        """Take its place, the program there, its certificate and the client's."""
        self.place = place
        self.files = MemberFiles(place)
        self.process = place.host.process("etcd", place, PORTS, LOG)
        self.gateway = Gateway(place.host, place.address, CLIENT_PORT, self.files.configuration)
        self._installation = installation
        self._pair = pair
        self._client = client

    def launch(self, authority: str, told: list[str], limit: int) -> None:
        """Write the certificates and start; returns at once."""
        place, host, account = self.place, self.place.host, self._installation.account
        self.record(limit)
        for folder in self.files.own:
            host.own_folder(folder, account)
        conf = host.open_run_dir(place.run_dir)
        host.write(conf, "authority.pem", authority)
        host.write(conf, "member.pem", self._pair.certificate)
        host.write_secret(conf, "member.key", self._pair.key, account)
        host.write(conf, "client.pem", self._client.certificate)
        # Ours alone: the member has no use for it.
        host.write_secret(conf, "client.key", self._client.key, None)
        place.log_dir.mkdir(parents=True, exist_ok=True)
        # The configuration is part of what a run keeps.
        write(place.log_dir, f"{place.name}-etcd-flags.txt", "\n".join(told) + "\n")
        self.process.launch(self._installation.command(told))

    @property
    def own(self) -> Sequence[Path]:
        """The folders that are the member's alone."""
        return self.files.own

    def stop(self) -> None:
        """End it in order. One that leads hands over first."""
        self.process.end(signal.SIGTERM, STOP_SECONDS)

    def death(self) -> MachineError | None:
        """Return why the process has ended, with the end of its log; None: it runs."""
        try:
            self.check()
        except MachineError as error:
            return error
        return None

    def cached_bytes(self) -> tuple[int, int]:
        """Return the size of its database, and how much of it the page cache holds."""
        return self.place.host.cached_bytes([self.files.database])

    def has_data(self) -> bool:
        """Return whether its disks hold what it was."""
        return self.place.host.exists(self.files.data / "member")

    def empty(self) -> None:
        """Remove what its disks hold; it must be dead."""
        for folder in self.files.own:
            self.place.host.remove(folder)

    def wait_until_healthy(self) -> None:
        """Return when the member answers for a cluster with a leader."""
        wanted = "answers for a cluster with a leader"
        self.wait_until(wanted, self.gateway.is_healthy, READY_SECONDS)


class Etcd(Nodes[Member]):
    """A cluster that disklab makes, starts and stops.

    See `Database` for what each method promises. A minority of members may die: the others go on,
    and `notes` tells of it.
    """

    def __init__(
        self,
        request: Request,
        nodes: Sequence[tuple[NodePlace, Installation]],
        plan: MemoryPlan,
    ) -> None:
        """Take what is asked for and where, with the program of each place."""
        super().__init__("etcd", [place for place, _ in nodes])
        self.request = request
        self.plan = plan
        self._hosts = nodes
        self._certificates: Certificates | None = None
        self.nodes = []
        self._counters: dict[str, dict[str, float]] = {}
        """Of each member, as it was last seen: what a dead one has done stays counted."""
        self._deaths: dict[str, str] = {}
        self._was_cold = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in, and which members died."""
        notes = self._scale_notes(self.plan.reasons, self.plan.page_cache)
        if self._was_cold:
            notes.append(NEVER_COLD)
        return (*notes, *self._deaths.values())

    @property
    def versions(self) -> Mapping[str, str]:
        """The members'."""
        return {"etcd": self._hosts[0][1].version}

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the members, and what it shows them."""
        made = self._made()
        return {
            "protocol": "etcd",
            "contact_points": [f"{place.address}:{CLIENT_PORT}" for place in self._places],
            "table": self.request.table_name,
            "tls": {
                "authority": made.authority,
                "certificate": made.client.certificate,
                "key": made.client.key,
            },
        }

    def _bring_up(self) -> None:
        """Start every member; returns when each knows a leader."""
        authority = self._made().authority
        self._deaths.clear()
        for member in self.nodes:
            self._launch(member, authority)
        for member in self.nodes:
            member.wait_until_healthy()

    def _launch(self, member: Member, authority: str, *, joins: bool = False) -> None:
        slow = self.request.sizes.time_dilation
        told = arguments(member.files, self._places, self.plan, self.request.settings, slow)
        if joins:
            told.append("--initial-cluster-state=existing")
        member.launch(authority, told, self.plan.limit)

    def _start_again(self, node: Member) -> None:
        self._launch(node, self._made().authority)
        node.wait_until_healthy()

    def replace_node(self, name: str) -> None:
        """Have the others forget a dead member and take an empty one at its address.

        Returns when it has their data. The old one goes first: with both of them counted, a
        cluster of three would need three of four.

        **Source:** etcd's documentation of runtime reconfiguration, "Replace a failed machine".
        """
        member = self._named(name)
        member.process.kill()
        self._alive()[0].gateway.replace_member(url(member.place, PEER_PORT))
        member.empty()
        self._launch(member, self._made().authority, joins=True)
        # It asks the others for the newest revision, and answers once it has applied it.
        member.wait_until_healthy()
        self._away.discard(name)

    def settle(self, conditions: Conditions) -> None:
        """Delete the keys, drop old revisions and their room, and sync, in this order."""
        alive = self._alive()
        emptied = conditions.to_empty(self.request)
        for table in emptied:
            alive[0].gateway.delete(f"{table}/")
        if emptied or conditions.compacted:
            alive[0].gateway.compact()
            for member in alive:
                member.gateway.defragment()
        if conditions.flushed:
            for member in alive:
                member.sync()

    def _check(self) -> None:
        self._alive()

    def _cached(self) -> list[tuple[int, int]]:
        # It reads its database as it starts.
        self._was_cold = True
        return [member.cached_bytes() for member in self.nodes]

    def observe(self) -> Observation:
        """Return fsyncs and commits by how long they took, and the room of the database.

        Nothing while it is stopped. Raises MachineError when fewer than a majority are left.
        """
        if not any(member.process.pid for member in self.nodes):
            return Observation((), {}, {})
        gauges: dict[str, dict[str, float]] = {}
        for member in self._alive():
            try:
                text = member.gateway.metrics()
            except MachineError:
                # It may be dying, which the next look tells; or its machine is busy.
                continue
            gauges[member.place.name], self._counters[member.place.name] = read(text)
        return Observation(
            pids=tuple(pid for member in self.nodes for pid in member.process.pids),
            metrics={
                **added(gauges),
                "members": float(len(self.nodes) - len(self._deaths)),
            },
            counters=added(self._counters),
        )

    def _made(self) -> Certificates:
        """Return the cluster's certificates, made when they are first needed."""
        if self._certificates is None:
            made = make_certificates([place.address for place in self._places])
            self.nodes = [
                Member(*node, pair, made.client)
                for node, pair in zip(self._hosts, made.members, strict=True)
            ]
            self._certificates = made
        return self._certificates

    def _alive(self) -> list[Member]:
        """Return the members that run and are within reach, and note those that have died.

        Raises MachineError, with the log of a dead one, when no majority is left.
        """
        here = [member for member in self.nodes if member.place.name not in self._away]
        deaths = {member.place.name: member.death() for member in here}
        for name, error in deaths.items():
            if error is not None:
                first = str(error).partition("\n")[0]
                self._deaths[name] = f"{first}; the other members went on without it"
        alive = [one for one in here if deaths[one.place.name] is None]
        last = next((error for error in deaths.values() if error is not None), None)
        if last is not None and len(alive) + len(self._away) <= len(self.nodes) // 2:
            raise last
        return alive


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a cluster that is ready to start."""
    problems = list(ETCD.check(request, nodes))
    refuse(problems)
    found = {
        host: find_etcd(host, request.version, progress)
        for host in dict.fromkeys(node.host for node in nodes)
    }
    for one in {one.version: one for one in found.values()}.values():
        problems += ETCD.check_settings(request.settings, one.known_settings(), one.version)
    refuse(problems)
    told = [f"{host.elsewhere} ({one.version})" for host, one in found.items() if host.elsewhere]
    if told:
        progress(f"etcd on {', '.join(told)}")
    return Etcd(request, [(node, found[node.host]) for node in nodes], plan_memory(request.sizes))
