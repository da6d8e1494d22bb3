"""Pages of other publishers' studies, of choices and of leagues are what they would be now."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest
from disklab.prediction.against import ComparedCell

from scripts import abroad_page, choice_page, devices_page, fio_page, leagues
from scripts.accuracy_page import label


# In CI tests/prediction/test_answers.py: the simulator's answers are what they were.
@pytest.mark.long
@pytest.mark.parametrize("page", abroad_page.PAGES, ids=lambda page: page.name)
def test_a_page_shows_every_cell_as_it_is_predicted_now(page: abroad_page.Page) -> None:
    assert page.file.read_text(encoding="utf-8").startswith(abroad_page.tables(page))


def test_predictions_beside_fio_of_others_are_as_the_page_says() -> None:
    cells = list(fio_page.compared())
    assert fio_page.PAGE.read_text(encoding="utf-8") == fio_page.page(cells)
    rates = [cell for cell in cells if cell.figure != "avg_ms"]
    # Writes through a ReadWrite cache are the disk's, at random and in order.
    writes = [cell for cell in rates if "P3, " in cell.name and "write 4k" in cell.name]
    assert len(writes) == 2
    assert all(cell.within for cell in writes)
    assert sum(cell.within for cell in rates) >= 11
    assert median(abs(cell.deviation) for cell in cells if cell.figure == "avg_ms") <= 0.02


STUDIES = devices_page.every_study()
SHORT = "aws-6a-io2-fio-2023"
"""A study of few cells."""


def test_a_study_is_predicted_as_the_page_says() -> None:
    study = [each for each in STUDIES if each["id"] == SHORT]
    own, apart = (list(devices_page.compared(study, apart=apart)) for apart in (False, True))
    lines = devices_page.PAGE.read_text(encoding="utf-8").splitlines()
    for row in devices_page.rows(study[0], own, apart):
        assert row in lines
    # Its own data say that a write waits no longer than for the VM.
    summary = devices_page.summaries(own)[SHORT, "iops"]
    assert summary.middle < devices_page.summaries(apart)[SHORT, "iops"].middle
    assert summary.beyond == 0


@pytest.mark.long
def test_the_page_is_what_would_be_written_now() -> None:
    both = [list(devices_page.compared(STUDIES, apart=apart)) for apart in (False, True)]
    assert devices_page.PAGE.read_text(encoding="utf-8") == devices_page.page(STUDIES, *both)


def test_each_study_names_what_was_taken_from_it() -> None:
    page = devices_page.PAGE.read_text(encoding="utf-8")
    assert len(STUDIES) == 6
    for study in STUDIES:
        assert f"## {study['id']}" in page
        for line in devices_page.bullets(devices_page.taken(study)):
            assert line in page


def test_what_is_far_off_has_its_reason_beside_it() -> None:
    page = devices_page.PAGE.read_text(encoding="utf-8")
    far = [line for line in page.splitlines() if "| **" in line]
    assert far
    for line in far:
        why = line.rstrip("| ").rpartition("| ")[2]
        assert why != devices_page.UNEXPLAINED
        assert any(why in study.get("reasons", {}).values() for study in STUDIES), line


def test_a_parameter_names_the_cells_that_it_was_taken_from() -> None:
    study = {
        "cells": [
            {"vm": "aws/a", "rw": "randread", "jobs": 1},
            {"vm": "aws/a", "rw": "randread", "jobs": 4},
            {"vm": "azure/Standard_B", "rw": "randwrite", "jobs": 1, "depth": 2},
            {"vm": "aws/a", "rw": "randwrite", "jobs": 1},
        ]
    }
    assert devices_page.numbers(study, ["a", "B"]) == " (1 to 4)"
    assert devices_page.numbers(study, ["a"]) == " (1 to 2, 4)"
    assert devices_page.numbers(study, ["a"], "read") == " (1)"
    assert devices_page.numbers(study, ["B", "c"], "write") == " (3)"
    assert not devices_page.numbers(study, ["c"])


def test_both_leagues_are_read_from_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "truth.md").write_text(
        "| mechanism | cells | ops/s |\n| --- | --- | --- |\n| keys | 2 | 1.0 %, 2.0 % |\n\n"
        "| cell | ops/s rehearsed | ops/s |\n| --- | --- | --- |\n"
        "| a | 1,000 | +10.0 % |\n| late | 1,500 |  |\n| b | 2,000 | -10.0 % |\n",
        encoding="utf-8",
    )
    table = "| cell | ops/s | bound by |\n|---|---|---|\n"
    (tmp_path / "abroad.md").write_text(
        f"{table}| x | 100 -> 200 (+100 %) | latency |\n| y | 110 -> 110 (+0 %) | latency |\n",
        encoding="utf-8",
    )
    (tmp_path / "abroad-sql.md").write_text(
        f"{table}| x | 100 -> 50 (-50 %) | latency |\n| y | 400 -> 200 (-50 %) | latency |\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(leagues, "DOCS", tmp_path)
    found = [line for line in leagues.leagues() if line.startswith(("| same", "| other"))]
    same, other, sql = found
    assert same.startswith("| same machine, calibrated | 2 | 10.6 % |")
    assert same.endswith("| 2 | 100 % | +0.89 |")
    assert other.startswith("| other machines, Cassandra | 2 | 50.0 % |")
    assert other.endswith("| 1 | 10 % | -4.00 |")
    assert sql.startswith("| other machines, MySQL and PostgreSQL | 2 | 100.0 % | -50.0 % | 0 |")


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
