"""Joins standard input and output with a TCP port: what ssh(1) calls a proxy command.

Run as a program with an address and a port; imports nothing of disklab. Started in the network of
an emulated host, it is the way from this machine into that network.
"""

from __future__ import annotations

import os
import select
import socket
import sys

CHUNK_BYTES = 64 << 10
CONNECT_SECONDS = 30.0


def main() -> None:
    """Carry bytes both ways until the far end is done."""
    far = socket.create_connection((sys.argv[1], int(sys.argv[2])), CONNECT_SECONDS)
    far.settimeout(None)
    waiting = [sys.stdin.fileno(), far.fileno()]
    while True:
        ready, _, _ = select.select(waiting, [], [])
        if far.fileno() in ready:
            chunk = far.recv(CHUNK_BYTES)
            if not chunk:
                return
            view = memoryview(chunk)
            while view:
                view = view[os.write(sys.stdout.fileno(), view) :]
        if sys.stdin.fileno() in ready:
            chunk = os.read(sys.stdin.fileno(), CHUNK_BYTES)
            if chunk:
                far.sendall(chunk)
            else:
                far.shutdown(socket.SHUT_WR)
                waiting.remove(sys.stdin.fileno())


if __name__ == "__main__":
    main()
