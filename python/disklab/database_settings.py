"""Which settings an experiment may give a database: `databases/X/settings.yaml`, and the check.

A server believes its settings: some of them name commands that it runs, libraries that it loads or
files that it writes. So what is not in the list, with a type and a range, is refused, by the reader
of a file, by root's part and by whoever writes a server's configuration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache, cached_property
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from disklab.catalog.suggest import did_you_mean, suggestions
from disklab.database_facts import facts_of
from disklab.errors import Problem
from disklab.kits import is_kit, kit_of
from disklab.reading import PART, yaml_value

Setting = str | int | float | bool
"""A setting's value, as a file has it."""

LONGEST = 64
"""Letters of a value, at most: the longest word of any list has 51."""
MOST_SHOWN = 80
SWITCHES = {
    True: ("on", "true", "yes", "1"),
    False: ("off", "false", "no", "0"),
}
"""**Source:** PostgreSQL's manual, 20.1.1; the others read true and false."""
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_AMOUNT = re.compile(r"([+-]?\d{1,20}(?:\.\d+)?) ?([A-Za-zµ]{1,4}(?:/s)?)?", re.ASCII)
_LINE = re.compile(r"\d+(\.\d+)*", re.ASCII)

Units = Mapping[str, Mapping[str, int]]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


_BINARY = re.compile(r"(\d{1,20}(?:\.\d{1,20})?) ?([KMGT])iB", re.ASCII)


def spelled(value: Setting, units: Units) -> Setting:
    """Return an amount as a database writes it: the 1.5GiB of experiment files is MySQL's 1536M."""
    amount = _BINARY.fullmatch(value) if isinstance(value, str) else None
    sizes = units.get("bytes", {})
    if amount is None or f"{amount[2]}iB" in sizes:
        return value
    size = Fraction(amount[1]) * (1 << 10 * (1 + "KMGT".index(amount[2])))
    own = [unit for unit, each in sizes.items() if unit[0].isalpha() and size % each == 0]
    unit = max(own, key=sizes.__getitem__, default=None)
    return value if unit is None else f"{size / sizes[unit]}{unit}"


class SettingKind(_Part):
    """What values a setting takes."""

    type: Literal["boolean", "integer", "number", "choice", "bytes", "rate", "time"]
    """bytes, rate and time are numbers with a unit of the database's."""
    unit: str | None = None
    """What a number without a unit means; None: it has to have one."""
    least: float | int | None = Field(default=None, alias="from")
    """The smallest value, in `unit`."""
    most: float | int | None = Field(default=None, alias="to")
    """The largest."""
    values: tuple[str, ...] = ()
    """Of a choice; of another type, words beside its numbers."""
    since: str | None = None
    """The first release that has it; None: all that disklab knows."""
    until: str | None = None
    """The last one that has it."""

    def rule_broken(self, value: Setting, of: DatabaseSettings) -> str | None:
        """Return the rule that a value breaks; None: it keeps them all."""
        text = _text(value)
        if len(text) > LONGEST:
            return f"a value has at most {LONGEST} letters"
        if self.type != "choice" and text in self.values:
            return None
        if self.type == "boolean":
            known = _switch(text) is not None if of.switches else text in ("true", "false")
            return None if known else "is true or false"
        if self.type == "choice":
            return None if self._chosen(text) else f"is one of {', '.join(self.values)}"
        number = None if isinstance(value, bool) else self._number(text, of)
        return f"is {self._wanted(of.units)}" if number is None else self._outside(number)

    def _outside(self, number: float) -> str | None:
        if self.least is not None and number < self.least:
            return f"is at least {self._shown(self.least)}"
        if self.most is not None and number > self.most:
            return f"is at most {self._shown(self.most)}"
        return None

    def has(self, release: str) -> bool:
        """Return whether a release, such as 4.1.10 or 15, has the setting."""
        version = _parts(release)
        since = self.since is None or _parts(self.since) <= version
        # `4` says less than `4.0`: what one release of it has may be set.
        until = self.until is None or version[: len(_parts(self.until))] <= _parts(self.until)
        return (since or _parts(self.since or "")[: len(version)] == version) and until

    def _chosen(self, text: str) -> bool:
        if text in self.values:
            return True
        switch = _switch(text)
        return switch is not None and not set(SWITCHES[switch]).isdisjoint(self.values)

    def _number(self, text: str, of: DatabaseSettings) -> float | int | None:
        if self.type == "integer":
            return int(text) if _WHOLE.fullmatch(text) else None
        if self.type == "number":
            number = float(text) if _NUMBER.fullmatch(text) else math.nan
            return number if math.isfinite(number) else None
        amount, sizes = _AMOUNT.fullmatch(str(spelled(text, of.units))), of.units[self.type]
        if amount is None or (amount[2] or self.unit) not in sizes:
            return None
        whole = "." not in amount[1]
        if not whole and not of.decimals:
            return None
        number = int(amount[1]) if whole else float(amount[1])
        own = sizes[self.unit] if self.unit else 1
        return number if amount[2] is None else number * sizes[amount[2]] / own

    def _wanted(self, units: Units) -> str:
        if self.type in ("integer", "number"):
            return "a whole number" if self.type == "integer" else "a number"
        # A unit that begins with a digit, such as PostgreSQL's page, is nobody's to write.
        known = ", ".join(unit for unit in units[self.type] if unit[0].isalpha())
        return f"a number with a unit ({known})" + (f", or of {self.unit}" if self.unit else "")

    def _shown(self, bound: float) -> str:
        return f"{bound:.15g}" + (f" times {self.unit}" if self.unit else "")


