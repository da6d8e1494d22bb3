"""What a change of catalogue or model did to what is predicted of published figures.

`python -m scripts.change` simulates a fixed part of each page's cells at quick fidelity, in some
minutes of processor time, and prints how far they are off, before (as stored when this script last
wrote) and after. `--write` stores them; the lines belong in the message of a commit that does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from disklab.prediction import Options
from disklab.prediction.against import ComparedCell, compare
from disklab.results.bands import off_by

from campaigns.truth.__main__ import STATE
from campaigns.truth.page import pairs_of
from campaigns.truth.state import stored
from scripts import abroad_page, devices_page, fio_page
from scripts.accuracy_page import STUDIES, label, load, predicted, published_part
from scripts.choice_page import FIGURES, PRICE, answer_of, choices

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "prediction" / "published.json"
Figures = dict[str, float]
"""Predicted over published, by cell and figure."""

SLOW_BED = "PostgreSQL, rows of two sizes: "
"""Half of the processor time of all beds."""
MOST_OF_A_STUDY = 16
"""Cells of a study that are simulated: every so-manieth, the first among them."""
SAME = 0.005
"""A smaller change of a ratio is none."""


def truth() -> Iterator[tuple[str, float]]:
    """Yield rehearsed figures of the stored cells."""
    lines = {key: line for key, line in stored(ROOT / STATE).items() if SLOW_BED not in key}
    with tempfile.TemporaryDirectory() as folder:
        for pair in pairs_of(lines, Path(folder)):
            for name in ("read_ios", "read_bytes", "write_bytes"):
                error = pair.error(name)
                # Of what is not predicted at all nobody can say how many times it is off.
                if error is not None and error > -1:
                    yield f"{pair.key}, {name}", 1 + error


def studies() -> dict[str, tuple[ComparedCell, ...]]:
    """Return a part of the cells of each study of the accuracy page, predicted."""
    compared = {}
    for name in STUDIES:
        experiment = published_part(load(name))
        step = max(1, len(experiment.cells) // MOST_OF_A_STUDY)
        part = replace(experiment, cells=experiment.cells[::step])
        results = predicted(part, Options(bands=False, fidelity="quick"))
        compared[name] = compare(part, results).cells
    return compared


def accuracy(compared: Mapping[str, tuple[ComparedCell, ...]]) -> Iterator[tuple[str, float]]:
    """Yield the figures of studies that count."""
    for name, cells in compared.items():
        for cell in cells:
            for figure, published in cell.published.items():
                if cell.counts(figure) and figure in cell.predicted and published:
                    ratio = cell.predicted[figure] / published
                    yield f"{name}: {label(cell.factors)}, {figure}", ratio


def choice(compared: Mapping[str, tuple[ComparedCell, ...]]) -> Iterator[tuple[str, float]]:
    """Yield by how much what was predicted best is worse than the best; 1: it is the best."""
    for name, cells in compared.items():
        for each in choices(name, cells):
            for word in FIGURES:
                answer = None if word == PRICE else answer_of(each, word)
                if answer is not None:
                    yield f"{name}: {each.factor}, {label(each.rest)}, {word}", answer.factor


def abroad() -> Iterator[tuple[str, float]]:
    """Yield figures of the first cells of each study on other machines."""
    for page in abroad_page.PAGES:
        for study in page.studies():
            first = {**study, "cells": study["cells"][:2]}
            for cell in abroad_page.compared(first):
                for figure in abroad_page.FIGURES:
                    ratio = cell.ratio(figure)
                    if ratio is not None:
                        yield f"{study['id']}: {cell.name}, {figure}", ratio


def fio_studies() -> Iterator[tuple[str, float]]:
    """Yield figures of fio of others."""
    for cell in fio_page.compared():
        yield f"{cell.name}, {cell.figure}", 1 + cell.deviation


def devices() -> Iterator[tuple[str, float]]:
    """Yield figures of disks of others, every second cell."""
    disks = [study for study in devices_page.every_study() if "experiment" not in study]
    parts = [{**study, "cells": study["cells"][::2]} for study in disks]
    for cell in devices_page.compared(parts, apart=False):
        yield f"{cell.study}: {cell.name}, {cell.figure}", cell.predicted / cell.published


def figures(pages: Mapping[str, Callable[[], Iterator[tuple[str, float]]]]) -> dict[str, Figures]:
    """Return predicted over published by page."""
    made = {}
    for name, page in pages.items():
        made[name] = {key: round(ratio, 4) for key, ratio in page()}
        sys.stderr.write(f"{name}: {len(made[name])} figures\n")
    return made


def lines(before: Mapping[str, Figures], after: Mapping[str, Figures]) -> Iterator[str]:
    """Yield a line for each page, and the figures that changed most."""
    for page, now in after.items():
        then = before.get(page, {})
        both = [key for key in now if key in then]
        moved = {key: off_by(now[key]) - off_by(then[key]) for key in both}
        moved = {key: by for key, by in moved.items() if abs(by) > SAME}
        middles = [
            f"{median(off_by(of[key]) for key in keys):.1%}" if keys else "none"
            for of, keys in ((then, both), (now, list(now)))
        ]
        worse = sum(by > 0 for by in moved.values())
        yield (
            f"{page}: {middles[0]} off in the median before, {middles[1]} after; of {len(now)} "
            f"figures {len(moved) - worse} are better, {worse} worse, {len(now) - len(both)} new"
        )
        for key, _ in itertools.islice(sorted(moved.items(), key=lambda pair: -abs(pair[1])), 5):
            yield f"  {key}: {then[key]:.2f} -> {now[key]:.2f} of what was published"


def main() -> int:
    """Print what changed, or store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="of these pages alone")
    parser.add_argument("--write", action="store_true", help="store the figures")
    arguments = parser.parse_args()
    compared: dict[str, tuple[ComparedCell, ...]] = {}

    def cells() -> dict[str, tuple[ComparedCell, ...]]:
        compared.update(compared or studies())
        return compared

    pages: dict[str, Callable[[], Iterator[tuple[str, float]]]] = {
        "truth": truth,
        "accuracy": lambda: accuracy(cells()),
        "choice": lambda: choice(cells()),
        "abroad": abroad,
        "fio-studies": fio_studies,
        "devices-abroad": devices,
    }
    wanted = {name: pages[name] for name in arguments.pages or pages}
    before = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    after = figures(wanted)
    print("\n".join(lines(before, after)))
    if arguments.write:
        KEPT.write_text(json.dumps({**before, **after}, indent=0, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
