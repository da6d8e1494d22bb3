"""A database that a kit file describes: one provider, whatever the kit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from disklab.databases.kit.cluster import provision
from disklab.databases.kit.programs import look
from disklab.databases.record import Record
from disklab.errors import Problem
from disklab.hosts.doctor import Check
from disklab.kits import kit_named, kit_of, shipped


def record_of(engine: str) -> Record:
    """Return what a kit does for disklab. Raises UserError for one that nobody has named."""
    return Record(provision, tuple(kit_of(engine).kit.ports.values()), partial(checks, engine))


def checks(engine: str) -> Iterator[Check]:
    """Look for the programs that a kit takes from the machine: for `disklab doctor`."""
    found = kit_of(engine)
    for program in found.kit.programs:
        if program.debian is None and program.go is None:
            continue
        missing = look(program)
        if isinstance(missing, Problem):
            yield Check(found.kit.title, missing.rule, False, False, missing.way_out)


def all_checks() -> Iterator[Check]:
    """Look for what the kits that come with disklab take from the machine."""
    for name in shipped():
        yield from checks(f"kit:{kit_named(name).kit.kit}")


__all__ = ["provision", "record_of"]
