"""Traffic between two hosts: `echo`, `ping`, `sink` and `stream`, as a program of its own."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

PORT = 7000
PING_BYTES = 64
WARM_UP_PINGS = 5


def echo(address: str) -> None:
    with socket.create_server((address, PORT)) as server:
        print("up", flush=True)
        while True:
            link, _ = server.accept()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while said := link.recv(65536):
                link.sendall(said)


def ping(address: str, count: int) -> None:
    """Print round trips in ns, in order of length."""
    with socket.create_connection((address, PORT)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = []
        for _ in range(count + WARM_UP_PINGS):
            begun = time.monotonic_ns()
            link.send(b"x" * PING_BYTES)
            link.recv(PING_BYTES)
            found.append(time.monotonic_ns() - begun)
    print(json.dumps(sorted(found[WARM_UP_PINGS:])))


def sink(address: str, streams: int, leave_out_s: float) -> None:
    """Print bytes per second of all streams, from some time after the first byte to the last."""
    waiting = selectors.DefaultSelector()
    with socket.create_server((address, PORT)) as server:
        print("up", flush=True)
        for _ in range(streams):
            waiting.register(server.accept()[0], selectors.EVENT_READ)
    room = bytearray(1 << 20)
    marks: list[tuple[float, int]] = []
    total = 0
    while len(waiting.get_map()) == streams:
        for key, _ in waiting.select():
            link = key.fileobj
            assert isinstance(link, socket.socket)
            count = link.recv_into(room)
            if count == 0:
                waiting.unregister(link)
                continue
            total += count
            marks.append((time.monotonic(), total))
    first = next(mark for mark in marks if mark[0] >= marks[0][0] + leave_out_s)
    print(json.dumps((marks[-1][1] - first[1]) / (marks[-1][0] - first[0])), flush=True)


def stream(address: str, streams: int, seconds: float) -> None:
    links = [socket.create_connection((address, PORT)) for _ in range(streams)]
    waiting = selectors.DefaultSelector()
    for link in links:
        link.setblocking(False)
        waiting.register(link, selectors.EVENT_WRITE)
    end = time.monotonic() + seconds
    chunk = bytes(256 << 10)
    while time.monotonic() < end:
        for key, _ in waiting.select():
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.send(chunk)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["echo", address]:
            echo(address)
        case ["ping", address, count]:
            ping(address, int(count))
        case ["sink", address, streams, leave_out_s]:
            sink(address, int(streams), float(leave_out_s))
        case ["stream", address, streams, seconds]:
            stream(address, int(streams), float(seconds))
