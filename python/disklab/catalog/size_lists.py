"""Lists of vendors as data: VM sizes, made into series of a catalogue file, and volumes.

Understood are `az vm list-skus --output json` (Azure's Resource SKUs), `aws ec2
describe-instance-types` and `aws ec2 describe-volumes`. Nothing is fetched here: the user brings
the file. Sizes that the catalogue has already are left out, since its own limits have their
sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import from_json

from disklab import reading
from disklab.catalog.load import Catalog
from disklab.errors import Problem, UserError

BYTES_IN_MB = 1_000_000

Size = dict[str, Any]
"""The facts of a size, as a catalogue file has them."""
Read = TypeVar("Read")


@dataclass
class ImportedSizes:
    """What one file says."""

    vendor: str
    date: str
    series: dict[str, dict[str, Size]] = field(default_factory=dict)
    """Sizes by series and name."""
    known: int = 0
    """Sizes that the catalogue has already."""
    without_limits: int = 0
    """Sizes of which the list states no limit on attached disks: they are left out."""


@dataclass(frozen=True)
class ListedVolume:
    """A volume that somebody has, as an experiment file says it."""

    volume: str
    name: str
    """Its Name tag; empty: none."""
    instance: str
    """Where it is attached; empty: nowhere."""
    disks: str
    """A disk expression, or the vendor's own word for a kind that the catalogue lacks."""
    known: bool


def read_volumes(path: Path, catalog: Catalog) -> list[ListedVolume]:
    """Return the volumes of `aws ec2 describe-volumes`. Raises UserError for any other file."""
    content = _json(path)
    volumes = content.get("Volumes") if isinstance(content, dict) else None
    if not isinstance(volumes, list):
        rule = "is not AWS's describe-volumes"
        way_out = "save `aws ec2 describe-volumes --output json`"
        raise UserError(Problem("FILE", str(path), rule, way_out))
    _whole(path, content)
    return _each(volumes, path, lambda entry: _volume(entry, catalog))


def _volume(entry: dict[str, Any], catalog: Catalog) -> ListedVolume:
    kind = _text(entry.get("VolumeType", ""))
    disk = catalog.disks.get(f"aws/{kind}")
    tags = {tag.get("Key"): tag.get("Value") for tag in _dicts(entry.get("Tags") or [])}
    attached = [_text(one.get("InstanceId", "")) for one in _dicts(entry.get("Attachments") or [])]
    arguments = [f"{_count(entry.get('Size', 0))}GiB"]
    if disk is not None:
        # AWS states what gp2 and st1 come with as well, which nobody chooses.
        if disk.facts.iops is not None and disk.facts.iops.choosable and entry.get("Iops"):
            arguments.append(f"{_count(entry['Iops'])} IOPS")
        rate = disk.facts.mb_per_s
        if rate is not None and rate.choosable and entry.get("Throughput"):
            arguments.append(f"{_count(entry['Throughput'])} MiB/s")
    return ListedVolume(
        volume=_text(entry.get("VolumeId", "")),
        name=_text(tags.get("Name") or ""),
        instance=", ".join(attached),
        disks=f"aws/{kind}({', '.join(arguments)})" if disk is not None else kind,
        known=disk is not None,
    )


def _json(path: Path) -> Any:
    data = reading.contents(path, reading.PRICES, "FILE")
    try:
        return from_json(data)
    except ValueError as error:
        problem = Problem("FILE", str(path), f"is not JSON: {error}", "save it again")
        raise UserError(problem) from None


def _whole(path: Path, content: dict[str, Any]) -> None:
    """Raise UserError for one page of a list."""
    if content.get("NextToken"):
        rule = "is only part of a list that continues (NextToken)"
        way_out = "save it with the aws command, which fetches all pages"
        raise UserError(Problem("FILE", str(path), rule, way_out))


def read_sizes(path: Path, catalog: Catalog) -> ImportedSizes:
    """Return the sizes of a file that the catalogue lacks. Raises UserError for any other file."""
    content = _json(path)
    date = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).date().isoformat()
    entries = content.get("value") if isinstance(content, dict) else content
    if isinstance(content, dict) and isinstance(content.get("InstanceTypes"), list):
        _whole(path, content)
        vendor, found = "aws", _each(content["InstanceTypes"], path, _of_aws)
    elif isinstance(entries, list) and any("capabilities" in entry for entry in _dicts(entries)):
        vendor = "azure"
        found = [size for size in _each(entries, path, _of_azure) if size is not None]
    else:
        rule = "is neither Azure's Resource SKUs nor AWS's describe-instance-types"
        way_out = "save `az vm list-skus --output json` or `aws ec2 describe-instance-types`"
        raise UserError(Problem("FILE", str(path), rule, way_out))
    sizes = ImportedSizes(vendor, date)
    # Azure lists a size once for each region.
    for name, (series, size) in {name: (series, size) for series, name, size in found}.items():
        if f"{vendor}/{name}" in catalog.vms:
            sizes.known += 1
        elif "uncached" not in size:
            sizes.without_limits += 1
        else:
            sizes.series.setdefault(series, {})[name] = size
    return sizes


