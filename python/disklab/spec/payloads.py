"""How large a row is: one size, several with their shares, lognormal, or a payload's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from math import exp, log
from statistics import NormalDist
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from disklab.catalog.quantity import BYTE_UNITS
from disklab.catalog.suggest import did_you_mean
from disklab.spec.amounts import Unreadable

# Cassandra's native protocol and every driver refuse larger cells and rows long before this.
MOST_COLUMNS = 1000
MOST_COLUMN_BYTES = 16 << 20

MOST_SIZES = 256
"""**Source:** `disklab_units::sizes` of the load engine."""

_BYTES = rf"(\d{{1,12}})\s*({'|'.join(BYTE_UNITS)})"
_ROW = re.compile(rf"(\d{{1,5}})\s*x\s*{_BYTES}", re.ASCII)
_SHARE = rf"(\d{{1,3}}(?:\.\d{{1,4}})?)\s*%\s*{_BYTES}"
_SIZES = re.compile(rf"(\d{{1,5}})\s*x\s*({_SHARE}(?:\s*\+\s*{_SHARE})*)", re.ASCII)
_LOGNORMAL = re.compile(
    rf"(\d{{1,5}})\s*x\s*lognormal\s+median\s+{_BYTES}\s+p95\s+{_BYTES}", re.ASCII
)

EXAMPLE_LOGNORMAL = "1 x lognormal median 1KiB p95 8KiB"

BODY_CLASSES = 64
"""Of a lognormal distribution, each with as many rows.

**Reason:** rows of a class are alike, with the mean of its bytes, so that the mean is kept. With 64
classes and the tail below, the mean of the squares, which the reading of long rows hangs on, is 3 %
below the distribution's where the p95 is eight times the median.
"""

FINEST_CLASS = Fraction(1, 4096)
"""The last class is halved down to this share: the tail that a p99.9 is about.

**Source:** a share is kept to so much by `disklab_units::sizes`.
"""


class Payload(BaseModel):
    """A row: so many blob columns of one size, beside the key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: int = Field(ge=1, le=MOST_COLUMNS)
    column_bytes: int = Field(ge=1, le=MOST_COLUMN_BYTES)
    status: Literal["published", "assumed"]
    reason: str


@dataclass(frozen=True)
class RowShape:
    """The columns of a row, and their sizes."""

    columns: int
    column_bytes: int
    """Of each column; where rows have several sizes, the mean."""
    sizes: tuple[tuple[int, Fraction], ...] = ()
    """Bytes of each column and the share of the rows that have them; empty: all have one size."""

    def of_a_million(self) -> list[dict[str, int]]:
        """Return the sizes as load and simulator read them; empty: all rows have one."""
        return [
            {"column_bytes": column_bytes, "share_ppm": round(share * 10**6)}
            for column_bytes, share in self.sizes
        ]

    def bytes_at(self, share: Fraction) -> int:
        """Return the bytes of each column that so many of the rows do not exceed."""
        so_far = Fraction(0)
        for column_bytes, part in sorted(self.sizes):
            so_far += part
            if so_far >= share:
                return column_bytes
        return self.column_bytes


@cache
def payloads() -> dict[str, Payload]:
    """Return the named payloads."""
    text = (resources.files("disklab.spec") / "payloads.yaml").read_text(encoding="utf-8")
    return {name: Payload.model_validate(given) for name, given in yaml.safe_load(text).items()}


@cache
def row_shape(text: str) -> RowShape:
    """Return columns and bytes of each. Raises Unreadable."""
    known = payloads()
    if text in known:
        return RowShape(known[text].columns, known[text].column_bytes)
    several = _SIZES.fullmatch(text.strip())
    if several is not None:
        return _shape_of(int(several[1]), re.findall(_SHARE, several[2], re.ASCII))
    lognormal = _LOGNORMAL.fullmatch(text.strip())
    if lognormal is not None:
        columns, median, unit, p95, p95_unit = lognormal.groups()
        return _lognormal(
            int(columns), int(median) * BYTE_UNITS[unit], int(p95) * BYTE_UNITS[p95_unit]
        )
    if "lognormal" in text:
        rule = "a lognormal row reads COLUMNS x lognormal median BYTES p95 BYTES"
        raise Unreadable(rule, f"write for example {EXAMPLE_LOGNORMAL}")
    found = _ROW.fullmatch(text.strip())
    if found is None:
        otherwise = f"write for example 5 x 818B, or {' or '.join(known)}"
        way_out = did_you_mean(text, known, otherwise)
        raise Unreadable("a row reads COLUMNS x BYTES, or is a payload's name", way_out)
    columns, column_bytes = int(found[1]), int(found[2]) * BYTE_UNITS[found[3]]
    _check(columns, column_bytes)
    return RowShape(columns, column_bytes)


