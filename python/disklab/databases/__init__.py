"""Databases on volumes: one small protocol, a provider each."""

from disklab.databases.protocol import (
    Coldness,
    Conditions,
    Database,
    NodePlace,
    Observation,
    Request,
    Sizes,
)
from disklab.databases.provision import PORTS, provision

__all__ = [
    "PORTS",
    "Coldness",
    "Conditions",
    "Database",
    "NodePlace",
    "Observation",
    "Request",
    "Sizes",
    "provision",
]
