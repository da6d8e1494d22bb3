"""Cassandra's own periods, time-outs and rates under time dilation: its clock is this machine's.

A second of the described system takes longer here, so what Cassandra waits for must be longer and
what it throttles slower, or a commit log would be synced eight times as often as there.

**Divergence:** periods that no setting has stay: the Java machine's, and gossip's one second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# What the code does without a setting, in the described system's time: new and old name, ms.
# Source: org.apache.cassandra.config.Config of 4.0, 4.1 and 5.0.
USUAL_MS = {
    "read_request_timeout": ("read_request_timeout_in_ms", 5_000),
    "range_request_timeout": ("range_request_timeout_in_ms", 10_000),
    "write_request_timeout": ("write_request_timeout_in_ms", 2_000),
    "counter_write_request_timeout": ("counter_write_request_timeout_in_ms", 5_000),
    "truncate_request_timeout": ("truncate_request_timeout_in_ms", 60_000),
    "request_timeout": ("request_timeout_in_ms", 10_000),
}
# Rates of the described system: new name and value, old name and value.
# Source: the shipped cassandra.yaml of 4.0, 4.1 and 5.0, and Config of the same.
USUAL_RATES = (
    ("compaction_throughput", "64MiB/s", "compaction_throughput_mb_per_sec", 64),
    (
        "stream_throughput_outbound",
        "24MiB/s",
        "stream_throughput_outbound_megabits_per_sec",
        200,
    ),
    (
        "entire_sstable_stream_throughput_outbound",
        "24MiB/s",
        "entire_sstable_stream_throughput_outbound_megabits_per_sec",
        200,
    ),
)

_DURATION = re.compile(r"(\d+)\s*(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_RATE = re.compile(r"(\d+)\s*(B|KiB|MiB)/s", re.ASCII)
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def usual(known: Mapping[str, str]) -> dict[str, object]:
    """Return what the code does by itself, as settings of the version whose names are `known`."""
    found: dict[str, object] = {}
    for new, (old, ms) in USUAL_MS.items():
        if new in known:
            found[new] = f"{ms}ms"
        elif old in known:
            found[old] = ms
    for new, rate, old, old_rate in USUAL_RATES:
        if new in known:
            found[new] = rate
        elif old in known:
            found[old] = old_rate
    return found


def dilated(settings: Mapping[str, object], dilation: int) -> dict[str, object]:
    """Return settings of the described system as they must be here; 1: as they are."""
    if dilation == 1:
        return dict(settings)
    return {name: _dilated(name, value, dilation) for name, value in settings.items()}


def _dilated(name: str, value: object, dilation: int) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        if name.endswith("_in_ms"):
            return value * dilation
        # 0 means without a limit, and so must not become of a small rate.
        is_rate = name.endswith(("_mb_per_sec", "_megabits_per_sec"))
        return max(1, round(value / dilation)) if is_rate and value else value
    if not isinstance(value, str):
        return value
    duration, rate = _DURATION.fullmatch(value), _RATE.fullmatch(value)
    if duration is not None:
        return f"{int(duration[1]) * dilation}{duration[2]}"
    if rate is not None:
        bytes_per_s = int(rate[1]) * _BYTES[rate[2]]
        return f"{max(1, bytes_per_s // dilation)}B/s" if bytes_per_s else value
    return value
