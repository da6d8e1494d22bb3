"""How large a row is: `5 x 818B`, or a payload's name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from disklab.catalog.quantity import BYTE_UNITS
from disklab.catalog.suggest import did_you_mean
from disklab.spec.amounts import Unreadable

# Cassandra's native protocol and every driver refuse larger cells and rows long before this.
MOST_COLUMNS = 1000
MOST_COLUMN_BYTES = 16 << 20

_ROW = re.compile(rf"(\d{{1,5}})\s*x\s*(\d{{1,12}})\s*({'|'.join(BYTE_UNITS)})", re.ASCII)


class Payload(BaseModel):
    """A row: so many blob columns of one size, beside the key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: int = Field(ge=1, le=MOST_COLUMNS)
    column_bytes: int = Field(ge=1, le=MOST_COLUMN_BYTES)
    status: Literal["published", "assumed"]
    reason: str


@cache
def payloads() -> dict[str, Payload]:
    """Return the named payloads."""
    text = (resources.files("disklab.spec") / "payloads.yaml").read_text(encoding="utf-8")
    return {name: Payload.model_validate(given) for name, given in yaml.safe_load(text).items()}


def row_shape(text: str) -> tuple[int, int]:
    """Return columns and bytes of each. Raises Unreadable."""
    known = payloads()
    if text in known:
        return known[text].columns, known[text].column_bytes
    found = _ROW.fullmatch(text.strip())
    if found is None:
        otherwise = f"write for example 5 x 818B, or {' or '.join(known)}"
        way_out = did_you_mean(text, known, otherwise)
        raise Unreadable("a row reads COLUMNS x BYTES, or is a payload's name", way_out)
    columns, column_bytes = int(found[1]), int(found[2]) * BYTE_UNITS[found[3]]
    if not 1 <= columns <= MOST_COLUMNS or not 1 <= column_bytes <= MOST_COLUMN_BYTES:
        rule = f"a row has 1 to {MOST_COLUMNS} columns of 1B to 16MiB"
        raise Unreadable(rule, "write for example 5 x 818B")
    return columns, column_bytes


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
                {"enum": sorted(payloads())},
            ],
        }
    ),
]
