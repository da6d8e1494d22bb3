"""What is said where no cell beside published figures counts as an error of the prediction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from disklab.report.history import findings_between
from disklab.report.pair import Comparison

AT_TARGET = "operations under way, not at the target"


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (["calibration row"] * 2, "(calibration row)"),
        (
            [f"published with 441 {AT_TARGET}", f"published with 1,193 {AT_TARGET}"],
            f"(published with other numbers of {AT_TARGET})",
        ),
        (["calibration row", f"published with 441 {AT_TARGET}"], "(the table says why)"),
    ],
)
def test_the_reason_is_that_of_the_cells_and_not_that_they_were_fitted(
    reasons: list[str], words: str
) -> None:
    named = [SimpleNamespace(label=label) for label in ("published", "predict")]
    comparison = SimpleNamespace(
        first=named[0],
        second=named[1],
        counted=(),
        is_history=False,
        matched=[SimpleNamespace(not_counted=reason) for reason in reasons],
    )
    (finding,) = findings_between(cast(Comparison, comparison))
    assert finding.text.startswith("predict compared with published: no cell counts as an error")
    assert finding.text.endswith(words)
