"""The experiment files that come with disklab, by name, wherever it is installed."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

SUFFIX = ".yaml"


def folder() -> Path:
    """Return where they are."""
    return Path(str(resources.files("disklab") / "experiments"))


def names() -> list[str]:
    """Return their names, sorted: those of the files without `.yaml`."""
    return sorted(path.stem for path in folder().glob(f"*{SUFFIX}"))


def may_mean(file: Path) -> bool:
    """Return whether a path may mean a bundled file: a bare name, or one in `experiments`.

    The second is how pages name them, for those who have the repository.
    """
    named = len(file.parts) == 1 or file.parent == Path("experiments")
    return named and not os.path.lexists(file)


def found(file: Path) -> Path:
    """Return the bundled file that a name means, unless a file of that name is there."""
    if may_mean(file):
        for name in (file.name, file.name.removesuffix(SUFFIX)):
            if name in names():
                return folder() / f"{name}{SUFFIX}"
    return file


def typed(file: str) -> str:
    """Return how a person names an experiment file in a command: one of ours by its name alone.

    Runs of another installation have its path; the name is known here too.
    """
    path = Path(file)
    ours = path.parts[-3:-1] == ("disklab", "experiments") and path.stem in names()
    return path.stem if ours and path.suffix == SUFFIX else file
