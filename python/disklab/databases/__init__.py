"""Databases on volumes: one small protocol, a provider each."""

from disklab.databases.protocol import (
    Breakable,
    Coldness,
    Conditions,
    Database,
    Growing,
    NodePlace,
    Observation,
    Request,
    Sizes,
)
from disklab.databases.registry import provision, record_of, records

__all__ = [
    "Breakable",
    "Coldness",
    "Conditions",
    "Database",
    "Growing",
    "NodePlace",
    "Observation",
    "Request",
    "Sizes",
    "provision",
    "record_of",
    "records",
]