def _shape_of(columns: int, parts: list[tuple[str, str, str]]) -> RowShape:
    """Return the shape of rows of several sizes: shares in percent, numbers, and units."""
    sizes = tuple((int(n) * BYTE_UNITS[unit], Fraction(share) / 100) for share, n, unit in parts)
    for column_bytes, _ in sizes:
        _check(columns, column_bytes)
    if any(share == 0 for _, share in sizes) or sum(share for _, share in sizes) != 1:
        raise Unreadable(
            "the shares of rows are above 0% and add up to 100%",
            "write for example 1 x 60% 200B + 40% 4KiB",
        )
    if len(sizes) > MOST_SIZES:
        raise Unreadable(f"rows have at most {MOST_SIZES} sizes", "leave out the rarest")
    mean = round(sum(column_bytes * share for column_bytes, share in sizes))
    return RowShape(columns, mean, sizes)


def _lognormal(columns: int, median_bytes: int, p95_bytes: int) -> RowShape:
    """Return the shape of rows whose column bytes are lognormal, in classes of their mean bytes."""
    _check(columns, median_bytes)
    _check(columns, p95_bytes)
    if p95_bytes <= median_bytes:
        rule = f"the p95 of rows is above their median of {median_bytes} bytes"
        raise Unreadable(
            rule, f"write for example {EXAMPLE_LOGNORMAL}, or {columns} x {median_bytes}B"
        )
    normal = NormalDist()
    sigma = log(p95_bytes / median_bytes) / normal.inv_cdf(0.95)
    mean = median_bytes * exp(sigma * sigma / 2)

    def below(quantile: Fraction) -> float:
        """Return the part of the mean that the smallest rows have: the partial expectation."""
        if quantile in (0, 1):
            return float(quantile)
        return normal.cdf(normal.inv_cdf(float(quantile)) - sigma)

    shares = _class_shares()
    sizes: dict[int, Fraction] = {}
    at = Fraction(0)
    for share in shares:
        of_class = mean * (below(at + share) - below(at)) / float(share)
        bytes_ = max(1, round(of_class))
        sizes[bytes_] = sizes.get(bytes_, Fraction(0)) + share
        at += share
    largest = max(sizes)
    if largest > MOST_COLUMN_BYTES:
        rule = f"the largest of 4,096 rows would have columns of {largest} bytes, and 16MiB is most"
        raise Unreadable(rule, "write a smaller p95")
    return RowShape(columns, max(1, round(mean)), tuple(sizes.items()))


def _class_shares() -> list[Fraction]:
    """Return the shares of classes, smallest rows first: equal ones, then the last one's halves."""
    equal = Fraction(1, BODY_CLASSES)
    shares = [equal] * (BODY_CLASSES - 1)
    left = equal
    while left > FINEST_CLASS:
        left /= 2
        shares.append(left)
    return [*shares, left]


def _check(columns: int, column_bytes: int) -> None:
    if not 1 <= columns <= MOST_COLUMNS or not 1 <= column_bytes <= MOST_COLUMN_BYTES:
        rule = f"a row has 1 to {MOST_COLUMNS} columns of 1B to 16MiB"
        raise Unreadable(rule, "write for example 5 x 818B")


def _checked(value: Any) -> str:
    row_shape(str(value))
    return str(value)


RowText = Annotated[
    str,
    BeforeValidator(_checked),
    WithJsonSchema(
        {
            "title": "row",
            "anyOf": [
                {"type": "string", "pattern": rf"^\d+\s*x\s*\d+\s*({'|'.join(BYTE_UNITS)})$"},
                {"type": "string", "pattern": r"^\d+\s*x\s*\d+(\.\d+)?\s*%"},
                {"type": "string", "pattern": r"^\d+\s*x\s*lognormal\s"},
                {"enum": sorted(payloads())},
            ],
        }
    ),
]
