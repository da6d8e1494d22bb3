"""PostgreSQL's own periods under time dilation: its clock is this machine's.

A second of the described system takes longer here, so a checkpoint that comes each five minutes
there must come more rarely here, or its writes would weigh more than they do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from disklab.database_settings import Setting

# What the server does without a setting, in ms of the described system. Source: PostgreSQL 15,
# documentation chapter 20 (defaults).
USUAL_MS = {
    "checkpoint_timeout": 300_000,
    "wal_writer_delay": 200,
    "bgwriter_delay": 200,
    "autovacuum_naptime": 60_000,
    "deadlock_timeout": 1_000,
    "wal_sender_timeout": 60_000,
    "wal_receiver_timeout": 60_000,
    "wal_retrieve_retry_interval": 5_000,
}
# The largest that the server takes of each, in ms; beyond it the period stays shorter than asked.
MOST_MS = {"checkpoint_timeout": 86_400_000, "wal_writer_delay": 10_000, "bgwriter_delay": 10_000}

_DURATION = re.compile(r"(\d+)\s*(us|ms|s|min|h|d)", re.ASCII)


def usual(dilation: int) -> dict[str, Setting]:
    """Return the server's own periods as they must be here; nothing when time is not dilated."""
    if dilation == 1:
        return {}
    return {
        name: f"{min(ms * dilation, MOST_MS.get(name, ms * dilation))}ms"
        for name, ms in USUAL_MS.items()
    }


def dilated(settings: Mapping[str, Setting], dilation: int) -> dict[str, Setting]:
    """Return a user's settings, of the described system, as they must be here.

    A time is what has a unit, such as `5min`: a bare number's unit hangs on its setting.
    """
    found: dict[str, Setting] = {}
    for name, value in settings.items():
        time = _DURATION.fullmatch(value) if isinstance(value, str) else None
        found[name] = value if time is None else f"{int(time[1]) * dilation}{time[2]}"
    return found
