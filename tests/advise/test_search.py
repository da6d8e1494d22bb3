"""The search of one kind of disks: what becomes of it when its best fails at full fidelity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from disklab import spec
from disklab.advice.candidates import Candidate, Field, field_of
from disklab.advice.levers import tuned
from disklab.advice.question import Question, question_of
from disklab.advice.search import Ladder, Tried
from disklab.catalog import load_catalog
from disklab.cli.advise_asked import Asked
from disklab.databases.calibration import calibration_for
from disklab.results.required import Kept, Outcome

from tests.advise.exhaustive import FILE


def question() -> Question:
    asked = {"read": 0.5, "write": 0.5, "rows": 500_000_000, "row": 500, "rate": 4000}
    told = FILE.format(**asked, p99=10, room=0, compaction="leveled")
    return question_of(spec.parse(told, Path("t.yaml")), ("P20", "P30", "E8s_v3", "E16s_v3"))


def candidates() -> list[Candidate]:
    """Return the options with host caching, the cheapest first."""
    calibration = calibration_for("cassandra")
    assert calibration is not None
    found = field_of(question(), load_catalog(), calibration).candidates
    return [one for one in found if one.disks.caching == "ReadOnly"]


class Quick:
    """Judges by the VM alone: E8s_v3 looks able with the slack of a quick run, and is not."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.asked: list[str] = []

    def __call__(self, one: Candidate) -> list[Tried]:
        """Return what becomes of an option, as it is and tuned."""
        self.asked.append(one.hardware)
        result: Any = None
        found = []
        for variant in (one, *tuned(one, question().spec)):
            able = "E16s" in variant.vm and bool(variant.settings)
            kept = Kept(Outcome.MET if able else Outcome.MISSED, ())
            found.append(Tried(variant, result, kept, promising=bool(variant.settings)))
        return found


def climbed(ladder: Ladder, quick: Quick) -> Ladder:
    while (one := ladder.next()) is not None:
        ladder.learn(one, quick(one))
    return ladder


def best_of(ladder: Ladder) -> Candidate:
    assert ladder.best is not None
    return ladder.best.candidate


def test_the_search_goes_on_above_what_fails_at_full_fidelity() -> None:
    quick, all_ = Quick(), candidates()
    ladder = climbed(Ladder("P", list(all_)), quick)
    assert best_of(ladder).vm.endswith("E8s_v3")
    ladder.reject()
    climbed(ladder, quick)
    cheapest = next(one for one in all_ if "E16s" in one.vm)
    assert best_of(ladder).hardware == cheapest.hardware
    assert best_of(ladder).settings
    # What is no better than a failed one was not tried, and nothing twice.
    assert len(quick.asked) == len(set(quick.asked)) < len(all_)


def test_what_costs_more_than_something_that_does_it_is_not_searched() -> None:
    quick, all_ = Quick(), candidates()
    ladder = climbed(Ladder("P", list(all_)), quick)
    cheapest = next(one for one in all_ if "E16s" in one.vm)
    ladder.reject(below_usd=cheapest.usd_per_month)
    asked = len(quick.asked)
    climbed(ladder, quick)
    assert not [one for one in quick.asked[asked:] if one.startswith("E16s")]


def test_an_option_that_fails_as_it_is_may_do_with_its_levers_turned() -> None:
    one = candidates()[-1]
    levers = tuned(one, question().spec)[0]
    result: Any = None
    met, missed = Kept(Outcome.MET, ()), Kept(Outcome.MISSED, ())
    ladder = Ladder("P", [one])
    ladder.learn(one, [Tried(one, result, missed, True), Tried(levers, result, met, True)])
    assert best_of(ladder) == one
    ladder.reject()
    assert best_of(ladder) == replace(one, settings=levers.settings)
    ladder.reject()
    assert ladder.best is None


POSTGRESQL = Asked(database="postgresql", data="500GB", reads=8000, p99=10)


def looked_through(asked: Asked, *wanted: str) -> Field:
    found = calibration_for(asked.database or "cassandra")
    assert found is not None
    return field_of(question_of(asked.experiment(), wanted), load_catalog(), found)


def test_a_single_copy_on_a_local_disk_is_marked() -> None:
    options = looked_through(POSTGRESQL).candidates
    assert {one.lossy for one in options if one.disks.kind in ("nvme", "local")} == {True}
    assert not any(one.lossy for one in options if one.disks.kind not in ("nvme", "local"))
    dropped = looked_through(replace(POSTGRESQL, durable=False)).candidates
    assert not any(one.lossy for one in dropped)


def test_a_size_that_retires_is_offered_to_those_who_name_it_alone() -> None:
    found = looked_through(POSTGRESQL)
    assert not any(one.vm.endswith(("L4s", "DS14_v2", "L8s_v2")) for one in found.candidates)
    assert any("retires on 2028-05-01" in reason for reason in found.refused)
    named = looked_through(replace(POSTGRESQL, durable=False), "L8s_v2")
    assert {one.vm for one in named.candidates} == {"azure/Standard_L8s_v2"}
