"""What others measured, held beside our own figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from disklab.probe.known import Disk
from disklab.results import TrialResult, reference_runs

STUDY = "azure-local-disks-published"


@dataclass(frozen=True)
class Published:
    """One device as its publisher measured it: random writes, latency at depth 1."""

    name: str
    percentiles_ns: Mapping[float, int]
    """Those that were published; all of them, or a few."""
    iops: float
    note: str


def published(disk: Disk) -> Published | None:
    """Return the published measurement of a disk; None when nobody published one."""
    wanted = {"vm": disk.vm, "disks": disk.disks, "caching": disk.caching}
    (study,) = (run for run in reference_runs() if run.info.id == STUDY)
    cells = [cell for cell in study.results() if told(cell, "device") == wanted]
    by_profile = {str(cell.factors["workload.fio.profile"]): cell for cell in cells}
    if not by_profile:
        return None
    at_depth_one, loaded = by_profile["sync"], by_profile["async"]
    return Published(
        name=str(told(loaded, "published_name")),
        percentiles_ns={
            float(name.lstrip("p")): round(ms * 1e6) for name, ms in at_depth_one.latency_ms.items()
        },
        iops=loaded.ops_per_s or 0.0,
        note=str(told(loaded, "note")),
    )


def told(cell: TrialResult, key: str) -> object:
    """Return a key that only published cells have."""
    return (cell.model_extra or {}).get(key)
