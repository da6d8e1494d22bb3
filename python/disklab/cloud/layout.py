"""Which hosts a cloud has to make so that an experiment can be measured on them.

A pure function of experiment and catalogue, the same for every cloud. What disklab does not change
on a host that exists (VM size, disks, caching, file system) is another volume or another host here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from disklab.catalog import Catalog, VmEntry, parse_disks
from disklab.catalog.provisioning import Provisioned, Terms, provision
from disklab.database_facts import facts_of, names
from disklab.errors import Problem, UserError, refuse
from disklab.measurement import hosts_file
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.settings import DATA, place_trials
from disklab.spec import ClusterTrial, DeviceTrial, Experiment, Trial, TrialSpec
from disklab.spec.amounts import only
from disklab.spec.feasible import volumes_of
from disklab.spec.model import Volume

MOUNTS = "/mnt/disklab"
"""Where the volumes of a host are mounted, by their names."""
MOST_HOSTS = 100
"""More is a slip of the finger; a resource group's deployment ends at 800 resources."""
OS_FILESYSTEM = "ext4"
"""That of the image's root, on which an ephemeral OS disk's files lie."""
# 10.77.0.0/24; clouds keep the first four addresses and the last of a subnet (Azure: Virtual
# network FAQ, five reserved addresses), and 10.77.0.10 and on are easy to tell from them.
FIRST_ADDRESS = 10
STANDARD_NETWORK = "azure/standard"
CLOUDS = {"azure": "Azure", "aws": "AWS"}
# EC2's names for data volumes: /dev/sdf to /dev/sdp (user guide, "Device names for volumes").
AWS_VOLUMES = 11


@dataclass(frozen=True)
class CloudVolume:
    """A volume of a host, whose disks the VM brings along."""

    name: str
    disks: str
    """As the experiment says."""
    count: int
    """Disks of the stripe."""
    kind: str
    """local, nvme or ephemeral-os; disk: disks are made for it."""
    caching: str
    chunk_bytes: int | None
    filesystem: str
    read_ahead_bytes: int | None
    first: int
    """Its first LUN, or its first local NVMe disk."""

    @property
    def directory(self) -> str:
        """Where its files lie on the host."""
        return f"{MOUNTS}/{self.name}"


@dataclass(frozen=True)
class MadeVolume(CloudVolume):
    """A volume whose disks are made for it."""

    bought: Provisioned
    """One of its disks."""


@dataclass(frozen=True)
class CloudHost:
    """A VM that is to be made."""

    name: str
    role: str
    """node or client."""
    vm: VmEntry
    address: str
    """Its private address."""
    zone: int
    """0 for the first zone that the experiment has, 1 for the next."""
    volumes: tuple[CloudVolume, ...] = ()
    ephemeral_os: bool = False
    accelerated: bool = True
    engines: tuple[str, ...] = ()
    """The databases that are built on it."""

    @property
    def made(self) -> list[MadeVolume]:
        """The volumes whose disks are made for it."""
        return [volume for volume in self.volumes if isinstance(volume, MadeVolume)]


@dataclass(frozen=True)
class Layout:
    """All hosts of an experiment."""

    hosts: tuple[CloudHost, ...]
    zones: int
    groups: dict[str, dict[str, list[str]]]
    """As the hosts file has them: which volumes have which level of a factor."""

    def hosts_text(self, ssh_config: str) -> str:
        """Return the hosts file. Names are those of `ssh_config`, which has the addresses later."""
        described: dict[str, Any] = {}
        for host in self.hosts:
            one: dict[str, Any] = {
                "address": host.name,
                "private_address": host.address,
                "role": host.role,
                "zone": str(host.zone + 1),
            }
            if host.volumes:
                one["volumes"] = {volume.name: volume.directory for volume in host.volumes}
            described[host.name] = one
        file = {"ssh_config": ssh_config, "hosts": described, "groups": self.groups}
        # JSON is YAML; this one is written by a program and read by one.
        return json.dumps(file, indent=1, sort_keys=False) + "\n"


