"""Reading what others wrote: regular files of a bounded size, depth and number of values.

Experiment files, catalogue files, run folders, imports and records on this machine may be damaged,
made by another program or meant to harm. They are opened and parsed here and in no other module, so
that each is refused with place, value, rule and way out before it costs memory or time.
"""

from __future__ import annotations

import errno
import gc
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json

from disklab.errors import Problem, UserError
from disklab.folders import Inside

MIB = 1 << 20
GIB = 1 << 30

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where PyYAML has it: ten times faster."""

MOST_TOLD = 20
"""Problems of one file that are told; nobody mends more of them at a time."""
MOST_SHOWN = 80
"""Characters of a value in a message: enough to recognise it."""
LARGEST_WHOLE = 1 << 63
MOST_DIGITS = 19
"""Whole numbers beyond 64 bits count nothing that a disk or a database has."""
# What may stand for a number that is not finite or too large; inside a text it does no harm.
_LARGE_NUMBER = re.compile(rb"NaN|Infinity|[0-9]{19}|[0-9.][eE]\+?[0-9]{3}")

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 but for tab and line feed, DEL, C1, what turns the direction of writing, surrogates."""

RESOLVED = {"resolved": True}
"""Context in which a spec is validated that was read before and comes from another process of ours:
its rates and times are numbers by now, and the parts of a short form are all there."""

Model = TypeVar("Model", bound=BaseModel)
Parsed = TypeVar("Parsed")
Name = Path | str | Inside
"""A file that the user named, or one inside of a folder whose author may be anybody."""


@dataclass(frozen=True)
class Kind:
    """A kind of file: what it is called, and how much of it is read."""

    name: str
    """With its article: `an experiment file`."""
    most_bytes: int
    way_out: str
    most_line_bytes: int = 0
    """Of files that are read line by line."""
    most_depth: int = 32
    """Levels of lists and mappings within each other, for YAML."""
    most_values: int = 20_000
    """Values, keys and lists of a YAML file; what an alias repeats counts each time."""


# A page of text each; more is another kind of file, or one that means harm.
EXPERIMENT = Kind("an experiment file", MIB, "name an experiment file")
KIT = Kind("a kit file", MIB, "name a kit file")
HOSTS = Kind("a hosts file", MIB, "name a hosts file")
CATALOGUE = Kind("a catalogue file", 4 * MIB, "give another file")
CALIBRATION = Kind("a calibration file", MIB, "name another file")
PART = Kind("a file of the package", MIB, "install disklab again")
PRICES = Kind("a price list", 512 * MIB, "name a vendor's list of one region", 64 * 1024)
REGISTER = Kind("a register of predictions", 64 * MIB, "name a file of `predict --register`")
IMPORTED = Kind("a file of results", 16 * MIB, "give its path")
COMMAND_RUN = Kind("a run of a command", MIB, "write one by `disklab run --json ... > base.json`")
RECORD = Kind("a record of disklab", MIB, "remove it by `disklab clean`")
RELEASE = Kind("a Java release file", MIB, "name another Java")
MANIFEST = Kind("a list of check sums", 16 * MIB, "remove the folder; it is fetched again")
PROGRAM = Kind("a program file", GIB, "remove the folder; it is fetched again")
SCRIPT = Kind("the script of the page", 64 * MIB, "remove it; it is made again")
WISH = Kind("the wish for a run", 64, "remove it")
# A run may be long, but a line of it is one result or one second.
RUN_INFO = Kind("a run's run.json", 16 * MIB, "name another run; this one's file is damaged")
EVENTS = Kind("the events of a run", 4 * GIB, "remove it; the live page does without")
PLAN = Kind("a run's resolved.json", 512 * MIB, "name another run; this one's file is damaged")
TRIALS = Kind("a run's trials.jsonl", 4 * GIB, "report a part of the run", 4 * MIB)
COURSE = Kind("the seconds of a repeat", 16 * GIB, "remove it; the report does without", 32 * MIB)
TELEMETRY = Kind("the telemetry of a repeat", 4 * GIB, "remove it; the report does without")


def bounded(problems: Sequence[Problem], place: str, found: int = 0) -> list[Problem]:
    """Return the first problems of a file, and how many there are beyond them.

    `found`: how many there are, where that is known to be more than the given ones.
    """
    more = max(found, len(problems)) - MOST_TOLD
    if more <= 0:
        return list(problems)
    rest = Problem(place, f"{more} more problems", "are not shown", "mend these first")
    return [*problems[:MOST_TOLD], rest]


@dataclass(frozen=True)
class Finding:
    """What is wrong at one place of a parsed text."""

    key: str
    """Dotted path; empty: the whole."""
    value: str
    rule: str


class NotAsExpectedError(ValueError):
    """A text that is not what it should be; `findings` tell the first places."""

    def __init__(self, findings: Sequence[Finding], found: int = 1) -> None:
        super().__init__(f"{findings[0].key}: {findings[0].rule}".removeprefix(": "))
        self.findings = tuple(findings)
        self.found = found
        """How many places are wrong; not all of them are told."""

    def problems(self, place: str, way_out: str) -> list[Problem]:
        """Return them as problems of the file `place`."""
        told = [
            Problem(f"{place}: {one.key}" if one.key else place, one.value, one.rule, way_out)
            for one in self.findings
        ]
        return bounded(told, place, self.found)


