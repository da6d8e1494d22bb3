"""YAML whose every value keeps its line, so that an error can name it after any patch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from disklab import reading
from disklab.catalog.quantity import plain_number
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError
from disklab.reading import MOST_TOLD
from disklab.spec import bundled
from disklab.spec.amounts import Unreadable

# Files of other tools where an experiment is expected: what to write instead.

STRESS_KEYS = frozenset({"keyspace_definition", "table_definition", "columnspec"})
"""Keys of cassandra-stress's user profiles, which are YAML too."""


def is_stress_profile(keys: Iterable[str]) -> bool:
    """Return whether a file with such keys is a user profile of cassandra-stress."""
    return not STRESS_KEYS.isdisjoint(keys)


def stress_problem(path: Path) -> Problem:
    """Return what to say of a user profile of cassandra-stress."""
    rule = "is a user profile of cassandra-stress, not an experiment"
    way_out = (
        "write its rows as `dataset` and its load as `workload`, see docs/experiment-file.md; "
        "partitions of many rows and queries of one's own cannot be predicted"
    )
    return Problem(f"{path}:1", path.name, rule, way_out)


YCSB_NAMES = frozenset({"recordcount", "readproportion", "updateproportion", "requestdistribution"})
"""Properties that a workload of YCSB has, and nothing else. **Source:** YCSB 0.17.0."""
PROPERTY = re.compile(r"^\s*([A-Za-z][\w.]*)\s*=\s*([\w.%-]{1,40})\s*$", re.ASCII | re.MULTILINE)

FIELDS, FIELD_BYTES = "10", "100"
"""YCSB's defaults: a row has ten fields of 100 bytes."""

OPERATIONS = {
    "readproportion": ("read", "0.95"),
    "updateproportion": ("write", "0.05"),
    "insertproportion": ("insert", "0"),
    "scanproportion": ("scan", "0"),
    "readmodifywriteproportion": ("read_modify_write", "0"),
}
"""A share's property, our operation, and YCSB's default."""
KEYS = ("uniform", "zipfian", "latest", "sequential")


def properties(text: str) -> dict[str, str]:
    """Return the properties of a text of `name=value` lines."""
    return {match[1]: match[2] for match in PROPERTY.finditer(text)}


def is_ycsb_workload(text: str) -> bool:
    """Return whether a text is a workload file of YCSB."""
    return len(YCSB_NAMES & properties(text).keys()) > 1


def ycsb_problem(path: Path, text: str) -> Problem:
    """Return what to say of a workload file of YCSB: the same load as an experiment has it."""
    given = properties(text)
    shares = {
        operation: f"{plain_number(float(share) * 100)}%"
        for name, (operation, usual) in OPERATIONS.items()
        if is_share(share := given.get(name, usual)) and float(share)
    }
    keys = given.get("requestdistribution", "uniform")
    work = {"operations": mapping(shares)} | ({"keys": keys} if keys in KEYS else {})
    row = f"{given.get('fieldcount', FIELDS)} x {given.get('fieldlength', FIELD_BYTES)}B"
    rows = {"rows": given.get("recordcount", "10M"), "row": row}
    rule = "is a workload file of YCSB, not an experiment"
    way_out = (
        f"write `dataset: {mapping(rows)}` and `workload: {mapping(work)}` with cluster, database "
        "and load; `disklab experiment new FILE` makes such a file"
    )
    return Problem(f"{path}:1", path.name, rule, way_out)


def is_share(text: str) -> bool:
    """Return whether a property is a share."""
    return re.fullmatch(r"[01]?(\.\d+)?", text, re.ASCII) is not None and bool(text)


def mapping(entries: dict[str, str]) -> str:
    """Return entries as YAML on one line."""
    return "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"


Scalar = str | int | float | bool | None
Key = tuple[str | int, ...]
"""A path into a document: `("cluster", "nodes")`."""

# YAML 1.2's core schema, not PyYAML's 1.1, in which `off` is false and 1:30 is ninety.
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True)
class Located:
    """A value and the line where it stands; mappings and lists hold located values."""

    value: Scalar | dict[str, Located] | list[Located]
    line: int
    text: str = ""
    """A scalar as it was written."""
    set_by: str | None = None
    """The factor whose level gave this value; None: the baseline."""

    @property
    def mapping(self) -> dict[str, Located] | None:
        """The entries, when this is a mapping."""
        return self.value if isinstance(self.value, dict) else None

    def plain(self) -> Any:
        """Return the value without lines."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value

    def __str__(self) -> str:
        """Return the value on one line, as it could be written."""
        if isinstance(self.value, dict):
            return f"{{{', '.join(f'{key}: {item}' for key, item in self.value.items())}}}"
        if isinstance(self.value, list):
            return f"[{', '.join(map(str, self.value))}]"
        return self.text

    def at(self, key: Sequence[str | int]) -> Located:
        """Return the value of a path, or of the nearest part of it that exists."""
        found = self
        for step in key:
            inner: Located | None = None
            if isinstance(found.value, dict):
                inner = found.value.get(str(step))
            elif isinstance(found.value, list) and isinstance(step, int):
                inner = found.value[step] if step < len(found.value) else None
            if inner is None:
                break
            found = inner
        return found


@dataclass(frozen=True)
class Document:
    """A file, its text and what it says."""

    path: Path
    text: str
    root: Located

    def place(self, key: Sequence[str | int], tree: Located | None = None) -> str:
        """Return `file:line: dotted.key`, the line of the nearest part that exists."""
        line = (tree or self.root).at(key).line
        return f"{self.path}:{line}: {'.'.join(map(str, key))}"


@dataclass(frozen=True)
class Site:
    """A trial's values and their places in the file."""

    document: Document
    tree: Located

    def place(self, key: Key) -> str:
        """Return `file:line: dotted.key`."""
        return self.document.place(key, self.tree)

    def text(self, key: Key) -> str:
        """Return a value as it was written."""
        return str(self.tree.at(key))

    def value(self, key: Key) -> Located | None:
        """Return the value of a key; None: the file has none."""
        found: Located | None = self.tree
        for step in key:
            found = (found.mapping or {}).get(str(step)) if found else None
        return found

    def word(self, key: Key) -> str | None:
        """Return a scalar as it was written."""
        found = self.value(key)
        scalar = found is not None and not isinstance(found.value, dict | list | None)
        return found.text if found is not None and scalar else None

    def mapping(self, key: Key) -> dict[str, Located]:
        """Return the entries of a mapping; none where there is none."""
        found = self.value(key)
        return (found.mapping if found else None) or {}


