"""Which part of the simulator answers a trial: a device's own, or that of the trial's database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from disklab.catalog import Catalog
from disklab.catalog.facts import GIB
from disklab.database_facts import simulated
from disklab.databases.calibration import Calibration, package_calibration
from disklab.databases.registry import simulated_of
from disklab.databases.simulating import (
    HOST_CACHE,
    INSTEAD,
    JOURNAL_WRITES,
    NS_PER_S,
    PPM,
    Breaking,
    Job,
    Simulated,
    host_profile,
    left_caches,
    replayed,
)
from disklab.errors import Problem, UserError
from disklab.spec import DeviceTrial, Trial, TrialSpec
from disklab.spec.amounts import only
from disklab.spec.fio import Fio, FioSection
from disklab.spec.replay import Replay, TraceReplay

# From a trial of a device to a job of the simulator: `crates/disklab-sim/src/cell.rs`.

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
    return device_job(only(DeviceTrial, trial.spec))


def device_job(spec: DeviceTrial) -> Job:
    """Return the job of a device under fio."""
    fio, stop = spec.workload.the(Fio), spec.workload.the_stop
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


READ_AHEAD_BYTES = 128 * 1024
"""Of a sequential reader, where the file says nothing. **Source:** Linux's `VM_READAHEAD_PAGES`."""


def section_job(fio: FioSection, spec: DeviceTrial, room_bytes: int) -> Job:
    """Return one section as the simulator takes it, in files of at most so many bytes."""
    volume, block = spec.device.volume, fio.block_bytes
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
    asked = spec.workload.the(TraceReplay)
    host_cache = HOST_CACHE[spec.before.host_cache]
    return replayed(host_profile(spec), replay.placed.trace, asked.depth, host_cache)


@dataclass(frozen=True)
class Prepared:
    """A job, or why there is none."""

    job: Job | None
    reasons: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    def needed(self) -> Job:
        """Return the job. Raises UserError when there is none."""
        if self.job is None:
            raise UserError(*self.reasons)
        return self.job


def prepare(
    trial: Trial, catalog: Catalog, calibration: Calibration | None, place: str
) -> Prepared:
    """Return the job of a trial, or why there is none. `place`: the file, for the reasons."""
    spec, model = trial.spec, model_of(trial.spec)
    if spec.cluster is None or model is None:
        if reasons := tuple(not_modelled(spec, place)):
            return Prepared(None, reasons)
        notes = tuple(trial.replay.notes()) if trial.replay is not None else ()
        return Prepared({"device": job_of(trial)}, (), notes)
    if reasons := tuple(model.unmodelled(spec, place)):
        return Prepared(None, reasons)
    calibration = calibration or package_calibration(spec.database.engine)
    warnings = tuple(model.warnings(spec, catalog, calibration))
    return Prepared({model.key: model.job(spec, catalog, calibration)}, (), warnings)


def model_of(spec: TrialSpec) -> Simulated | None:
    """Return what makes jobs of a trial's database; None: it has none, or none is simulated."""
    return simulated_of(spec.engine) if spec.engine is not None else None


def breaking_of(trial: Trial) -> Breaking | None:
    """Return what the simulator knows of a trial's nodes that break; None: they do not."""
    model = model_of(trial.spec)
    return model.breaking if model is not None else None


def not_modelled(spec: TrialSpec, place: str) -> Iterator[Problem]:
    """Yield what the simulator does not model of a trial without a database that it models."""
    if spec.database is not None:
        rule = f"the simulator models {simulated()} so far"
        yield Problem(f"{place}: database.engine", spec.database.engine, rule, INSTEAD)
    yield from left_caches(spec, place)


def database_part(job: Job) -> Job:
    """Return the part of a job that has calibrated parameters; empty: it is a device's."""
    return next((part for part in job.values() if _is_calibrated(part)), {})


def with_part(job: Job, changes: Job) -> Job:
    """Return a job with other values in its database's part; a device's is as it was."""
    return {key: {**part, **changes} if _is_calibrated(part) else part for key, part in job.items()}


def with_parameters(job: Job, parameters: dict[str, int]) -> Job:
    """Return a database's job with other parameters."""
    return with_part(job, {"parameters": parameters})


def _is_calibrated(part: Any) -> bool:
    return isinstance(part, dict) and "parameters" in part
