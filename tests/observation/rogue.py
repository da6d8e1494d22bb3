"""Servers that speak MySQL's or PostgreSQL's protocol, and answer as no real one does."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Rows = list[list[str | None]]
STATUS = {
    "Handler_read_key": 0,
    "Handler_write": 0,
    "Handler_update": 0,
    "Handler_delete": 0,
    "Com_update": 0,
    "Com_update_multi": 0,
    "Com_insert": 0,
    "Com_replace": 0,
    "Innodb_buffer_pool_bytes_data": 1 << 30,
    "Innodb_buffer_pool_pages_total": 1 << 17,
    "Innodb_buffer_pool_pages_free": 100,
    "Innodb_buffer_pool_reads": 0,
}
VARIABLES = {"datadir": "/var/lib/mysql", "innodb_io_capacity": "200"}
FLOOD = b"x" * 10_000


@dataclass
class Rogue:
    """What a server says. It counts `rate_per_s` lookups a second by the clock."""

    rate_per_s: float = 100_000.0
    status: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    tables: Rows = field(default_factory=lambda: [["shop.users", "1000000", "1000000000", "4"]])
    mean: str = "400"
    mode: str = ""
    """`hang`: nothing after the log-in; `flood`: rows without end; `clear`: the password, please;
    `copy`: wants data."""
    heard: list[bytes] = field(default_factory=list)
    """What came in answer to `clear`."""
    ended: threading.Event = field(default_factory=threading.Event)

    def answer(self, query: str) -> Rows | None:
        """Return the rows of a statement to MySQL; None: it has none."""
        done = int(time.monotonic() * self.rate_per_s)
        told = {**STATUS, "Handler_read_key": done, "Innodb_buffer_pool_reads": done // 100}
        status = {**{name: str(value) for name, value in told.items()}, **self.status}
        variables = {**VARIABLES, **self.variables}
        answers: dict[str, Rows] = {
            "SHOW GLOBAL STATUS": [
                [*each] for each in status.items() if each[0] not in self.without
            ],
            "Variable_name IN": [["userstat", "OFF"], ["performance_schema", "OFF"]],
            "SHOW GLOBAL VARIABLES": [[*each] for each in variables.items()],
            "information_schema.TABLES": self.tables,
            "information_schema.COLUMNS": [["a"], ["b"]],
            "AVG(bytes)": [[self.mean]],
            "VERSION()": [["10.11.6-MariaDB"]],
            "CURRENT_USER()": [["watch@%"]],
            "SELECT '": [[query.partition("'")[2].partition("'")[0]]],
        }
        return next((rows for words, rows in answers.items() if words in query), None)


@contextmanager
def mysql(rogue: Rogue, address: str = "127.0.0.1") -> Iterator[str]:
    """Yield HOST:PORT of a server that says this in MySQL's protocol."""
    with _listening(address, lambda connection: _mysql(connection, rogue)) as where:
        yield where
    rogue.ended.set()


@contextmanager
def postgresql(rogue: Rogue, address: str = "127.0.0.1") -> Iterator[str]:
    """Yield HOST:PORT of a server that says this in PostgreSQL's protocol."""
    with _listening(address, lambda connection: _postgresql(connection, rogue)) as where:
        yield where
    rogue.ended.set()


@contextmanager
def _listening(address: str, serve: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server((address, 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=served, args=(connection,), daemon=True).start()

        def served(connection: socket.socket) -> None:
            with connection, suppress(OSError, EOFError):
                serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"{address}:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _exactly(connection: socket.socket, size: int) -> bytes:
    whole = b""
    while len(whole) < size:
        part = connection.recv(size - len(whole))
        if not part:
            raise EOFError
        whole += part
    return whole


def _length(data: bytes) -> bytes:
    if len(data) < 251:
        return bytes([len(data)]) + data
    return b"\xfc" + struct.pack("<H", len(data)) + data


def _mysql(connection: socket.socket, rogue: Rogue) -> None:
    number = 0

    def send(body: bytes) -> None:
        nonlocal number
        connection.sendall(struct.pack("<I", len(body))[:3] + bytes([number % 256]) + body)
        number += 1

    def receive() -> bytes:
        nonlocal number
        head = _exactly(connection, 4)
        number = head[3] + 1
        return _exactly(connection, int.from_bytes(head[:3], "little"))

    # Protocol 4.1, log-in by plugins, nothing newer.
    low, high = 0xA205, 0x0008
    send(
        b"\x0a5.5.5-10.11.6-MariaDB\x00" + struct.pack("<I", 7) + b"12345678\x00"
        + struct.pack("<HBHHB", low, 33, 2, high, 21) + b"\x00" * 10
        + b"123456789012\x00mysql_native_password\x00"
    )  # fmt: skip
    receive()
    if rogue.mode == "clear":
        send(b"\xfemysql_clear_password\x00")
        rogue.heard.append(receive())
    send(OK)
    while True:
        body = receive()
        if rogue.mode == "hang":
            rogue.ended.wait(60)
            return
        rows = rogue.answer(body[1:].decode(errors="replace").strip())
        if rows is None:
            send(OK)
            continue
        for part in _result(rows, endless=rogue.mode == "flood"):
            send(part)


OK, END = b"\x00\x00\x00\x02\x00\x00\x00", b"\xfe\x00\x00\x02\x00"


def _result(rows: Rows, *, endless: bool) -> Iterator[bytes]:
    """Yield the packets of MySQL's text protocol that have these rows."""
    width = max((len(row) for row in rows), default=1)
    yield bytes([width])
    for place in range(width):
        name = b"c%d" % place
        names = b"".join(map(_length, (b"def", b"", b"", b"", name, name)))
        yield names + b"\x0c" + struct.pack("<HIBHBH", 33, 1024, 0xFD, 0, 0, 0)
    yield END
    while endless:
        yield _length(b"x" * 200) * width
    for row in rows:
        shown = [*row, *[None] * (width - len(row))]
        yield b"".join(b"\xfb" if one is None else _length(one.encode()) for one in shown)
    yield END


def _postgresql(connection: socket.socket, rogue: Rogue) -> None:
    def send(kind: bytes, body: bytes = b"") -> None:
        connection.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def receive() -> bytes:
        return _exactly(connection, struct.unpack("!I", _exactly(connection, 4))[0] - 4)

    receive()
    if rogue.mode == "clear":
        send(b"R", struct.pack("!I", 3))
        _exactly(connection, 1)
        rogue.heard.append(receive())
    send(b"R", struct.pack("!I", 0))
    send(b"S", b"server_version\x0015.5\x00")
    send(b"S", b"client_encoding\x00UTF8\x00")
    send(b"Z", b"I")
    while True:
        _exactly(connection, 1)
        receive()
        if rogue.mode == "hang":
            rogue.ended.wait(60)
            return
        if rogue.mode == "copy":
            send(b"G", b"\x00" + struct.pack("!H", 0))
            rogue.ended.wait(60)
            return
        if rogue.mode == "copyout":
            send(b"H", b"\x00" + struct.pack("!HH", 1, 0))
            while True:
                send(b"d", FLOOD + b"\n")
        send(b"T", struct.pack("!H", 1) + b"c\x00" + struct.pack("!IHIHIH", 0, 0, 25, 65535, 0, 0))
        while rogue.mode == "flood":
            send(b"D", struct.pack("!HI", 1, len(FLOOD)) + FLOOD)
        send(b"D", struct.pack("!HI", 1, 1) + b"1")
        send(b"C", b"SELECT 1\x00")
        send(b"Z", b"I")
