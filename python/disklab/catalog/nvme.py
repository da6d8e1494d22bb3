"""Limits of local NVMe disks that no vendor publishes: one stated function of measurements. Pure.

- A size whose disk was measured, in its series or in one with the same disks, gets the median of
  what was measured of a disk of that many GB, times its number of disks.
- Another size gets the bytes that go with each of its published IOPS: of its series, or between
  those of the generations before and after it. It is `inferred`, with a band from one to the other.
- What the vendor publishes stands, unless it says of a series that its figures are no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from disklab.catalog.facts import Facts, Inferred, NvmeFacts

if TYPE_CHECKING:
    from disklab.catalog.load import Catalog, VmEntry

FIELDS = ("total_read_iops", "total_read_mb_per_s", "total_write_iops", "total_write_mb_per_s")
MB = 1_000_000
LEAST_BAND = 1.1
"""Of measured limits: another measurement of i7i and i4i lies within 1.1 of them (awslab_i7i)."""
MOST_BAND = 2.0


def _as_row(value: object) -> object:
    return dict(zip(FIELDS, value, strict=True)) if isinstance(value, list) else value


class Measured(Facts):
    """What somebody measured: I/Os and bytes a second, of reads and of writes."""

    total_read_iops: int
    total_read_mb_per_s: int
    total_write_iops: int
    total_write_mb_per_s: int


class NvmeEvidence(Facts):
    """The measurements of one source."""

    source: str
    per: Literal["disk", "vm"]
    """Whether a row is of one disk or of all that the VM has."""
    rows: dict[str, Annotated[Measured, BeforeValidator(_as_row)]]
    """By VM size; its MB/s are bytes."""


class NvmeLike(Facts):
    """The series that stand for one that was not measured."""

    of: list[str] = Field(min_length=1, max_length=2)
    because: str


@dataclass(frozen=True)
class _Row:
    series: str
    gb: int | None
    """Of a disk; None: the size is not in the catalogue."""
    source: str
    rates: tuple[float, ...]
    """Of one disk, in the order of `FIELDS`."""


def with_limits(catalog: Catalog) -> Iterator[VmEntry]:
    """Yield the VM sizes whose NVMe disks get limits from measurements, with these limits."""
    rows = list(_rows(catalog))
    for vm in catalog.vms.values():
        # As its file has it: another catalogue's measurements may have been worked in already.
        published = vm.series.sizes[vm.name.partition("/")[2]]
        nvme = published.nvme
        if nvme is None or (vm.series_name not in catalog.nvme_unthrottled and _is_whole(vm, nvme)):
            continue
        limits = _limits(catalog, vm, nvme, rows)
        figures: dict[str, int | None] = {name: value for name, (value, _) in limits.items()}
        if limits and vm.series_name in catalog.nvme_unthrottled:
            figures |= {"total_iops": None, "total_mb_per_s": None}
        facts = published.model_copy(update={"nvme": nvme.model_copy(update=figures)})
        inferred = {f"nvme.{name}": known for name, (_, known) in limits.items()}
        yield replace(vm, facts=facts, inferred={**vm.told, **inferred})


def _is_whole(vm: VmEntry, nvme: NvmeFacts) -> bool:
    mb = nvme.total_mb_per_s or (nvme.total_read_mb_per_s and nvme.total_write_mb_per_s)
    return bool(mb) or vm.series.nvme_write is not None


def _rows(catalog: Catalog) -> Iterator[_Row]:
    for evidence in catalog.nvme_evidence:
        for name, measured in evidence.rows.items():
            vm = catalog.vms.get(name)
            nvme = vm.facts.nvme if vm else None
            count = nvme.count if nvme and evidence.per == "vm" else 1
            series = vm.series_name if vm else name.rpartition(".")[0]
            rates = tuple(getattr(measured, field) / count for field in FIELDS)
            yield _Row(series, nvme.size_gb if nvme else None, evidence.source, rates)


def _limits(
    catalog: Catalog, vm: VmEntry, nvme: NvmeFacts, rows: Sequence[_Row]
) -> dict[str, tuple[int, Inferred]]:
    """Return the limits of all disks of a VM, and how well each is known."""
    like = catalog.nvme_like.get(vm.series_name)
    series = [vm.series_name, *(like.of if like else ())]
    groups = {name: [row for row in rows if row.series == name] for name in series}
    groups = {name: found for name, found in groups.items() if found}
    because = f"; {like.because}" if like else ""
    own = next(iter(groups.values())) if len(groups) == 1 else []
    if not groups and vm.builtin and rows:
        groups = {"every disk that was measured": list(rows)}
    same = [row for row in own if row.gb == nvme.size_gb]
    wanted = FIELDS if vm.series_name in catalog.nvme_unthrottled else FIELDS[1::2]
    limits = {}
    for name in wanted:
        index = FIELDS.index(name)
        if same:
            values = [row.rates[index] for row in same]
            told = f"the median of {len(same)} measured disks of {nvme.size_gb} GB{because}"
            limit, within = median(values) * nvme.count, _band(values, median(values))
            known = _inferred(within, "measured", same, told)
        elif (iops := getattr(nvme, FIELDS[index - 1])) is None:
            continue
        else:
            ratios = {name: _ratios(found, index) for name, found in groups.items()}
            middles = [median(each) for each in ratios.values()]
            each = geometric_mean(middles)
            spread = [value for found in ratios.values() for value in found]
            within = _band(middles if len(middles) > 1 else spread, each)
            told = f"{each:,.0f} bytes for each of its IOPS, as {' and '.join(ratios)}{because}"
            limit = iops * each
            known = _inferred(within, "inferred", _all(groups), told)
        unit = MB if name.endswith("mb_per_s") else 1
        limits[name] = (max(1, round(limit / unit)), known)
    return limits


def _all(groups: Mapping[str, Sequence[_Row]]) -> list[_Row]:
    return [row for found in groups.values() for row in found]


def _ratios(rows: Sequence[_Row], index: int) -> list[float]:
    return [row.rates[index] / row.rates[index - 1] for row in rows]


def _band(values: Sequence[float], middle: float) -> float:
    """Return the factor within which the middle eight of ten values lie."""
    distances = sorted(abs(math.log(value / middle)) for value in values)
    far = distances[max(0, math.ceil(len(distances) * 0.8) - 1)]
    return min(MOST_BAND, max(LEAST_BAND, math.exp(far)))


def _inferred(
    within: float, status: Literal["measured", "inferred"], rows: Sequence[_Row], because: str
) -> Inferred:
    sources = list(dict.fromkeys(row.source for row in rows))
    return Inferred(
        within=Decimal(round(within * 100)) / 100, status=status, source=sources, because=because
    )
