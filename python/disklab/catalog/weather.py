"""Disk weather: how often a kind of disk and its VM are slow, stall or fail, with sources.

A disk has the numbers of its family, else of its vendor, else of any. Disks of the VM (`local`)
have their own. A user's file replaces single numbers: `weather: {aws/gp3: {slow_ratio: 0.002}}`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as checked

from disklab.catalog.facts import Facts, Sources
from disklab.catalog.quantity import parse_disks

if TYPE_CHECKING:
    from disklab.catalog.load import Catalog

WeatherStatus = Literal["promise", "observation", "derived", "assumed", "own"]
"""A vendor's aim or SLA; seen and published; derived from a source's figures; published by nobody;
the user's own."""

ANY, LOCAL = "any", "local"


class Odds(Facts):
    """One number of the weather."""

    value: float = Field(ge=0)
    low: float | None = Field(default=None, ge=0)
    high: float | None = Field(default=None, ge=0)
    """Between which it lies, where that is known or assumed."""
    status: WeatherStatus = "own"
    source: Sources = Field(default=[])
    """Keys of `sources`; a user's own number needs none."""
    note: str | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Odds:
        if not self.ends[0] <= self.value <= self.ends[1]:
            raise ValueError("low, value and high must grow")
        if self.status != "own" and not self.source:
            raise ValueError("a number that is not your own (status: own) must name its source")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """Between which it lies; the number itself twice where no more is known."""
        return (
            self.value if self.low is None else self.low,
            self.value if self.high is None else self.high,
        )


def _own(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"value": value} if is_number else value


Number = Annotated[Odds | None, BeforeValidator(_own)]

MOST_PER_YEAR = 10_000.0
"""More than one an hour is no event but how a disk is."""
LONGEST_RATIO = 0.5
"""Of the time: a disk that is slow for longer has a wrong promise."""


def _number(words: str, form: str, most: float = math.inf) -> Any:
    """Return a number that may be absent. `form`: how its value is written; `most`: what it can be.

    What is a number a year, or written in percent, has its bound by that.
    """
    most = min(most, 1.0 if "%" in form else math.inf)
    most = min(most, MOST_PER_YEAR if form.endswith("a year") else math.inf)
    return Field(default=None, description=words, json_schema_extra={"form": form, "most": most})


class WeatherFacts(Facts):
    """The weather of a disk and its VM; absent numbers are those of the vendor, or of any."""

    slow_ratio: Number = _number("slower than promised", "{:.3%} of the time", LONGEST_RATIO)
    slow_min: Number = _number("a slow event lasts", "{:g} min on average")
    level_least: Number = _number("a slow event delivers from", "{:.0%} of the IOPS")
    level_most: Number = _number("a slow event delivers up to", "{:.0%} of the IOPS")
    blocked_level: Number = _number("in effect blocked below", "{:.0%} of the IOPS")
    blocked_ms: Number = _number("an I/O takes while blocked", "{:g} ms")
    stalls_per_year: Number = _number("stalls", "{:g} a year")
    stall_s: Number = _number("a stall lasts", "{:g} s in the median")
    long_stall_ratio: Number = _number("long stalls", "{:.0%} of the stalls")
    long_stall_min: Number = _number("a long stall lasts", "{:g} min")
    shared_ratio: Number = _number("slow time shared in a zone", "{:.0%}")
    shared_volumes_ratio: Number = _number("volumes of a zone that share it", "{:.0%}")
    zone_events_per_year: Number = _number("large events of a zone", "{:g} a year")
    zone_event_hours: Number = _number("a large event lasts", "{:g} h")
    zone_volumes_ratio: Number = _number("volumes that a large event hits", "{:.0%}")
    disk_lost_per_year: Number = _number("disks lost with their data", "{:.3g} a year")
    vm_lost_per_year: Number = _number("VMs lost", "{:g} a year")
    vm_restarts_per_year: Number = _number("restarts of a VM", "{:g} a year")
    replaced_after_min: Number = _number("a lost VM is replaced after", "{:g} min")
    restarted_after_s: Number = _number("a VM restarts in", "{:g} s")
    pauses_per_year: Number = _number("freezes of a VM", "{:g} a year")
    pause_s: Number = _number("a freeze lasts", "{:g} s")
    slow_after_pause_min: Number = _number("slow disks around a freeze", "{:g} min")

    @model_validator(mode="after")
    def _possible(self) -> WeatherFacts:
        for name, odds in self.given().items():
            _, _, most = in_words(name)
            if odds.ends[1] > most:
                raise ValueError(f"{name} is at most {most:g}")
        return self

    def given(self) -> dict[str, Odds]:
        """Return the numbers that stand here."""
        return {name: odds for name, odds in self if odds is not None}


def in_words(name: str) -> tuple[str, str, float]:
    """Return a number in words, how its value is written, and what it is at most."""
    number = WeatherFacts.model_fields[name]
    assert isinstance(number.json_schema_extra, dict)
    form, most = number.json_schema_extra["form"], number.json_schema_extra["most"]
    return number.description or name, str(form), float(str(most))


