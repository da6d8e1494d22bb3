"""What `clean` does, as a list of steps: shown by a dry run, and gone through otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Outcome = tuple[bool, str]
"""Whether it is gone, and a note."""


@dataclass(frozen=True)
class Removed:
    """One thing that was found, and what became of it."""

    kind: str
    """`process`, `host process`, `database process`, `memory group`, `mount`, `mount point`,
    `device`, `fuse mount`, `volume`, `run directory`, `data`."""
    what: str
    host: str
    done: bool
    """Whether it is gone; in a dry run, whether it would be removed."""
    note: str = ""


@dataclass(frozen=True)
class Left:
    """Something that was found and is not proved to be ours."""

    what: str
    why: str


@dataclass(frozen=True)
class Step:
    """One thing to remove. `remove` proves once more that it is ours."""

    kind: str
    what: str
    host: str
    remove: Callable[[], Outcome]
    note: str = ""
    holds: bool = False
    """When it stays, so does what comes after it: that is the proof that it is ours."""
    possible: bool = True
    """False: it is known beforehand that it cannot be removed."""


def planned(steps: Iterable[Step]) -> list[Removed]:
    """Return what the steps would do."""
    return [Removed(one.kind, one.what, one.host, one.possible, one.note) for one in steps]


def applied(steps: Iterable[Step]) -> Iterator[Removed]:
    """Do the steps in their order; yield what became of each.

    After a step that holds the others and failed, only those of its kind are done.
    """
    held_by = None
    for step in steps:
        if held_by in (None, step.kind):
            gone, note = step.remove()
            yield Removed(step.kind, step.what, step.host, gone, note or step.note)
            if not gone and step.holds:
                held_by = step.kind
