"""Settings of a host that a measurement changes when it may: found, changed, written down."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from disklab.errors import MachineError
from disklab.events import Emit, PhaseStarted
from disklab.machines.protocol import Command, Machine
from disklab.measurement.hosts_file import Host, Hosts
from disklab.measurement.journal import Journal, setting

DROP_CACHES = PurePosixPath("/proc/sys/vm/drop_caches")
CLEAN_PAGES = "1"
"""Source: Linux, Documentation/admin-guide/sysctl/vm.rst: clean pages, and neither inodes nor
directory entries; nothing that is dirty or in use is lost."""
GOVERNORS = PurePosixPath("/sys/devices/system/cpu")
PERFORMANCE = "performance"


@dataclass(frozen=True)
class Setting:
    """A setting that would be changed."""

    host: str
    path: PurePosixPath
    before: str
    now: str

    def __str__(self) -> str:
        """Return it on one line."""
        return f"{self.path}: {self.before} -> {self.now}"


@dataclass(frozen=True)
class SwapArea:
    """An area that is swapped to."""

    host: str
    path: str
    priority: str

    def __str__(self) -> str:
        """Return it on one line."""
        return f"swap area {self.path}: off"


def wanted(name: str, host: Host, machine: Machine) -> Iterator[Setting | SwapArea]:
    """Yield what the hosts file lets us change on a host for the time of a run."""
    if "governor" in host.may_change:
        yield from _governors(name, machine)
    if "swap" in host.may_change:
        yield from _swap_areas(name, machine)


def apply(change: Setting | SwapArea, machine: Machine, journal: Journal) -> None:
    """Write a change down, then make it. Raises MachineError."""
    if isinstance(change, Setting):
        journal.note(change.host, "write", str(change.path), change.before, change.now)
        machine.files.write(change.path, change.now.encode())
        if (found := setting(machine, change.path)) != change.now:
            raise MachineError(f"{machine.name}: {change.path} stays {found}, not {change.now}")
        return
    journal.note(change.host, "swapon", change.path, change.priority)
    ended = machine.run(Command(["swapoff", "--", change.path]), seconds=600.0)
    if ended.code != 0:
        raise MachineError(f"{machine.name}: swapoff {change.path}: {ended.said}")


def apply_all(hosts: Hosts, machines: Mapping[str, Machine], journal: Journal, emit: Emit) -> None:
    """Change what the hosts file lets us, on every host; tell of each change. MachineError."""
    for name, machine in machines.items():
        for change in wanted(name, hosts.file.hosts[name], machine):
            emit(PhaseStarted("build", f"{name}: {change}"))
            apply(change, machine, journal)


def drop_page_cache(machine: Machine) -> None:
    """Let a host drop its clean page cache, whosever pages they are. Raises MachineError."""
    machine.files.write(DROP_CACHES, CLEAN_PAGES.encode())


def may_drop_page_cache(machine: Machine) -> bool:
    """Return whether the user that we are on a host may do that: root, outside of containers."""
    return machine.run(Command(["test", "-w", str(DROP_CACHES)])).code == 0


def read_ahead(
    name: str, machine: Machine, directory: str, wanted_bytes: int | None
) -> Setting | None:
    """Return the change of read-ahead that a trial asks of the disk below a directory, if any."""
    if wanted_bytes is None:
        return None
    path = queue_of(machine, directory) / "read_ahead_kb"
    found, now = setting(machine, path), str(wanted_bytes // 1024)
    return None if found == now else Setting(name, path, found, now)


def ask_read_ahead(
    name: str,
    machine: Machine,
    directory: str,
    wanted_bytes: int | None,
    journal: Journal,
) -> None:
    """Give the disk below a directory the read-ahead that a trial asks for, in bytes.

    None: what it had before the run. Raises MachineError, also where the directory has no disk.
    """
    left = [one for one in journal.left() if one.host == name and one.kind == "write"]
    ours = [one for one in left if one.path.endswith("/read_ahead_kb")]
    if wanted_bytes is None and not ours:
        return
    path = str(queue_of(machine, directory) / "read_ahead_kb")
    for change in ours:
        if change.path == path:
            journal.undo(change, machine)
    changed = read_ahead(name, machine, directory, wanted_bytes)
    if changed is not None:
        apply(changed, machine, journal)


def queue_of(machine: Machine, directory: str) -> PurePosixPath:
    """Return the folder of /sys with the settings of the disk below a directory."""
    ended = machine.run(Command(["stat", "-L", "-c", "%d", "--", directory]))
    if ended.code != 0 or not ended.stdout.strip().isdigit():
        raise MachineError(f"{machine.name}: {directory}: {ended.said}")
    number = int(ended.stdout)
    device = PurePosixPath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    # A partition has no queue of its own; below it lies that of its disk, which Linux resolves.
    for queue in (device / "queue", device / "partition"):
        try:
            machine.files.names(queue) if queue.name == "queue" else machine.files.read(queue)
        except MachineError:
            continue
        if queue.name == "queue":
            return queue
        real = machine.run(Command(["readlink", "-f", "--", str(device)])).stdout
        return PurePosixPath(real.decode(errors="replace").strip()).parent / "queue"
    raise MachineError(f"{machine.name}: {directory} lies on no disk of its own: it has no queue")


def _governors(name: str, machine: Machine) -> Iterator[Setting]:
    for cpu in machine.files.names(GOVERNORS):
        if not (cpu.startswith("cpu") and cpu[3:].isdigit()):
            continue
        path = GOVERNORS / cpu / "cpufreq" / "scaling_governor"
        try:
            found = setting(machine, path)
        except MachineError:
            continue  # most VMs leave the frequency to the host below
        if found != PERFORMANCE:
            yield Setting(name, path, found, PERFORMANCE)


def _swap_areas(name: str, machine: Machine) -> Iterator[SwapArea]:
    text = machine.files.read(PurePosixPath("/proc/swaps")).decode(errors="replace")
    for line in text.splitlines()[1:]:
        words = line.split()
        # The kernel gives areas without a priority negative ones, which swapon does not take.
        if len(words) == 5 and words[0].startswith("/"):
            yield SwapArea(name, words[0], words[4] if not words[4].startswith("-") else "0")
