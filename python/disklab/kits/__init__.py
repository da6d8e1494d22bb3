"""Kits: databases that are a file. Which there are, and how one is read.

They come with disklab, or the command line names them. A kit runs commands, so no experiment file,
run folder or catalogue can bring one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from disklab import reading
from disklab.catalog.form import Form
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError, refuse
from disklab.kits.plan import unknown_names
from disklab.kits.schema import Kit

KIT = "kit"
"""The engine of an experiment file whose database is a kit."""
PREFIX = f"{KIT}:"
"""Begins the engine of an experiment that was read: `kit:NAME`."""
FORM = Form(Kit, reading.KIT, "disklab kit schema")


@dataclass(frozen=True)
class KitFolder:
    """A kit and the folder of what lies beside it."""

    kit: Kit
    folder: Path
    beside: Mapping[str, str]
    """Its programs and lists of sums. Read with the kit: later it may be root who would do so."""


_folders: dict[str, Path] = {}
"""Folders of programs by `--program`."""
_named: dict[str, KitFolder] = {}
"""By `--kit`, for the life of this process."""
_SHIPPED = Path(str(resources.files("disklab") / "kits"))


@cache
def shipped() -> tuple[str, ...]:
    """Return the names of the kits that come with disklab."""
    return tuple(sorted(file.parent.name for file in _SHIPPED.glob("*/kit.yaml")))


def read_kit(file: Path) -> KitFolder:
    """Return the kit of a file. Raises UserError with every problem, its line and a way out.

    All of its templates mean something.
    """
    kit, problems = FORM.validated(reading.text(file, reading.KIT), str(file))
    refuse(problems)
    assert kit is not None, "what has no problems is a kit"
    refuse(
        Problem(f"{file}: {unknown.place}", unknown.value, unknown.rule, unknown.way_out)
        for unknown in unknown_names(kit)
    )
    names = [name for each in kit.programs for name in (each.script, each.lock) if name]
    return KitFolder(kit, file.parent, {name: _beside(file.parent / name) for name in names})


def _beside(file: Path) -> str:
    """Return the text of a file beside a kit; of a list of sums that is still to be written, ''."""
    return reading.text(file, reading.KIT) if file.suffix == ".py" or file.exists() else ""


def chosen(file: Path) -> KitFolder:
    """Return the kit of a file or of a name that comes along, and let experiments use it."""
    return kit_named(str(file)) if str(file) in shipped() else name_kit(file)


def name_kit(file: Path) -> KitFolder:
    """Let experiments of this process use a kit of the command line; return it."""
    folder = read_kit(file)
    if folder.kit.kit in shipped():
        rule = "a kit of this name comes with disklab"
        raise UserError(Problem("--kit", folder.kit.kit, rule, f"give the kit of {file} another"))
    _named[folder.kit.kit] = folder
    return folder


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
    return read_kit(_SHIPPED / name / "kit.yaml")


def is_there(name: str) -> bool:
    """Return whether a kit comes with disklab, or the command line has named it."""
    return name in _named or name in shipped()


def kit_named(name: str) -> KitFolder:
    """Return a kit by its name. Raises UserError for one that nobody has named."""
    if is_there(name):
        return _named.get(name) or _of_package(name)
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
