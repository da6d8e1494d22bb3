"""What others measured, held beside our own figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from disklab.catalog import Caching
from disklab.probe.cells import PERCENTILES
from disklab.probe.known import Disk

SECTION = "azure_local_disks_fio"

# Which published row measured which volume: (VM, disks, caching) as the experiment names them.
ROWS: dict[tuple[str, str, Caching], str] = {
    ("azure/Standard_E8as_v4", "local", "None"): "E8as_v4_temp",
    ("azure/Standard_E8ds_v4", "local", "None"): "E8ds_v4_temp",
    ("azure/Standard_E8ds_v4", "azure/P4", "ReadWrite"): "E8ds_v4_os_readwrite_cache",
    ("azure/Standard_E8ds_v4", "azure/P4", "None"): "E8ds_v4_os_P4_uncached",
    ("azure/Standard_E8ds_v4", "ephemeral-os", "None"): "E8ds_v4_ephemeral_os",
    ("azure/Standard_L8s_v2", "nvme", "None"): "L8s_v2_nvme",
}


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
    name = ROWS.get((disk.vm or "", disk.disks, disk.caching))
    if name is None:
        return None
    given = reference()[name]
    clat = given["clat_us"]
    by_percentile = (
        {float(key.lstrip("p")): us for key, us in clat.items()}
        if isinstance(clat, dict)
        else dict(zip(PERCENTILES, clat, strict=True))
    )
    return Published(
        name=name,
        percentiles_ns={p: round(us * 1000) for p, us in by_percentile.items()},
        iops=float(given["async_iops"]),
        note=str(given.get("note", "")),
    )


def reference() -> Mapping[str, Any]:
    """Return the section of the reference results that ship with disklab."""
    text = resources.files("disklab").joinpath("reference/published.yaml").read_text("utf-8")
    section: Mapping[str, Any] = yaml.safe_load(text)[SECTION]
    return section
