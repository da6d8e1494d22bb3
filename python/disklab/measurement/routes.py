"""Routes of ours that drop what is sent to an address."""

from __future__ import annotations

from disklab.errors import MachineError
from disklab.machines.protocol import Command, Machine

PROTOCOL = "219"
"""In each of our routes. **Source:** iproute2's rt_protos gives this number to nobody."""


def add_words(address: str) -> list[str]:
    """Return the command that drops what is sent to an address."""
    return ["ip", "route", "add", "blackhole", address, "proto", PROTOCOL]


def remove(machine: Machine, address: str) -> None:
    """Remove our route to an address; nothing when it is gone. Raises MachineError."""
    listed = ["ip", "route", "show", "type", "blackhole", "proto", PROTOCOL, address]
    if ":" in address:
        listed.insert(1, "-6")
    found = machine.run(Command(listed))
    if found.code == 0 and not found.stdout.strip():
        return
    ended = machine.run(Command(["ip", "route", "del", *add_words(address)[3:]]))
    if ended.code != 0:
        raise MachineError(f"{machine.name}: our route to {address} stays: {ended.said}")
