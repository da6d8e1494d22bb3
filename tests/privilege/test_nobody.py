"""A third user while somebody rehearses under sudo: what he finds, and that it helps him nothing.

He is `nobody`. He looks for every listening socket of the run, knocks at each in its own protocol,
and tries every file and every process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

import pytest
from disklab.databases.cassandra import configuration as cassandra
from disklab.databases.cassandra.access import KEYSTORE_FILE
from disklab.databases.cassandra.jolokia import STORAGE
from disklab.databases.etcd.configuration import CLIENT_PORT, PEER_PORT
from disklab.databases.postgresql import configuration as postgresql
from disklab.databases.postgresql.installation import find_postgresql

from tests.conftest import IN_CI
from tests.databases.strangers import (
    SECONDS,
    Address,
    as_nobody,
    cql_answers,
    handshake,
    jolokia_status,
    pem_of,
    psql_said,
    readable_with,
    signalled,
    writable,
)
from tests.hosts.conftest import DISKLAB, Lab

pytestmark = pytest.mark.machine

# Who calls sudo: somebody else than nobody, without a name.
CALLER = 54_321
MOST_SECONDS = 300.0
LOADED = ("fill:", "warm-up:", "measure:")
"""Phases in which a database serves a load."""

HEAD = """
title: What may nobody do?
cluster:
  nodes: 1
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P15, size: 50GiB, filesystem: ext4}}
rehearse: {scale: 1/500, time_dilation: 1}
"""
ROWS = """
dataset: {rows: 200k, row: 5 x 200B}
workload: {operations: {read: 1}, load: {threads: 2}, stop: {duration: 50000s}}
"""
ETCD = HEAD + "database: {engine: etcd, replication_factor: 1}" + ROWS
CASSANDRA = HEAD + "database: {engine: cassandra, replication_factor: 1}" + ROWS
# Without a network, they share this machine's loopback.
CASSANDRAS = (
    HEAD.replace("nodes: 1", "nodes: 3")
    + "database: {engine: cassandra, replication_factor: 3}"
    + ROWS
)
POSTGRESQL = (
    HEAD
    + """
database: {engine: postgresql}
workload:
  sysbench: {script: oltp_read, tables: 1, rows_per_table: 5M, threads: 2}
  stop: {duration: 50000s}
"""
)


@dataclass
class Run:
    """A rehearsal while its load runs."""

    lab: Lab
    folder: Path
    """Of the caller."""
    pids: list[int]
    """Its processes, both parts among them."""

    def secrets(self) -> list[str]:
        """Return passwords and keys of the run, as root finds them."""
        found = set()
        for pid in self.pids:
            with suppress(OSError):
                for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    name, _, value = word.decode(errors="replace").partition("=")
                    if name == "PGPASSWORD":
                        found.add(value)
        for file in self.lab.run_dir.rglob("*"):
            if file.name in ("client.key", "member.key"):
                # A line in the middle of the key itself.
                found.add(file.read_text().splitlines()[2])
            if file.name == cassandra.JOLOKIA_FILE:
                lines = file.read_text().splitlines()
                found |= {line.partition("=")[2] for line in lines if line.startswith("password=")}
        return [one for one in found if one]


@contextmanager
def rehearsal(lab: Lab, experiment: str) -> Iterator[Run]:
    """Yield a rehearsal under sudo that has come to its load; it is ended with the block."""
    folder = Path(tempfile.mkdtemp(prefix="disklab-caller-")).resolve()
    file = folder / "experiment.yaml"
    file.write_text(experiment)
    # As a home is, which others may look into; what the run makes there is to hold by itself.
    folder.chmod(0o755)
    for path in (folder, file):
        os.chown(path, CALLER, CALLER)
    sudo = {"SUDO_UID": str(CALLER), "SUDO_GID": str(CALLER)}
    with (folder / "said").open("w") as said:
        started = subprocess.Popen(
            [str(DISKLAB), "rehearse", str(file), "--quick", "--out", str(folder / "runs")],
            env={**lab.environment(), **sudo},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
        )
    try:
        deadline = time.monotonic() + MOST_SECONDS
        while not any(one in (told := (folder / "said").read_text()) for one in LOADED):
            assert started.poll() is None, told
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
        # So that nothing ends before everything was tried: databases go on.
        os.kill(started.pid, signal.SIGSTOP)
        yield Run(lab, folder, [*family(started.pid)])
    finally:
        started.send_signal(signal.SIGCONT)
        if started.poll() is None:
            started.terminate()
            started.wait(60)
        shutil.rmtree(folder)


def family(pid: int) -> Iterator[int]:
    """Yield a process and all below it."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))


@dataclass(frozen=True)
class Listening:
    """Where processes of a run can be spoken to."""

    tcp: set[Address]
    udp: set[Address]
    unix: list[str]


def listening(pids: list[int]) -> Listening:
    """Return where processes listen."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(os.readlink(link))
    found = Listening(set(), set(), [])
    # 0A: LISTEN; 07: CLOSE, which is how a bound UDP socket is told.
    for kind, state, into in (("tcp", "0A", found.tcp), ("udp", "07", found.udp)):
        for version in ("", "6"):
            for line in Path(f"/proc/net/{kind}{version}").read_text().splitlines()[1:]:
                words = line.split()
                host, port = words[1].split(":")
                if words[3] == state and f"socket:[{words[9]}]" in inodes:
                    packed = struct.pack("<I", int(host[-8:], 16))
                    into.add((socket.inet_ntoa(packed), int(port, 16)))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        # __SO_ACCEPTCON: it listens.
        if int(words[3], 16) & 0x10000 and f"socket:[{words[6]}]" in inodes:
            found.unix.append(words[7] if len(words) > 7 else "")
    return found


def connects(path: str) -> bool:
    """Return whether a Unix socket takes the caller's connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        try:
            end.connect(path)
        except (PermissionError, FileNotFoundError):
            return False
    return True


