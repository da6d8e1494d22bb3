"""Settings of a host that a measurement changes when it may: found, changed, written down."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from disklab.catalog.suggest import did_you_mean
from disklab.errors import MachineError, Problem
from disklab.events import Emit, PhaseStarted
from disklab.machines.protocol import Command, Machine
from disklab.measurement.hosts_file import Host, Hosts, Volume
from disklab.measurement.journal import Journal, setting
from disklab.reading import digits
from disklab.spec import ClusterTrial, Experiment, Refusal, Trial, TrialSpec
from disklab.spec.feasible import resolve_volumes

# Which host measures which trial, and which trials the site cannot have.
#
# disklab changes neither a VM's size nor its disks: what of that an experiment varies must differ
# between hosts already, and `groups` of the hosts file says where.

DATA = "data"
"""The volume of a device experiment."""


@dataclass(frozen=True)
class Spot:
    """A volume of a host."""

    host: str
    volume: str

    def __str__(self) -> str:
        """Return it as `groups` writes it."""
        return f"{self.host}/{self.volume}"


@dataclass(frozen=True)
class Placed:
    """The trials of an experiment, and where each is measured."""

    trials: list[Trial]
    spots: dict[int, list[Spot]]
    """By a trial's index; repeats take them in turn. Refused trials have none."""

    def of(self, trial: Trial) -> list[Spot]:
        """Return where a trial is measured; nowhere when it is refused."""
        return self.spots.get(trial.index, [])

    @property
    def used(self) -> list[Spot]:
        """Every spot that measures something, in the order of the trials."""
        return list(dict.fromkeys(spot for spots in self.spots.values() for spot in spots))


def place_trials(experiment: Experiment, trials: Sequence[Trial], hosts: Hosts) -> Placed:
    """Return where trials of a device experiment are measured; what cannot be is refused."""
    spots: dict[int, list[Spot]] = {}
    refused: dict[int, Problem] = {}
    for trial in trials:
        if trial.refused is None:
            found = _spots_of(experiment, trial, hosts)
            if isinstance(found, Problem):
                refused[trial.index] = found
            else:
                spots[trial.index] = found
    refused |= _conflicts(experiment, [one for one in trials if one.index in spots], spots, hosts)
    told = [
        trial if trial.index not in refused else replace(trial, refused=_as_refusal(refused, trial))
        for trial in trials
    ]
    return Placed(told, {index: where for index, where in spots.items() if index not in refused})


