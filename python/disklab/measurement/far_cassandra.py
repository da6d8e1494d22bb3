"""Cassandra on hosts: the provider of rehearsals, with everything done through machines.

Its jars are sent to a folder of ours on each host, and go with it; Java must be there. What the
nodes log comes back line by line and stays in the run.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disklab.databases import NodePlace, Request
from disklab.databases.cassandra.access import USER, Secrets
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import (
    CQL_PORT,
    JOLOKIA_FILE,
    JOLOKIA_PORT,
    PORTS,
    Installation,
    NodeFiles,
    Start,
    Written,
    command_line,
)
from disklab.databases.cassandra.distribution import Distribution
from disklab.databases.cassandra.internode import StorageKey
from disklab.databases.cassandra.java import FIRST_WITHOUT_SECURITY_MANAGER, WANTED, Java
from disklab.databases.cassandra.node import LOG, Node
from disklab.databases.cassandra.sizing import MemoryPlan
from disklab.databases.files import open_log
from disklab.databases.place import Way
from disklab.databases.remote_host import RemoteHost, ServerJob, listening, ran
from disklab.engine import Account, CqlLogin
from disklab.errors import MachineError
from disklab.machines.protocol import Child, Machine
from disklab.measurement.far_asking import FarCql, FarJolokia

USERS = ("disklab", "cassandra")
"""Who may run a node for root: our own user, else the one that Cassandra's packages make."""
LIBRARIES = "lib"
# The rest of what a node said is there when its process has ended.
FOLLOW_SECONDS = 30.0
# Java's homes as `java.find_java` looks for them, with the version from their `release` files.
_FIND = """for d in "$JAVA_HOME" /usr/lib/jvm/* /opt/*; do
  [ -x "$d/bin/java" ] && [ -r "$d/release" ] && echo "$(readlink -f "$d") $(grep -m1 ^JAVA_VERSION= "$d/release")"
done; true"""  # noqa: E501 - one line of a script
_FOUND = re.compile(r'(/\S+) JAVA_VERSION="(?:1\.)?(\d+)', re.ASCII)
_LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


def find_java(machine: Machine) -> Java | None:
    """Return the best Java of a host as `java.find_java` does; None: none will do."""
    found = [_FOUND.match(line) for line in ran(machine, "sh", "-c", _FIND).splitlines()]
    known = [Java(Path(one[1]), int(one[2])) for one in found if one is not None]
    fitting = [one for one in known if WANTED <= one.major < FIRST_WITHOUT_SECURITY_MANAGER]
    return min(fitting, key=lambda one: one.major, default=None)


@dataclass(frozen=True)
class SentDistribution(Distribution):
    """Program files on a host; `local` are those that they were sent from."""

    local: Distribution

    @property
    def jamm(self) -> Path:
        """The agent that Cassandra measures its objects with."""
        return self.libraries / self.local.jamm.name


def send(distribution: Distribution, machine: Machine, folder: Path) -> SentDistribution:
    """Send the jars of a distribution to a folder of ours on a host."""
    target = folder / LIBRARIES
    ran(machine, "mkdir", "-p", "-m", "0755", "--", str(target))
    jars = sorted(distribution.libraries.glob("*.jar"))
    for jar in dict.fromkeys([*jars, distribution.jolokia]):
        machine.files.put(jar, PurePosixPath(target / jar.name), 0o644)
    jolokia = target / distribution.jolokia.name
    return SentDistribution(distribution.version, target, jolokia, distribution)