def https_status(address: Address, *, tls: bool) -> int | str:
    """Return the status of what a TLS port answers to somebody without a certificate, or why."""
    context = ssl.create_default_context()
    # Who it is he does not care.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection: HTTPConnection = (
        HTTPSConnection(*address, timeout=SECONDS, context=context)
        if tls
        else HTTPConnection(*address, timeout=SECONDS)
    )
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status
    except (OSError, HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def etcd_is_closed(address: Address, _: Run) -> None:
    assert isinstance(as_nobody(lambda: https_status(address, tls=True)), str)
    # 400: "Client sent an HTTP request to an HTTPS server".
    assert as_nobody(lambda: https_status(address, tls=False)) in (400, "RemoteDisconnected")


def postgresql_is_closed(address: Address, run: Run) -> None:
    program = find_postgresql().program("psql")
    for user, password in ((postgresql.USER, ""), (postgresql.USER, "disklab"), ("postgres", "")):
        said = as_nobody(partial(psql_said, program, address, user, password))
        assert "password" in said or "no pg_hba.conf entry" in said, said
    # Who knows the secret is let in: it was the right door.
    assert "" in [psql_said(program, address, postgresql.USER, one) for one in run.secrets()]


def cql_is_closed(address: Address, _: Run) -> None:
    logins = (("cassandra", "cassandra"), ("disklab", ""), ("disklab", "disklab"))
    assert as_nobody(lambda: cql_answers(address, *logins)) == [3, 0, 0, 0, 0]


def jolokia_is_closed(address: Address, run: Run) -> None:
    read = {"type": "read", "mbean": STORAGE, "attribute": "OperationMode"}
    for login in ("", "disklab:disklab", "cassandra:cassandra"):
        assert as_nobody(partial(jolokia_status, address, read, login))[0] == 401


def storage_is_closed(address: Address, run: Run) -> None:
    keystores = [*run.lab.run_dir.rglob(KEYSTORE_FILE)]
    assert all(one.stat().st_mode & 0o077 == 0 for one in keystores)
    # Several nodes know each other by one key.
    assert len({one.read_bytes() for one in keystores}) == 1
    assert as_nobody(partial(handshake, address)) != ""
    # Who has its key is let in: it was the right door.
    with pem_of(keystores[0]) as pem:
        assert handshake(address, pem) == ""


DOORS: dict[int, Callable[[Address, Run], None]] = {
    CLIENT_PORT: etcd_is_closed,
    PEER_PORT: etcd_is_closed,
    postgresql.PORT: postgresql_is_closed,
    cassandra.CQL_PORT: cql_is_closed,
    cassandra.JOLOKIA_PORT: jolokia_is_closed,
    cassandra.STORAGE_PORT: storage_is_closed,
}


def check(run: Run, ports: set[int]) -> None:
    """Assert that nobody gets nothing of a rehearsal."""
    found = listening(run.pids)
    assert {port for _, port in found.tcp} == ports
    for address in sorted(found.tcp):
        assert address[0].startswith("127."), address
        DOORS[address[1]](address, run)
    assert not found.udp
    # The emulator's; everything else of a run goes through sockets without names.
    # It is bound by a path through an open folder, so its file is looked for.
    sockets = [str(one) for one in run.lab.run_dir.rglob("*") if one.is_socket()]
    assert [Path(one).name for one in found.unix] == [Path(one).name for one in sockets]
    assert all(connects(one) for one in sockets), "root reaches it"
    assert as_nobody(lambda: [one for one in sockets if connects(one)]) == []
    folders = [run.lab.root, run.folder]
    devices = [Path("/dev") / one for one in run.lab.devices()]
    assert devices
    assert as_nobody(lambda: writable([*folders, *devices])) == []
    assert as_nobody(lambda: [str(one) for one in devices if os.access(one, os.R_OK)]) == []
    secrets = run.secrets()
    assert secrets
    assert as_nobody(lambda: readable_with([run.lab.root, run.folder], secrets)) == []
    # Root finds them there: they were looked for in the right places.
    assert readable_with([run.lab.run_dir], secrets)
    alive = [pid for pid in run.pids if Path(f"/proc/{pid}").exists()]
    assert len(alive) >= 4
    assert as_nobody(lambda: signalled(alive)) == []


def test_nobody_and_an_etcd(lab: Lab) -> None:
    if shutil.which("etcd") is None:
        assert not IN_CI, "scripts/setup.sh installs etcd in CI"
        pytest.skip("etcd is not installed")
    with rehearsal(lab, ETCD) as run:
        check(run, {CLIENT_PORT, PEER_PORT})


@pytest.mark.long
def test_nobody_and_a_postgresql(lab: Lab) -> None:
    with rehearsal(lab, POSTGRESQL) as run:
        check(run, {postgresql.PORT})


@pytest.mark.long
def test_nobody_and_a_cassandra(lab: Lab) -> None:
    with rehearsal(lab, CASSANDRA) as run:
        check(run, {cassandra.CQL_PORT, cassandra.JOLOKIA_PORT, cassandra.STORAGE_PORT})


@pytest.mark.long
def test_nobody_and_three_cassandras(lab: Lab) -> None:
    with rehearsal(lab, CASSANDRAS) as run:
        check(run, {cassandra.CQL_PORT, cassandra.JOLOKIA_PORT, cassandra.STORAGE_PORT})
        assert len([*run.lab.run_dir.rglob(KEYSTORE_FILE)]) == 3
