"""A database that a kit file describes: one provider, whatever the kit."""

from __future__ import annotations

from functools import partial

from disklab.databases.kit.cluster import needed_on, provision
from disklab.databases.record import Record
from disklab.kits import kit_of


def record_of(engine: str) -> Record:
    """Return what a kit does for disklab. Raises UserError for one that nobody has named."""
    ports = tuple(kit_of(engine).kit.ports.values())
    return Record(provision, ports, needed_on=partial(needed_on, engine))
