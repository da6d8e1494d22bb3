"""Pairs of equal conditions: a wrong verdict is counted as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab import spec
from disklab.results import PlannedTrial, Run

from campaigns.truth.alike import DISKS, LOADS, ONE, SAME, judged, text
from tests.results.made import info, result


def rehearsed(folder: Path, faster: float) -> Run:
    """A run of two pairs, of which the second condition of the first pair is so much faster."""
    experiment = spec.parse(text(2, LOADS), "alike.yaml")
    trials = experiment.trials("rehearse")
    planned = [PlannedTrial(trial=one.index, factors=dict(one.factors)) for one in trials]
    run = Run.create(folder, info(), experiment_text=experiment.document.text, planned=planned)
    with run.writing():
        for one in trials:
            rate = 1000.0 * (faster if one.index == 1 else 1.0)
            for repeat in range(3):
                told = {"factors": dict(one.factors), "ops_per_s": rate + repeat}
                run.append(result(one.index, repeat, **told))
    return run


def test_a_pair_shares_its_bed_and_differs_in_its_name_alone() -> None:
    first, second, *_ = spec.parse(text(2, LOADS), "alike.yaml").trials("rehearse")
    assert (first.factors[DISKS], second.factors[DISKS]) == (ONE, SAME)
    assert first.spec == second.spec


@pytest.mark.parametrize(("faster", "wrong"), [(1.0, [False, False]), (1.3, [True, False])])
def test_a_disk_that_is_better_than_itself_is_wrong(
    tmp_path: Path, faster: float, wrong: list[bool]
) -> None:
    found = judged(rehearsed(tmp_path, faster), seed=1)
    assert [one["wrong"] for one in found] == wrong
    assert [one["repeats"] for one in found] == [[3, 3], [3, 3]]
    assert found[0]["ratio"] == pytest.approx(faster, rel=0.01)
