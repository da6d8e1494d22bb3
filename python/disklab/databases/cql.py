"""CQL statements for schema, readiness and system views: native protocol v4, one at a time."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from disklab.errors import MachineError

# A schema change waits for every node.
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Cql:
    """A node's CQL port."""

    host: str
    port: int

    def run(self, statement: str) -> None:
        """Run one statement. Raises MachineError when it fails or nobody answers."""
        try:
            with socket.create_connection((self.host, self.port), ANSWER_SECONDS) as link:
                _ask(link, 0x01, struct.pack(">HH", 1, 11) + b"CQL_VERSION\0\x053.0.0")
                text = statement.encode()
                # Consistency ONE, no flags.
                _ask(link, 0x07, struct.pack(">i", len(text)) + text + struct.pack(">HB", 1, 0))
        except OSError as error:
            raise MachineError(f"{self.host}:{self.port}: CQL does not answer: {error}") from error


def _ask(link: socket.socket, opcode: int, body: bytes) -> bytes:
    link.sendall(struct.pack(">BBHBi", 4, 0, 0, opcode, len(body)) + body)
    _, _, _, answer, length = struct.unpack(">BBHBi", _exactly(link, 9))
    payload = _exactly(link, length)
    if answer == 0x00:
        said = payload[6:].decode("utf-8", "replace")
        raise MachineError(f"CQL: {said}")
    return payload


def _exactly(link: socket.socket, length: int) -> bytes:
    parts = b""
    while len(parts) < length:
        part = link.recv(length - len(parts))
        if not part:
            raise OSError("the connection was closed")
        parts += part
    return parts
