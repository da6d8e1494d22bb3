"""How sentences read."""

from __future__ import annotations

import pytest
from disklab.report.wording import SPACE, milliseconds, percent, with_spans


def test_sentences_that_differ_in_a_percentage_become_one() -> None:
    told = with_spans(
        [
            f"None was bound by its latency: 98{SPACE}% of the time",
            f"99.6{SPACE}% of reads came from the cache",
            f"None was bound by its latency: 100{SPACE}% of the time",
            f"None was bound by its latency: 95{SPACE}% of the time",
            "credits ran out after 5 s",
            "credits ran out after 7 s",
            "credits ran out after 5 s",
        ]
    )
    assert told == [
        f"None was bound by its latency: 95{SPACE}% to 100{SPACE}% of the time",
        f"99.6{SPACE}% of reads came from the cache",
        "credits ran out after 5 s",
        "credits ran out after 7 s",
    ]


def test_what_has_two_percentages_is_left_alone() -> None:
    told = [f"{one}{SPACE}% against {other}{SPACE}%" for one, other in ((5, 6), (7, 8), (5, 6))]
    assert with_spans(told) == told[:2]


@pytest.mark.parametrize(
    ("ms", "text"), [(0.9123, "0.912"), (7.376, "7.38"), (999.4, "999"), (44_280.0, "44,300")]
)
def test_milliseconds_have_no_exponent(ms: float, text: str) -> None:
    assert milliseconds(ms) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (7.4e-7, "0"), (0.0001, "0.01"), (0.0042, "0.42"), (0.5, "50"), (0.999, "99.9")],
)
def test_a_share_that_is_next_to_nothing_is_none(share: float, text: str) -> None:
    assert percent(share) == f"{text}{SPACE}%"
