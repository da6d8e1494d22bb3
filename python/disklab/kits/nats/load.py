"""A client of JetStream for the load: NATS's own text protocol, with the host's Python alone."""

from __future__ import annotations

import base64
import json
import os
import socket
from typing import Any

STREAM, SUBJECT = "s", "s.x"
ANSWER_SECONDS = 10.0
EXISTS = 10059


class Connection:
    """One connection to one of the servers; another one after a failure."""

    def __init__(self, addresses: list[str], number: int) -> None:
        self.addresses, self.turn = addresses, number
        self.wire: socket.socket | None = None

    def connect(self) -> socket.socket:
        host, _, port = self.addresses[self.turn % len(self.addresses)].rpartition(":")
        self.turn += 1
        self.wire = socket.create_connection((host, int(port)), ANSWER_SECONDS)
        self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.wire.makefile("rb")
        self.inbox = f"_INBOX.{os.getpid()}.{id(self)}.{self.turn}"
        self.file.readline()
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        hello = f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox} 1\r\nPING\r\n"
        self.wire.sendall(hello.encode())
        while self.file.readline() not in (b"PONG\r\n", b""):
            pass
        return self.wire

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire = None

    def ask(self, subject: str, body: bytes) -> Any:
        """Return the JSON answer to a request. Raises OSError: there is none."""
        try:
            wire = self.wire or self.connect()
            wire.sendall(f"PUB {subject} {self.inbox} {len(body)}\r\n".encode() + body + b"\r\n")
            return json.loads(self.answer(wire))
        except (OSError, ValueError) as error:
            self.close()
            raise OSError(str(error)) from error

    def answer(self, wire: socket.socket) -> bytes:
        while True:
            words = self.file.readline().split()
            if not words:
                raise OSError("the server has closed the connection")
            if words[0] == b"PING":
                wire.sendall(b"PONG\r\n")
            elif words[0] == b"MSG":
                return self.file.read(int(words[-1]) + 2)[:-2]
            elif words[0] == b"HMSG":
                head, whole = int(words[-2]), int(words[-1])
                data = self.file.read(whole + 2)[:-2]
                if whole == head:
                    raise OSError("no server answers for the stream")
                return data[head:]

    def api(self, what: str, body: dict[str, Any]) -> Any:
        answer = self.ask(f"$JS.API.{what}", json.dumps(body).encode())
        if answer.get("error", {}).get("code") == 503:
            self.close()
            raise OSError(answer["error"].get("description", "no leader"))
        return answer

    def write(self, key: str, body: bytes) -> str:
        answer = self.ask(SUBJECT, body)
        if "seq" not in answer:
            raise OSError(answer.get("error", {}).get("description", "no sequence"))
        return str(answer["seq"])

    def read(self, note: str, key: str) -> bytes | None:
        message = self.api(f"STREAM.MSG.GET.{STREAM}", {"seq": int(note)}).get("message")
        return None if message is None else base64.b64decode(message.get("data", ""))


def create(options: Any) -> int:
    wanted = {"name": STREAM, "subjects": ["s.>"], "storage": "file", "retention": "limits",
              "discard": "old", "num_replicas": options.copies}  # fmt: skip
    return did(options, f"STREAM.CREATE.{STREAM}", wanted)


def delete(options: Any) -> int:
    return did(options, f"STREAM.DELETE.{STREAM}", {})


def did(options: Any, what: str, body: dict[str, Any]) -> int:
    error = Connection(options.addresses.split(","), 0).api(what, body).get("error", {})
    if error and error.get("err_code") != EXISTS:
        print(json.dumps(error))
        return 1
    return 0


COMMANDS = {"create": create, "delete": delete}
