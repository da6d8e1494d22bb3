"""What figures of stored runs can be, and the form that every part of them has."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

# A folder may be damaged or of somebody else's making: figures that nothing can have are refused
# once, here, so that no reader divides by them or takes their logarithm.
LARGEST, SMALLEST = 1e15, 1e-12


def not_tiny(value: float) -> float:
    """Return it; raise ValueError where nobody could divide by it."""
    if 0 < value < SMALLEST:
        raise ValueError(f"is 0, or at least {SMALLEST:g}")
    return value


Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
"""A finite number."""
Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False), AfterValidator(not_tiny)]
"""A rate, a time, a price: what others are divided by."""
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
Level = str | Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | Number


class Record(BaseModel):
    """A part of the shape; keys that this version does not know are kept."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
