"""Addresses of this machine for the nodes of a rehearsed cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from disklab.errors import MachineError

# Linux answers on all of 127.0.0.0/8 without any set-up. The lower blocks are used by other tools
# (systemd-resolved on 127.0.0.53, ccm and minikube from 127.0.0.1 on).
FIRST_BLOCK, LAST_BLOCK = 64, 127
PARTS = 256
"""Of a block: what the third number of an address can be."""


def free_addresses(count: int, ports: Sequence[int]) -> list[str]:
    """Return so many loopback addresses on which none of the ports is taken.

    A server listens some time after its address was chosen, so several rehearsals at once search
    different addresses: no two processes whose numbers are less than 16,384 apart begin at the same
    one. Raises MachineError when all are taken, such as by a program that listens on every address.
    """
    blocks = LAST_BLOCK - FIRST_BLOCK + 1
    part = os.getpid() // blocks % PARTS
    for step in range(blocks):
        block = FIRST_BLOCK + (os.getpid() + step) % blocks
        addresses = [f"127.{block}.{part}.{number}" for number in range(1, count + 1)]
        if not any(taken_ports(address, ports) for address in addresses):
            return addresses
    shown = ", ".join(map(str, ports))
    raise MachineError(
        f"no loopback address has the ports {shown} free: a program listens on all addresses; "
        "`ss -ltnp` names it"
    )


def taken_ports(address: str, ports: Sequence[int]) -> list[int]:
    """Return those of the ports of an address of this machine at which a program listens."""
    return [port for port in ports if not _is_free(address, port)]


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: what only waits in TIME_WAIT is no listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def is_ours(address: str) -> bool:
    """Return whether an IP address, or a name of one, is of this machine."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_has(family, place) for family, _, _, _, place in found)


def _has(family: int, place: tuple[object, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(place)
        except OSError:
            return False
    return True
