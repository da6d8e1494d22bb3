"""Talks to disklab-engine: emulated hosts, their control sockets, load, statements."""

from disklab.engine.account import Account, server_account, unreachable
from disklab.engine.control import (
    Control,
    CqlLogin,
    CqlQuery,
    CqlTls,
    QueryError,
    remove_ublk,
    ublk_devices,
)
from disklab.engine.load import (
    LoadDone,
    LoadEvent,
    LoadJob,
    LoadProgress,
    LoadReady,
    LoadRun,
    run_load,
)
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
from disklab.machines.binary import find_engine

__all__ = [
    "Account",
    "AttachedVolume",
    "CacheCounters",
    "Control",
    "CqlLogin",
    "CqlQuery",
    "CqlTls",
    "EmulatorCounters",
    "EngineProcess",
    "Envelope",
    "Hello",
    "Lateness",
    "LimitCounters",
    "ListedVolume",
    "LoadDone",
    "LoadEvent",
    "LoadJob",
    "LoadProgress",
    "LoadReady",
    "LoadRun",
    "QueryError",
    "Ready",
    "UblkDevice",
    "View",
    "VolumeCounters",
    "find_engine",
    "remove_ublk",
    "run_load",
    "server_account",
    "start_host",
    "ublk_devices",
    "unreachable",
]