class DatabaseSettings(_Part):
    """The settings of one database."""

    switches: bool = False
    """Whether it reads on, yes and 1 as true, and their like."""
    decimals: bool = True
    """Whether a number with a unit may have decimals."""
    units: Units = Field(default={})
    """Of bytes, rates and times: the unit as it is written, and how many of the smallest it is."""
    settings: Mapping[str, SettingKind]
    """Those that an experiment may have."""
    ours: Mapping[str, tuple[str, ...]] = Field(default={})
    """Those that disklab sets itself, by the reason."""
    never: Mapping[str, tuple[str, ...]] = Field(default={})
    """Those that no experiment sets, by the reason."""

    @cached_property
    def reasons(self) -> Mapping[str, str]:
        """Why disklab sets a setting itself, by name."""
        return {name: reason for reason, names in self.ours.items() for name in names}

    @cached_property
    def dangers(self) -> Mapping[str, str]:
        """Why no experiment sets a setting, by name."""
        return {name: reason for reason, names in self.never.items() for name in names}


@cache
def settings_of(engine: str) -> DatabaseSettings:
    """Return the settings of a database of the registry, or of a kit."""
    if is_kit(engine):
        kit = kit_of(engine).kit
        kinds = {name: setting.kind() for name, setting in kit.settings.items()}
        return DatabaseSettings.model_validate({"units": kit.units, "settings": kinds})
    file = resources.files("disklab") / "databases" / engine / "settings.yaml"
    content = yaml_value(file.read_text(encoding="utf-8"), PART, str(file), ours=True)
    return DatabaseSettings.model_validate(content)


def setting_problem(
    engine: str, name: str, value: Setting, place: str, release: str | None = None
) -> Problem | None:
    """Return what is wrong with a setting, of a release where one is named; None: nothing."""
    listed, title = settings_of(engine), facts_of(engine).title
    kind = listed.settings.get(name)
    shown = _shortened(repr(value))
    if kind is None:
        return _refused(engine, name, shown, place)
    numbers = _LINE.match(release or "")
    if numbers is not None and not kind.has(numbers[0]):
        rule = f"{title} {numbers[0]} has no such setting: releases {_range(kind)} have it"
        others = {other for other, each in listed.settings.items() if each.has(numbers[0])}
        return Problem(place, shown, rule, _nearest(name, others, engine))
    broken = kind.rule_broken(value, listed)
    if broken is None:
        return None
    otherwise = f"write it as {title} does"
    way_out = did_you_mean(_text(value), kind.values, otherwise) if kind.values else otherwise
    return Problem(place, shown, broken, way_out)


def _refused(engine: str, name: str, shown: str, place: str) -> Problem:
    """Return why a name is not in the list."""
    listed, title = settings_of(engine), facts_of(engine).title
    if name in listed.reasons:
        rule = f"disklab sets this itself: {listed.reasons[name]}"
        return Problem(place, shown, rule, "leave it out")
    if name in listed.dangers:
        rule = f"no experiment may set this of {title}: {listed.dangers[name]}"
        return Problem(place, shown, rule, "leave it out")
    rule = f"is no setting of {title} that an experiment may have"
    return Problem(place, _shortened(name), rule, _nearest(name, listed.settings, engine))


def setting_problems(
    engine: str, settings: Mapping[str, Setting], release: str | None = None
) -> list[Problem]:
    """Return what is wrong with settings, for whoever is about to write them down."""
    found = (
        setting_problem(engine, name, value, f"database.settings.{name}", release)
        for name, value in settings.items()
    )
    return [problem for problem in found if problem is not None]


def _nearest(name: str, known: Iterable[str], engine: str) -> str:
    if not suggestions(name, known):
        page = "docs/kits.md" if is_kit(engine) else "docs/databases.md"
        return f"{page} says which {facts_of(engine).title} takes"
    return did_you_mean(name, known, "")


def _range(kind: SettingKind) -> str:
    since = [] if kind.since is None else [f"from {kind.since}"]
    return " ".join([*since, *([] if kind.until is None else [f"up to {kind.until}"])])


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _switch(text: str) -> bool | None:
    return next((on for on, words in SWITCHES.items() if text.lower() in words), None)


def _parts(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."
