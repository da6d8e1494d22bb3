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
    LoadJob,
    LoadProgress,
    LoadReady,
    LoadRun,
    run_load,
)
from disklab.engine.messages import (
    AttachedVolume,
    CacheCounters,
    Envelope,
    Lateness,
    LimitCounters,
    ListedVolume,
    Ready,
    View,
    VolumeCounters,
)
from disklab.engine.process import EngineProcess, start_host
from disklab.machines.binary import find_engine
