"""Files whose form is a model: every finding with its line, its rule and a way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from disklab import reading
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem

Location = tuple[int | str, ...]
"""A path into a YAML document."""
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Form(Generic[M]):
    """What a file has to be."""

    model: type[M]
    kind: reading.Kind
    schema: str
    """The command that prints the form."""

    def validated(
        self, text: str, place: str, *, ours: bool = False
    ) -> tuple[M | None, list[Problem]]:
        """Return what a text says, or None, and its problems; `place` names the file.

        `ours`: it is a file of the package, in which no key stands twice.
        """
        content = reading.yaml_value(text, self.kind, place, ours=ours)
        lines = Lines(text, place, self.kind)
        try:
            document = self.model.model_validate({} if content is None else content)
        except ValidationError as error:
            details = error.errors(include_url=False)
            problems = [_problem(detail, lines, self) for detail in details[: reading.MOST_TOLD]]
            every = [*problems, *lines.repeated()]
            return None, reading.bounded(every, place, len(details))
        return document, [] if ours else reading.bounded(lines.repeated(), place)


def _problem(detail: Any, lines: Lines, form: Form[M]) -> Problem:
    """Turn one of pydantic's findings into a problem."""
    location: Location = tuple(step for step in detail["loc"] if step != "[key]")
    place = lines.place(location)
    value = repr(detail["input"])
    if len(value) > 60:  # enough to recognise it on one line
        value = value[:57] + "..."
    if detail["type"] == "extra_forbidden":
        known = _fields_at(form.model, location[:-1])
        way_out = did_you_mean(str(location[-1]), known, f"known are {', '.join(known)}")
        return Problem(place, repr(location[-1]), "there is no such key", way_out)
    if detail["type"] == "missing":
        return Problem(place, repr(location[-1]), "this key is required", "add it")
    rule = str(detail["msg"]).removeprefix("Value error, ")
    return Problem(place, value, rule, f"correct it; `{form.schema}` prints the form of the file")


def _fields_at(model: Any, location: Location) -> list[str]:
    """Return the keys that may stand at a place of a document."""
    annotation: Any = model
    for step in location:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = annotation.model_fields.items()
            annotation = next((f.annotation for name, f in fields if step in (name, f.alias)), None)
        else:
            annotation = _innermost(annotation)
    annotation = _innermost(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return sorted(field.alias or name for name, field in annotation.model_fields.items())
    return []


def _innermost(annotation: Any) -> Any:
    """Return the model inside `dict[str, Model]`, `list[Model]` or `Model | None`."""
    while not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        inner = [
            argument
            for argument in get_args(annotation)
            if argument is not type(None) and argument is not str and not _is_metadata(argument)
        ]
        if not inner:
            return annotation
        of_names = get_origin(annotation) in (dict, Mapping)
        annotation = inner[-1] if of_names else inner[0]
    return annotation


def _is_metadata(argument: Any) -> bool:
    """Return whether a type argument is pydantic's metadata and not a type."""
    return not isinstance(argument, type) and not get_args(argument)


class Lines:
    """Finds the line of a place in a YAML text; composes the text only when asked."""

    def __init__(self, text: str, place: str, kind: reading.Kind) -> None:
        """Take a text, what the errors call it, and what kind of file it is."""
        self._text, self._place, self._kind = text, place, kind
        self._root: yaml.Node | None = None

    def _node(self) -> yaml.Node | None:
        if self._root is None:
            self._root = reading.yaml_node(self._text, self._kind, self._place)
        return self._root

    def place(self, location: Sequence[int | str]) -> str:
        """Return `file:line: dotted.path`; the line of the nearest part that exists."""
        node = self._node()
        line = 1
        for step in location:
            if isinstance(node, yaml.MappingNode):
                pairs = [pair for pair in node.value if str(pair[0].value) == str(step)]
                if not pairs:
                    break
                line, node = pairs[0][0].start_mark.line + 1, pairs[0][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
                line = node.start_mark.line + 1
            else:
                break
        return f"{self._place}:{line}: {'.'.join(str(step) for step in location)}"

    def repeated(self) -> list[Problem]:
        """Return the keys that stand twice in one mapping: YAML would silently keep the last."""
        found: list[Problem] = []
        todo = [self._node()]
        while todo:
            node = todo.pop()
            if isinstance(node, yaml.MappingNode):
                seen: dict[str, int] = {}
                for key, value in node.value:
                    line = key.start_mark.line + 1
                    if key.value in seen:
                        rule = f"the key stands on line {seen[key.value]} already"
                        place = f"{self._place}:{line}"
                        found.append(Problem(place, repr(key.value), rule, "remove one of them"))
                    seen[key.value] = line
                    todo.append(value)
            elif isinstance(node, yaml.SequenceNode):
                todo.extend(node.value)
        return found
