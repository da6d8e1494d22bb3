"""The time left, corrected by what trials take, also while one goes on."""

from __future__ import annotations

import pytest
from disklab.events import PlannedTrial
from disklab.results.event_log import TimeLeft

PLANNED = [PlannedTrial(trial, 0, {}, 100.0) for trial in range(3)]


def test_the_trial_that_goes_on_is_counted_down() -> None:
    left = TimeLeft(PLANNED)
    assert left.left_s() == 300.0
    assert left.left_s((0, 0), 40.0) == 260.0


def test_a_trial_that_takes_longer_corrects_what_is_left_while_it_runs() -> None:
    left = TimeLeft(PLANNED)
    # It has taken four times as long as was planned, and what comes is expected to take longer.
    later = left.left_s((0, 0), 400.0)
    assert later > 300.0
    assert left.left_s((0, 0), 800.0) > later
    # Once over, it weighs as what it took.
    left.finished((0, 0), 800.0)
    assert left.left_s((1, 0), 0.0) == pytest.approx(200.0 * (800 + 200) / (100 + 200))


def test_a_fill_that_has_just_begun_is_not_about_to_end() -> None:
    left = TimeLeft(PLANNED[:1])
    # The disks were attached for so long, and then a hundredth of the fill took 10 s.
    assert left.left_s((0, 0), 100.0) == 0.0
    left.phase_began()
    left.progressed(1_000, 100_000, 10.0)
    assert left.left_s((0, 0), 110.0) == pytest.approx(990.0)
    assert left.left_s() == 100.0, "what is not under way is what was planned"
    left.progressed(99_000, 100_000, 990.0)
    assert left.left_s((0, 0), 1_090.0) == pytest.approx(10.0)
    left.progressed(None, None, 995.0)
    left.phase_began()
    assert left.left_s((0, 0), 1_100.0) == 0.0
