"""Amounts as an experiment writes them, and the number each becomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from disklab.catalog.quantity import BYTES_PATTERN, BYTES_RULE, parse_bytes
from disklab.reading import RESOLVED

# What the sections of an experiment file share.


class Part(BaseModel):
    """A frozen section. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class WrongKindError(TypeError):
    """Something was asked of a specification that its kind does not have."""


Kept = TypeVar("Kept")


def given(part: Kept | None, name: str) -> Kept:
    """Return what a specification of some kind has. Raises WrongKindError for one of another."""
    if part is None:
        raise WrongKindError(f"this specification has no {name}")
    return part


def only(kind: type[Kept], part: object) -> Kept:
    """Return one of several parts, which is of this kind. Raises WrongKindError."""
    return given(part if isinstance(part, kind) else None, kind.__name__)


class Unreadable(ValueError):  # noqa: N818 - pydantic wants a ValueError; the words make the message
    """A value that breaks the rule of its kind, and what to write instead."""

    def __init__(self, rule: str, way_out: str) -> None:
        super().__init__(f"{rule}; {way_out}")
        self.rule = rule
        self.way_out = way_out


# Ratios are sums of a few decimal fractions: this is far below any that people write.
RATIO_SLACK = 1e-9

# What a row count, an operation count or a rate may be multiplied by: SI's, as people write 10M.
MULTIPLES = {"k": 10**3, "M": 10**6, "G": 10**9}
SECONDS = {
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}

# Counts beyond this are slips: a million million rows of a byte fill no disk of the catalogue.
MOST_COUNT = 10**12
LONGEST_S = 30 * 24 * 3600  # a month of one trial is a slip as well

_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_COUNT = re.compile(rf"{_NUMBER}\s*([kMG])?", re.ASCII)
_RATE = re.compile(rf"{_NUMBER}\s*([kMG])?\s*/\s*s", re.ASCII)
_TIME = re.compile(rf"{_NUMBER}\s*(us|ms|s|min|h)", re.ASCII)
BANDWIDTHS = {
    "kB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "kbit": Fraction(10**3, 8),
    "Mbit": Fraction(10**6, 8),
    "Gbit": Fraction(10**9, 8),
}
_BANDWIDTH_PATTERN = rf"\d+(\.\d+)?\s*({'|'.join(BANDWIDTHS)})/s"
_BANDWIDTH = re.compile(rf"{_NUMBER}\s*({'|'.join(BANDWIDTHS)})/s", re.ASCII)
_PERCENT = re.compile(rf"{_NUMBER}\s*%", re.ASCII)
_SCALE = re.compile(r"(\d{1,9})\s*(?:/\s*(\d{1,9}))?", re.ASCII)


def or_resolved(
    read: Callable[[Any], float], most: float
) -> Callable[[Any, ValidationInfo], float]:
    """Return a reader that takes a plain number up to `most` where the context is `RESOLVED`."""

    def either(value: Any, info: ValidationInfo) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if info.context == RESOLVED and number and 0 <= value <= most:
            return float(value)
        return read(value)

    return either


def counted(least: int = 1, most: int = MOST_COUNT, example: str = "10M") -> Callable[[Any], int]:
    """Return a reader of whole numbers: `128`, `150k`, `10M`."""

    def read(value: Any) -> int:
        found = _COUNT.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
        amount = Fraction(found[1]) * MULTIPLES.get(found[2] or "", 1) if found else None
        if amount is None or amount.denominator != 1:
            rule = "is not a whole number; k, M and G are thousands, millions and billions"
            raise Unreadable(rule, f"write for example {example}")
        if not least <= amount <= most:
            ends = f"from {least}" if amount < least else f"up to {most}"
            raise Unreadable(f"must be {ends}", f"write for example {example}")
        return int(amount)

    return read


def byte_count(value: Any) -> int:
    """Read `64KiB` or a number of bytes."""
    if str(value).strip().startswith("-"):
        raise Unreadable("an amount of data is not negative", "write 0 or for example 8KiB")
    try:
        return parse_bytes(str(value)) if not isinstance(value, bool) else parse_bytes("no")
    except ValueError:
        raise Unreadable(f"is not {BYTES_RULE}", "write for example 64KiB") from None


def rate(value: Any) -> float:
    """Read `20000/s` or `20k/s`; a bare number would leave the unit open."""
    found = _RATE.fullmatch(str(value).strip())
    if found is None:
        bare = _COUNT.fullmatch(str(value).strip())
        way_out = f"write {value}/s" if bare else "write for example 20000/s"
        raise Unreadable("a rate is a number of operations a second", way_out)
    amount = Fraction(found[1]) * MULTIPLES.get(found[2] or "", 1)
    if not 0 < amount <= MOST_COUNT:
        raise Unreadable("a rate is above 0", "write for example 20000/s")
    return float(amount)


