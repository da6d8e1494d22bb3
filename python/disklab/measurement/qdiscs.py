"""The root queueing discipline of ours on a host's interface: known by its handle."""

from __future__ import annotations

from disklab.errors import MachineError
from disklab.machines.protocol import Command, Machine

HANDLE = "d15c:"
"""Of ours. The kernel gives out handles from 8001: on, and its own defaults have 0:."""
ROOT_WORDS = ("root", "handle", HANDLE, "prio", "bands", "16", "priomap", *("0" * 16))
"""tc-prio(8): whatever its priority, a packet goes to the first band unless a filter says else."""


def root_of(machine: Machine, device: str) -> tuple[str, str]:
    """Return kind and handle of an interface's root. Raises MachineError."""
    ended = machine.run(Command(["tc", "qdisc", "show", "dev", device]))
    for line in ended.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if ended.code == 0 and words[:1] == ["qdisc"] and words[3:4] == ["root"]:
            return words[1], words[2]
    raise MachineError(f"{machine.name}: tc does not tell the discipline of {device}: {ended.said}")


def remove(machine: Machine, device: str) -> None:
    """Remove our root from an interface; nothing when it is gone. Raises MachineError."""
    if root_of(machine, device)[1] != HANDLE:
        return
    ended = machine.run(Command(["tc", "qdisc", "del", "dev", device, "root", "handle", HANDLE]))
    if ended.code != 0:
        raise MachineError(f"{machine.name}: our discipline on {device} stays: {ended.said}")
