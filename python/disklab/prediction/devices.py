"""From a trial of a device to a job of the simulator: `crates/disklab-sim/src/job.rs`."""

from __future__ import annotations

from disklab.catalog.facts import GIB
from disklab.databases.simulating import (
    HOST_CACHE,
    NS_PER_S,
    PPM,
    Job,
    host_profile,
    replayed,
)
from disklab.spec import Trial, TrialSpec
from disklab.spec.model import FioSection
from disklab.spec.replay import Replay

FIO_FILE_BYTES = 5 * GIB
"""Each job's file. **Source:** the same: 5g a job under the deep queue, 5g to 30g at depth 1."""

FIO_SUBMIT_NS = 4_000
"""A job's own time for each I/O: it submits and reaps one after the other.

Assumed: fio 3 with libaio reaches about 250,000 I/Os a second and job on a null device.
"""


def job_of(trial: Trial) -> Job:
    """Return the job of a trial."""
    if trial.replay is not None:
        return trace_job(trial.spec, trial.replay)
    return device_job(trial.spec)


def device_job(spec: TrialSpec) -> Job:
    """Return the job of a device under fio."""
    fio, stop = spec.workload.fio, spec.workload.the_stop
    assert fio is not None
    host = host_profile(spec)
    sections = (fio, *fio.beside)
    # A tenth stays free, as on any disk in use; small OS disks take smaller files.
    room = host["volumes"][0]["size_bytes"] * 9 // 10 // sum(one.load[0] for one in sections)
    times = {
        "runtime_ns": round((stop.duration_s or 0) * NS_PER_S),
        "warm_up_ns": round(spec.workload.warm_up_s * NS_PER_S),
    }
    first, *beside = (section_job(section, spec, room) | times for section in sections)
    return {
        "host": host,
        "volume": "data",
        "fio": first,
        **({"beside": beside} if beside else {}),
        "host_cache": HOST_CACHE[spec.before.host_cache],
    }


JOURNAL_WRITES = {"xfs": 1, "ext4": 2}
"""Of a sync that changes metadata: XFS's log; ext4's transaction, then its commit record."""
READ_AHEAD_BYTES = 128 * 1024
"""Of a sequential reader, where the file says nothing. **Source:** Linux's `VM_READAHEAD_PAGES`."""


def section_job(fio: FioSection, spec: TrialSpec, room_bytes: int) -> Job:
    """Return one section as the simulator takes it, in files of at most so many bytes."""
    volume, block = spec.the_device.volume, fio.block_bytes
    jobs, depth = fio.load
    job: Job = {
        "random": fio.random,
        "read_ppm": fio.read_percent * PPM // 100,
        "block_bytes": block,
        "jobs": jobs,
        "depth": depth,
        "size_bytes": min(fio.size_bytes or FIO_FILE_BYTES, room_bytes // block * block),
        "submit_ns": FIO_SUBMIT_NS,
    }
    every = fio.fsync or fio.fdatasync
    more = {
        "name": fio.name,
        "once": fio.once,
        "rate_iops": fio.rate_iops,
        "split": [
            {"block_bytes": size.block_bytes, "share_ppm": round(size.share_ratio * PPM)}
            for size in fio.bssplit
        ],
        "sync": every
        and {
            "every": every,
            "data_only": fio.fdatasync is not None,
            "journal_writes": JOURNAL_WRITES[volume.filesystem],
        },
        "buffered": None
        if fio.direct
        else {
            "read_ahead_bytes": READ_AHEAD_BYTES
            if volume.read_ahead_bytes is None
            else volume.read_ahead_bytes // 4096 * 4096
        },
    }
    return job | {key: value for key, value in more.items() if value}


def trace_job(spec: TrialSpec, replay: Replay) -> Job:
    """Return the job of a device under a trace."""
    asked = spec.workload.trace
    assert asked is not None
    host_cache = HOST_CACHE[spec.before.host_cache]
    return replayed(host_profile(spec), replay.placed.trace, asked.depth, host_cache)
