"""Talks to disklab-engine: finds it, starts emulated hosts, asks their control sockets."""

from disklab.engine.binary import find_engine
from disklab.engine.control import Control
from disklab.engine.messages import (
    AttachedVolume,
    EmulatorCounters,
    Envelope,
    Hello,
    LimitCounters,
    ListedVolume,
    Ready,
    View,
    VolumeCounters,
)
from disklab.engine.process import EngineProcess, start_host

__all__ = [
    "AttachedVolume",
    "Control",
    "EmulatorCounters",
    "EngineProcess",
    "Envelope",
    "Hello",
    "LimitCounters",
    "ListedVolume",
    "Ready",
    "View",
    "VolumeCounters",
    "find_engine",
    "start_host",
]
