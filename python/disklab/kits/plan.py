"""What the templates of a kit mean: the words of a cluster that is planned, node by node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import resources
from os.path import dirname
from pathlib import Path

from disklab.errors import Problem
from disklab.kits.schema import Kit, KitSetting, Lines, Load, Part
from disklab.kits.words import Values, filled, unknown_in

HARNESS = Path(str(resources.files("disklab") / "kits" / "harness.py"))
"""What load programs of kits share; it lies beside those of any kit."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")


@dataclass(frozen=True)
class Spot:
    """A node of the plan."""

    name: str
    address: str
    volumes: Mapping[str, str]
    """Folders of the node's own on its volumes, by every volume that the kit has."""
    run: str
    """The folder of its configuration."""
    programs: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """A cluster of a kit."""

    kit: Kit
    spots: Sequence[Spot]
    memory: Mapping[str, int]
    """Bytes of each part, and of the whole `node`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the experiment; the others have the kit's default."""
    copies: int = 1
    slow: int = 1
    """Seconds of this machine for each of the described system."""

    def values(self, number: int) -> dict[str, str | int | float]:
        """Return what a template means on a node, counted from 0."""
        values = self._own(number)
        for name, lines in self.kit.lists.items():
            values[f"list.{name}"] = self._joined(lines, values)
        return values

    def _own(self, number: int) -> dict[str, str | int | float]:
        spot, kit = self.spots[number], self.kit
        return {
            "nodes": len(self.spots),
            "copies": self.copies,
            "run": spot.run,
            "harness": f"{spot.run}/{HARNESS.name}",
            "node.name": spot.name,
            "node.number": number + 1,
            "node.address": spot.address,
            **{f"port.{name}": port for name, port in kit.ports.items()},
            **{f"volume.{name}": folder for name, folder in spot.volumes.items()},
            **{f"memory.{name}": size for name, size in self.memory.items()},
            **{f"program.{name}": path for name, path in spot.programs.items()},
            **{f"folder.{name}": dirname(path) for name, path in spot.programs.items()},
            **{f"file.{each.name}": f"{spot.run}/{each.name}" for each in kit.files},
            **{f"setting.{name}": self.setting(name) for name in kit.settings},
        }

    def setting(self, name: str) -> str:
        """Return a setting as it is written: the experiment's value or the default, slowed."""
        kind = self.kit.settings[name]
        value = self.settings.get(name, kind.default)
        if not kind.period:
            return value
        slow = slowed(value, self.slow)
        # A number that stands for never is the largest already.
        largest = kind.type == "integer" and kind.most is not None and int(slow) > kind.most
        return str(kind.most) if largest else slow

    def _joined(self, lines: Lines, values: Values) -> str:
        if lines.nodes is not None:
            each = [
                filled(lines.nodes, self._own(number), "lists") for number in range(len(self.spots))
            ]
        else:
            each = [
                filled(
                    lines.settings or "",
                    {**values, "name": name, "value": self.setting(name)},
                    "lists",
                )
                for name in self.settings
            ]
        return lines.join.join(each)

    def text(self, number: int, name: str) -> str:
        """Return a file of configuration of a node."""
        file = next(file for file in self.kit.files if file.name == name)
        more = file.several if len(self.spots) > 1 else file.one
        return filled(file.text + more, self.values(number), f"files.{name}")


def slowed(value: str, slow: int) -> str:
    """Return a time so many times longer; a word, such as always, stays as it is."""
    amount = _AMOUNT.fullmatch(value)
    if amount is None or slow == 1:
        return value
    number = Fraction(amount[1]) * slow
    whole = number.denominator == 1
    return f"{number if whole else float(number):{'' if whole else 'g'}}{amount[2]}"


LOAD = ("threads", "seconds", "count", "rate", "seed", "fill", "ledger")
"""What a template of a load means beside: numbers of the trial, and the folder of what it notes."""


def unknown_names(kit: Kit) -> list[Problem]:
    """Return the templates of a kit that mean nothing, each with its place."""
    spot = Spot(
        "n1",
        "127.0.0.1",
        dict.fromkeys(kit.volumes, "/v"),
        "/r",
        {program.name: "/p" for program in kit.programs},
    )
    memory = dict.fromkeys([*kit.memory, "node"], 1)
    values = {
        **Plan(kit, [spot, spot], memory)._own(0),
        **{f"list.{name}": "" for name in kit.lists},
    }
    problems: list[Problem] = []
    for place, text in texts_of(kit):
        known: dict[str, str | int | float] = dict(values)
        top, _, rest = place.partition(".")
        if top == "loads":
            load: Load = kit.loads[rest.partition(".")[0]]
            known |= dict.fromkeys((*LOAD, *load.parameters), "")
            known |= {"pace": ""}
        elif top in ("fill", "check"):
            known |= dict.fromkeys(LOAD, "")
        elif top == "lists":
            known |= {"name": "", "value": ""}
        problems += unknown_in(text, known, place)
    named = set(kit.ports_used()) - set(kit.ports)
    problems += [
        Problem("ports", port, "a part of the kit names this port", f"add {port} to ports")
        for port in sorted(named)
    ]
    return problems


_TEXTS = (
    "run",
    "at_rate",
    "unlimited",
    "environment",
    "text",
    "one",
    "several",
    "http",
    "command",
    "body",
    "fill",
    "nodes",
    "settings",
)


def texts_of(part: object, place: str = "", name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every template of a kit with its place."""
    if isinstance(part, Part):
        for field_name in type(part).model_fields:
            value = getattr(part, field_name)
            at = f"{place}.{field_name}".lstrip(".")
            if isinstance(part, Kit) and field_name == "settings":
                continue
            yield from texts_of(value, at, field_name)
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from texts_of(value, f"{place}.{key}", name)
    elif isinstance(part, tuple):
        for number, value in enumerate(part):
            yield from texts_of(value, f"{place}.{number}", name)
    elif isinstance(part, str) and name in _TEXTS:
        yield place, part


__all__ = ["LOAD", "KitSetting", "Plan", "Spot", "slowed", "unknown_names"]