class FollowedProcess(ServerJob):
    """A node's process on a host. What it says is copied to the run's logs as it comes."""

    def __init__(self, machine: Machine, files: NodeFiles) -> None:
        super().__init__("Cassandra", machine, files.place, PORTS, LOG)
        self._files = files
        self._follower: threading.Thread | None = None

    def launch(
        self,
        command: list[str],
        handles: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it there; returns at once. Raises MachineError for a port that is taken."""
        taken = listening(self._machine, self._ports)
        if taken:
            where = ", ".join(f"{self._place.address}:{port}" for port in taken)
            raise MachineError(
                f"{self._machine.name}: another program listens at {where} (`ss -ltnp` names it); "
                "end it there"
            )
        self._log = self._log.from_now()
        super().launch(command, handles, variables)
        assert self._child is not None, "it was started"
        name = f"log of {self._machine.name}"
        follow = threading.Thread(target=self._follow, args=(self._child,), name=name, daemon=True)
        self._follower = follow
        follow.start()

    def _follow(self, child: Child) -> None:
        """Copy what the JVM says of its stops to the one log, and all else to the other."""
        with (
            suppress(MachineError),
            os.fdopen(open_log(self._files.log, None), "ab", buffering=0) as log,
            os.fdopen(open_log(self._files.gc_log, None), "ab", buffering=0) as gc_log,
        ):
            for line in child.lines():
                # The JVM's own lines begin with their time; those of the log with their level.
                (gc_log if line.startswith(b"[") else log).write(line + b"\n")

    def _drain(self) -> None:
        """Wait until all that it said is in the logs."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.join(FOLLOW_SECONDS)

    def failure(self, what: str) -> MachineError:
        """Return an error that says what happened, with the end of its log."""
        if self._child is not None and not self.is_running():
            self._drain()
        where = f"{self._machine.name} ({self._place.address})"
        return MachineError(f"{self._what} on {where} {what}\n{self._log.excerpt()}")


class FarNode(Node):
    """A node on a host. Its folder there was made for it and is removed with it."""

    dropped_by = "in place"

    def __init__(
        self, files: NodeFiles, secrets: Secrets, machine: Machine, installation: Installation
    ) -> None:
        """Take its files, the cluster's passwords, the host and the programs there."""
        super().__init__(files, secrets)
        address, account = files.place.address, installation.account
        self._machine = machine
        self._own = installation
        self._far = RemoteHost(machine)
        self.process = FollowedProcess(machine, files)
        self.jolokia = FarJolokia(address, JOLOKIA_PORT, USER, secrets.jolokia, machine)
        self.cql = FarCql(address, CQL_PORT, secrets.cql, machine=machine, account=account)

    def close_storage_port(self, key: StorageKey, account: Account | None) -> dict[str, object]:
        """Return nothing: other hosts of the user's may be let in to it, and he decides."""
        del key, account
        return {}

    def configure(
        self,
        own: Mapping[str, object],
        settings: Mapping[str, object],
        secrets: Secrets,
        account: Account | None,
    ) -> None:
        """Write its configuration on its host and make its folders there."""
        del account
        files, far = self.files, self._far
        far.folder(files.place.run_dir)
        far.folder(files.configuration)
        for folder in (files.temporary, files.data, files.commitlog):
            far.own_folder(folder, self._own.account)
        told = Written.of(files, own, settings, secrets)
        for name, text in {**told.open, "logback.xml": _LOGBACK}.items():
            far.write(files.configuration, name, text)
        far.write_secret(files.configuration, JOLOKIA_FILE, told.jolokia, self._own.account)
        told.keep(files.place)

    def launch(self, installation: Installation, start: Start) -> None:
        """Start the process, by the host's own programs; returns at once."""
        del installation
        self.keep_gc_log()
        self.process.launch(command_line(self.files, self._own, start, "stdout"))

    @property
    def pids(self) -> tuple[int, ...]:
        """None: they are numbers of another machine."""
        return ()

    def sync(self) -> None:
        """Write everything back that is dirty on its volumes."""
        self._far.sync(self.files.place)

    def drop_page_cache(self) -> None:
        """Drop what the host's page cache holds of its files, and of no others."""
        self.sync()
        self._far.drop_pages([self.files.data])

    def cached_bytes(self, keyspace: str) -> tuple[int, int]:
        """Return the size of a keyspace's files, and how much of it the page cache holds."""
        return self._far.cached_bytes([self.files.sstables / keyspace])

    def empty(self) -> None:
        """Remove what a dead node has on its disks: another one takes its place."""
        self.kill()
        for folder in (self.files.data, self.files.commitlog):
            self._far.remove(folder)


@dataclass(frozen=True)
class Installed:
    """Where a node will be, and with which programs of its host."""

    place: NodePlace
    machine: Machine
    installation: Installation


class FarCassandra(Cassandra):
    """A cluster on hosts, filled and loaded from here or from client hosts."""

    def __init__(
        self,
        request: Request,
        nodes: Sequence[Installed],
        plan: MemoryPlan,
        kept: Secrets | None,
    ) -> None:
        """Take what is asked for, and each node; `kept`: what data there were made for."""
        known = {one.place.address: one for one in nodes}
        self._way = Way("Cassandra", [(one.place.host, one.place) for one in nodes])

        def make(files: NodeFiles, secrets: Secrets) -> Node:
            node = known[files.place.address]
            return FarNode(files, secrets, node.machine, node.installation)

        places = [one.place for one in nodes]
        super().__init__(request, places, nodes[0].installation, plan, make, kept)

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts. Who has its secret is let in, from anywhere."""
        del addresses
        self._way.let_in(clients)

    @property
    def secret(self) -> str:
        """What its data are made for; kept beside them."""
        cql = self._secrets.cql
        return json.dumps([cql.user, cql.password, self._secrets.jolokia])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its figures should know."""
        return (
            *self._way.notes,
            *self.plan.reasons,
        )


def secrets_of(text: str) -> Secrets:
    """Return the passwords of data that are there, of `FarCassandra.secret`."""
    user, password, jolokia = json.loads(text)
    return Secrets(CqlLogin(user, password), jolokia)
