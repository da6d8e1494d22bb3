"""Writes docs/choice.md: how often what is predicted best was best in a published study.

`.venv/bin/python scripts/choice_page.py` reads the tables of docs/accuracy.md and simulates
nothing; `--check` tells whether the page is what would be written now.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from disklab.catalog import load_catalog
from disklab.prediction.against import ComparedCell
from disklab.results.pricing import cluster_price

from scripts.accuracy_page import PAGE, SECTIONS, STUDIES, block_of, label, load, read_back, table

CHOICE = PAGE.with_name("choice.md")
BOUGHT = ("disk", "device", "caching", "read_ahead", "vm")
"""Parts of the names of factors that somebody chooses who buys and sets up disks."""
NEAR = 1.10
"""Within 10 % of the best. **Source:** Selecta (USENIX ATC 2018) counts so."""

DEARER = 1.03
"""Prices that differ by less are the same."""

PRICE = "price"
FIGURES = {
    "rate": (("ops/s",), max),
    "p99": (("p99",), min),
    "p95": (("p95",), min),
    PRICE: (("ops/s",), max),
}
"""By word: the figures that say it, and which of two is better."""

HEAD = """# How often the choice is right

Written by `.venv/bin/python scripts/choice_page.py` from [accuracy.md](accuracy.md); do not edit.

Who asks disklab wants to know which option to take. So each published study is cut into choices:
cells that differ in one thing that is bought or set up (disks, caching, read-ahead, VM size) and in
nothing else. A choice is *right* where the option that is predicted best was measured best, and
*near* where it was measured within 10 % of the best. Selecta (USENIX ATC 2018) picks within 10 % of
the best in 94 % of its cases. *Unseen* choices are those of which no cell was fitted on, or looked
at when a value was chosen. By *price*, the best is what does most operations a second for a USD a
month (list prices of VMs and disks today); choices whose options cost the same are left out.

"""


@dataclass(frozen=True)
class Choice:
    """Cells that differ in one thing."""

    study: str
    factor: str
    rest: dict[str, object]
    cells: tuple[ComparedCell, ...]
    prices: tuple[float | None, ...] = ()
    """Of each cell, in USD a month."""

    @property
    def unseen(self) -> bool:
        """Whether no parameter knows any of its cells."""
        return not any(cell.note or cell.seen for cell in self.cells)


@dataclass(frozen=True)
class Answer:
    """What became of a choice by one figure."""

    choice: Choice
    predicted: ComparedCell
    best: ComparedCell
    factor: float
    """By how much what was taken is worse than the best; 1: it is the best."""


def choices(
    study: str, cells: Sequence[ComparedCell], prices: Mapping[str, float | None] | None = None
) -> Iterator[Choice]:
    """Yield the choices of a study, each once."""
    names = {name for cell in cells for name in cell.factors}
    for factor in sorted(name for name in names if any(part in name for part in BOUGHT)):
        groups: dict[str, list[ComparedCell]] = {}
        for cell in cells:
            rest = {name: level for name, level in cell.factors.items() if name != factor}
            groups.setdefault(label(rest), []).append(cell)
        for group in groups.values():
            if len(group) > 1:
                rest = {n: level for n, level in group[0].factors.items() if n != factor}
                usd = tuple((prices or {}).get(label(cell.factors)) for cell in group)
                yield Choice(study, factor, rest, tuple(group), usd)


def answer_of(choice: Choice, word: str) -> Answer | None:
    """Return what is predicted best beside what was measured best; None: too few figures."""
    (figure,), better = FIGURES[word]
    known = [one for one in choice.cells if figure in one.published and figure in one.predicted]
    if len(known) < len(choice.cells):
        return None
    usd = [1.0] * len(known)
    if word == PRICE:
        usd = [price for price in choice.prices if price]
        if len(usd) < len(known) or max(usd) < min(usd) * DEARER:
            return None
    order = range(len(known))
    bought = better(order, key=lambda at: known[at].predicted[figure] / usd[at])
    winner = better(order, key=lambda at: known[at].published[figure] / usd[at])
    taken, best = known[bought], known[winner]
    pair = (taken.published[figure] / usd[bought], best.published[figure] / usd[winner])
    return Answer(choice, taken, best, max(pair) / min(pair) if min(pair) else 1.0)


def page(found: Iterable[Choice]) -> str:
    """Return the page."""
    every = list(found)
    body, wrong = [], []
    for unseen in (False, True):
        for word in FIGURES:
            told = [one for choice in every if (one := answer_of(choice, word))]
            told = [one for one in told if one.choice.unseen or not unseen]
            if not told:
                continue
            right = sum(one.factor == 1 for one in told)
            near = sum(one.factor <= NEAR for one in told)
            worst = max(one.factor for one in told)
            body.append(
                [
                    f"{word}, {'unseen' if unseen else 'all'}",
                    f"{len(told)}",
                    f"{right} ({right / len(told) * 100:.0f} %)",
                    f"{near} ({near / len(told) * 100:.0f} %)",
                    f"{worst:.2f} times",
                ]
            )
            if not unseen:
                wrong += [(word, one) for one in told if one.factor > NEAR]
    heads = ["by", "choices", "right", "right or near", "the worst one is worse by"]
    parts = [HEAD, table(heads, body), "\n\n## Where it is wrong\n\n"]
    lines = [
        [
            one.choice.study,
            word,
            label(one.choice.rest),
            str(one.predicted.factors[one.choice.factor]),
            str(one.best.factors[one.choice.factor]),
            f"{one.factor:.2f} times",
        ]
        for word, one in sorted(wrong, key=lambda pair: -pair[1].factor)
    ]
    heads = ["study", "by", "where", "predicted best", "measured best", "worse by"]
    parts.append(table(heads, lines) if lines else "Nowhere by more than 10 %.")
    return "".join(parts) + "\n"


def published() -> Iterator[Choice]:
    """Yield the choices of every published study of the accuracy page."""
    text = PAGE.read_text(encoding="utf-8")
    for name in STUDIES:
        block = block_of(next(one for one in SECTIONS if one.name == name), text)
        assert block is not None, f"{name} is missing in {PAGE.name}"
        yield from choices(name, read_back(name, block).cells, prices_of(name))


def prices_of(name: str) -> dict[str, float | None]:
    """Return what the cells of a study cost, by the label of their factors."""
    catalog = load_catalog()
    return {
        label(dict(trial.factors)): cluster_price(catalog, trial.spec)
        for trial in load(name).trials("predict")
        if trial.refused is None
    }


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    asked = parser.parse_args()
    text = page(published())
    if not asked.check:
        CHOICE.write_text(text, encoding="utf-8")
        return 0
    if CHOICE.is_file() and CHOICE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write("docs/choice.md differs; run .venv/bin/python scripts/choice_page.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
