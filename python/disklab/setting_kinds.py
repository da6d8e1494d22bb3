"""A setting of a database: its type, its range, its units, and the rule that a value breaks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Setting = str | int | float | bool
"""A setting's value, as a file has it."""

LONGEST = 64
"""Letters of a value, at most: the longest word of any list has 51."""
SWITCHES = {
    True: ("on", "true", "yes", "1"),
    False: ("off", "false", "no", "0"),
}
"""**Source:** PostgreSQL's manual, 20.1.1; the others read true and false."""
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_AMOUNT = re.compile(r"([+-]?\d{1,20}(?:\.\d+)?) ?([A-Za-zµ]{1,4}(?:/s)?)?", re.ASCII)

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
        text = as_text(value)
        if len(text) > LONGEST:
            return f"a value has at most {LONGEST} letters"
        if self.type != "choice" and text in self.values:
            return None
        if self.type == "boolean":
            is_switch = _switch(text) is not None if of.switches else text in ("true", "false")
            return None if is_switch else "is true or false"
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
        version = parts_of(release)
        since = self.since is None or parts_of(self.since) <= version
        # `4` says less than `4.0`: what one release of it has may be set.
        until = self.until is None or version[: len(parts_of(self.until))] <= parts_of(self.until)
        return (since or parts_of(self.since or "")[: len(version)] == version) and until

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
        unit_names = ", ".join(unit for unit in units[self.type] if unit[0].isalpha())
        return f"a number with a unit ({unit_names})" + (
            f", or of {self.unit}" if self.unit else ""
        )

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


def as_text(value: Setting) -> str:
    """Return a value as a file of configuration has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _switch(text: str) -> bool | None:
    return next((on for on, words in SWITCHES.items() if text.lower() in words), None)


def parts_of(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, so that releases compare: 4.1.10 comes after 4.1."""
    return tuple(map(int, re.findall(r"\d{1,9}", release)))
