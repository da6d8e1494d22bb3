"""What the kernel's block layer sees of a device: each request from its issue to its completion.

`iostat` tells the mean of these (`await`). They are the device's own part of a latency: what comes
on top until a program knows is the time until it has the CPU, whatever the device is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benches.load import Figures, Load, run

EVENTS = ("block_rq_issue", "block_rq_complete")
BUFFER_KIB = 65_536
"""For each CPU: about 900,000 events, two for each I/O. Of a longer run the end counts."""
EVENT = re.compile(r" (\d+)\.(\d{6}): (block_rq_\w+): \S+ \S+ .*?(\d+) \+ \d+ ")
US = 1_000


def run_seen(device: str, load: Load) -> Figures:
    """Run fio on a device, and return the latencies that the block layer saw, to a microsecond."""
    with recorded(device) as trace:
        figures = run((f"--filename={device}",), load)
        latencies = sorted(latencies_ns(trace.read_text(encoding="utf-8")))
    if len(latencies) < figures.total_ios // 2:
        raise RuntimeError(
            f"{device}: {len(latencies)} of {figures.total_ios} I/Os in the kernel's trace; "
            f"run for fewer seconds (its buffer has {BUFFER_KIB} KiB for each CPU)"
        )
    count = len(latencies)
    return replace(figures, p50_ns=latencies[count // 2], p99_ns=latencies[count * 99 // 100])


def latencies_ns(trace: str) -> Iterator[int]:
    """Yield the time from issue to completion of each request of a trace, in nanoseconds."""
    issued: dict[str, int] = {}
    for seconds, micros, event, sector in EVENT.findall(trace):
        at_us = int(seconds) * 1_000_000 + int(micros)
        if event == "block_rq_issue":
            issued[sector] = at_us
        elif sector in issued:
            yield (at_us - issued.pop(sector)) * US


@contextmanager
def recorded(device: str) -> Iterator[Path]:
    """Have the kernel trace a device's requests meanwhile; the file has them as text."""
    number = os.stat(device).st_rdev
    kernels = os.major(number) << 20 | os.minor(number)
    with tracefs() as root:
        # An instance of our own: whoever else traces something keeps his buffers.
        instance = root / "instances" / f"disklab-bench-{os.getpid()}"
        instance.mkdir()
        try:
            (instance / "trace_clock").write_text("mono")
            (instance / "buffer_size_kb").write_text(str(BUFFER_KIB))
            for event in EVENTS:
                (instance / "events/block" / event / "filter").write_text(f"dev == {kernels}")
                (instance / "events/block" / event / "enable").write_text("1")
            yield instance / "trace"
        finally:
            instance.rmdir()


@contextmanager
def tracefs() -> Iterator[Path]:
    """Mount the kernel's trace files for this long."""
    root = Path(tempfile.mkdtemp(prefix="disklab-bench-"))
    try:
        subprocess.run(["mount", "-t", "tracefs", "tracefs", str(root)], check=True)
        try:
            yield root
        finally:
            subprocess.run(["umount", str(root)], check=True)
    finally:
        root.rmdir()
