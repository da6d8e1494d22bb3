"""A run of a command as it comes out of a disk, for tests of what is made of it."""

from __future__ import annotations

import pytest
from disklab.command.counts import CommandRun, Latency, LimitUse, Operations

from tests.hosts.conftest import lab

__all__ = ["lab", "operations", "run"]


def operations(ios: int, size: int = 0, p99_ms: float | None = None) -> Operations:
    latency = None
    if p99_ms is not None:
        latency = Latency(mean_ms=1, p50_ms=1, p95_ms=2, p99_ms=p99_ms, max_ms=9)
    return Operations(ios=ios, bytes=size, failed=0, latency=latency)


@pytest.fixture
def run() -> CommandRun:
    """Two reads, 100 writes of 1 MiB altogether, 60 flushes, in 12.5 s."""
    delayed = LimitUse(
        name="disk 0 IOPS",
        per_s=500,
        unit="ios",
        delayed_ios=40,
        delayed_s=1.5,
        credits_left_ratio=0.5,
    )
    return CommandRun(
        command=["make", "a|b", "`c`"],
        exit_code=0,
        wall_s=12.5,
        disks="azure/P10",
        vm=None,
        caching="None",
        filesystem="xfs",
        operations={
            "read": operations(2, 8192),
            "write": operations(100, 1 << 20, 8.0),
            "flush": operations(60),
            "discard": operations(0),
        },
        fsyncs=41,
        limits=[delayed],
        late_ratio=0.0,
    )
