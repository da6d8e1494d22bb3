"""What a kind of hostile tries is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


class HurtError(Exception):
    """A try that was let do something: what, in words."""


@dataclass(frozen=True)
class Yard:
    """Where a kind may write, and what nothing may touch."""

    folder: Path

    @property
    def canary(self) -> Path:
        """The file that is there when a command of a try was run."""
        return self.folder / "ran"

    @property
    def victim(self) -> Path:
        """A file of somebody else's."""
        return self.folder / "victim"


Try = Callable[[], None]
"""Does one hostile thing. A DisklabError is a right answer, and so is none where nothing was hurt.
HurtError says what was; every other exception is a traceback that a user would have seen."""


@dataclass(frozen=True)
class Kind:
    """One kind of hostile tries."""

    name: str
    what: str
    """What is tried and what must hold, for the page."""
    tries: Callable[[random.Random, Yard], Iterator[tuple[str, Try]]]
    """Yields tries without end, each with the words that make it again."""