class Weather(dict[str, float]):
    """The numbers of one disk and its VM, by name, each with its odds."""

    def __init__(self, name: str, odds: Mapping[str, Odds]) -> None:
        """Name a disk's family, or `local`, with all of its numbers."""
        super().__init__({number: each.value for number, each in odds.items()})
        self.name, self.odds = name, dict(odds)

    def with_value(self, **values: float) -> Weather:
        """Return it with other numbers."""
        changed = {
            name: self.odds[name].model_copy(update={"value": value, "low": None, "high": None})
            for name, value in values.items()
        }
        return Weather(self.name, {**self.odds, **changed})


def weather_of_disks(catalog: Catalog, disks: str, vendor: str = "") -> Weather:
    """Return the weather of a disk expression. `vendor`: whose VM has the VM's own disks."""
    name = parse_disks(disks).name
    entry = catalog.disks.get(name)
    family = name if entry is None else entry.family_name
    facts = catalog.families.get(family)
    if facts is None or facts.medium == "nvme":
        return weather_of(catalog, LOCAL, vendor or name.partition("/")[0])
    return weather_of(catalog, family, family.partition("/")[0])


def weather_of(catalog: Catalog, family: str, vendor: str) -> Weather:
    """Return the weather of a family of disks, or of `local` ones, on a vendor's VMs."""
    keys = (ANY, vendor, family)
    odds: dict[str, Odds] = {}
    for key in keys:
        facts = catalog.weather.get(key)
        odds |= facts.given() if facts is not None else {}
    return Weather(family, odds)


def weather_facts(catalog: Catalog, numbers: Mapping[str, Odds]) -> Iterator[dict[str, Any]]:
    """Yield numbers as facts of a disk, in the order of their words."""
    for name in [name for name in WeatherFacts.model_fields if name in numbers]:
        odds, (words, form, _) = numbers[name], in_words(name)
        text = form.format(odds.value)
        if odds.low is not None or odds.high is not None:
            low, high = (form.split(" ")[0].format(end) for end in odds.ends)
            text += f" ({low} to {high})"
        first = catalog.sources[odds.source[0]] if odds.source else None
        yield {
            "fact": words,
            "value": text,
            "status": odds.status,
            "date": first.date if first is not None else None,
            "source": odds.source,
            "note": odds.note,
        }


LEAST_YEAR_S, MOST_YEAR_S = 20.0, 24 * 3600.0
"""A compressed year has each kind of weather, each for some seconds."""
Moment = Annotated[float, Field(ge=0, le=MOST_YEAR_S)]


@checked(config=ConfigDict(extra="forbid", frozen=True))
class Spell:
    """Bad weather of a compressed year."""

    at_s: Moment
    lasts_s: Moment
    times: Annotated[float, Field(ge=1, le=1000)] | None
    """How many times as long I/Os take; None: nothing is served."""
    shared: bool = False
    """Whether all volumes of a zone have it."""


SPELL_S = 40.0
"""From one spell to the next, where there is time for more than one of each kind."""
MOST_SPELLS = 40


HALF = 0.5
"""Of the provisioned IOPS: what is slow, and what only slightly."""
LEAST_LEVEL = 0.001


def level_spans(weather: Weather) -> list[tuple[float, float]]:
    """Return the levels of slow events: of blocked volumes, of slow and of slightly slow ones.

    What the weather's own ends leave of them, or these ends where they are one.
    """
    least, most = weather["level_least"], weather["level_most"]
    cuts = [
        min(max(cut, least), most) for cut in (0.0, min(weather["blocked_level"], HALF), HALF, 1.0)
    ]
    return [(low, high) for low, high in pairwise(cuts) if high > low] or [(least, most)]


def compressed_year(weather: Weather, year_s: float, seed: int) -> list[Spell]:
    """Return the bad weather of a year in so many seconds: each kind at least once.

    Depths follow the weather's odds and the seed; between two spells all is well. How often and how
    long is not the year's: its minutes would be milliseconds.
    """
    stream = random.Random(seed)  # noqa: S311 - chance that anybody can draw again
    depths = level_spans(weather)
    kinds = [(depth, False) for depth in depths] + [(None, False), (depths[-1], True)]
    count = min(max(len(kinds), round(year_s / SPELL_S)), MOST_SPELLS)
    kinds += stream.choices(
        kinds[:-2], [high - low or 1 for low, high in depths], k=count - len(kinds)
    )
    stream.shuffle(kinds)
    slot_s = year_s / count
    spells = []
    for number, (depth, shared) in enumerate(kinds):
        lasts_s = slot_s * stream.uniform(0.2, 0.6)
        at_s = slot_s * number + (slot_s - lasts_s) * stream.uniform(0.2, 0.8)
        times = None if depth is None else round(1 / max(stream.uniform(*depth), LEAST_LEVEL), 2)
        spells.append(Spell(round(at_s, 1), round(lasts_s, 1), times, shared))
    return spells
