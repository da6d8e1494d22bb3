"""Reads the device experiments among the experiment files: fio on volumes, no database.

Every value keeps its line, so that an error names file, line and key, also after a factor's level
has patched it.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from disklab.catalog import Places
from disklab.errors import Problem, UserError
from disklab.hosts.filesystem import FILESYSTEMS, Filesystem
from disklab.probe.cells import Cell, Direction, Profile, parse_block, parse_duration
from disklab.probe.known import Disk, parse_caching


@dataclass(frozen=True)
class Located:
    """A YAML value and the line where it stands; mappings hold located values."""

    value: Any
    line: int


@dataclass(frozen=True)
class Trial:
    """One combination of levels."""

    levels: Mapping[str, str]
    disk: Disk
    filesystem: Filesystem
    cell: Cell
    duration_s: float


@dataclass(frozen=True)
class DeviceExperiment:
    """A matrix of device measurements."""

    path: Path
    title: str
    source: str
    trials: tuple[Trial, ...]


KEYS: dict[str, tuple[str, ...]] = {
    "": ("title", "source", "device", "workload", "factors"),
    "device": ("vm", "volume"),
    "device.volume": ("disks", "caching", "filesystem"),
    "workload": ("fio", "stop"),
    "workload.fio": ("profile", "rw", "bs", "direct"),
    "workload.stop": ("duration",),
}
"""Which keys may stand in which mapping. A level's name is free."""