def not_brought_about(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield what trials ask of their disks before a measurement that no host can be asked for."""
    asked: dict[str, None] = {}
    for trial in trials:
        spec = trial.spec
        written = "credits_ratio" in spec.before.model_fields_set and trial.refused is None
        if written and any(one.has_credits for one in resolve_volumes(spec).values()):
            asked[f"{spec.before.credits_ratio:.0%}"] = None
    for share in asked:
        yield (
            f"before.credits: {share} cannot be brought about: the burst credits of real disks "
            "and VMs are whatever their load so far has left; load or rest beforehand changes them"
        )


def volume_of(hosts: Hosts, spot: Spot) -> Volume:
    """Return what the hosts file says of a spot."""
    return hosts.file.hosts[spot.host].volumes[spot.volume]


def _as_refusal(refused: dict[int, Problem], trial: Trial) -> Refusal:
    why = refused[trial.index]
    return Refusal(why.place, why.value, why.rule, why.way_out)


def _spots_of(experiment: Experiment, trial: Trial, hosts: Hosts) -> list[Spot] | Problem:
    """Return the volumes that have a trial's levels, at most one of each host."""
    found = [
        Spot(name, volume)
        for name, host in hosts.file.hosts.items()
        if host.role == "node"
        for volume in host.volumes
    ]
    known = experiment.by_name()
    for name, levels in hosts.file.groups.items():
        if name not in known:
            continue  # a hosts file serves several experiments
        level = str(trial.factors[known[name].name])
        if level not in levels:
            way_out = did_you_mean(level, levels, f"known are {', '.join(levels)}")
            rule = "no group of hosts has this level"
            return Problem(hosts.place("groups", name), f"{name}={level}", rule, way_out)
        found = [one for one in found if one.host in levels[level] or str(one) in levels[level]]
    if not found:
        rule = "no host has these levels together"
        told = ", ".join(f"{name}={level}" for name, level in trial.factors.items())
        return Problem(hosts.place("groups"), told, rule, "add a host that has them")
    return _one_of_each_host(found, hosts)


def _one_of_each_host(found: list[Spot], hosts: Hosts) -> list[Spot] | Problem:
    chosen = []
    for name in dict.fromkeys(one.host for one in found):
        own = [one for one in found if one.host == name]
        named = [one for one in own if one.volume == DATA]
        if len(own) > 1 and not named:
            told = ", ".join(one.volume for one in own)
            rule = f"the host has several volumes ({told}), and none is called {DATA}"
            way_out = f"call one {DATA}, or name {own[0]} in `groups`"
            return Problem(hosts.place("hosts", name, "volumes"), name, rule, way_out)
        chosen.append(own[0] if len(own) == 1 else named[0])
    return chosen


def fixed_parts(spec: TrialSpec, host: Host, volume: Volume) -> dict[str, Any]:
    """Return what disklab cannot change of a host, by key, as a trial asks for it."""
    if spec.cluster is not None:
        return _fixed_of_cluster(spec, host, volume)
    asked = spec.device.volume
    parts: dict[str, Any] = {
        "device.vm": spec.device.vm,
        "device.volume.disks": asked.disks,
        "device.volume.caching": asked.caching,
        "device.volume.stripe": asked.chunk_bytes,
    }
    if volume.directory is not None:
        parts["device.volume.filesystem"] = asked.filesystem
    if "read_ahead" not in host.may_change:
        parts["device.volume.read_ahead"] = asked.read_ahead_bytes
    return parts


def _fixed_of_cluster(spec: ClusterTrial, host: Host, volume: Volume) -> dict[str, Any]:
    parts: dict[str, Any] = {"cluster.vm": spec.cluster.vm}
    for name, asked in spec.cluster.volumes.items():
        parts[f"cluster.volumes.{name}.disks"] = asked.disks
        parts[f"cluster.volumes.{name}.caching"] = asked.caching
        parts[f"cluster.volumes.{name}.stripe"] = asked.chunk_bytes
        if volume.directory is not None:
            parts[f"cluster.volumes.{name}.filesystem"] = asked.filesystem
        if "read_ahead" not in host.may_change:
            parts[f"cluster.volumes.{name}.read_ahead"] = asked.read_ahead_bytes
    parts["before.host_cache"] = spec.before.host_cache
    return parts


def _conflicts(
    experiment: Experiment,
    trials: Sequence[Trial],
    spots: dict[int, list[Spot]],
    hosts: Hosts,
) -> dict[int, Problem]:
    """Return the trials that want one volume to be several things, each with its reason."""
    found: dict[int, Problem] = {}
    for spot in dict.fromkeys(one for each in spots.values() for one in each):
        host = hosts.file.hosts[spot.host]
        here = [trial for trial in trials if spot in spots[trial.index]]
        asked = {
            trial.index: fixed_parts(trial.spec, host, volume_of(hosts, spot)) for trial in here
        }
        for key, values in different(list(asked.values())):
            told = ", ".join(map(str, values))
            rule = (
                f"{spot} is one disk, and the trials need several values of {key} ({told}), "
                "which disklab does not change on a host"
            )
            way_out = (
                "say in `groups` of the hosts file which hosts have which level, or measure one "
                "level by --only"
            )
            place = experiment.document.place(tuple(key.split(".")))
            for trial in here:
                value = str(asked[trial.index][key])
                found.setdefault(trial.index, Problem(place, value, rule, way_out))
    return found


def different(asked: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the keys for which several values are asked, with these."""
    for key in asked[0] if asked else ():
        values = list(dict.fromkeys(one[key] for one in asked))
        if len(values) > 1:
            yield key, values


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
    number = digits(ended.stdout.decode(errors="replace").strip())
    if ended.code != 0 or number is None:
        raise MachineError(f"{machine.name}: {directory}: {ended.said}")
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
