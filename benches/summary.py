"""Figures of several runs: median and spread, and how they are shown and stored."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table: a contender's figure beside what was asked of it."""

    bench: str
    case: str
    contender: str
    unit: str
    median: float
    low: float
    high: float
    runs: int
    asked: float | None = None
    """What the figure should be; None where more (or less) is simply better."""

    @property
    def error_ratio(self) -> float | None:
        """How far the median is from what was asked: 0.01 is one percent too much."""
        return None if self.asked is None else self.median / self.asked - 1


def summarise(  # noqa: PLR0913, PLR0917 (a row has as many columns)
    bench: str,
    case: str,
    contender: str,
    unit: str,
    values: Sequence[float],
    asked: float | None = None,
) -> Row:
    """Return the row of several runs' values."""
    return Row(
        bench, case, contender, unit, statistics.median(values), min(values), max(values),
        len(values), asked,
    )  # fmt: skip


def interleave(
    repeats: int, contenders: Iterable[tuple[str, Callable[[], float]]]
) -> dict[str, list[float]]:
    """Run every contender once a round, so that a drifting machine meets all of them alike."""
    values: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, measure in contenders:
            values.setdefault(name, []).append(measure())
    return values


def closest(rows: Sequence[Row]) -> str | None:
    """Return which contender came closest to what was asked, over rows of one case."""
    asked = [row for row in rows if row.error_ratio is not None]
    if len(asked) < 2:
        return None
    return min(asked, key=lambda row: abs(row.error_ratio or 0.0)).contender


def show(rows: Sequence[Row], console: Console) -> None:
    """Print a table for each benchmark, and who was closer to what was asked."""
    for bench in dict.fromkeys(row.bench for row in rows):
        table = Table(title=bench, title_justify="left")
        for column in ("case", "contender", "median", "low .. high", "asked", "error", "runs"):
            table.add_column(column, justify="left" if column in ("case", "contender") else "right")
        own = [row for row in rows if row.bench == bench]
        for row in own:
            winner = closest([other for other in own if other.case == row.case])
            mark = " (closest)" if winner == row.contender else ""
            table.add_row(
                row.case,
                row.contender + mark,
                f"{figure_of(row.median)} {row.unit}",
                f"{figure_of(row.low)} .. {figure_of(row.high)}",
                "-" if row.asked is None else figure_of(row.asked),
                "-" if row.error_ratio is None else f"{row.error_ratio:+.2%}",
                str(row.runs),
            )
        console.print(table)


def figure_of(value: float) -> str:
    """Return four digits of a figure, without an exponent."""
    text = f"{value:,.4g}"
    return f"{float(text):,.0f}" if "e+" in text else text


def store(rows: Sequence[Row], file: Path) -> None:
    """Append the rows to a JSON-lines file, with machine and date; nothing is overwritten."""
    stamp = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": processor(),
    }
    with file.open("a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps({**asdict(row), **stamp}) + "\n")


def markdown(file: Path) -> str:
    """Return stored rows as Markdown tables, one a benchmark."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    lines: list[str] = []
    for bench in dict.fromkeys(row["bench"] for row in rows):
        own = [row for row in rows if row["bench"] == bench]
        first = own[0]
        lines += [f"## {bench}", ""]
        lines += [f"{first['processor']}, Linux {first['kernel']}, {first['date']}", ""]
        lines += ["| case | contender | median | low .. high | asked | error | runs |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for row in own:
            asked, error = "-", "-"
            if row["asked"] is not None:
                asked = figure_of(row["asked"])
                error = f"{row['median'] / row['asked'] - 1:+.2%}"
            lines.append(
                f"| {row['case']} | {row['contender']} | {figure_of(row['median'])} {row['unit']} "
                f"| {figure_of(row['low'])} .. {figure_of(row['high'])} "
                f"| {asked} | {error} | {row['runs']} |"
            )
        lines.append("")
    return "\n".join(lines)


def processor() -> str:
    """Return the processor's name and the number of logical ones."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return f"{len(names)} x {names[0]}" if names else platform.processor()