def opened(path: Name, kind: Kind, place: str = "") -> BinaryIO:
    """Open a regular file for reading. Raises UserError; `place` is where the file was named.

    A device, pipe or folder is refused before it is opened: opening can block or have effects.
    """
    try:
        if isinstance(path, Inside):
            descriptor = _opened_inside(path, kind, place)
        else:
            _check_file(os.stat(path), path, kind, place)
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(error, path, kind, place) from None
    except ValueError:  # a null byte, half of a surrogate pair
        raise _refused(path, kind, place, "is not a file name") from None
    file = os.fdopen(descriptor, "rb")
    try:
        # Another file may stand there by now.
        _check_file(os.fstat(descriptor), path, kind, place)
    except UserError:
        file.close()
        raise
    return file


def _opened_inside(path: Inside, kind: Kind, place: str) -> int:
    there = path.stat()
    if there is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    # A link is told of by what opens it.
    if not stat.S_ISLNK(there.st_mode):
        _check_file(there, path, kind, place)
    return path.opened()


def contents(path: Name, kind: Kind, place: str = "") -> bytes:
    """Return the bytes of a file. Raises UserError."""
    with opened(path, kind, place) as file:
        try:
            data = file.read(kind.most_bytes + 1)  # it may have grown, or be of /proc
        except OSError as error:
            raise _unreadable(error, path, kind, place) from None
    if len(data) > kind.most_bytes:
        raise _refused(path, kind, place, _size_rule(kind))
    return data


def text(path: Name, kind: Kind, place: str = "") -> str:
    """Return the text of a file in UTF-8. Raises UserError."""
    try:
        return contents(path, kind, place).decode("utf-8")
    except UnicodeDecodeError:
        rule = "cannot be read: it is not UTF-8 text"
        raise _refused(path, kind, place, rule) from None


def record_text(path: Path, kind: Kind) -> str | None:
    """Return the text of a record of our own; None: it is not there, no text, or a link."""
    with suppress(UserError, OSError):
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return text(path, kind)
    return None


def lines(path: Name, kind: Kind, place: str = "") -> Iterator[bytes | None]:
    """Yield the lines of a file, one at a time; None for one that is too long. Raises UserError."""
    with opened(path, kind, place) as file:
        while line := file.readline(kind.most_line_bytes + 1):
            if len(line) <= kind.most_line_bytes:
                yield line
                continue
            yield None
            while line and not line.endswith(b"\n"):
                line = file.readline(kind.most_line_bytes)


@contextmanager
def many() -> Iterator[None]:
    """Read many records: nothing of them is garbage, and looking for it took half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse(model: type[Model], data: bytes) -> Model:
    """Return what a JSON text says. Raises NotAsExpectedError."""
    found: Model = _validated(model.model_validate_json, data)
    return found


def parse_list(model: type[Model], data: bytes) -> list[Model]:
    """Return what a JSON list of records says. Raises NotAsExpectedError."""
    form: TypeAdapter[list[Model]] = TypeAdapter(list[model])  # type: ignore[valid-type]
    found: list[Model] = _validated(form.validate_json, data)
    return found


def record(path: Path | Inside, model: type[Model], kind: Kind) -> Model:
    """Return what a file with one JSON record says. Raises UserError."""
    try:
        return parse(model, contents(path, kind, str(path)))
    except NotAsExpectedError as error:
        raise UserError(*error.problems(str(path), kind.way_out)) from None


def records(path: Path | Inside, model: type[Model], kind: Kind) -> list[Model]:
    """Return what a file with one JSON list of records says. Raises UserError."""
    try:
        return parse_list(model, contents(path, kind, str(path)))
    except NotAsExpectedError as error:
        raise UserError(*error.problems(str(path), kind.way_out)) from None


def _validated(validate: Any, data: bytes) -> Any:
    """Return what pydantic makes of a JSON text, whose numbers are all finite.

    Pydantic's parser bounds the depth, and refuses halves of surrogate pairs and wrong UTF-8; but
    where the form leaves a value open, it takes any number.
    """
    try:
        if _LARGE_NUMBER.search(data):
            _check_numbers(from_json(data))
        return validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise NotAsExpectedError(
            [
                Finding(".".join(map(str, one["loc"])), shown(one["input"]), str(one["msg"]))
                for one in details[:MOST_TOLD]
            ],
            len(details),
        ) from None
    except ValueError as error:
        raise NotAsExpectedError([Finding("", "this text", f"is not JSON: {error}")]) from None


def shown(value: object) -> str:
    """Return a value as a message shows it, on one line."""
    told = ascii(value) if isinstance(value, str) else repr(value)
    return told if len(told) <= MOST_SHOWN else told[: MOST_SHOWN - 3] + "..."


def digits(text: object, most: int = LARGEST_WHOLE - 1) -> int | None:
    """Return the whole number that a text from outside is, up to `most`; None: it is none.

    `str.isdigit` takes `²`, which `int` refuses, and any length, which `int` refuses too.
    """
    value = str(text)
    if not value.isascii() or not value.isdigit() or len(value) > MOST_DIGITS:
        return None
    return number if (number := int(value)) <= most else None


def _check_numbers(value: object) -> None:
    """Raise ValueError when a parsed value holds a number that nothing can be."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, float) and not math.isfinite(one):
            raise ValueError(f"{one} is not a number")
        elif isinstance(one, int) and not -LARGEST_WHOLE <= one < LARGEST_WHOLE:
            raise ValueError("a whole number has more than 64 bits")


