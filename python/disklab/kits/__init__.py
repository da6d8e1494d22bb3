"""Kits: databases that are a file. What one says, where it is found, what its templates mean."""

from disklab.kits.schema import Kit
from disklab.kits.shelf import (
    KIT,
    PREFIX,
    as_written,
    engine_of,
    is_kit,
    is_there,
    kit_named,
    kit_of,
    name_kit,
    problem_of,
    read_kit,
    shipped,
)

__all__ = [
    "KIT",
    "PREFIX",
    "Kit",
    "as_written",
    "engine_of",
    "is_kit",
    "is_there",
    "kit_named",
    "kit_of",
    "name_kit",
    "problem_of",
    "read_kit",
    "shipped",
]
