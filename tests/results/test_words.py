"""What is said of a timetable's steps, of data that come back, and of a year."""

from __future__ import annotations

import pytest
from disklab.results.records import Bottleneck, Rebuild, Recovery, StepTaken, Yearly
from disklab.results.timetable import _rebuild_in_words, how_in_words, in_time, steps_in_words


@pytest.mark.parametrize(
    ("bound", "year", "rebuild"),
    [
        ("latency", "the rebuild is limited by no limit: x", "no limit reached"),
        ("node CPU", "the rebuild is limited by node CPU: x", "limited by node CPU (50% used)"),
    ],
)
def test_a_rebuild_that_reached_no_limit_says_so(bound: str, year: str, rebuild: str) -> None:
    told = Yearly(
        bound=bound, lever="x", unavailable_min=1, row_unavailable_min=1, loss_probability=0
    )  # fmt: skip
    assert year in how_in_words(told)
    came = Rebuild(
        kind="stream", node="n1", size_bytes=10**9, seen_bytes=10**9, bytes_per_s=1e8,
        seconds=10, sources=2, bound=Bottleneck(resource=bound, utilisation=0.5),
    )  # fmt: skip
    assert rebuild in _rebuild_in_words(came)


def test_parts_of_a_step_are_told_from_one_second_on() -> None:
    parts = {"stop": 0.9, "copy": 1.0}
    step = StepTaken(kind="replace", node="n2", at_s=4, begun_s=4, ended_s=9, parts_s=parts)
    assert steps_in_words(Recovery(steps=[step])) == "replace n2 at 4 s (copy 1 s)"


def test_a_time_is_told_in_the_unit_that_it_has() -> None:
    told = [in_time(seconds) for seconds in (599, 600, 5399, 5400, 259_199, 259_200, float("inf"))]
    assert told[:3] == ["599 s", "10 min", "90 min"]
    assert told[3:] == ["1.5 h", "72.0 h", "3 days", "never: there is no other copy"]
