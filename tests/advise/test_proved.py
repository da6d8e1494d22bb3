"""An answer is looked at ever more closely, and the search goes on where it fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.advice.candidates import Candidate, Field
from disklab.advice.question import LOOK_S, Question, question_of
from disklab.advice.search import MOST_ROUNDS, Found, Ladder, search
from disklab.advice.simulator import Fidelity, Simulator, Tried
from disklab.catalog import load_catalog
from disklab.cli.advise_asked import Asked
from disklab.databases.calibration import calibration_for
from disklab.results.required import Kept, Outcome, Point

from tests.advise.test_rows import result
from tests.advise.test_search import candidates

MET, MISSED, DOUBT = Outcome.MET, Outcome.MISSED, Outcome.CANNOT_TELL


def asked() -> Question:
    return question_of(Asked(data="2TB", reads=20000, writes=5000, p99=10).experiment())


def judged(one: Candidate, outcome: Outcome, fidelity: Fidelity, used: float = 0.5) -> Tried:
    told = Kept(outcome, (Point("p99", outcome, "at most 10 ms", "2 ms"),))
    return Tried(one, result(2.0, max(used, 0.01)), told, outcome is MET, fidelity)


class Rigged(Simulator):
    """Says what becomes of an option from its place among all by price."""

    places: dict[str, int]
    doubtful = failing = 0
    """So many of the cheapest stand at a cliff; so many more fail at full fidelity."""

    def used(self, one: Candidate) -> float:
        return 0.95 * 0.85 ** self.places[one.hardware]

    def quick(self, candidates: Any, fidelity: Fidelity = "quick") -> dict[str, Tried]:
        return {one.name: judged(one, MET, fidelity, self.used(one)) for one in candidates}

    def full(self, candidates: Any) -> dict[str, Tried]:
        return {
            one.name: judged(
                one, MISSED if self.places[one.hardware] < self.failing else MET, "full"
            )
            for one in candidates
        }

    def proved(self, promising: Tried, *, at_length: bool = True) -> Tried:
        one = promising.candidate
        place = self.places[one.hardware]
        fidelity: Fidelity = "quick" if place < self.doubtful else "full"
        outcome = DOUBT if fidelity == "quick" else MET
        return judged(one, MISSED if place < self.failing else outcome, fidelity, self.used(one))


def searched(doubtful: int, failing: int) -> tuple[Found, list[Candidate], int]:
    calibration = calibration_for("cassandra")
    some = sorted(candidates(), key=lambda one: one.usd_per_month)
    some = [replace(one, usd_per_month=1000.0 + 100 * n) for n, one in enumerate(some)]
    rigged = Rigged(asked().brief.raised, load_catalog(), calibration)
    rigged.places = {one.hardware: n for n, one in enumerate(some)}
    rigged.doubtful, rigged.failing = doubtful, failing
    heard = 0

    def hear(_: Any) -> None:
        nonlocal heard
        heard += 1

    return search(Field(some), rigged, hear), some, heard


@pytest.mark.parametrize(("doubtful", "failing"), [(0, 0), (3, 0), (0, 3), (2, 2)])
def test_the_search_goes_on_until_one_is_sure(doubtful: int, failing: int) -> None:
    found, some, heard = searched(doubtful, failing)
    able = [n for n, one in enumerate(some) if n >= max(doubtful, failing)]
    assert found.answer.candidate.usd_per_month == some[able[0]].usd_per_month
    assert heard > 0
    shown = [one for one in found.finalists if one.kept.outcome is MET]
    assert shown[0] is found.answer


def test_the_search_ends_where_nothing_is_ever_sure() -> None:
    found, _, _ = searched(len(candidates()), 0)
    assert found.answer is None
    assert 0 < len(found.closer) <= MOST_ROUNDS + 4
    assert {one.kept.outcome for one in found.finalists} <= {DOUBT, MET}


def test_what_is_as_full_as_one_at_a_cliff_is_not_the_next() -> None:
    first, other, *_ = candidates()
    ladder = Ladder("P", [first, other])
    ladder.best = judged(first, MET, "quick", 0.8)
    ladder.reject(judged(first, DOUBT, "quick", 0.6))
    assert not ladder.passes(judged(other, MET, "quick", 0.85))
    assert not ladder.passes(judged(other, MET, "quick", 0.75))
    assert ladder.passes(judged(other, MET, "quick", 0.7))


def test_cells_last_20_s_and_as_long_as_the_file_says_where_an_answer_is_proved() -> None:
    def stop(question: Question) -> Any:
        return question.tree["workload"]["stop"]

    question = asked()
    assert stop(question) == {"duration": "60s"}
    assert stop(question.brief) == {"duration": f"{LOOK_S}s"}
    assert stop(question.brief.raised.whole) == {"duration": "60s"}
    short = question_of(
        spec.parse(question.text({}).replace("duration: 60s", "duration: 10s"), Path("t.yaml"))
    )
    assert stop(short.brief) == stop(short.whole) == {"duration": "10s"}
    counted = question_of(
        spec.parse(question.text({}).replace("duration: 60s", "operations: 3M"), Path("t.yaml"))
    )
    assert stop(counted.brief) == {"operations": "3M"}


def test_an_option_is_proved_by_its_band_then_in_full_then_for_as_long_as_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibration = calibration_for("cassandra")
    one = candidates()[0]
    looks: list[tuple[str, str, int]] = []
    fails: set[str] = set()

    def banded(_: Simulator, option: Candidate, *, rough: bool) -> Tried:
        how = "sketches" if rough else "bands"
        looks.append((how, "", 1))
        return judged(option, DOUBT if how in fails else MET, "quick")

    def full(self: Simulator, some: Any) -> dict[str, Tried]:
        lasts = str(self.question.tree["workload"]["stop"]["duration"])
        looks.append(("full", lasts, self.seed))
        outcome = MISSED if lasts in fails else MET
        return {option.name: judged(option, outcome, "full") for option in some}

    monkeypatch.setattr(Simulator, "banded", banded)
    monkeypatch.setattr(Simulator, "full", full)
    simulator = Simulator(asked().brief.raised, load_catalog(), calibration, bands={})
    every = [("sketches", "", 1), ("full", "20s", 1), ("bands", "", 1), ("full", "60s", 2)]
    assert simulator.proved(judged(one, MET, "quick")).kept.outcome is MET
    assert looks == every
    for number, (how, lasts, _) in enumerate(every):
        looks.clear()
        fails.clear()
        fails.add(lasts or how)
        assert simulator.proved(judged(one, MET, "quick")).kept.outcome is not MET
        assert looks == every[: number + 1]
    # Without bands nothing but the cells themselves tells.
    looks.clear()
    fails.clear()
    replace(simulator, bands=None).proved(judged(one, MET, "quick"))
    assert looks == every[1::2]
