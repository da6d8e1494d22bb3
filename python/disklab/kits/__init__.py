"""Kits: databases that are a file. Which there are, and how one is read.

They come with disklab, or the command line names them. A kit runs commands, so no experiment file,
run folder or catalogue can bring one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

KIT, PREFIX = "kit", "kit:"
"""The engine of an experiment file whose database is a kit; of one that was read, `kit:NAME`."""
FORM = Form(Kit, reading.KIT, "disklab kit schema")
_SHIPPED = Path(str(resources.files("disklab") / "kits"))


@dataclass(frozen=True)
class KitFolder:
    """A kit, its folder, and what lies beside it."""

    kit: Kit
    folder: Path
    beside: Mapping[str, str]
    """Its programs and lists of sums. Read with the kit: later it may be root who would do so."""


folders: dict[str, Path] = {}
"""Folders of programs by `--program`."""
_named: dict[str, KitFolder] = {}
"""By `--kit`, for the life of this process."""


@cache
def shipped() -> tuple[str, ...]:
    """Return the names of the kits that come with disklab."""
    return tuple(sorted(file.parent.name for file in _SHIPPED.glob("*/kit.yaml")))


def read_kit(file: Path) -> KitFolder:
    """Return the kit of a file. Raises UserError with every problem, its line and a way out."""
    kit, problems = FORM.validated(reading.text(file, reading.KIT), str(file))
    refuse(problems)
    assert kit is not None, "what has no problems is a kit"
    refuse(unknown_names(kit, f"{file}: "))
    folder, programs = file.parent, kit.programs
    # A list of sums may still have to be written.
    lists = [each.lock for each in programs if each.lock and (folder / each.lock).exists()]
    names = [*lists, *(each.script for each in programs if each.script)]
    beside = {name: reading.text(folder / name, reading.KIT) for name in names}
    return KitFolder(kit, folder, beside)


@cache
def _of_package(name: str) -> KitFolder:
    return read_kit(_SHIPPED / name / "kit.yaml")


def name_kit(file: Path) -> KitFolder:
    """Let experiments of this process use a kit of the command line; return it."""
    named = read_kit(file)
    if named.kit.kit in shipped():
        rule = "a kit of this name comes with disklab"
        raise UserError(Problem("--kit", named.kit.kit, rule, f"give the kit in {file} another"))
    _named[named.kit.kit] = named
    return named


def name_kits(kits: Iterable[str | Path | None], programs: Iterable[str] | None = None) -> None:
    """Let experiments use kits of the command line; find their programs, each NAME=FOLDER."""
    for file in kits:
        if file is not None:
            name_kit(Path(file))
    for given in programs or ():
        name, equals, folder = given.partition("=")
        if not equals or not Path(folder).is_dir():
            rule = "names a program of the kit and the folder that it is in"
            raise UserError(Problem("--program", given, rule, "write --program NAME=FOLDER"))
        folders[name] = Path(folder).resolve()


def is_there(name: str) -> bool:
    """Return whether a kit comes with disklab, or the command line has named it."""
    return name in _named or name in shipped()


def problem_of(name: str) -> Problem | None:
    """Return why an experiment cannot have a kit, which nobody has named; None: it can."""
    if is_there(name):
        return None
    known = (*shipped(), *_named)
    otherwise = f"choose {', '.join(known)}, or name its file on the command line: --kit FILE"
    way_out = did_you_mean(name, known, otherwise)
    return Problem("database.kit", name, "there is no kit of this name", way_out)


def kit_named(name: str) -> KitFolder:
    """Return a kit by its name. Raises UserError for one that nobody has named."""
    refuse(filter(None, [problem_of(name)]))
    return _named.get(name) or _of_package(name)


def as_written(database: dict[str, Any]) -> dict[str, Any]:
    """Return a database as an experiment file has it, also one of a trial that was read before."""
    engine = str(database.get("engine"))
    named = {"engine": KIT, "kit": engine.removeprefix(PREFIX)} if is_kit(engine) else {}
    return database | named


def is_kit(engine: str) -> bool:
    """Return whether an engine of a trial is a kit."""
    return engine.startswith(PREFIX)


def engine_of(name: str) -> str:
    """Return what a kit is called among engines."""
    return PREFIX + name


def kit_of(engine: str) -> KitFolder:
    """Return the kit of an engine. Raises UserError when nobody has named it."""
    return kit_named(engine.removeprefix(PREFIX))
