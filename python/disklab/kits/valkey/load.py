"""A client of Valkey for the load: SET and GET, with the host's Python alone."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

ANSWER_SECONDS = 10.0


class Connection:
    """One connection, made again after a failure."""

    def __init__(self, addresses: list[str], number: int) -> None:
        host, _, port = addresses[0].rpartition(":")
        self.address = host, int(port)
        self.wire: socket.socket | None = None

    def connect(self) -> socket.socket:
        self.wire = socket.create_connection(self.address, ANSWER_SECONDS)
        self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.wire.makefile("rb")
        return self.wire

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire = None

    def ask(self, *words: bytes) -> bytes | None:
        """Return an answer; None: there is no such key."""
        try:
            wire = self.wire or self.connect()
            parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
            wire.sendall(b"*%d\r\n" % len(words) + parts)
            line = self.file.readline()
            if not line.endswith(b"\r\n") or line[:1] not in b"+$":
                raise OSError(line.decode(errors="replace").strip() or "the server has gone")
            if line[:1] == b"+":
                return line[1:-2]
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2]
        except OSError:
            self.close()
            raise

    def write(self, key: str, body: bytes) -> str:
        self.ask(b"SET", key.encode(), body)
        return "-"

    def read(self, note: str, key: str) -> bytes | None:
        return self.ask(b"GET", key.encode())


def asked(*words: bytes) -> Callable[[Any], int]:
    def ask(options: Any) -> int:
        answer = Connection(options.addresses.split(","), 0).ask(*words) or b""
        print(answer.decode(errors="replace"))
        return 0

    return ask


COMMANDS = {"empty": asked(b"FLUSHALL"), "info": asked(b"INFO")}
