"""A program that only sleeps: how late this machine wakes anybody up, with no disk at all."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.load import Figures

PR_SET_TIMERSLACK = 29
PR_GET_TIMERSLACK = 30
NS_PER_S = 1_000_000_000


def sleep(latency_ns: int, seconds: float) -> Figures:
    """Sleep for `latency_ns` again and again, on a machine made as punctual as the emulator's."""
    lateness: list[int] = []
    begin = time.perf_counter_ns()
    end = begin + round(seconds * NS_PER_S)
    with punctual():
        now = begin
        while now < end:
            time.sleep(latency_ns / NS_PER_S)
            start, now = now, time.perf_counter_ns()
            lateness.append(now - start)
    lateness.sort()
    count = len(lateness)
    elapsed_s = (now - begin) / NS_PER_S
    return Figures(
        p50_ns=lateness[count // 2],
        p99_ns=lateness[count * 99 // 100],
        iops=count / elapsed_s,
        bytes_per_s=0.0,
        total_ios=count,
        runtime_s=elapsed_s,
    )


@contextmanager
def punctual() -> Iterator[None]:
    """Have timers of this thread expire on time, and no CPU sleep deeply."""
    prctl = ctypes.CDLL(None).prctl
    slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)
    with Path("/dev/cpu_dma_latency").open("wb", buffering=0) as awake:
        awake.write(struct.pack("i", 0))
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        try:
            yield
        finally:
            prctl(PR_SET_TIMERSLACK, slack_ns, 0, 0, 0)