@dataclass
class _Packing:
    """A VM on which volumes of several trials have room together."""

    vm: VmEntry
    ephemeral_os: bool
    accelerated: bool
    shapes: list[Volume] = field(default_factory=list)

    def has_room(self, volume: Volume) -> bool:
        """Return whether one more volume fits on it."""
        together = [*self.shapes, volume]
        used = dict.fromkeys(("disk", "local", "nvme", "ephemeral-os"), 0)
        for one in together:
            used[_kind(one)] += parse_disks(one.disks).count
        facts = self.vm.facts
        return (
            used["disk"] <= (facts.max_data_disks or _most_disks(self.vm))
            and used["local"] <= 1
            and used["nvme"] <= (facts.nvme.count if facts.nvme else 0)
            and used["ephemeral-os"] <= 1
        )


def layout_of(
    experiment: Experiment,
    trials: Sequence[Trial],
    catalog: Catalog,
    copies: int = 1,
    cloud: str = "azure",
) -> Layout:
    """Return the hosts that the trials need; `copies` of each, for the spread between VMs.

    `cloud`: azure or aws; all VM sizes must be of it.

    Raises UserError with every reason why they cannot be made.
    """
    able = [trial for trial in trials if trial.refused is None]
    refuse([*_problems(experiment, able, cloud)])
    if experiment.kind == "device":
        hosts, where = _device_hosts(able, catalog, copies)
        zones = 1
    else:
        hosts, where = _cluster_hosts(able, catalog, copies)
        zones = max(trial.spec.cluster.zones for trial in able if trial.spec.cluster)
    if len(hosts) > MOST_HOSTS:
        rule = f"a run makes at most {MOST_HOSTS} hosts"
        way_out = "measure a part of the matrix: --only FACTOR=LEVEL"
        raise UserError(Problem(str(experiment.path), f"{len(hosts)} hosts", rule, way_out))
    layout = Layout(tuple(hosts), zones, _groups(experiment, able, where))
    if experiment.kind == "device":
        _check_groups(experiment, able, layout, where)
    return layout


def _problems(experiment: Experiment, able: Sequence[Trial], cloud: str) -> Iterator[Problem]:
    """Yield what a cloud cannot make of the trials, once."""
    place = str(experiment.path)
    if cloud == "aws" and experiment.kind != "device":
        rule = "in AWS hosts are made for experiments of devices only"
        yield Problem(place, f"kind {experiment.kind}", rule, "choose --cloud azure, or --hosts")
    if not able:
        yield Problem(place, "every trial", "is refused", "`disklab experiment check` says why")
    seen = set()
    for trial in able:
        for vm, _, _, volume, key in volumes_of(trial.spec):
            at = experiment.document.place((*key, "disks"))
            expression = parse_disks(volume.disks)
            told = (at, volume.disks, volume.filesystem)
            if told in seen:
                continue
            seen.add(told)
            if not vm.startswith(f"{cloud}/"):
                at = experiment.document.place((key[0], "vm"))
                title = CLOUDS[cloud]
                rule = f"is not one of {title}'s, and only {title}'s are made"
                yield Problem(at, vm, rule, f"choose a VM size {cloud}/...")
            used = 0 if expression.is_local else expression.count
            if cloud == "aws" and used > AWS_VOLUMES:
                rule = f"an instance is given at most {AWS_VOLUMES} volumes"
                yield Problem(at, volume.disks, rule, "choose a stripe of fewer disks")
            if expression.name == "ephemeral-os" and volume.filesystem != OS_FILESYSTEM:
                rule = f"the OS disk of the image has {OS_FILESYSTEM}, which cannot be changed"
                at = experiment.document.place((*key, "filesystem"))
                yield Problem(at, volume.filesystem, rule, f"choose filesystem: {OS_FILESYSTEM}")
            if volume.size_bytes is not None and not expression.is_local and "(" in volume.disks:
                at = experiment.document.place((*key, "size"))
                rule = "a cloud's disk has exactly the size that is bought"
                yield Problem(at, str(volume.size_bytes), rule, "leave size out")


def _most_disks(vm: VmEntry) -> int:
    return AWS_VOLUMES if vm.name.startswith("aws/") else 0


def _kind(volume: Volume) -> str:
    expression = parse_disks(volume.disks)
    return expression.name if expression.is_local else "disk"


