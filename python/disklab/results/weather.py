"""What a drawn year of disk weather did to a predicted cell, as a run stores it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from disklab.results.figures import Amount, Count, Number, Record

DAYS, MONTHS = 365, 12
MINUTES_PER_MONTH = DAYS * 24 * 60 / MONTHS


class Minutes(Record):
    """Minutes a month above the promise, over drawn years."""

    mean: Amount
    low: Amount
    """The mean of the best tenth of the years,"""
    high: Amount
    """and of the worst: what is rare and long makes few years far worse than most."""

    @property
    def kept_ratio(self) -> float:
        """The share of all minutes that keep the promise."""
        return 1 - self.mean / MINUTES_PER_MONTH


class WeatherKind(Record):
    """One kind of weather, and what it does to the cell."""

    what: str
    """In words: `one slow volume, in effect blocked`."""
    minutes_per_month: Amount
    """How often it occurs."""
    above: bool
    """Whether its minutes miss the promise."""
    p99_ms: Amount | None = None
    """Of all operations in the meantime; None: it is not simulated, and counts as missed."""
    ops_per_s: Amount | None = None
    failed_per_s: Amount | None = None
    reason: str = ""
    """Why it misses the promise, or why it is not simulated."""


class BoughtBack(Record):
    """What one change of the system would spare."""

    change: str
    """`one more copy`, `another zone`, `io2`, `twice the IOPS`."""
    minutes_per_month: Amount
    """Above the promise, then."""
    saved_min: Number
    usd_per_month: Number | None = None
    """What it costs in addition."""


class Turn(Record):
    """A number of the weather that decides whether the promise is kept."""

    number: str
    low: Number
    """The share of minutes that keep the promise at the low end of the number,"""
    high: Number
    """and at the high end."""
    turns: bool
    """Whether one end keeps what is required and the other does not."""


class WeatherYear(Record):
    """What a year of disk weather costs a cell."""

    disk: str
    """Whose weather: a family of disks, or `local`."""
    promise: str
    """In words: `p99 at most 10 ms`."""
    asked_ratio: Annotated[Number, Field(gt=0, le=1)] | None = None
    """The share of minutes that the experiment requires; None: it requires none."""
    stated: bool
    """Whether the experiment states it; else it is twice the p99 of a quiet hour."""
    quiet_p99_ms: Amount
    above: Minutes
    """With the share of zones that is assumed."""
    above_alone: Minutes
    """Where volumes of a zone share nothing,"""
    above_together: Minutes
    """and where they share all slow time."""
    kept_ratio: Annotated[Number, Field(ge=0, le=1)]
    """Share of all minutes that keep the promise."""
    unserved_min_per_month: Number
    """In which some row cannot be served at its level, from nodes that are away: closed form."""
    failed_per_year: Number
    """Operations that fail."""
    loss_probability: Annotated[Number, Field(ge=0, le=1)]
    """The probability that within a year some row loses all its copies."""
    kinds: list[WeatherKind]
    """The most expensive kind first; the quiet hour last."""
    strip: list[Count] = Field(min_length=DAYS, max_length=DAYS)
    """Minutes that miss the requirement, for each day of the first drawn year."""
    back: list[BoughtBack] = Field(default_factory=list)
    turns: list[Turn] = Field(default_factory=list)
    years: Count
    """Drawn for each share of zones."""
    seed: Count

    @property
    def kept_ends(self) -> tuple[float, float]:
        """The least and the largest share of minutes that keep the promise, by what zones share."""
        years = (self.above, self.above_alone, self.above_together)
        ratios = [minutes.kept_ratio for minutes in years]
        return min(ratios), max(ratios)

    @property
    def turns_with_zones(self) -> bool:
        """Whether what is asked is kept at one end of what zones share, and not at both."""
        low, high = self.kept_ends
        return self.asked_ratio is not None and low < self.asked_ratio <= high

    @property
    def worst(self) -> WeatherKind | None:
        """The weather that costs most; None: none misses the promise."""
        return next((kind for kind in self.kinds if kind.above and kind.minutes_per_month), None)
