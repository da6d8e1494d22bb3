"""Tries of one kind, one after the other: what was tried, and what was let in."""

from __future__ import annotations

import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType

from disklab.errors import DisklabError

from campaigns.attack.kind import HurtError, Kind, Try, Yard

VICTIM = b"somebody else's\n"
MOST_FAILURES = 10
TRY_SECONDS = 60
"""A try reads or writes some files; on a busy machine the slowest one took some seconds."""


class HungError(Exception):
    """A try that did not end."""


@dataclass
class Tally:
    """What came of the tries of a kind."""

    kind: Kind
    tried: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)


def attack(kind: Kind, tries: int, seed: int) -> Tally:
    """Make so many tries of a kind; ten failures end it."""
    tally = Tally(kind)
    with tempfile.TemporaryDirectory(prefix="disklab-attack-") as folder:
        yard = Yard(Path(folder))
        yard.victim.write_bytes(VICTIM)
        chance = random.Random(f"{seed} {kind.name}")
        for words, attempt in islice(kind.tries(chance, yard), tries):
            tally.tried += 1
            failure = _failure(attempt, tally) or _traces(yard)
            if failure is not None:
                tally.failures.append(f"{kind.name} {tally.tried}: {failure}\n  {words}")
            if len(tally.failures) >= MOST_FAILURES:
                break
    return tally


def _failure(attempt: Try, tally: Tally) -> str | None:
    try:
        with _limited():
            attempt()
    except DisklabError:
        tally.refused += 1
    except HurtError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _traces(yard: Yard) -> str | None:
    if yard.canary.exists():
        yard.canary.unlink()
        return "a command was run"
    if yard.victim.read_bytes() != VICTIM:
        yard.victim.write_bytes(VICTIM)
        return "a file of somebody else's was changed"
    return None


@contextmanager
def _limited() -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise HungError(f"not over after {TRY_SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(TRY_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