def _placed_volume(name: str, volume: Volume, catalog: Catalog, first: int) -> CloudVolume:
    expression = parse_disks(volume.disks)
    placed = CloudVolume(
        name=name,
        disks=volume.disks,
        count=expression.count,
        kind=_kind(volume),
        caching=volume.caching,
        chunk_bytes=volume.chunk_bytes,
        filesystem=volume.filesystem,
        read_ahead_bytes=volume.read_ahead_bytes,
        first=first,
    )
    if expression.is_local:
        return placed
    bought = provision(catalog, expression, Terms(size_bytes=volume.size_bytes))
    return MadeVolume(**vars(placed), bought=bought)


def _volumes(named: Sequence[tuple[str, Volume]], catalog: Catalog) -> tuple[CloudVolume, ...]:
    """Return volumes with their LUNs, one after the other."""
    next_of: dict[str, int] = {}
    made = []
    for name, volume in named:
        kind = _kind(volume)
        one = _placed_volume(name, volume, catalog, next_of.get(kind, 0))
        next_of[kind] = one.first + one.count
        made.append(one)
    return tuple(made)


def _address(number: int) -> str:
    return f"10.77.0.{FIRST_ADDRESS + number}"


def _accelerated(vm: VmEntry, spec: TrialSpec) -> bool:
    """Return whether a VM gets accelerated networking.

    **Source:** Azure's documentation of accelerated networking: sizes with two vCPUs and more, of
    hyper-threaded series with four and more; a database's sizes have them.
    """
    wanted = spec.cluster is None or spec.cluster.network != STANDARD_NETWORK
    return wanted and vm.facts.vcpu >= 4


def _device_hosts(
    able: Sequence[Trial], catalog: Catalog, copies: int
) -> tuple[list[CloudHost], dict[int, list[str]]]:
    """Return VMs, and by a trial's index the HOST/VOLUME that it is measured on.

    Trials of a device run one at a time: volumes share a VM where they have room on it.
    """
    packed: list[_Packing] = []
    found: dict[int, tuple[int, int]] = {}
    for trial in able:
        device = only(DeviceTrial, trial.spec).device
        vm, ephemeral = catalog.vms[device.vm], _kind(device.volume) == "ephemeral-os"
        number = _packed_into(packed, vm, device.volume, ephemeral)
        if number == len(packed):
            packed.append(_Packing(vm, ephemeral, _accelerated(vm, trial.spec)))
        shapes = packed[number].shapes
        if device.volume not in shapes:
            shapes.append(device.volume)
        found[trial.index] = (number, shapes.index(device.volume))
    hosts: list[CloudHost] = []
    names: dict[int, list[str]] = {}
    for number, one in enumerate(packed):
        named = [(_volume_name(at), volume) for at, volume in enumerate(one.shapes)]
        for _ in range(copies):
            name = f"n{len(hosts) + 1}"
            names.setdefault(number, []).append(name)
            volumes = _volumes(named, catalog)
            address = _address(len(hosts))
            hosts.append(
                CloudHost(
                    name, "node", one.vm, address, 0, volumes, one.ephemeral_os, one.accelerated
                )
            )
    where = {
        index: [f"{name}/{_volume_name(at)}" for name in names[number]]
        for index, (number, at) in found.items()
    }
    return hosts, where


def _packed_into(packed: Sequence[_Packing], vm: VmEntry, volume: Volume, ephemeral: bool) -> int:
    """Return the VM that has a volume, or has room for it; one more than there are: none has."""
    for number, one in enumerate(packed):
        if one.vm is vm and volume in one.shapes:
            return number
    for number, one in enumerate(packed):
        if one.vm is vm and (one.ephemeral_os or not ephemeral) and one.has_room(volume):
            return number
    return len(packed)


def _volume_name(at: int) -> str:
    return DATA if at == 0 else f"{DATA}-{at + 1}"