class Reader:
    """Reads one file; each error carries the file, the line and the dotted key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def problem(self, key: str, at: Located, rule: str, way_out: str) -> UserError:
        """Return the error for a value."""
        shown = at.value if isinstance(at.value, str) else yaml_text(at)
        return UserError(Problem(f"{self.path}:{at.line}: {key}", shown, rule, way_out))

    def load(self) -> Located:
        """Return the file's values with their lines."""
        try:
            node = yaml.compose(self.path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except OSError as error:
            rule = f"cannot be read: {error.strerror}"
            way_out = "name an experiment file"
            raise UserError(Problem("EXPERIMENT", str(self.path), rule, way_out)) from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            rule = f"is no YAML: {error.problem}"
            place = f"{self.path}:{line}"
            raise UserError(Problem(place, self.path.name, rule, "mend the syntax")) from None
        if not isinstance(node, yaml.MappingNode):
            rule = "an experiment is a mapping with title, device, workload and factors"
            way_out = "start from one of experiments/"
            raise UserError(Problem(f"{self.path}:1", self.path.name, rule, way_out))
        return located(node)

    def mapping(self, of: Located, key: str) -> dict[str, Located]:
        """Return a mapping whose keys are all known."""
        if not isinstance(of.value, dict):
            raise self.problem(key or "file", of, "is a mapping", f"write {key}: {{...}}")
        known = KEYS.get(key)
        for name, value in of.value.items():
            if known is not None and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                way_out = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                dotted = f"{key}.{name}".lstrip(".")
                raise self.problem(dotted, value, "is no key of a device experiment", way_out)
        found: dict[str, Located] = of.value
        return found

    def text(self, of: dict[str, Located], parent: Located, key: str, default: str | None) -> str:
        """Return a scalar; without a default it must be there."""
        found = of.get(key.rpartition(".")[2])
        if found is None:
            if default is None:
                missing = Located("(missing)", parent.line)
                raise self.problem(key, missing, "is needed", "add it")
            return default
        if not isinstance(found.value, str):
            raise self.problem(key, found, "is one word, not a list or mapping", "write one value")
        return found.value

    def choice(self, value: str, key: str, at: Located, allowed: tuple[str, ...]) -> str:
        """Return the value when it is one of those allowed."""
        if value not in allowed:
            near = difflib.get_close_matches(value, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(allowed)}"
            raise self.problem(key, Located(value, at.line), "is not known", hint)
        return value


def located(node: yaml.Node) -> Located:
    """Return the node's value; scalars stay the text that was written."""
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        # A key's own line, not its value's: a block below a key would blame the wrong line.
        pairs = {
            key.value: Located(located(value).value, key.start_mark.line + 1)
            for key, value in node.value
        }
        return Located(pairs, line)
    if isinstance(node, yaml.SequenceNode):
        return Located([located(item) for item in node.value], line)
    return Located(node.value, line)


def yaml_text(of: Located) -> str:
    """Return the value on one line, for messages."""

    def plain(value: Any) -> Any:
        if isinstance(value, Located):
            return plain(value.value)
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    text = yaml.safe_dump(plain(of), default_flow_style=True, width=10**6)
    return text.strip().removesuffix("...").strip()


def read_experiment(path: Path) -> DeviceExperiment:
    """Return the device experiment in a file, every trial of its matrix checked."""
    reader = Reader(path)
    root = reader.load()
    if "cluster" in root.value:
        rule = "is a cluster experiment, and the probe runs those of devices"
        way_out = "choose a file with `device:`, such as experiments/azure-local-disks.yaml"
        raise reader.problem("cluster", root.value["cluster"], rule, way_out)
    top = reader.mapping(root, "")
    base = Located({k: v for k, v in top.items() if k in ("device", "workload")}, root.line)
    title = reader.text(top, root, "title", path.stem)
    source = reader.text(top, root, "source", "")
    levels = levels_of(reader, top.get("factors", Located({}, root.line)))
    trials = tuple(
        trial_of(reader, base, dict(zip(levels, choice, strict=True)))
        for choice in itertools.product(*levels.values())
    )
    return DeviceExperiment(path, title, source, trials)


Level = tuple[str, dict[str, Located]]
"""A level's name and what it patches: values by dotted path."""


def levels_of(reader: Reader, factors: Located) -> dict[str, list[Level]]:
    """Return each factor's levels: named patches, or a dotted path with a list of values."""
    found: dict[str, list[Level]] = {}
    for name, given in reader.mapping(factors, "factors").items():
        key = f"factors.{name}"
        if isinstance(given.value, list) and given.value:
            found[name] = [(str(item.value), {name: item}) for item in given.value]
        elif isinstance(given.value, dict) and given.value:
            found[name] = [
                (level, reader.mapping(patch, f"{key}.{level}"))
                for level, patch in given.value.items()
            ]
        else:
            way_out = f"write {name}: [a, b] or {name}: {{level: {{path: value}}}}"
            raise reader.problem(key, given, "a factor has levels", way_out)
    return found


def patched(reader: Reader, of: Located, path: str, value: Located) -> Located:
    """Return a copy in which the dotted path has the value."""
    head, _, rest = path.partition(".")
    inner = reader.mapping(of, "factors: a patched path")
    if not rest:
        return Located({**inner, head: value}, of.line)
    if head not in inner:
        rule = "a factor patches what the baseline has"
        raise reader.problem(path, value, rule, f"known here are {', '.join(inner)}")
    return Located({**inner, head: patched(reader, inner[head], rest, value)}, of.line)


def trial_of(reader: Reader, base: Located, choice: Mapping[str, Level]) -> Trial:
    """Return one trial: the baseline with the patches of one level of each factor."""
    tree = base
    for _, patches in choice.values():
        for path, value in patches.items():
            tree = patched(reader, tree, path, value)
    top = reader.mapping(tree, "")
    for name in ("device", "workload"):
        if name not in top:
            missing = Located("(missing)", base.line)
            raise reader.problem(name, missing, "a device experiment has it", "add it")
    return Trial(
        levels={factor: level for factor, (level, _) in choice.items()},
        disk=disk_of(reader, top["device"]),
        filesystem=filesystem_of(reader, top["device"]),
        cell=cell_of(reader, top["workload"]),
        duration_s=duration_of(reader, top["workload"]),
    )


def volume_keys(reader: Reader, device: Located) -> tuple[dict[str, Located], Located]:
    """Return the keys of the trial's volume, and the volume itself for its line."""
    volume = reader.mapping(device, "device").get("volume")
    if volume is None:
        missing = Located("(missing)", device.line)
        raise reader.problem("device.volume", missing, "is needed", "add volume: {disks: local}")
    return reader.mapping(volume, "device.volume"), volume


def disk_of(reader: Reader, device: Located) -> Disk:
    """Return the disk of a trial; whether it exists on that VM is the catalogue's to say."""
    keys = reader.mapping(device, "device")
    vm = reader.text(keys, device, "device.vm", None)
    inner, volume = volume_keys(reader, device)
    caching = inner.get("caching", volume)

    def place(key: str, at: Located) -> str:
        return f"{reader.path}:{at.line}: {key}"

    places = Places(
        disks=place("device.volume.disks", inner.get("disks", volume)),
        vm=place("device.vm", keys["vm"]),
        caching=place("device.volume.caching", caching),
    )
    wish = reader.text(inner, volume, "device.volume.caching", "None")
    return Disk(
        disks=reader.text(inner, volume, "device.volume.disks", None),
        vm=vm,
        caching=parse_caching(wish, places.caching),
        places=places,
    )


def filesystem_of(reader: Reader, device: Located) -> Filesystem:
    """Return the file system of a trial's volume."""
    key = "device.volume.filesystem"
    inner, volume = volume_keys(reader, device)
    name = reader.text(inner, volume, key, "ext4")
    reader.choice(name, key, inner.get("filesystem", volume), FILESYSTEMS)
    return "xfs" if name == "xfs" else "ext4"


def cell_of(reader: Reader, workload: Located) -> Cell:
    """Return what fio does in a trial."""
    fio = reader.mapping(workload, "workload").get("fio")
    if fio is None:
        missing = Located("(missing)", workload.line)
        raise reader.problem("workload.fio", missing, "is needed", "add fio: {profile: sync, ...}")
    keys = reader.mapping(fio, "workload.fio")

    def chosen(name: str, allowed: tuple[str, ...], default: str | None) -> str:
        key = f"workload.fio.{name}"
        value = reader.text(keys, fio, key, default)
        return reader.choice(value, key, keys.get(name, fio), allowed)

    chosen("direct", ("true",), "true")  # anything else would measure the page cache
    block = reader.text(keys, fio, "workload.fio.bs", None)
    return Cell(
        profile=Profile(chosen("profile", tuple(p.value for p in Profile), None)),
        direction=Direction(chosen("rw", tuple(d.value for d in Direction), None)),
        block_bytes=parse_block(block, f"{reader.path}:{keys['bs'].line}: workload.fio.bs"),
    )


def duration_of(reader: Reader, workload: Located) -> float:
    """Return how long a trial measures."""
    keys = reader.mapping(workload, "workload")
    stop = keys.get("stop", Located({}, workload.line))
    inner = reader.mapping(stop, "workload.stop")
    text = reader.text(inner, stop, "workload.stop.duration", "60s")
    line = inner["duration"].line if "duration" in inner else stop.line
    return parse_duration(text, f"{reader.path}:{line}: workload.stop.duration")
