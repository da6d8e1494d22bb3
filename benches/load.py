"""One fio run and the few figures that a benchmark needs of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from typing import Any

PERCENTILES = (50.0, 99.0)


# Until fio's jobs have begun and reported: for one that hangs, and not for a machine that is busy.
SLACK_S = 600.0


@dataclass(frozen=True)
class Load:
    """What fio does: block size in bytes, queue depth, jobs, seconds, direction."""

    rw: str = "randread"
    block_bytes: int = 4096
    depth: int = 1
    jobs: int = 1
    seconds: float = 2
    ioengine: str = "io_uring"
    extra: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Figures:
    """What fio saw: nanoseconds, I/Os per second, bytes per second, I/Os in all, seconds."""

    p50_ns: int
    p99_ns: int
    iops: float
    bytes_per_s: float
    total_ios: int
    runtime_s: float
    """From the first submission to the last completion, so it includes draining the queue."""


def run(target: tuple[str, ...], load: Load) -> Figures:
    """Run fio on a target (its fio options, such as `--filename=/dev/loop7`)."""
    command = [
        "fio", "--name=bench", "--output-format=json", "--direct=1", "--norandommap",
        "--randrepeat=0", "--time_based", f"--runtime={round(load.seconds * 1000)}ms",
        f"--rw={load.rw}",
        f"--bs={load.block_bytes}", f"--iodepth={load.depth}", f"--numjobs={load.jobs}",
        "--group_reporting", "--lat_percentiles=1", "--clat_percentiles=0",
        "--percentile_list=" + ":".join(str(p) for p in PERCENTILES),
        f"--ioengine={load.ioengine}", *target, *load.extra,
    ]  # fmt: skip
    # fio's jobs are processes of their own, which would hold the device when this one is ended.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as fio:
        try:
            out, complaint = fio.communicate(timeout=load.seconds + SLACK_S)
        except BaseException:
            os.killpg(fio.pid, signal.SIGKILL)
            raise
    if fio.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {complaint.strip() or out.strip()}")
    report = json.loads(out[out.index("{") :])
    job: dict[str, Any] = report["jobs"][0]
    side = job["write" if "write" in load.rw else "read"]
    # Whole latency, not completion latency: io_uring may do the I/O while it is being submitted.
    percentile = side["lat_ns"].get("percentile", {})
    return Figures(
        p50_ns=int(percentile.get("50.000000", 0)),
        p99_ns=int(percentile.get("99.000000", 0)),
        iops=float(side["iops"]),
        bytes_per_s=float(side["bw_bytes"]),
        total_ios=int(side["total_ios"]),
        runtime_s=float(side["runtime"]) / 1e3,
    )
