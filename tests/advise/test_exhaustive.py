"""The record of choices held against everything cheaper, and one more case on demand.

`DISKLAB_EXHAUSTIVE_CASES=20` makes it as many random cases, `DISKLAB_SEED` other ones; each takes
minutes of two cores. `python -m tests.advise.exhaustive` keeps a record of them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.advise import exhaustive
from tests.advise.exhaustive import Case, go_on, page_of, recorded

CASES = int(os.environ.get("DISKLAB_EXHAUSTIVE_CASES", "1"))
FIRST = int(os.environ.get("DISKLAB_SEED", "1"))

ONE = Case(1, "q", 5, 4, "3 x A", 103.0, "3 x B", 100.0, 1.0, 2.0, 0.5, "abc", "2026-11-25")


@pytest.mark.long
def test_the_choice_is_the_cheapest_of_everything(tmp_path: Path) -> None:
    for one in go_on(tmp_path / "state.jsonl", CASES, FIRST):
        assert one.holds, one


def test_the_page_is_that_of_the_record() -> None:
    cases = recorded(exhaustive.STATE)
    assert exhaustive.PAGE.read_text(encoding="utf-8") == page_of(cases)
    assert all(exhaustive.in_words(one.seed) == one.question for one in cases)


@pytest.mark.parametrize(
    ("changed", "holds", "ratio"),
    [
        ({}, True, 1.03),
        ({"choice_usd": 104.0}, False, 1.04),
        ({"choice": None, "choice_usd": None}, False, None),
        ({"choice": None, "choice_usd": None, "cheapest": None, "cheapest_usd": None}, True, None),
    ],
)
def test_a_case_holds_within_three_per_cent(
    changed: dict[str, object], holds: bool, ratio: float | None
) -> None:
    case = replace(ONE, **changed)  # type: ignore[arg-type]
    assert case.holds is holds
    assert case.ratio == (None if ratio is None else pytest.approx(ratio))
    page = page_of([case])
    assert f"In {int(holds)} of 1 cases" in page
    assert ("3 x B, 100 USD" in page) is (not holds)


def test_the_record_goes_on_from_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def case_of(seed: int, _question: object) -> Case:
        tried.append(seed)
        return replace(ONE, seed=seed)

    monkeypatch.setattr(exhaustive, "case_of", case_of)
    monkeypatch.setattr(exhaustive, "question_with", lambda seed: seed % 2 or None)
    state = tmp_path / "state.jsonl"
    assert [one.seed for one in go_on(state, 2, 1)] == [1, 3]
    assert [one.seed for one in go_on(state, 4, 1)] == [5, 7]
    assert [one.seed for one in go_on(state, 4, 1)] == []
    assert [one.seed for one in recorded(state)] == tried == [1, 3, 5, 7]
