"""From pydantic's findings to problems with file, line, key, rule and way out."""

from __future__ import annotations

import re
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem
from disklab.reading import MOST_TOLD
from disklab.spec.amounts import Unreadable
from disklab.spec.located import Document, Key, Located

KEY = "[key]"
"""The end of pydantic's place of a key, not its value."""
# A value is shown to be recognised, on one line.
MOST_SHOWN = 80

GENERAL = "see docs/experiment-file.md"
_QUOTED = re.compile(r"'([^']*)'")


def complaints(
    error: ValidationError,
    model: type[BaseModel],
    document: Document,
    tree: Located,
    general: str = GENERAL,
) -> list[tuple[Key, str, Problem]]:
    """Return the first findings, each with its key and pydantic's name for it.

    `general`: what to read where the finding itself does not tell what to write.
    """
    found = []
    # One more than is told: the last is counted only. Suggestions take milliseconds each.
    for detail in error.errors(include_url=False)[: MOST_TOLD + 1]:
        key: Key = tuple(detail["loc"])
        found.append(
            (key, str(detail["type"]), _problem(detail, key, model, document, tree, general))
        )
    return found


def _problem(  # noqa: PLR0911, PLR0913, PLR0917 - a return for each kind of finding
    detail: Any,
    key: Key,
    model: type[BaseModel],
    document: Document,
    tree: Located,
    general: str,
) -> Problem:
    names_key = key[-1:] == (KEY,)
    key = key[:-1] if names_key else key
    place = document.place(key, tree)
    kind, context = detail["type"], detail.get("ctx", {})
    shown = shortened(repr(key[-1]) if names_key else str(tree.at(key)))
    if kind == "extra_forbidden":
        known = keys_of(model, key[:-1])
        way_out = did_you_mean(str(key[-1]), known, f"known here are {', '.join(known)}")
        return Problem(place, str(key[-1]), "there is no such key", way_out)
    if kind == "missing":
        example = example_of(model, key)
        way_out = f"add it, for example {key[-1]}: {example}" if example else "add it"
        return Problem(place, "(missing)", "is needed", way_out)
    reason = context.get("error")
    if isinstance(reason, Unreadable):
        return Problem(place, shown, reason.rule, reason.way_out)
    if kind == "literal_error":
        choices = _QUOTED.findall(context.get("expected", "")) or [context.get("expected", "")]
        way_out = did_you_mean(shown, choices, f"choose {', '.join(choices)}")
        return Problem(place, shown, f"is not one of {', '.join(choices)}", way_out)
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return Problem(place, shown, "is a mapping", f"write {key[-1]}: {{...}}; {general}")
    if kind == "string_type":
        return Problem(place, shown, "is one word, not a list or mapping", "write one value")
    rule = str(detail["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return Problem(place, shown, f"should be {rule}", general)


def shortened(text: str) -> str:
    """Return the text, cut to what a message shows."""
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def model_at(model: type[BaseModel], key: Key) -> type[BaseModel] | None:
    """Return the model of a section; None: it has none."""
    found: type[BaseModel] | None = model
    names_follow = False
    for step in key:
        if names_follow:  # a name of the user's own, such as that of a volume
            names_follow = False
            continue
        if found is None:
            return None
        fields = found.model_fields.items()
        annotation = next((f.annotation for name, f in fields if (f.alias or name) == step), None)
        found, names_follow = _model_in(annotation)
    return None if names_follow else found


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model in `Model | None`, or in `dict[str, Model]` with True."""
    for inner in (annotation, *get_args(annotation)):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return inner, get_origin(annotation) is dict
    return None, False


def keys_of(model: type[BaseModel], key: Key) -> list[str]:
    """Return the keys that may stand in a section."""
    found = model_at(model, key)
    if found is None:
        return []
    return sorted(field.alias or name for name, field in found.model_fields.items())


def example_of(model: type[BaseModel], key: Key) -> str | None:
    """Return an example of a key's value."""
    parent = model_at(model, key[:-1])
    if parent is None:
        return None
    for name, field in parent.model_fields.items():
        if (field.alias or name) == key[-1] and field.examples:
            return str(field.examples[0])
    return None
