"""A process that speaks HTTP and TLS with databases of ours, as the user that they run as.

Started by root with the numbers of a socket and of that user; only Python's own library, loaded
before root is given up. Each question is a pair of sockets: `talk`, on which the question comes and
the answer goes, and `wire`, a connection that is there already. `asking.py` is the other end.
"""

from __future__ import annotations

import ctypes
import encodings.idna  # noqa: F401 - looked for by name at the first TLS handshake
import http.client
import json
import os
import socket
import ssl
import sys
import threading
from functools import lru_cache
from typing import Any

NO_NEW_PRIVILEGES = 38
"""From <sys/prctl.h>."""
MOST_ANSWER_BYTES = 16 << 20
"""Metrics of a member have some hundred KiB."""
MOST_QUESTION_BYTES = 1 << 20


def main() -> None:
    """Answer until the other end of the socket is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    become(int(sys.argv[2]), int(sys.argv[3]))
    while True:
        message, files, _, _ = socket.recv_fds(control, 1, 2)
        if not message:
            return
        talk, wire = (socket.socket(fileno=file) for file in files)
        threading.Thread(target=serve, args=(talk, wire), daemon=True).start()


def become(uid: int, gid: int) -> None:
    """Give root up for good."""
    if uid <= 0 or gid <= 0:
        raise SystemExit("root and its group are no user without privileges")
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise SystemExit("root cannot be given up")


def serve(talk: socket.socket, wire: socket.socket) -> None:
    """Put one question, and send the answer: a line of JSON and the body."""
    with talk, wire:
        try:
            asked = json.loads(read_all(talk, MOST_QUESTION_BYTES))
            status, body = exchange(wire, asked)
            head: dict[str, Any] = {"status": status}
        except (OSError, ValueError, http.client.HTTPException) as error:
            head, body = {"error": f"{type(error).__name__}: {error}"[:500]}, b""
        try:
            talk.sendall(json.dumps(head).encode() + b"\n" + body)
        except OSError:
            # Who asked has gone.
            return


def exchange(wire: socket.socket, asked: dict[str, Any]) -> tuple[int, bytes]:
    """Return status and body. Raises OSError, HTTPException or ValueError."""
    wire.settimeout(asked["seconds"])
    connection = http.client.HTTPConnection(asked["host"], asked["port"])
    connection.sock = wire
    if asked["tls"] is not None:
        context = trusting(*asked["tls"])
        connection.sock = context.wrap_socket(wire, server_hostname=asked["host"])
    try:
        connection.request(asked["method"], asked["path"], asked["body"], asked["headers"])
        answer = connection.getresponse()
        body = answer.read(MOST_ANSWER_BYTES + 1)
    finally:
        connection.close()
    if len(body) > MOST_ANSWER_BYTES:
        raise ValueError(f"it answered more than {MOST_ANSWER_BYTES} bytes")
    return answer.status, body


@lru_cache(maxsize=16)
def trusting(authority: str, certificate: str, key: str) -> ssl.SSLContext:
    """Return what believes in an authority and shows a certificate; all three are PEM."""
    context = ssl.create_default_context(cadata=authority)
    # OpenSSL reads a key from a file alone; this one has no name and is in no folder.
    handle = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(handle, f"{certificate}\n{key}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
    return context


def read_all(end: socket.socket, most_bytes: int) -> bytes:
    """Return what comes until the other end has said all. Raises ValueError for too much."""
    whole = bytearray()
    while part := end.recv(1 << 16):
        whole += part
        if len(whole) > most_bytes:
            raise ValueError(f"more than {most_bytes} bytes")
    return bytes(whole)


if __name__ == "__main__":
    main()
