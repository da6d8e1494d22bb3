"""Databases on volumes: one small protocol, a provider each."""

from disklab.databases.protocol import (
    Breakable,
    Coldness,
    Conditions,
    Database,
    Filling,
    Growing,
    Movable,
    NodePlace,
    Observation,
    Promoting,
    Reconfigured,
    Request,
    Sizes,
    Streaming,
)
from disklab.databases.registry import provision, record_of, records
