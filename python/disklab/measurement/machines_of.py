"""From hosts of the hosts file to machines, and what these are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, cast

from disklab.database_facts import names
from disklab.databases import Database, NodePlace, Request, provision, record_of
from disklab.databases.record import Needed, built_nowhere
from disklab.databases.remote_host import RemoteHost
from disklab.errors import MachineError, Problem
from disklab.hosts.node import Progress
from disklab.machines.binary import find_agent
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command, Machine
from disklab.machines.ssh import Destination, SshMachine, SshSettings
from disklab.measurement.hosts_file import Host
from disklab.reading import digits

# The databases that disklab builds on hosts: what each needs there, and how it is made.


class HostedDatabase(Database, Protocol):
    """A database on hosts."""

    @property
    def secret(self) -> str:
        """What its data are made for; kept beside them."""

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts, at these IP addresses."""


@dataclass(frozen=True)
class Hosted:
    """A node of a database on a host, and its folders there, which are ours."""

    machine: Machine
    folders: Mapping[str, PurePosixPath]
    """By volume."""

    @property
    def folder(self) -> PurePosixPath:
        """The one with its data, and what else it needs."""
        return self.folders["data"]

    def place(self, log_folder: Path) -> NodePlace:
        """Return what a provider is given."""
        return NodePlace(
            name=self.machine.name,
            address=self.machine.address,
            volumes={name: Path(folder) for name, folder in self.folders.items()},
            run_dir=Path(self.folder) / "run",
            log_dir=log_folder.absolute(),
            host=RemoteHost(self.machine),
        )


def needed(engine: str, version: str | None, machine: Machine) -> Needed | Problem:
    """Return what will be run on a host, or what it lacks. Raises MachineError; changes nothing."""
    found = record_of(engine).needed_on(RemoteHost(machine), version)
    unknown = _without_address(machine) if isinstance(found, Needed) and found.by_ip else None
    return unknown or found


def make(
    request: Request, nodes: Sequence[Hosted], log_folder: Path, say: Progress
) -> HostedDatabase:
    """Return a database that is ready to start, on folders that were made for it.

    Raises UserError for what cannot be asked of it, MachineError for what a host lacks.
    """
    places = [node.place(log_folder) for node in nodes]
    # What has `needed_on` in its record has these two methods more.
    database = cast("HostedDatabase", provision(request, places, say))
    for node in nodes:
        RemoteHost(node.machine).folder(Path(node.folder) / "run")
    return database


def _without_address(machine: Machine) -> Problem | None:
    """Return that a node has no IP address, by which the others know it."""
    try:
        ip_address(machine.address)
    except ValueError:
        rule = "nodes know each other by IP addresses"
        return Problem("", machine.address, rule, "write the host's as private_address")
    return None


ENGINES = tuple(name for name in names() if record_of(name).needed_on is not built_nowhere)
"""Each is built on one host or on several."""


# Azure's VMs have this asset tag (Microsoft Learn, "Instance Metadata Service": the chassis asset
# tag tells Azure's VMs from Hyper-V's), so that no other host is asked for Azure's metadata.
AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
AZURE_METADATA = "http://169.254.169.254/metadata/instance/compute/vmSize"


def open_machine(
    name: str,
    host: Host,
    ssh_config: str | None,
    undo: ExitStack,
    told: Callable[[str], None] = lambda _text: None,
) -> Machine:
    """Return a host as a machine; what it needs is closed by `undo`. Raises MachineError.

    `told` hears of links that are lost and found again.
    """
    if host.local:
        return LocalMachine(name, host.private_address or "127.0.0.1")
    assert host.address is not None, "the hosts file has either"
    config = None if ssh_config is None else Path(ssh_config)
    settings = SshSettings(name=name, address=host.private_address)
    machine = SshMachine(Destination(host.address, config), find_agent(), settings, told)
    undo.callback(machine.close)
    return machine


def facts(machine: Machine) -> dict[str, Any]:
    """Return what a host is, for the results: kernel, CPUs, memory, VM size where it tells."""
    files = machine.files
    processors = _text(machine, "/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", processors, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", _text(machine, "/proc/meminfo"), re.MULTILINE)
    found: dict[str, Any] = {
        "kernel": _text(machine, "/proc/sys/kernel/osrelease"),
        "cpu": model[1].strip() if model else None,
        "cpus": len(re.findall(r"^processor\s*:", processors, re.MULTILINE)) or None,
        "memory_bytes": _memory_bytes(machine, int(memory[1]) * 1024) if memory else None,
        "boot_id": _text(machine, "/proc/sys/kernel/random/boot_id"),
    }
    with suppress(MachineError):
        files.names(PurePosixPath("/sys/class/dmi/id"))
        found["vendor"] = _text(machine, "/sys/class/dmi/id/sys_vendor") or None
        found["product"] = _text(machine, "/sys/class/dmi/id/product_name") or None
    if _text(machine, "/sys/class/dmi/id/chassis_asset_tag") == AZURE_TAG:
        found["vm_size"] = _azure_size(machine)
    clock = machine.clock()
    found["clock_ahead_ms"] = round(clock.ahead_s * 1e3, 3)
    found["clock_error_ms"] = round(clock.error_s * 1e3, 3)
    return {key: value for key, value in found.items() if value is not None}


def _text(machine: Machine, path: str) -> str:
    with suppress(MachineError):
        return machine.files.read(PurePosixPath(path), 4 << 20).decode(errors="replace").strip()
    return ""


def _memory_bytes(machine: Machine, whole: int) -> int:
    """Return the memory that programs of a host may have: of a container's, its limit.

    The group at the root of a machine's own hierarchy has no limit, and in version 2 no such file.
    """
    told = [whole]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _text(machine, f"/sys/fs/cgroup/{file}")
        told += [limit] if (limit := digits(text)) is not None else []
    return min(told)


def _azure_size(machine: Machine) -> str | None:
    question = f"{AZURE_METADATA}?api-version=2021-02-01&format=text"
    with suppress(MachineError):
        asked = machine.run(Command(["curl", "-sf", "-m", "2", "-H", "Metadata:true", question]))
        told = asked.stdout.decode("ascii", errors="replace").strip()
        if asked.code == 0 and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", told):
            return told
    return None


def stolen_ratio(before: str, after: str) -> float:
    """Return the share of its CPUs' time that the underlying host took from a VM, 0 to 1.

    `before`, `after`: the first line of its /proc/stat.
    """
    first, last = _ticks(before), _ticks(after)
    spent = [b - a for a, b in zip(first, last, strict=False)]
    # user nice system idle iowait irq softirq steal; guest times are in user already.
    whole = sum(spent[:8])
    return spent[7] / whole if len(spent) > 7 and whole > 0 else 0.0


def busy_ratio(before: str, after: str) -> float:
    """Return the share of its CPUs' time that a machine used itself, 0 to 1; as `stolen_ratio`."""
    took = [b - a for a, b in zip(_ticks(before), _ticks(after), strict=False)][:8]
    whole = sum(took)
    return 1 - (took[3] + took[4] + took[7]) / whole if len(took) == 8 and whole > 0 else 0.0


def cpu_line(machine: Machine) -> str:
    """Return the first line of /proc/stat: ticks of all CPUs together."""
    return _text(machine, "/proc/stat").partition("\n")[0]


def _ticks(line: str) -> list[int]:
    return [tick for word in line.split()[1:] if (tick := digits(word)) is not None]
