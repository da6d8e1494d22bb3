"""What a database does for disklab; what it is stands in its `facts.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.hosts.doctor import Check

Provider = Callable[[Request, list[NodePlace], Progress], Database]
"""Returns the database of a request on these nodes, not yet started."""


def nothing_to_check() -> Iterable[Check]:
    """Return no checks."""
    return ()


@dataclass(frozen=True)
class Record:
    """One database of the registry. Its folder's `__init__` has it as `RECORD`."""

    provision: Provider
    ports: tuple[int, ...]
    """What each of its nodes listens on."""
    checks: Callable[[], Iterable[Check]] = nothing_to_check
    """What `disklab doctor` asks of the machine for it."""
