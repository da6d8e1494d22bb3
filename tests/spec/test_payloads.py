"""How large rows are: what a text says becomes sizes and shares."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from disklab.spec.payloads import row_shape

Z95 = 1.6448536269514722
"""Of a normal distribution, one row of twenty is above so many standard deviations."""


@pytest.mark.parametrize(
    ("text", "median", "p95"),
    [
        ("1 x lognormal median 1KiB p95 8KiB", 1024, 8192),
        ("5 x lognormal  median 200B  p95 500B", 200, 500),
    ],
)
def test_lognormal_rows_have_the_distributions_mean_and_quantiles(
    text: str, median: int, p95: int
) -> None:
    shape = row_shape(text)
    sigma = math.log(p95 / median) / Z95
    shares = [share for _, share in shape.sizes]
    assert sum(shares) == 1
    assert min(shares) == Fraction(1, 4096)
    assert shape.column_bytes == round(median * math.exp(sigma**2 / 2))
    mean = float(sum(bytes_ * share for bytes_, share in shape.sizes))
    assert mean == pytest.approx(shape.column_bytes, rel=0.003)
    # A class of a 64th of the rows holds each quantile.
    for quantile, known in ((0.5, median), (0.95, p95)):
        below, above = (
            shape.bytes_at(Fraction(quantile + step).limit_denominator(1000))
            for step in (-1 / 64, 1 / 64)
        )
        assert below <= known <= above
    squares = float(sum(bytes_**2 * share for bytes_, share in shape.sizes))
    assert squares == pytest.approx((median * math.exp(sigma**2)) ** 2, rel=0.035)


def test_lognormal_rows_are_what_load_and_simulator_take() -> None:
    shape = row_shape("3 x lognormal median 1KiB p95 8KiB")
    assert shape.columns == 3
    taken = shape.of_a_million()
    assert len(taken) == 70
    assert sum(one["share_ppm"] for one in taken) == pytest.approx(10**6, abs=10)
    bytes_ = [one["column_bytes"] for one in taken]
    assert bytes_ == sorted(bytes_)
