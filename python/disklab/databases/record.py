"""What a database does for disklab; what it is stands in its `facts.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from disklab.databases.observing import Observer, Target
from disklab.databases.place import ServerHost
from disklab.databases.protocol import Database, NodePlace, Progress, Request
from disklab.engine import Account
from disklab.errors import Problem, UserError
from disklab.hosts.doctor import Check
from disklab.results import RuleFinding

Provider = Callable[[Request, list[NodePlace], Progress], Database]
"""Returns the database of a request on these nodes, not yet started."""


Growth = Callable[[str], float | None]
"""How much one of the database's counters grew while a trial was measured; None: it was not seen.
A counter whose name ends in `_s` has grown in the described system's time."""


def no_rules(growth: Growth, slow: int) -> Iterable[RuleFinding]:  # noqa: ARG001 - see the type
    """Return no rules."""
    return ()


def nothing_to_check() -> Iterable[Check]:
    """Return no checks."""
    return ()


@dataclass(frozen=True)
class Needed:
    """What a host of the user's has for a node, for the plan of a measurement."""

    title: str
    account: Account | None
    ports: Sequence[int]
    by_ip: bool = False
    """Whether its nodes know each other by IP addresses."""


Look = Callable[[ServerHost, str | None], Needed | Problem]
"""Looks at a host for a version, and changes nothing. Raises MachineError."""


def predicted_alone(title: str, instead: str, why: str) -> Provider:
    """Return what refuses to start a database that is predicted; `instead`: what is rehearsed."""

    def refuse(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:  # noqa: ARG001 - there is none on any node
        rule = f"disklab only predicts {title} and does not start it{why}"
        way_out = f"use `disklab predict`, or rehearse on {instead}"
        raise UserError(Problem("database.engine", request.engine, rule, way_out))

    return refuse


def built_nowhere(host: ServerHost, version: str | None) -> Problem:  # noqa: ARG001 - see `Look`
    """Return that disklab does not build it on hosts of the user's."""
    rule = "disklab does not build this database on hosts"
    return Problem("database.engine", "", rule, "name one that runs: database: {...}")


def seen_nowhere(target: Target) -> Observer:  # noqa: ARG001 - see `Record.observe`
    """Raise: disklab cannot look at it."""
    rule = "disklab cannot look at this database while it runs"
    raise UserError(Problem("DATABASE", "", rule, "write its experiment by hand"))


@dataclass(frozen=True)
class Record:
    """One database of the registry. Its folder's `__init__` has it as `RECORD`."""

    provision: Provider
    ports: tuple[int, ...]
    """What each of its nodes listens on."""
    checks: Callable[[], Iterable[Check]] = nothing_to_check
    """What `disklab doctor` asks of the machine for it."""
    rules: Callable[[Growth, int], Iterable[RuleFinding]] = no_rules
    """The rules that its makers publish, held against a trial's counters. The second argument is
    how many seconds of this machine a second of the described system took."""
    needed_on: Look = built_nowhere
    """What a node needs on a host of the user's."""
    observe: Callable[[Target], Observer] = seen_nowhere
    """Connects to one that runs, to look at it."""
