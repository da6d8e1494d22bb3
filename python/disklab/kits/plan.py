"""What the templates of a kit mean: the words of a cluster that is planned, node by node.

`{node.address}` is a word of the plan, `{memory.heap / 1048576}` a number. There is no more of a
language: no condition, no loop. A brace before anything but a name, as in `{ "a": 1 }` or
`cluster {`, is a brace.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import resources
from os.path import dirname
from pathlib import Path

from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError, refuse
from disklab.kits.schema import Kit
from disklab.setting_kinds import Setting, as_text

HARNESS = Path(str(resources.files("disklab") / "kits" / "harness.py"))
"""What load programs of kits share; it lies beside those of any kit."""
_NAME = r"[a-z_]+(?:\.[A-Za-z0-9_.-]+)?"
TEMPLATE = re.compile(rf"\{{(?P<name>{_NAME})(?: (?P<operator>[-+*/]) (?P<other>\d+|{_NAME}))?\}}")
_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")
Values = Mapping[str, str | int | float]
LOAD = ("threads", "seconds", "count", "rate", "seed", "fill", "ledger", "pace")
"""What a template of a load means beside: numbers of the trial, and the folder of what it notes."""


def names_in(text: str) -> Iterator[str]:
    """Yield the names that a template asks for."""
    for match in TEMPLATE.finditer(text):
        yield from (name for name in match.group("name", "other") if name and not name.isdigit())


def _unknown_in(text: str, known: Values, place: str) -> Iterator[Problem]:
    for name in names_in(text):
        if name not in known:
            way_out = did_you_mean(name, known, f"known here: {', '.join(sorted(known))}")
            yield Problem(place, f"{{{name}}}", "means nothing here", way_out)


def filled(text: str, values: Values, place: str) -> str:
    """Return a template with its names replaced. Raises UserError for one that means nothing."""
    refuse(_unknown_in(text, values, place))

    def word(match: re.Match[str]) -> str:
        value, other = values[match["name"]], match["other"]
        if other is None:
            return str(value)
        number = other if other.isdigit() else values[other]
        try:
            return str(_OPERATORS[match["operator"]](int(value), int(number)))
        except (ValueError, ZeroDivisionError):
            rule = f"{value} {match['operator']} {number} cannot be calculated"
            raise UserError(Problem(place, match[0], rule, "use whole numbers")) from None

    return TEMPLATE.sub(word, text)


@dataclass(frozen=True)
class Spot:
    """A node of the plan: its folders on the volumes of the kit, and that of its configuration."""

    name: str
    address: str
    volumes: Mapping[str, str]
    run: str
    programs: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """A cluster of a kit, with bytes of each part of memory and the experiment's settings."""

    kit: Kit
    spots: Sequence[Spot]
    memory: Mapping[str, int]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    copies: int = 1
    slow: int = 1
    """Seconds of this machine for each of the described system."""

    def values(self, number: int) -> dict[str, str | int | float]:
        """Return what a template means on a node, counted from 0."""
        every = [self._own(node) for node in range(len(self.spots))]
        lists = {
            f"list.{name}": lines.join.join(filled(lines.nodes, each, "lists") for each in every)
            for name, lines in self.kit.lists.items()
        }
        return every[number] | lists

    def _own(self, number: int) -> dict[str, str | int | float]:
        spot, kit = self.spots[number], self.kit
        groups: Mapping[str, Values] = {
            "node": {"name": spot.name, "number": number + 1, "address": spot.address},
            "port": kit.ports,
            "volume": spot.volumes,
            "memory": self.memory,
            "program": spot.programs,
            "folder": {name: dirname(path) for name, path in spot.programs.items()},
            "file": {file.name: f"{spot.run}/{file.name}" for file in kit.files},
            "setting": {name: self._setting(name) for name in kit.settings},
        }
        values: dict[str, str | int | float] = {"nodes": len(self.spots), "copies": self.copies}
        values |= {"run": spot.run, "harness": f"{spot.run}/{HARNESS.name}"}
        for group, own in groups.items():
            values |= {f"{group}.{name}": value for name, value in own.items()}
        return values

    def _setting(self, name: str) -> str:
        kind, value = self.kit.settings[name], self.chosen(name)
        slow = slowed(value, self.slow) if kind.period else value
        # A number that stands for never is the largest already.
        return str(min(int(slow), int(kind.most))) if slow.isdigit() and kind.most else slow

    def chosen(self, name: str) -> str:
        """Return a setting: the experiment's value or the default."""
        return as_text(self.settings.get(name, self.kit.settings[name].default))

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
    return f"{number if number.denominator == 1 else format(float(number), 'g')}{amount[2]}"


def unknown_names(kit: Kit, file: str = "") -> Iterator[Problem]:
    """Yield the templates of a kit that mean nothing, each with its place in a file."""
    programs = {program.name: "/p" for program in kit.programs}
    spot = Spot("n1", "127.0.0.1", dict.fromkeys(kit.volumes, "/v"), "/r", programs)
    plan = Plan(kit, [spot], dict.fromkeys([*kit.memory, "node"], 1))
    values = plan._own(0) | {f"list.{name}": "" for name in kit.lists}
    for place, text in texts_of(kit):
        top, _, rest = place.partition(".")
        own = kit.loads[rest.partition(".")[0]].parameters if top == "loads" else ()
        of_load = dict.fromkeys((*LOAD, *own), "") if top in ("loads", "fill", "check") else {}
        yield from _unknown_in(text, values | of_load, file + place)
        if place.endswith(".port") and text not in kit.ports:
            yield Problem(file + place, text, "the kit has no such port", f"add {text} to ports")


def texts_of(kit: Kit) -> Iterator[tuple[str, str]]:
    """Yield every text of a kit that may be a template, with its place."""
    yield from _texts(kit.model_dump(exclude={"settings", "title", "programs"}), "")


def _texts(part: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(part, str):
        yield place, part
    pairs = dict(enumerate(part)) if isinstance(part, tuple) else part
    for key, value in pairs.items() if isinstance(pairs, Mapping) else ():
        yield from _texts(value, f"{place}.{key}".lstrip("."))
