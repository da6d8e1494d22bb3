"""docs/choice.md: what counts as a choice, and when it is right."""

from __future__ import annotations

import re
from pathlib import Path

from disklab.prediction.against import ComparedCell

from scripts import choice_page
from scripts.accuracy_page import label

ROOT = Path(__file__).parents[2]


def cell(disks: str, threads: int, published: float, predicted: float) -> ComparedCell:
    factors = {"disks": disks, "threads": threads}
    return ComparedCell(factors, {"ops/s": published}, {"ops/s": predicted})


def test_a_choice_differs_in_one_thing_that_is_bought() -> None:
    cells = [cell(disks, threads, 1, 1) for disks in ("P30", "P40") for threads in (64, 128)]
    found = list(choice_page.choices("t", cells))
    assert [one.rest for one in found] == [{"threads": 64}, {"threads": 128}]


def test_what_is_predicted_best_is_held_against_what_was_measured_best() -> None:
    cells = [cell("P30", 64, 100, 300), cell("P40", 64, 125, 200)]
    (choice,) = choice_page.choices("t", cells)
    answer = choice_page.answer_of(choice, "rate")
    assert (answer.predicted.factors["disks"], answer.best.factors["disks"]) == ("P30", "P40")
    assert answer.factor == 1.25
    assert choice_page.answer_of(choice, "p99") is None


def test_the_page_and_the_readme_say_what_the_tables_say() -> None:
    text = choice_page.page(choice_page.published())
    assert text == choice_page.CHOICE.read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for word in ("rate", "p99"):
        row = re.search(rf"\| {word}, all \| (\d+) \| .*?\| (\d+) \(", text)
        assert f"{row[2]} of {row[1]}" in readme


def test_by_price_the_best_does_most_for_a_dollar() -> None:
    cells = [cell("P30", 64, 100, 300), cell("P40", 64, 125, 200)]
    names = [label(one.factors) for one in cells]
    (choice,) = choice_page.choices("t", cells, dict(zip(names, (100.0, 200.0), strict=True)))
    answer = choice_page.answer_of(choice, "price")
    assert answer.factor == 1
    assert answer.best.factors["disks"] == "P30"
    # What costs the same is no choice by price, and neither is what nobody knows the price of.
    (equal,) = choice_page.choices("t", cells, dict.fromkeys(names, 100.0))
    assert choice_page.answer_of(equal, "price") is None
    (unpriced,) = choice_page.choices("t", cells)
    assert choice_page.answer_of(unpriced, "price") is None