def bandwidth(value: Any) -> int:
    """Read `10MB/s` or `100Mbit/s` as bytes a second."""
    found = _BANDWIDTH.fullmatch(str(value).strip())
    amount = Fraction(found[1]) * BANDWIDTHS[found[2]] if found else Fraction(0)
    if not 1 <= amount <= MOST_COUNT:
        rule = "a bandwidth is an amount of data a second"
        raise Unreadable(rule, "write for example 10MB/s or 100Mbit/s")
    return int(amount)


def _time(value: Any) -> Fraction:
    found = _TIME.fullmatch(str(value).strip())
    if found is None:
        bare = _COUNT.fullmatch(str(value).strip())
        way_out = f"write {value}s or {value}ms" if bare else "write for example 300s or 10ms"
        raise Unreadable("a time is a number with us, ms, s, min or h", way_out)
    amount = Fraction(found[1]) * SECONDS[found[2]]
    if amount > LONGEST_S:
        raise Unreadable("a trial lasts 30 days at most", "write for example 1800s")
    return amount


def seconds(value: Any) -> float:
    """Read `300s`, `5min` or `50us` as seconds."""
    return float(_time(value))


def milliseconds(value: Any) -> float:
    """Read `10ms` as milliseconds."""
    return float(_time(value) * 1000)


def ratio(value: Any) -> float:
    """Read `30%`, or a number from 0 to 1."""
    found = _PERCENT.fullmatch(str(value).strip())
    if found is not None:
        amount = float(Fraction(found[1]) / 100)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        amount = float(value)
    else:
        raise Unreadable("is not a share", "write for example 30%")
    if not 0 <= amount <= 1:
        is_percent = found is None and 1 < amount <= 100
        way_out = f"write {value}%" if is_percent else "write for example 30%"
        raise Unreadable("a share is between 0 % and 100 %", way_out)
    return amount


def scale(value: Any) -> Fraction:
    """Read `1/100`."""
    found = _SCALE.fullmatch(str(value).strip())
    bottom = int(found[2] or 1) if found else 0
    if found is None or bottom == 0 or not 0 < (amount := Fraction(int(found[1]), bottom)) <= 1:
        raise Unreadable("a scale shrinks: a fraction above 0 and at most 1", "write 1/100")
    return amount


def _schema(pattern: str, what: str, *, number: bool) -> WithJsonSchema:
    text: dict[str, Any] = {"type": "string", "pattern": f"^{pattern}$"}
    return WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, text], "title": what}
        if number
        else {**text, "title": what}
    )


_COUNT_PATTERN = r"\d+(\.\d+)?\s*[kMG]?"

Bytes = Annotated[int, BeforeValidator(byte_count), _schema(BYTES_PATTERN, "bytes", number=True)]
Count = Annotated[int, BeforeValidator(counted()), _schema(_COUNT_PATTERN, "count", number=True)]
Rate = Annotated[
    float,
    BeforeValidator(or_resolved(rate, MOST_COUNT)),
    _schema(r"\d+(\.\d+)?\s*[kMG]?\s*/\s*s", "rate", number=False),
]
_TIME_PATTERN = r"\d+(\.\d+)?\s*(us|ms|s|min|h)"
_TIME_SCHEMA = _schema(_TIME_PATTERN, "time", number=False)
Seconds = Annotated[float, BeforeValidator(or_resolved(seconds, LONGEST_S)), _TIME_SCHEMA]
Milliseconds = Annotated[
    float, BeforeValidator(or_resolved(milliseconds, LONGEST_S * 1000)), _TIME_SCHEMA
]
Bandwidth = Annotated[
    int,
    BeforeValidator(or_resolved(bandwidth, MOST_COUNT)),
    _schema(_BANDWIDTH_PATTERN, "bandwidth", number=False),
]
Ratio = Annotated[float, BeforeValidator(ratio), _schema(r"\d+(\.\d+)?\s*%", "share", number=True)]
Scale = Annotated[
    Fraction,
    BeforeValidator(scale),
    PlainSerializer(str, return_type=str),
    _schema(r"\d+\s*(/\s*\d+)?", "scale", number=True),
]


def _within(least: int, most: int, example: str) -> tuple[BeforeValidator, WithJsonSchema]:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return BeforeValidator(counted(least, most, example)), WithJsonSchema(schema)


_NODES, _NODES_SCHEMA = _within(1, 1000, "6")  # more than any published study has
# Beyond it a cold start of a database alone would take hours.
MOST_TIME_DILATION = 100
_DILATION, _DILATION_SCHEMA = _within(1, MOST_TIME_DILATION, "8")
_THREADS, _THREADS_SCHEMA = _within(1, 100_000, "128")
_PENDING, _PENDING_SCHEMA = _within(0, 100_000, "20")

Nodes = Annotated[int, _NODES, _NODES_SCHEMA]
Threads = Annotated[int, _THREADS, _THREADS_SCHEMA]
TimeDilation = Annotated[int, _DILATION, _DILATION_SCHEMA]
Pending = Annotated[int, _PENDING, _PENDING_SCHEMA]
