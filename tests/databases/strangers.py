"""What another user of the machine can do: code that runs as `nobody`, and what it may try."""

from __future__ import annotations

import json
import os
import pwd
import socket
import ssl
import struct
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from disklab.databases.cassandra.access import KEYSTORE_PASSWORD

from tests.programs import ended

SECONDS = 20.0
Address = tuple[str, int]


def as_nobody(what: Callable[[], Any]) -> Any:
    """Return what a function returns (as JSON) in a process of the user nobody."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            entry = pwd.getpwnam("nobody")
            os.setgroups([])
            os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
            os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
            try:
                said = {"value": what()}
            except Exception as error:
                said = {"error": repr(error)}
            with os.fdopen(writing, "w") as pipe:
                json.dump(said, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = json.load(pipe)
    os.waitpid(child, 0)
    assert "error" not in said, said
    return said["value"]


def listening(pids: Iterable[int]) -> set[Address]:
    """Return where processes listen, by IPv4 or IPv6."""
    sockets = {
        os.readlink(link)
        for pid in pids
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if os.path.lexists(link)
    }
    found = set()
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            host, port = words[1].split(":")
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                packed = struct.pack("<I", int(host[-8:], 16))
                found.add((socket.inet_ntoa(packed), int(port, 16)))
    return found


def writable(folders: Iterable[Path]) -> list[str]:
    """Return what the caller could write, of everything below folders and of themselves."""
    return [
        path
        for folder in folders
        for path in [str(folder), *_below(folder)]
        if os.access(path, os.W_OK) and not os.path.islink(path)
    ]


def readable_with(folders: Iterable[Path], secrets: Iterable[str]) -> list[str]:
    """Return the files that the caller can read and that hold a secret, and such processes."""
    files = [path for folder in folders for path in _below(folder)]
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            files += [f"{process}/cmdline", f"{process}/environ"]
    found = []
    for path in files:
        try:
            content = Path(path).read_bytes()
        except OSError:
            continue
        found += [path for secret in secrets if secret.encode() in content]
    return found


def _below(folder: Path) -> list[str]:
    return [
        os.path.join(above, name)
        for above, folders, files in os.walk(folder)
        for name in [*folders, *files]
        if not os.path.islink(os.path.join(above, name))
    ]


def signalled(pids: Iterable[int]) -> list[int]:
    """Return the processes that the caller may send signals to."""
    found = []
    for pid in pids:
        try:
            os.kill(pid, 0)
        except OSError:
            continue
        found.append(pid)
    return found


def cql_answers(address: Address, *logins: tuple[str, str]) -> list[int]:
    """Return the kinds of a node's answers to a greeting, a query and these logins.

    3: it asks who is there; 0: an error; 16: it believes the login.
    """
    greeting = b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0"
    query = b"SELECT * FROM system.local"
    query = struct.pack(">I", len(query)) + query + b"\x00\x01\x00"
    found = []
    with socket.create_connection(address, SECONDS) as connection:
        found.append(_asked(connection, 1, greeting))
        found.append(_asked(connection, 7, query))
    for user, password in logins:
        token = f"\0{user}\0{password}".encode()
        with socket.create_connection(address, SECONDS) as connection:
            _asked(connection, 1, greeting)
            found.append(_asked(connection, 15, struct.pack(">I", len(token)) + token))
    return found


def _asked(connection: socket.socket, kind: int, body: bytes) -> int:
    connection.settimeout(SECONDS)
    connection.sendall(struct.pack(">BBHBI", 4, 0, 0, kind, len(body)) + body)
    with connection.makefile("rb") as answer:
        head = answer.read(9)
        answer.read(struct.unpack(">I", head[5:])[0])
    return int(head[4])


def handshake(address: Address, pem: str | None = None) -> str:
    """Return why a TLS port takes no handshake; empty: it does. `pem`: who he says he is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Here a refusal is part of the handshake, and no word after it.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if pem is not None:
        context.load_cert_chain(pem)
    try:
        with (
            socket.create_connection(address, SECONDS) as connection,
            context.wrap_socket(connection),
        ):
            return ""
    except OSError as error:
        return type(error).__name__


@contextmanager
def pem_of(keystore: Path) -> Iterator[str]:
    """Yield a file with the key and the certificate of a node's store, for `handshake`."""
    opens = ["openssl", "pkcs12", "-nodes", "-passin", f"pass:{KEYSTORE_PASSWORD}"]
    with tempfile.TemporaryDirectory(prefix="disklab-test-") as folder:
        pem = f"{folder}/key.pem"
        subprocess.run([*opens, "-in", str(keystore), "-out", pem], check=True)
        yield pem


def jolokia_status(
    address: Address, asked: dict[str, Any], login: str = "", origin: str | None = None
) -> tuple[int, int]:
    """Return the HTTP status of a request, and Jolokia's own (0: none)."""
    headers = {"Content-Type": "application/json"}
    if login:
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    if origin is not None:
        headers["Origin"] = origin
    connection = HTTPConnection(*address, timeout=SECONDS)
    try:
        connection.request("POST", "/jolokia/", json.dumps(asked), headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    try:
        return answer.status, int(json.loads(text).get("status", 0))
    except ValueError:
        return answer.status, 0


def psql_said(program: str, address: Address, user: str, password: str) -> str:
    """Return what psql says of a login without TLS or with it; empty: it was let in."""
    host, port = address
    ran = ended(
        [
            *(program, "-X", "-w", "-t", "-h", host, "-p", str(port), "-U", user),
            *("-d", "postgres", "-c", "SELECT 1"),
        ],
        most_s=SECONDS,
        env={"PGPASSWORD": password, "LC_ALL": "C", "HOME": "/nonexistent"},
        cwd="/",
    )
    return ran.stderr if ran.returncode else ""
