"""The experiment files that come with disklab, by name, wherever it is installed."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

SUFFIX = ".yaml"


def folder() -> Path:
    """Return where they are."""
    return Path(str(resources.files("disklab") / "experiments"))


def names() -> list[str]:
    """Return their names, sorted: those of the files without `.yaml`."""
    return sorted(path.stem for path in folder().glob(f"*{SUFFIX}"))


def found(file: Path) -> Path:
    """Return the bundled file that a bare name means, unless a file of that name is there."""
    if len(file.parts) == 1 and not file.exists():
        for name in (file.name, file.name.removesuffix(SUFFIX)):
            if name in names():
                return folder() / f"{name}{SUFFIX}"
    return file
