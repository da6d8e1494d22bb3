"""YAML whose every value keeps its line, so that an error can name it after any patch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from disklab import reading
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError
from disklab.spec import bundled, foreign

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
    """Return what a file says. Raises UserError when it is no mapping in YAML."""
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
    if form is EXPERIMENT and foreign.is_ycsb_workload(text):
        raise UserError(foreign.ycsb_problem(path, text))
    node = reading.yaml_node(text, form.kind, str(path))
    if not isinstance(node, yaml.MappingNode):
        raise UserError(Problem(f"{path}:1", path.name, form.rule, form.way_out))
    reader = _Reader(path)
    root = reader.read(node, 1)
    if reader.problems:
        raise UserError(*reader.problems)
    if form is EXPERIMENT and foreign.is_stress_profile(root.mapping or ()):
        raise UserError(foreign.stress_problem(path))
    return Document(path, text, root)


def leaves(tree: Located, key: Key = ()) -> Iterator[tuple[Key, Located]]:
    """Yield every value that is no mapping, with its path; an empty mapping is a leaf too."""
    entries = tree.mapping
    if not entries:
        yield key, tree
        return
    for name, item in entries.items():
        yield from leaves(item, (*key, name))
