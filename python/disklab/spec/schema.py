"""The experiment file's form: as JSON Schema for editors, as rows for the documentation."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel

from disklab.spec.model import ExperimentFile

PUBLISHED = "https://raw.githubusercontent.com/disklab/disklab/main/docs/"
"""Where the committed schemas lie; packaging/schemastore.json names the files that have them."""


def schema_of(model: type[BaseModel], name: str) -> dict[str, Any]:
    """Return a file's schema. Keys have descriptions, words their choices, amounts patterns.

    `name`: `experiment` or `hosts`, as in the name of the schema's file.
    """
    made = _tidied(_described(model.model_json_schema(by_alias=True, mode="validation"), model))
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{PUBLISHED}{name}.schema.json",
    }
    return {**head, **made, "title": f"disklab {name}"}


def schema() -> dict[str, Any]:
    """Return the schema of experiment files."""
    # A baseline may leave to its factors what a trial needs.
    return {**schema_of(ExperimentFile, "experiment"), "required": ["title"]}


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what the text below each field says, on one line.

    Read here, from the source: pydantic would read it whenever the module is imported, which costs
    every command a fifth of a second.
    """
    found: dict[str, str] = {}
    for base in model.__bases__:
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= meanings(base)
    written = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(written, ast.ClassDef)
    for field, below in pairwise(written.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return {name: text for name, text in found.items() if name in model.model_fields}


def parts_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model and all that its fields can hold, each once."""
    waiting, met = [model], {model}
    while waiting:
        part = waiting.pop()
        yield part
        kinds: list[Any] = [field.annotation for field in part.model_fields.values()]
        while kinds:
            kind = kinds.pop()
            kinds += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in met:
                met.add(kind)
                waiting.append(kind)


def _described(made: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Put what each key means into a schema."""
    for part in parts_of(model):
        form = made if part is model else made.get("$defs", {}).get(part.__name__, {})
        for name, meaning in meanings(part).items():
            key = part.model_fields[name].alias or name
            if key in form.get("properties", {}):
                keyed = {"description": meaning, **form["properties"][key]}
                form["properties"][key] = dict(sorted(keyed.items()))
    return made


def _tidied(part: Any) -> Any:
    """Return the schema with each description on one line."""
    if isinstance(part, dict):
        found = {key: _tidied(value) for key, value in part.items()}
        if isinstance(found.get("description"), str):
            found["description"] = " ".join(found["description"].split())
        return found
    return [_tidied(item) for item in part] if isinstance(part, list) else part


def schema_text(made: dict[str, Any] | None = None) -> str:
    """Return a schema as it is committed; without one that of experiment files."""
    return json.dumps(made or schema(), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class KeyRow:
    """One key of the file, as the documentation lists it."""

    key: str
    kind: str
    default: str
    example: str
    meaning: str


def key_rows() -> Iterator[KeyRow]:
    """Yield every key of the file with its sections, in the order of the form."""
    whole = schema()
    order = ("title", "source")
    names = [*order, *(name for name in whole["properties"] if name not in order)]
    for name in names:
        yield from _rows(whole, name, whole["properties"][name], required=name == "title")


def _rows(
    whole: dict[str, Any], key: str, part: dict[str, Any], *, required: bool
) -> Iterator[KeyRow]:
    section, named = _section(whole, part)
    yield KeyRow(
        key,
        "section" if section else _kind(part),
        "needed" if required else _default(part, is_section=section is not None),
        "" if section else _shown(next(iter(part.get("examples", [])), None)),
        part.get("description") or (section or {}).get("description", ""),
    )
    if section is not None and key != "device.volume":  # listed with the cluster's volumes
        inner = f"{key}.NAME" if named else key
        needed = section.get("required", [])
        for name, child in section["properties"].items():
            yield from _rows(whole, f"{inner}.{name}", child, required=name in needed)


def _section(whole: dict[str, Any], part: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """Return the section that a key holds, and whether it holds several by name."""
    for form in (part, *part.get("anyOf", [])):
        if "$ref" in form:
            found = whole["$defs"][form["$ref"].rpartition("/")[2]]
            return (found if found.get("properties") else None), False
        inner = form.get("additionalProperties")
        if isinstance(inner, dict) and "$ref" in inner:
            return whole["$defs"][inner["$ref"].rpartition("/")[2]], True
    return None, False


def _kind(part: dict[str, Any]) -> str:
    """Return what may be written, in words."""
    forms = [form for form in part.get("anyOf", [part]) if form.get("type") != "null"]
    for form in (part, *forms):
        if "enum" in form:
            return " or ".join(map(str, form["enum"]))
        if "const" in form:
            return _shown(form["const"])
        if form.get("title") in UNITS:
            return UNITS[form["title"]]
    if "minimum" in forms[0] and "maximum" in forms[0]:
        return f"whole number, {forms[0]['minimum']} to {forms[0]['maximum']}"
    return {"string": "word", "boolean": "true or false", "number": "number"}.get(
        str(forms[0].get("type")), "mapping"
    )


UNITS = {
    "bytes": "bytes: `8KiB`, `4096`",
    "count": "count: `10M`, `150k`, `128`",
    "rate": "rate: `20000/s`",
    "time": "time: `300s`, `10ms`, `5min`",
    "share": "share: `30%`, `0.3`",
    "scale": "scale: `1/100`",
    "block": "`8k`, `1M`",
    "money": "money: `5000 USD/month`",
    "a year": "number a year: `8%`, `2`",
    "row": (
        "`COLUMNS x BYTES`, `COLUMNS x SHARE BYTES + SHARE BYTES`, "
        "`COLUMNS x lognormal median BYTES p95 BYTES`, small or medium"
    ),
}
"""An amount's title in the schema, and how it is written."""


def _default(part: dict[str, Any], *, is_section: bool) -> str:
    if is_section or part.get("default") in (None, "", {}):
        return ""
    return _shown(part["default"])


def _shown(value: Any) -> str:
    """Return a value as an experiment file has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
