"""Talks to disklab-engine: finds it, starts emulated hosts, asks their control sockets."""

from disklab.engine.binary import find_engine
from disklab.engine.control import Control
from disklab.engine.messages import (
    AttachedVolume,
    CacheCounters,
    EmulatorCounters,
    Envelope,
    Hello,
    Lateness,
    LimitCounters,
    ListedVolume,
    Ready,
    UblkDevice,
    View,
    VolumeCounters,
)
from disklab.engine.process import EngineProcess, start_host
from disklab.engine.ublk import remove_ublk, ublk_devices

__all__ = [
    "AttachedVolume",
    "CacheCounters",
    "Control",
    "EmulatorCounters",
    "EngineProcess",
    "Envelope",
    "Hello",
    "Lateness",
    "LimitCounters",
    "ListedVolume",
    "Ready",
    "UblkDevice",
    "View",
    "VolumeCounters",
    "find_engine",
    "remove_ublk",
    "start_host",
    "ublk_devices",
]
