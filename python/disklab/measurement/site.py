"""Which host measures which trial, and which trials the site cannot have.

disklab changes neither a VM's size nor its disks: what of that an experiment varies must differ
between hosts already, and `groups` of the hosts file says where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem
from disklab.measurement.hosts_file import Host, Hosts, Volume
from disklab.spec import Experiment, Refusal, Trial, TrialSpec

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
    if spec.device is None:
        return {}
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


def _fixed_of_cluster(spec: TrialSpec, host: Host, volume: Volume) -> dict[str, Any]:
    parts: dict[str, Any] = {"cluster.vm": spec.the_cluster.vm}
    for name, asked in spec.the_cluster.volumes.items():
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
                f"{spot} is one disk, and the trials ask for several values of {key} ({told}), "
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