def _cluster_hosts(
    able: Sequence[Trial], catalog: Catalog, copies: int
) -> tuple[list[CloudHost], dict[int, list[str]]]:
    """Return nodes and clients, and by a trial's index its nodes.

    Trials share a set of nodes where they ask for the same VMs, volumes and zones; of sets that
    differ only in how many nodes they have, the largest serves all.
    """
    sets: dict[str, list[Trial]] = {}
    for trial in able:
        cluster = only(ClusterTrial, trial.spec).cluster
        shape = cluster.model_dump(mode="json", exclude={"nodes", "host_cache_bytes"})
        sets.setdefault(json.dumps(shape, sort_keys=True), []).append(trial)
    hosts: list[CloudHost] = []
    where: dict[int, list[str]] = {}
    for trials in sets.values():
        spec = only(ClusterTrial, trials[0].spec)
        cluster = spec.cluster
        vm = catalog.vms[cluster.vm]
        named = [(name, volume) for *_, name, volume, _ in volumes_of(spec)]
        ephemeral = any(_kind(volume) == "ephemeral-os" for _, volume in named)
        most = max(one.spec.nodes for one in trials)
        for number in range(copies * most):
            at = number % most
            name = f"n{len(hosts) + 1}"
            host = CloudHost(
                name=name,
                role="node",
                vm=vm,
                address=_address(len(hosts)),
                zone=at % cluster.zones,
                volumes=_volumes(named, catalog),
                ephemeral_os=ephemeral,
                accelerated=_accelerated(vm, spec),
                engines=_engines(trials),
            )
            hosts.append(host)
            for trial in trials:
                if at < trial.spec.nodes:
                    where.setdefault(trial.index, []).append(name)
    hosts += _clients(able, catalog, len(hosts))
    return hosts, where


def _engines(trials: Sequence[Trial]) -> tuple[str, ...]:
    return tuple(sorted({trial.spec.engine for trial in trials if trial.spec.engine}))


def check_databases(experiment: Experiment, trials: Sequence[Trial]) -> None:
    """Refuse databases that cannot be asked through SSH alone: a cloud lets in nothing else."""
    for engine in _engines([trial for trial in trials if trial.refused is None]):
        if facts_of(engine).cloud_packages is None:
            able = [name for name in names() if facts_of(name).cloud_packages is not None]
            rule = f"on hosts that are made, disklab builds {', '.join(able)} only"
            way_out = "measure it on hosts that exist: --hosts"
            place = experiment.document.place(("database", "engine"))
            raise UserError(Problem(place, engine, rule, way_out))


def _clients(able: Sequence[Trial], catalog: Catalog, taken: int) -> list[CloudHost]:
    """Return the load generators: of each VM size as many as a trial asks for at most."""
    wanted: dict[str, tuple[int, TrialSpec]] = {}
    for trial in able:
        size = trial.spec.client.vm or trial.spec.machine.vm
        most = max(trial.spec.client.nodes, wanted.get(size, (0, trial.spec))[0])
        wanted[size] = (most, trial.spec)
    made: list[CloudHost] = []
    for name, (count, spec) in wanted.items():
        vm = catalog.vms[name]
        for _ in range(count):
            number = len(made)
            made.append(
                CloudHost(
                    name=f"c{number + 1}",
                    role="client",
                    vm=vm,
                    address=_address(taken + number),
                    zone=0,
                    accelerated=_accelerated(vm, spec),
                )
            )
    return made


def _groups(
    experiment: Experiment, able: Sequence[Trial], where: dict[int, list[str]]
) -> dict[str, dict[str, list[str]]]:
    """Return, for each factor that decides about hosts, which volumes have which level."""
    groups: dict[str, dict[str, list[str]]] = {}
    everywhere = list(dict.fromkeys(one for trial in able for one in where[trial.index]))
    for factor in experiment.factors:
        levels: dict[str, list[str]] = {}
        for trial in able:
            members = levels.setdefault(str(trial.factors[factor.name]), [])
            members += [one for one in where[trial.index] if one not in members]
        if any(len(members) < len(everywhere) for members in levels.values()):
            groups[factor.name] = levels
    return groups


def _check_groups(
    experiment: Experiment, able: Sequence[Trial], layout: Layout, where: dict[int, list[str]]
) -> None:
    """Refuse a matrix whose levels one by one do not say which volume a trial has."""
    hosts: Hosts = hosts_file.parse(layout.hosts_text("/nowhere"), "the hosts to be made")
    placed = place_trials(experiment, able, hosts)
    for trial in able:
        found = [str(spot) for spot in placed.spots.get(trial.index, [])]
        if found != where[trial.index]:
            levels = ", ".join(f"{name}={level}" for name, level in trial.factors.items())
            rule = "its factors override each other, so they do not determine which disk it has"
            way_out = "measure a part of the matrix at a time: --only FACTOR=LEVEL"
            raise UserError(Problem(str(experiment.path), levels, rule, way_out))
