"""A database that a kit file describes: one provider, whatever the kit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from disklab.databases.kit.cluster import needed_on, provision
from disklab.databases.kit.programs import look
from disklab.databases.record import Record
from disklab.databases.this_machine import ThisMachine
from disklab.hosts.doctor import Check
from disklab.kits import kit_of


def record_of(engine: str) -> Record:
    """Return what a kit does for disklab. Raises UserError for one that nobody has named."""
    ports = tuple(kit_of(engine).kit.ports.values())
    needed = partial(needed_on, engine)
    return Record(provision, ports, partial(checks, engine), needed_on=needed)


def checks(engine: str) -> Iterator[Check]:
    """Look for the programs that a kit takes from the machine: for `disklab doctor`."""
    kit = kit_of(engine).kit
    for program in kit.programs:
        missing = look(program, ThisMachine())
        if missing is not None:
            yield Check(kit.title, missing.rule, False, False, missing.way_out)


__all__ = ["provision", "record_of"]
