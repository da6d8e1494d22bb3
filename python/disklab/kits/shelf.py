"""Which kits there are: those that come with disklab, and those that the command line names.

A kit runs commands, so no experiment file, run folder or catalogue can bring one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError
from disklab.kits.schema import Kit, Part
from disklab.reading import KIT as KIT_FILE
from disklab.reading import bounded, shown, text, yaml_node, yaml_value

KIT = "kit"
"""The engine of an experiment file whose database is a kit."""
PREFIX = f"{KIT}:"
"""Begins the engine of an experiment that was read: `kit:NAME`."""
FILE = "kit.yaml"
WAY_OUT = "see docs/kits.md, or `disklab kit new`"


@dataclass(frozen=True)
class KitFolder:
    """A kit and the folder of what lies beside it."""

    kit: Kit
    folder: Path


_folders: dict[str, Path] = {}
"""Folders of programs by `--program`."""
_named: dict[str, KitFolder] = {}
"""By `--kit`, for the life of this process."""


def _shipped_folder() -> Path:
    return Path(str(resources.files("disklab") / "kits"))


def shipped() -> tuple[str, ...]:
    """Return the names of the kits that come with disklab."""
    return tuple(sorted(file.parent.name for file in _shipped_folder().glob(f"*/{FILE}")))


def read_kit(file: Path) -> KitFolder:
    """Return the kit of a file. Raises UserError with every problem, its line and a way out."""
    written = text(file, KIT_FILE)
    value = yaml_value(written, KIT_FILE, str(file))
    try:
        kit = Kit.model_validate(value)
    except ValidationError as error:
        problems = _problems(error, file, yaml_node(written, KIT_FILE, str(file)))
        raise UserError(*bounded(problems, str(file))) from None
    return KitFolder(kit, file.parent)


def _problems(error: ValidationError, file: Path, node: yaml.Node | None) -> list[Problem]:
    """Return what pydantic found, each with its line."""
    keys = {
        field.alias or name
        for part in Part.__subclasses__()
        for name, field in part.model_fields.items()
    }
    problems = []
    for detail in error.errors(include_url=False):
        path = [part for part in detail["loc"] if part != "[key]"]
        place = f"{file}:{_line(node, path)}: {'.'.join(map(str, path))}".removesuffix(": ")
        rule = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
        way_out = WAY_OUT
        if detail["type"] == "extra_forbidden":
            rule, way_out = "is no key of a kit here", did_you_mean(str(path[-1]), keys, WAY_OUT)
        elif detail["type"] == "missing":
            rule = "is missing"
        value = "" if detail["type"] == "missing" else shown(detail["input"])
        problems.append(Problem(place, value, rule, way_out))
    return problems


def _line(node: yaml.Node | None, path: list[int | str]) -> int:
    """Return the line of a key, or of what is nearest above it."""
    line = 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pairs = {str(key.value): (key, value) for key, value in node.value}
            if str(part) not in pairs:
                break
            key, node = pairs[str(part)]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def name_kit(file: Path) -> Kit:
    """Let experiments of this process use a kit of the command line; return it."""
    found = read_kit(file)
    if found.kit.kit in shipped():
        rule = "a kit of this name comes with disklab"
        raise UserError(Problem("--kit", found.kit.kit, rule, f"give the kit of {file} another"))
    hold(found)
    return found.kit


def hold(found: KitFolder) -> None:
    """Keep a kit that was read for the life of this process."""
    _named[found.kit.kit] = found


def name_program(given: str) -> None:
    """Take `NAME=FOLDER` of the command line: where a program is that a kit does not bring."""
    name, equals, folder = given.partition("=")
    if not equals or not Path(folder).is_dir():
        rule = "names a program of the kit and the folder that it is in"
        raise UserError(Problem("--program", given, rule, "write --program NAME=FOLDER"))
    _folders[name] = Path(folder).resolve()


def name_given(words: Sequence[str]) -> None:
    """Name the kit and the programs that a command line has, before it is parsed."""
    take: dict[str, Callable[[str], object]] = {
        "--kit": lambda file: name_kit(Path(file)),
        "--program": name_program,
    }
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in take:
            take[option](value if equals else following)


def folder_of(program: str) -> Path | None:
    """Return the folder that the command line has named for a program."""
    return _folders.get(program)


@cache
def _of_package(name: str) -> KitFolder:
    return read_kit(_shipped_folder() / name / FILE)


def is_there(name: str) -> bool:
    """Return whether a kit comes with disklab, or the command line has named it."""
    return name in _named or name in shipped()


def kit_named(name: str) -> KitFolder:
    """Return a kit by its name. Raises UserError for one that nobody has named."""
    if name in _named:
        return _named[name]
    if name in shipped():
        return _of_package(name)
    known = (*shipped(), *_named)
    otherwise = f"choose {', '.join(known)}, or name its file on the command line: --kit FILE"
    way_out = did_you_mean(name, known, otherwise)
    raise UserError(Problem("database.kit", name, "no kit of this name is there", way_out))


def problem_of(name: str) -> Problem | None:
    """Return why an experiment cannot have a kit; None: it can."""
    try:
        kit_named(name)
    except UserError as error:
        return error.problems[0]
    return None


def as_written(database: dict[str, Any]) -> dict[str, Any]:
    """Return a database as an experiment file has it, also one of a trial that was read before."""
    engine = str(database.get("engine"))
    if not is_kit(engine):
        return database
    return {**database, "engine": KIT, "kit": engine.removeprefix(PREFIX)}


def is_kit(engine: str) -> bool:
    """Return whether an engine of a trial is a kit."""
    return engine.startswith(PREFIX)


def engine_of(name: str) -> str:
    """Return what a kit is called among engines."""
    return PREFIX + name


def kit_of(engine: str) -> KitFolder:
    """Return the kit of an engine. Raises UserError when nobody has named it."""
    return kit_named(engine.removeprefix(PREFIX))
