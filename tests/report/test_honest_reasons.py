"""A reason is printed only where its test holds, and a figure says which side of a bound it is."""

from __future__ import annotations

import pytest
from disklab.report.cells import Cell
from disklab.report.history import apart
from disklab.report.pair import matters
from disklab.report.reasons import why
from disklab.report.verdict import Judgement, Outcome, Quantity
from disklab.report.wording import SPACE, basis, span
from disklab.results import Bottleneck, LimitWait, Telemetry, TrialResult
from disklab.results.required import told_apart


def phrases(limit: LimitWait, bound_by: str | None) -> str:
    result = TrialResult(
        experiment="x",
        mode="rehearse",
        trial=0,
        factors={},
        ops_per_s=5.0,
        bottleneck=None if bound_by is None else Bottleneck(resource=bound_by),
        telemetry=Telemetry(limits=[limit]),
    )
    return " ".join(why(Cell({}, (result,))).phrases()).replace(SPACE, " ")


@pytest.mark.parametrize(
    ("start", "left", "bound_by", "is_reason"),
    [
        (0, 1, None, False),  # It fills again beside a load that asks for little.
        (0, 1, "data disk 0 3000 IOPS", False),  # Another limit held the load.
        (0, 1, "data vm uncached 6400 IOPS", True),  # It had none, and that limit held it.
        (0, 0, "data vm uncached 6400 IOPS", True),
        (1000, 10, None, True),  # The load spent them.
    ],
)
def test_credits_are_a_reason_where_the_load_had_need_of_them(
    start: int, left: int, bound_by: str | None, *, is_reason: bool
) -> None:
    limit = LimitWait(
        limit="vm uncached 6400 IOPS",
        volume="data",
        credits_start=start,
        credits_left=left,
        credits_capacity=1000,
    )
    assert ("the VM's burst credits" in phrases(limit, bound_by)) is is_reason


@pytest.mark.parametrize(
    ("value", "bound", "text"),
    [
        (4.5, 4.5, "4.5"),
        (4.5004, 4.5, "4.5004"),
        (4.4996, 4.5, "4.4996"),
        (4.3771, 4.5, "4.38"),
        (1200.2, 1200.0, "1,200.2"),
        (1187.7, 1200.0, "1,188"),
    ],
)
def test_a_figure_has_the_digits_that_its_verdict_needs(
    value: float, bound: float, text: str
) -> None:
    assert told_apart(value, bound) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.7, "0.7 s"),
        (4.0, "4 s"),
        (60.0, "60 s"),
        (7200.0, "2.0 h"),
        (86_400.0 * 12, "12 days"),
        (2.295e8, "7.3 years"),
    ],
)
def test_a_long_time_is_told_in_days_and_years(seconds: float, text: str) -> None:
    assert span(seconds).replace(SPACE, " ") == text


def test_several_repeats_are_not_called_one() -> None:
    judgement = Judgement(Quantity.OPS, Outcome.CANNOT_TELL, 1.1, None, (2, 2), measured=True)
    assert basis(judgement) == "two valid repeats, too short for an interval"


def test_a_sentence_has_the_number_of_the_table_beside_it() -> None:
    assert [apart(ratio).replace(SPACE, " ") for ratio in (0.71, 1.41, 2.34)] == [
        "29 %",
        "41 %",
        "2.3 times",
    ]


def test_settings_that_nobody_uses_do_not_differ() -> None:
    caching = "cluster.volumes.data.caching"
    old, new = {caching: "None"}, {caching: "None"}
    assert not matters("before.host_cache", old, new)
    assert matters("before.host_cache", old, {caching: "ReadOnly"})
    # A measured run has no share of credits: nobody set it.
    assert not matters("before.credits_ratio", {"before.credits_ratio": 0.0}, {})
    assert matters("cluster.nodes", {"cluster.nodes": 3}, {})
