"""All databases, by the names of an experiment file: `database_facts.DATABASES` lists them.

A database is a folder of this package with `facts.yaml` (what it is) and a `RECORD` in its
`__init__` (what it does). One that the simulator has a model of has a `SIMULATED` in its
`simulated`, too. Nothing else of disklab knows one by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from disklab.catalog.suggest import did_you_mean
from disklab.database_facts import facts_of, modelled_as, names
from disklab.databases.protocol import Database, NodePlace, Progress, Request, say_nothing
from disklab.databases.record import Record
from disklab.databases.simulating import Simulated
from disklab.errors import Problem, UserError
from disklab.kits import is_kit


@cache
def record_of(engine: str) -> Record:
    """Return the record of a database. Raises UserError for one that disklab does not know."""
    if is_kit(engine):
        return import_module("disklab.databases.kit").record_of(engine)  # type: ignore[no-any-return]
    if engine not in names():
        rule = "disklab has no provider for this database"
        way_out = did_you_mean(engine, names(), f"choose one of {', '.join(names())}")
        raise UserError(Problem("database.engine", repr(engine), rule, way_out))
    found = import_module(f"disklab.databases.{engine}").RECORD
    assert isinstance(found, Record), f"disklab.databases.{engine} has a RECORD"
    return found


@cache
def simulated_of(engine: str) -> Simulated | None:
    """Return what the simulator is asked of a database of the registry; None: it has no model."""
    if facts_of(engine).simulator is None:
        return None
    found = import_module(f"disklab.databases.{modelled_as(engine)}.simulated").SIMULATED
    assert isinstance(found, Simulated), f"disklab.databases.{engine}.simulated has a SIMULATED"
    return found


def records() -> Iterator[Record]:
    """Yield the record of every database."""
    yield from map(record_of, names())


def provision(
    request: Request, nodes: list[NodePlace], progress: Progress = say_nothing
) -> Database:
    """Return the database of a request on these nodes, not yet started.

    Fetches what is missing (the first time, by network). Raises UserError, with every problem,
    for what cannot be: unknown settings, no Java, too little memory.
    """
    return record_of(request.engine).provision(request, nodes, progress)
