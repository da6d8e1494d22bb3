"""What can go wrong, as a tree.

A user's mistake carries the value, the rule, the place and the way out; nothing on the machine has
changed when one is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class DisklabError(Exception):
    """The root of all errors that disklab raises on purpose."""

    exit_code = 1


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with what the user asked for."""

    place: str
    """Where: `--caching`, `experiments/x.yaml:12: cluster.vm`."""
    value: str
    """What was given."""
    rule: str
    """Which rule it breaks, with the source of the rule where it is a vendor's."""
    way_out: str
    """What to do instead."""

    def __str__(self) -> str:
        """Return the problem on one line: place, value, rule, way out."""
        return f"{self.place}: {self.value}: {self.rule}; {self.way_out}"


class UserError(DisklabError):
    """The user asked for something that cannot be; all problems at once."""

    exit_code = 2

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def refuse(problems: Iterable[Problem]) -> None:
    """Raise UserError with all problems; nothing where there is none."""
    found = tuple(problems)
    if found:
        raise UserError(*found)


def refuse_given(given: Mapping[str, object], rule: str, way_out: str = "leave it out") -> None:
    """Raise UserError with all options that were given, where another one rules them out."""
    refuse(
        Problem(name, str(value), rule, way_out)
        for name, value in given.items()
        if value is not None
    )


def usable(found: T | Problem) -> T:
    """Return what was found on a machine. Raises UserError where it is a problem."""
    if isinstance(found, Problem):
        raise UserError(found)
    return found


class MachineError(DisklabError):
    """A program or device of this machine failed: what was tried, its answer, what to do."""


class EngineError(DisklabError):
    """The engine refused or died."""