@dataclass
class _Reader:
    """Turns YAML nodes, whose depth and number are bounded, into located values."""

    path: Path
    problems: list[Problem] = field(default_factory=list)

    def read(self, node: yaml.Node, line: int) -> Located:
        if isinstance(node, yaml.MappingNode):
            return Located(self.entries(node), line)
        if isinstance(node, yaml.SequenceNode):
            return Located([self.read(item, line_of(item)) for item in node.value], line)
        self.check(node)
        return Located(scalar(node), line, node.value)

    def check(self, node: yaml.Node) -> None:
        """Note a text that would do something to a terminal, or that no file can hold."""
        if found := reading.UNSAFE.search(str(node.value)):
            rule = f"text holds no control characters; this has U+{ord(found[0]):04X}"
            place = f"{self.path}:{line_of(node)}"
            self.problems.append(Problem(place, reading.shown(node.value), rule, "leave it out"))

    def entries(self, node: yaml.MappingNode) -> dict[str, Located]:
        """Return the entries of a mapping; one that stands twice is a problem."""
        found: dict[str, Located] = {}
        for key, value in node.value:
            line = line_of(key)
            if not isinstance(key, yaml.ScalarNode):
                rule = "a key is one word"
                self.problems.append(Problem(f"{self.path}:{line}", "[...]", rule, "write a word"))
                continue
            self.check(key)
            if key.value in found:
                rule = f"the key stands on line {found[key.value].line} already"
                place = f"{self.path}:{line}"
                self.problems.append(Problem(place, key.value, rule, "remove one of them"))
            # A key's own line: that of a block's first value would blame the line below.
            found[key.value] = self.read(value, line)
        return found


def line_of(node: yaml.Node) -> int:
    """Return the line of a node, counted from 1."""
    return int(node.start_mark.line) + 1


def scalar(node: yaml.Node) -> Scalar:
    """Return the value of a scalar; `None` is a word here, a host caching."""
    text = str(node.value)
    if getattr(node, "style", None):  # quoted: text, whatever it looks like
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= 20 else text  # longer ones are no count of anything
    return float(text) if _FLOAT.fullmatch(text) else text


@dataclass(frozen=True)
class Form:
    """What a file is, for its reader and its errors."""

    kind: reading.Kind
    place: str
    """Where the command line names it."""
    rule: str
    way_out: str


EXPERIMENT = Form(
    reading.EXPERIMENT,
    "EXPERIMENT",
    "an experiment is a mapping: title, cluster or device, workload, factors",
    "start from one of experiments/",
)


def read_document(path: Path, form: Form = EXPERIMENT) -> Document:
    """Return what a file says, or an example by its name. Raises UserError: no mapping in YAML."""
    path = bundled.found(path) if form is EXPERIMENT else path
    return document_of(path, text_of(path, form), form)


def text_of(path: Path, form: Form = EXPERIMENT) -> str:
    """Return a file's text. Raises UserError; of a name it says which example is near."""
    if form is EXPERIMENT and bundled.may_mean(path):
        raise UserError(_unknown(path))
    return reading.text(path, form.kind, form.place)


def _unknown(path: Path) -> Problem:
    """Return what is wrong with a bare name that neither a file nor an example has."""
    rule = "neither a file here nor an example of disklab has this name"
    otherwise = "name a file, or write one: disklab experiment new FILE"
    way_out = did_you_mean(path.name.removesuffix(bundled.SUFFIX), bundled.names(), otherwise)
    return Problem(EXPERIMENT.place, str(path), rule, way_out)


def document_of(path: Path, text: str, form: Form = EXPERIMENT) -> Document:
    """Return what a text says; `path` is what the errors call it."""
    if form is EXPERIMENT and is_ycsb_workload(text):
        raise UserError(ycsb_problem(path, text))
    node = reading.yaml_node(text, form.kind, str(path))
    if not isinstance(node, yaml.MappingNode):
        raise UserError(Problem(f"{path}:1", path.name, form.rule, form.way_out))
    reader = _Reader(path)
    root = reader.read(node, 1)
    if reader.problems:
        raise UserError(*reader.problems)
    if form is EXPERIMENT and is_stress_profile(root.mapping or ()):
        raise UserError(stress_problem(path))
    return Document(path, text, root)


def leaves(tree: Located, key: Key = ()) -> Iterator[tuple[Key, Located]]:
    """Yield every value that is no mapping, with its path; an empty mapping is a leaf too."""
    entries = tree.mapping
    if not entries:
        yield key, tree
        return
    for name, item in entries.items():
        yield from leaves(item, (*key, name))


# From pydantic's findings to problems with file, line, key, rule and way out.

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
    for name, info in parent.model_fields.items():
        if (info.alias or name) == key[-1] and info.examples:
            return str(info.examples[0])
    return None
