"""A year of disk weather, told: one sentence a cell, its table, and a strip of 365 days."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from disklab.report.axes import Figures, Panel, Section, rows
from disklab.report.cells import Cell, Matrix
from disklab.report.charts_by_factor import series_of
from disklab.report.subject import Subject
from disklab.report.wording import in_a_row, significant
from disklab.results.required import percent_of_time
from disklab.results.weather import Minutes, WeatherYear

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
    return f"{kept}: {_with_band(year.above)} min a month do not", "; ".join(_why(year))


def _with_band(minutes: Minutes) -> str:
    """Return minutes with the band of single years: `38 (31 to 45)`."""
    mean, low, high = map(significant, (minutes.mean, minutes.low, minutes.high))
    return mean if low == high else f"{mean} ({low} to {high})"


def _why(year: WeatherYear) -> Iterator[str]:
    worst = year.worst
    if worst is not None:
        minutes = significant(worst.minutes_per_month)
        yield f"{worst.what} costs most: {minutes} min a month, {worst.reason}"
    alone, together = (significant(end.mean) for end in (year.above_alone, year.above_together))
    ends = f"{alone} if volumes of a zone share nothing, {together} if they share all of it"
    if year.turns_with_zones:
        ends += ", which decides whether the requirement is met"
    elif year.asked_ratio is not None:
        ends += f", {'met' if year.kept_ends[0] >= year.asked_ratio else 'missed'} either way"
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
        _with_band(year.above),
        significant(year.above_alone.mean),
        significant(year.above_together.mean),
        f"{year.unserved_min_per_month:.2g}",
        f"{year.failed_per_year:,.0f}",
        f"{year.loss_probability:.2g}",
        "nothing" if worst is None else worst.what,
    ]


def sentences(matrix: Matrix) -> list[tuple[str, str]]:
    """Return what is missed with each level of what is asked, by each cell, and what would help."""
    years, found = list(years_of(matrix)), []
    if matrix.main is not None:
        by_level: dict[str, list[float]] = {}
        for _, cell, year in years:
            by_level.setdefault(str(cell.factors[matrix.main.name]), []).append(year.above.mean)
        spans = [
            f"{' to '.join(map(significant, sorted({min(each), max(each)})))} with {level}"
            for level, each in by_level.items()
        ]
        if len(spans) > 1:
            own = any(not year.stated for _, _, year in years)
            each = ", each twice the p99 of its own quiet hour" if own else ""
            found.append(
                (f"minutes a month that miss the requirement{each}: {in_a_row(spans)}", "")
            )
    for name, _, year in years:
        head = f"{name}: " if name else ""
        text, why = sentence(year)
        found += [(f"{head}{text}", why), *((f"{head}{text}", "") for text in bought_back(year))]
    return found


LEAST_SAVED_MIN = 0.05
"""Three seconds a month."""


def bought_back(year: WeatherYear) -> Iterator[str]:
    """Yield what each change of the system would spare, the most first."""
    for back in sorted(year.back, key=lambda back: -back.saved_min):
        fewer = "fewer" if back.saved_min >= 0 else "more"
        minutes = f"{significant(abs(back.saved_min))} min a month {fewer}"
        minutes = "as many" if abs(back.saved_min) < LEAST_SAVED_MIN else minutes
        text = f"with {back.change}, {minutes} miss it"
        if (usd := back.usd_per_month) is not None:
            text += f", for {abs(usd):,.0f} USD a month {'more' if usd >= 0 else 'less'}"
        yield text


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
