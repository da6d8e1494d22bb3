"""A client of beanstalkd for the load: jobs are put and looked at, with the host's Python alone."""

from __future__ import annotations

import socket
from typing import Any

ANSWER_SECONDS = 10.0


class Connection:
    """One connection, made again after a failure."""

    def __init__(self, addresses: list[str], number: int) -> None:
        host, _, port = addresses[0].rpartition(":")
        self.address = host, int(port)
        self.wire: socket.socket | None = None

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire = None

    def ask(self, words: str, body: bytes | None = None) -> tuple[list[str], bytes]:
        """Return the words of an answer and its data. Raises OSError: there is none."""
        try:
            if self.wire is None:
                self.wire = socket.create_connection(self.address, ANSWER_SECONDS)
                self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.file = self.wire.makefile("rb")
            more = b"" if body is None else body + b"\r\n"
            self.wire.sendall(f"{words}\r\n".encode() + more)
            answer = self.file.readline().decode(errors="replace").split()
            if not answer:
                raise OSError("the server has gone")
            has_data = answer[0] in {"FOUND", "OK", "RESERVED"}
            return answer, self.file.read(int(answer[-1]) + 2)[:-2] if has_data else b""
        except (OSError, ValueError) as error:
            self.close()
            raise OSError(str(error)) from error

    def write(self, key: str, body: bytes) -> str:
        answer, _ = self.ask(f"put 0 0 60 {len(body)}", body)
        if answer[0] != "INSERTED":
            raise OSError(" ".join(answer))
        return answer[1]

    def read(self, note: str, key: str) -> bytes | None:
        answer, data = self.ask(f"peek {note}")
        return data if answer[0] == "FOUND" else None


def empty(options: Any) -> int:
    server = Connection(options.addresses.split(","), 0)
    while (answer := server.ask("reserve-with-timeout 0")[0])[0] == "RESERVED":
        server.ask(f"delete {answer[1]}")
    return 0


def info(options: Any) -> int:
    _, data = Connection(options.addresses.split(","), 0).ask("stats")
    print(data.decode(errors="replace"))
    return 0


COMMANDS = {"empty": empty, "info": info}
