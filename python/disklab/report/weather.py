"""A year of disk weather, told: one sentence a cell, its table, and a strip of 365 days."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from disklab.report.axes import Figures, Panel, Section, rows
from disklab.report.cells import Cell, Matrix
from disklab.report.charts_by_factor import series_of
from disklab.report.subject import Subject
from disklab.report.wording import in_a_row
from disklab.results.required import percent_of_time
from disklab.results.weather import WeatherYear

HEADS = (
    "cell",
    "promise",
    "kept",
    "missed, min a month",
    "zones share nothing",
    "zones share all",
    "a row not served, min a month",
    "failed operations a year",
    "data lost in a year",
    "costs most",
)
DAY_HEIGHT = 22


def years_of(matrix: Matrix) -> Iterator[tuple[str, Cell, WeatherYear]]:
    """Yield each cell that has a year, with its name."""
    for cell in matrix.cells.values():
        year = next((result.year for result in cell.usable if result.year is not None), None)
        if year is not None:
            yield matrix.phrase(cell.factors), cell, year


def sentence(year: WeatherYear) -> tuple[str, str]:
    """Return how much of a year keeps the promise, and why not all of it."""
    said = year.promise if year.stated else f"{year.promise} (twice that of a quiet hour)"
    kept = f"{percent_of_time(year.kept_ratio)} of a year's minutes keep {said}"
    return f"{kept}: {year.above} min a month do not", "; ".join(_why(year))


def _why(year: WeatherYear) -> Iterator[str]:
    worst = year.worst
    if worst is not None:
        yield f"{worst.what} costs most: {worst.minutes_per_month:.3g} min a month, {worst.reason}"
    alone, together = year.above_alone.mean, year.above_together.mean
    ends = f"{alone:.3g} if volumes of a zone share nothing, {together:.3g} if they share all of it"
    if year.asked_ratio is not None:
        ends += f", which {'decides' if year.turns_with_zones else 'decides nothing'} here"
    yield ends
    turning = [turn.number for turn in year.turns if turn.turns]
    if turning:
        yield f"what else could change the answer: {in_a_row(turning)}"
    yield f"odds of {year.disk}: `disklab catalog` and docs/weather.md have their sources"


DAYS_A_SIGN = 5
SIGNS = " ▁▂▃▄▅▆▇█"


def strip_in_text(year: WeatherYear) -> str:
    """Return the strip of 365 days as text: a sign for five days, the worst the fullest."""
    days = range(0, len(year.strip), DAYS_A_SIGN)
    sums = [sum(year.strip[day : day + DAYS_A_SIGN]) for day in days]
    most = max(sums) or 1
    return "".join(SIGNS[-(-count * (len(SIGNS) - 1) // most)] for count in sums)


def row_of(year: WeatherYear) -> list[str]:
    """Return a cell's row of the table, without its name."""
    worst = year.worst
    return [
        year.promise,
        percent_of_time(year.kept_ratio),
        str(year.above),
        f"{year.above_alone.mean:.3g}",
        f"{year.above_together.mean:.3g}",
        f"{year.unserved_min_per_month:.2g}",
        f"{year.failed_per_year:,.0f}",
        f"{year.loss_probability:.2g}",
        "nothing" if worst is None else worst.what,
    ]


def sentences(matrix: Matrix) -> list[tuple[str, str]]:
    """Return what a year costs each cell, and what would buy minutes back."""
    found = []
    for name, _, year in years_of(matrix):
        head = f"{name}: " if name else ""
        said, why = sentence(year)
        found.append((f"{head}{said}", why))
        found += [(f"{head}{text}", "") for text in bought_back(year)]
    return found


def bought_back(year: WeatherYear) -> Iterator[str]:
    """Yield what each change of the system would spare, the most first."""
    for back in sorted(year.back, key=lambda back: -back.saved_min):
        usd = back.usd_per_month
        cost = (
            ""
            if usd is None
            else f" for {abs(usd):,.0f} USD a month {'more' if usd >= 0 else 'less'}"
        )
        verb = "spares" if back.saved_min >= 0 else "adds"
        yield f"{back.change} {verb} {abs(back.saved_min):.3g} min a month{cost}"


def weather_section(subject: Subject) -> Section | None:
    """Return the strip of each cell's first year, with the table of all; None: no cell has one."""
    years = list(years_of(subject.matrix))
    if not years:
        return None
    days: list[dict[str, Any]] = []
    lines = []
    for name, _, year in years:
        label = name or "the cell"
        days += [{"s": label, "d": day + 1, "m": missed} for day, missed in enumerate(year.strip)]
        lines.append([label, *row_of(year)])
    worst = max(day["m"] for day in days)
    chart = (
        alt.Chart(alt.InlineData(values=days))
        .mark_rect()
        .encode(
            x=alt.X(
                "d:O",
                title="day of the first drawn year",
                axis=alt.Axis(values=[1, 91, 182, 274, 365]),
            ),
            y=alt.Y("s:N", title=None, sort=[line[0] for line in lines]),
            color=alt.Color(
                "m:Q",
                title="minutes",
                scale=alt.Scale(scheme="yelloworangered", domain=[0, max(worst, 1)]),
            ),
            tooltip=[alt.Tooltip("s:N"), alt.Tooltip("d:O"), alt.Tooltip("m:Q")],
        )
    )
    panel = Panel(
        title="Minutes of each day that miss the promise",
        described="365 days a cell; "
        + "; ".join(f"{line[0]}: {line[3]} min a month" for line in lines),
        chart=chart,
        height=DAY_HEIGHT * len(lines),
        figures=Figures(HEADS, rows(lines)),
        key=tuple(series_of(subject.matrix)),
        columns={"s": "cell", "d": "day", "m": "minutes"},
    )
    lead = (
        "A year of disk weather, drawn at random: each kind was simulated, and its minutes have "
        "the p99 of that simulation. Nobody publishes what zones share, so the table has both "
        "extremes. "
        "Odds, sources and assumptions: docs/weather.md."
    )
    return Section("weather", "A year of disk weather", lead, (panel,), shown=1)
