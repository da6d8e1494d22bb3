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
    kit = kit_of(engine).kit

    def checks() -> Iterator[Check]:
        """Look for the programs that it takes from the machine: for `disklab doctor`."""
        for missing in filter(None, (look(program, ThisMachine()) for program in kit.programs)):
            yield Check(kit.title, missing.rule, False, False, missing.way_out)

    ports = tuple(kit.ports.values())
    return Record(provision, ports, checks, needed_on=partial(needed_on, engine))
