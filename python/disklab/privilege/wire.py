"""The socket between root's part and the caller's: whole JSON messages of a bounded size."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

from disklab.errors import DisklabError, EngineError, MachineError, Problem, UserError

# The catalogue, with every price list, has 2 MB.
MOST_BYTES = 64 << 20
_LENGTH = struct.Struct("!I")

_KINDS: dict[str, type[DisklabError]] = {"MachineError": MachineError, "EngineError": EngineError}


class Link:
    """One end of the socket. Sending is safe from any thread, receiving from one."""

    def __init__(self, end: socket.socket) -> None:
        """Take one end of a pair of stream sockets."""
        self._end = end
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises MachineError when nobody is at the other end."""
        data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        if len(data) > MOST_BYTES:
            raise MachineError(f"a message of {len(data)} bytes is too large for root's part")
        try:
            with self._sending:
                self._end.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise MachineError(f"the other part of disklab has ended: {error.strerror}") from error

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None: the other end is gone.

        Raises MachineError for what is not a message.
        """
        head = self._exactly(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > MOST_BYTES:
            raise MachineError(f"a message of {length} bytes is larger than any of ours")
        data = self._exactly(length)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise MachineError(f"this is not a message: {error}") from error
        if not isinstance(found, dict):
            raise MachineError("this is not a message: it is not an object")
        return found

    def close(self) -> None:
        """Leave: the other end sees it."""
        self._end.close()

    def _exactly(self, length: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < length:
            try:
                part = self._end.recv(min(length - len(parts), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


def told(error: DisklabError) -> dict[str, Any]:
    """Return an error as a message has it."""
    problems = [vars(one) for one in error.problems] if isinstance(error, UserError) else []
    return {"kind": type(error).__name__, "text": str(error), "problems": problems}


def error_of(said: dict[str, Any]) -> DisklabError:
    """Return the error that a message tells of."""
    if said["kind"] == "UserError":
        return UserError(*(Problem(**one) for one in said["problems"]))
    return _KINDS.get(said["kind"], DisklabError)(said["text"])
