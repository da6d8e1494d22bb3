"""From a trial of a device to a job of the simulator: `crates/disklab-sim/src/job.rs`."""

from __future__ import annotations

from disklab.catalog.facts import GIB
from disklab.databases.simulating import (
    HOST_CACHE,
    NS_PER_S,
    PPM,
    Job,
    host_profile,
)
from disklab.spec import Trial, TrialSpec
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
    fio, stop = spec.workload.fio, spec.workload.stop
    assert fio is not None
    assert stop is not None
    jobs, depth = fio.load
    host = host_profile(spec)
    volume_bytes = host["volumes"][0]["size_bytes"]
    # A tenth stays free, as on any disk in use; small OS disks take smaller files.
    size = min(FIO_FILE_BYTES, volume_bytes * 9 // 10 // jobs // fio.block_bytes * fio.block_bytes)
    return {
        "host": host,
        "volume": "data",
        "fio": {
            "random": fio.random,
            "read_ppm": fio.read_percent * PPM // 100,
            "block_bytes": fio.block_bytes,
            "jobs": jobs,
            "depth": depth,
            "size_bytes": size,
            "runtime_ns": round((stop.duration_s or 0) * NS_PER_S),
            "warm_up_ns": round(spec.workload.warm_up_s * NS_PER_S),
            "submit_ns": FIO_SUBMIT_NS,
        },
        "host_cache": HOST_CACHE[spec.before.host_cache],
    }


def trace_job(spec: TrialSpec, replay: Replay) -> Job:
    """Return the job of a device under a trace."""
    asked, trace = spec.workload.trace, replay.placed.trace
    assert asked is not None
    return {
        "host": host_profile(spec),
        "volume": "data",
        "trace": {
            "at_ns": trace.at_ns.tolist(),
            "offset_bytes": trace.offset_bytes.tolist(),
            "len_bytes": trace.length_bytes.tolist(),
            "is_write": [bool(one) for one in trace.is_write],
            "depth": asked.depth,
        },
        "host_cache": HOST_CACHE[spec.before.host_cache],
    }