def sizes_document(path: Path, sizes: ImportedSizes) -> dict[str, Any]:
    """Return a catalogue file with the series of a list."""
    key = f"{sizes.vendor}_sizes_{sizes.date.replace('-', '')}"
    note = "attached disks only: host caches and local disks in the list are left out"
    series = {
        f"{sizes.vendor}/{name}-imported": {
            "provenance": {"default": {"source": [key]}},
            "premium_storage": True,
            "host_cache": "none",
            "notes": [note],
            "sizes": members,
        }
        for name, members in sorted(sizes.series.items())
    }
    source = {"at": f"the list {path.name} of {sizes.vendor}", "date": sizes.date}
    return {"sources": {key: source}, "vm_series": series}


def _dicts(entries: list[Any]) -> list[dict[str, Any]]:
    return [entry for entry in entries if isinstance(entry, dict)]


def _each(entries: list[Any], path: Path, read: Callable[[dict[str, Any]], Read]) -> list[Read]:
    """Return what each entry says. Raises UserError for one that is not as the vendor writes it."""
    made: list[Read] = []
    kept = _dicts(entries)
    try:
        made.extend(map(read, kept))
    except (AttributeError, LookupError, TypeError, ValueError):
        rule = f"has an entry of another form: {reading.shown(kept[len(made)])}"
        raise UserError(
            Problem("FILE", str(path), rule, "save it again as it was listed")
        ) from None
    return made


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name is a text")
    return value


def _count(value: Any) -> int:
    """Return a number of a list, which Azure writes as a text; a part of one is left out."""
    number = float(value)
    if not 0 <= number < reading.LARGEST_WHOLE:
        raise ValueError("a count is a number from 0")
    return int(number)


def _of_aws(entry: dict[str, Any]) -> tuple[str, str, Size]:
    name = _text(entry.get("InstanceType", ""))
    ebs = entry.get("EbsInfo", {}).get("EbsOptimizedInfo", {})
    size: Size = {"vcpu": _count(entry.get("VCpuInfo", {}).get("DefaultVCpus", 1))}
    size["mem_gib"] = _count(entry.get("MemoryInfo", {}).get("SizeInMiB", 0)) / 1024
    base = _limit(ebs.get("BaselineIops"), ebs.get("BaselineThroughputInMBps"))
    top = _limit(ebs.get("MaximumIops"), ebs.get("MaximumThroughputInMBps"))
    if base:
        size["uncached"] = base
    if top and top != base:
        size["uncached_burst"] = top
    return name.partition(".")[0], name, size


def _limit(iops: Any, mb_per_s: Any) -> dict[str, int]:
    told = {"iops": iops, "mb_per_s": mb_per_s}
    return {key: _count(value) for key, value in told.items() if value}


def _of_azure(entry: dict[str, Any]) -> tuple[str, str, Size] | None:
    if entry.get("resourceType", "virtualMachines") != "virtualMachines":
        return None
    capabilities = {one["name"]: one["value"] for one in entry.get("capabilities", [])}
    if capabilities.get("PremiumIO") != "True" or "vCPUs" not in capabilities:
        return None
    memory_mib = _count(float(capabilities.get("MemoryGB", 0)) * 1024)
    size: Size = {"vcpu": _count(capabilities["vCPUs"]), "mem_gib": memory_mib / 1024}
    if "MaxDataDiskCount" in capabilities:
        size["max_data_disks"] = _count(capabilities["MaxDataDiskCount"])
    bytes_per_s = _count(capabilities.get("UncachedDiskBytesPerSecond", 0))
    limit = _limit(capabilities.get("UncachedDiskIOPS"), bytes_per_s // BYTES_IN_MB)
    if limit:
        size["uncached"] = limit
    family = _text(entry.get("family", "")).removeprefix("standard").removesuffix("Family")
    return family or "others", _text(entry.get("name", "")), size