def yaml_node(given: str, kind: Kind, place: str) -> yaml.Node | None:
    """Return the tree of a YAML text. Raises UserError; `place` names the file."""
    found: yaml.Node | None = _yaml(lambda: yaml.compose(given, Loader=LOADER), given, kind, place)
    return found


def yaml_value(given: str, kind: Kind, place: str, *, ours: bool = False) -> Any:
    """Return what a YAML text says, as plain values. Raises UserError; `place` names the file.

    `ours`: it is a file of the package, whose shape nobody else decides; looking at it takes as
    long as reading it.
    """
    # Both loaders are safe ones.
    read = lambda: yaml.load(given, Loader=LOADER)  # noqa: E731, S506
    return _yaml(read, given, kind, place, ours=ours)


def _begins_with_tab(given: str, mark: Any) -> bool:
    lines = given.splitlines()
    return mark is not None and mark.line < len(lines) and "\t" in lines[mark.line][:1]


def _yaml(read: Any, given: str, kind: Kind, place: str, *, ours: bool = False) -> Any:
    try:
        if not ours:
            _check_shape(given, kind, place)
        return read()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{place}:{mark.line + 1}" if mark else place
        problem = str(getattr(error, "problem", None) or error)
        rule = f"is not YAML: {problem}"
        if _begins_with_tab(given, mark):
            tab = "a line is indented by a tab, and YAML has spaces only"
            raise UserError(Problem(at, Path(place).name, tab, "indent by spaces")) from None
    except (ValueError, OverflowError) as error:  # a day that no month has, a number of a MB
        at, rule = place, f"is not YAML: {error}"
    raise UserError(Problem(at, Path(place).name, rule, "mend the syntax"))


def _check_shape(given: str, kind: Kind, place: str) -> None:
    """Raise UserError when a YAML text is too deep or has too many values, aliases counted.

    The events come one by one. What builds a tree of them calls itself for each level: libyaml's
    binding dies of 200,000 brackets, Python's of 1,000.
    """
    values, anchored = 0, dict[str | None, tuple[int, int]]()
    above: list[tuple[str | None, int]] = []  # anchor, and the values before it
    heights = [0]
    for event in yaml.parse(given, Loader=LOADER):
        size, height = 1, 0
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in above):
                raise _misshapen(
                    event,
                    kind,
                    place,
                    f"*{event.anchor}",
                    "an alias stands outside of what it repeats",
                )
            size, height = anchored.get(event.anchor, (1, 0))
        elif isinstance(event, yaml.CollectionStartEvent):
            above.append((event.anchor, values))
            heights.append(0)
        elif isinstance(event, yaml.CollectionEndEvent):
            (anchor, before), height = above.pop(), heights.pop() + 1
            size = 0
            if anchor is not None:
                anchored[anchor] = values - before, height
        elif isinstance(event, yaml.ScalarEvent):
            anchored.pop(event.anchor, None)
        else:
            continue
        values += size
        heights[-1] = max(heights[-1], height)
        if values > kind.most_values or len(above) + height > kind.most_depth:
            rule = f"{kind.name} has at most {kind.most_depth} levels and {kind.most_values} values"
            raise _misshapen(event, kind, place, "this value", rule)


def _misshapen(event: Any, kind: Kind, place: str, value: str, rule: str) -> UserError:
    at = f"{place}:{event.start_mark.line + 1}"
    return UserError(Problem(at, value, rule, f"leave aliases out, or {kind.way_out}"))


def _check_file(found: os.stat_result, path: Name, kind: Kind, place: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise _refused(path, kind, place, "cannot be read: Is a directory")
    if not stat.S_ISREG(found.st_mode):
        rule = f"{kind.name} is a regular file, not a device, pipe or socket"
        raise _refused(path, kind, place, rule)
    if found.st_size > kind.most_bytes:
        raise _refused(path, kind, place, f"{_size_rule(kind)}; this one has {found.st_size}")


def _unreadable(error: OSError, path: Name, kind: Kind, place: str) -> UserError:
    return _refused(path, kind, place, f"cannot be read: {error.strerror or error}")


def _size_rule(kind: Kind) -> str:
    return f"{kind.name} has at most {kind.most_bytes} bytes"


def _refused(path: Name, kind: Kind, place: str, rule: str) -> UserError:
    return UserError(Problem(place or str(path), str(path), rule, kind.way_out))
