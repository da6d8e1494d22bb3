"""The two leagues of docs/accuracy.md: the machine that costs were measured on, and other machines.

Nothing is simulated: their figures are those of docs/truth.md, docs/abroad.md and
docs/abroad-sql.md. A neighbour is a guess without a model: the measured figure of the cell before
it in the same table.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from disklab.results.bands import off_by

DOCS = Path(__file__).resolve().parents[1] / "docs"
BIAS = 100.0
"""Percent."""
PAIR = re.compile(r"^([\d,.]+) -> ([\d,.]+) \(")
HEAD = """## Two leagues

Rates, from [truth.md](truth.md), [abroad.md](abroad.md) and [abroad-sql.md](abroad-sql.md).
*Same machine, calibrated*: a real database on emulated disks here, of which CPU and pauses were
measured here, in cells that never wait for a disk. *Other machines*: those of other publishers, of
which nothing was measured. A neighbour guesses the measured rate of the cell before it in the
table, and so has seen the machine. Skill is 1 - error / error of the neighbour. Others publish 6 to
10 % for models that were trained on the machine itself (Rafiki, Middleware 2017), and about 30 %
for other hardware.
"""


def leagues() -> Iterator[str]:
    """Yield the section."""
    yield HEAD
    yield "| league | cells | off by, in the median | bias | within 25 % | neighbour | skill |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for title, cells in (
        ("same machine, calibrated", list(_rehearsed())),
        ("other machines, Cassandra", list(_abroad("abroad.md"))),
        ("other machines, MySQL and PostgreSQL", list(_abroad("abroad-sql.md"))),
    ):
        ratios = [predicted / measured for measured, predicted in cells]
        errors = [off_by(ratio) for ratio in ratios]
        guesses = [off_by(one[0] / other[0]) for one, other in itertools.pairwise(cells)]
        error, guess = median(errors), median(guesses)
        close = sum(error <= 1 / 4 for error in errors)
        yield (
            f"| {title} | {len(cells)} | {error * 100:.1f} % | {(median(ratios) - 1) * 100:+.1f} % "
            f"| {close} | {guess * 100:.0f} % | {1 - error / guess:+.2f} |"
        )
    yield ""


def _rehearsed() -> Iterator[tuple[float, float]]:
    """Yield the rate of each rehearsed cell that was timed, and its prediction."""
    at: dict[str, int] = {}
    for columns in _rows(DOCS / "truth.md"):
        if "ops/s rehearsed" in columns:
            at = {name: number for number, name in enumerate(columns)}
        elif at and len(columns) == len(at) and columns[at["ops/s"]].endswith("%"):
            measured = _number(columns[at["ops/s rehearsed"]])
            error = float(columns[at["ops/s"]].rstrip(" %"))
            yield measured, measured * (1 + error / BIAS)
        elif len(columns) != len(at):
            at = {}


def _abroad(page: str) -> Iterator[tuple[float, float]]:
    """Yield the published rate of each cell on other machines, and its prediction."""
    at: dict[str, int] = {}
    for columns in _rows(DOCS / page):
        if "bound by" in columns:
            at = {name: number for number, name in enumerate(columns)}
        elif at and len(columns) == len(at) and (pair := PAIR.match(columns[at["ops/s"]])):
            yield _number(pair[1]), _number(pair[2])


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _rows(page: Path) -> Iterator[list[str]]:
    """Yield the columns of each row of a page's tables."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            yield [part.strip() for part in line.strip("|").split("|")]
