"""Lists of vendors as data: VM sizes, made into series of a catalogue file, and volumes.

Understood are `az vm list-skus --output json` (Azure's Resource SKUs), `aws ec2
describe-instance-types` and `aws ec2 describe-volumes`. Nothing is fetched here: the user brings
the file. Sizes that the catalogue has already are left out, since its own limits have their
sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from disklab import reading
from disklab.catalog.load import Catalog
from disklab.errors import Problem, UserError

BYTES_IN_MB = 1_000_000

Size = dict[str, Any]
"""The facts of a size, as a catalogue file has them."""


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
    return [_volume(_read(_Volume, entry, path), catalog) for entry in _dicts(volumes)]


Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Amount = Annotated[float, Field(ge=0, lt=1 << 53)]


class _Entry(BaseModel):
    """What is needed of an entry of a list; whatever else it says is passed over."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Volume(_Entry):
    name: str = Field("", alias="VolumeId")
    kind: str = Field("", alias="VolumeType")
    gib: Count = Field(0, alias="Size")
    iops: Count | None = Field(None, alias="Iops")
    mib_per_s: Count | None = Field(None, alias="Throughput")
    tags: list[dict[str, str]] | None = Field(None, alias="Tags")
    attachments: list[dict[str, Any]] | None = Field(None, alias="Attachments")


def _ebs(name: str) -> Any:
    return Field(0, validation_alias=AliasPath("EbsInfo", "EbsOptimizedInfo", name))


class _AwsSize(_Entry):
    name: str = Field("", alias="InstanceType")
    processors: Count = Field(1, validation_alias=AliasPath("VCpuInfo", "DefaultVCpus"))
    memory_mib: Count = Field(0, validation_alias=AliasPath("MemoryInfo", "SizeInMiB"))
    iops: Count = _ebs("BaselineIops")
    mb_per_s: Amount = _ebs("BaselineThroughputInMBps")
    top_iops: Count = _ebs("MaximumIops")
    top_mb_per_s: Amount = _ebs("MaximumThroughputInMBps")


class _AzureSize(_Entry):
    name: str = ""
    kind: str = Field("virtualMachines", alias="resourceType")
    family: str | None = None
    capabilities: list[dict[str, str]] | None = None


class _Capabilities(_Entry):
    processors: Count = Field(alias="vCPUs")
    memory_gib: Amount = Field(0, alias="MemoryGB")
    disks: Count | None = Field(None, alias="MaxDataDiskCount")
    iops: Count = Field(0, alias="UncachedDiskIOPS")
    bytes_per_s: Count = Field(0, alias="UncachedDiskBytesPerSecond")


Model = TypeVar("Model", bound=BaseModel)


def _read(model: type[Model], entry: Mapping[Any, Any], path: Path) -> Model:
    """Return what an entry says. Raises UserError for one of another form."""
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        where = ".".join(map(str, first["loc"]))
        rule = f"has an entry whose {where} is {reading.shown(first['input'])}: {first['msg']}"
        problem = Problem("FILE", str(path), rule, "save it again as the vendor's tool writes it")
        raise UserError(problem) from None


def _volume(entry: _Volume, catalog: Catalog) -> ListedVolume:
    kind = entry.kind
    disk = catalog.disks.get(f"aws/{kind}")
    arguments = [f"{entry.gib}GiB"]
    if disk is not None:
        # AWS states what gp2 and st1 come with as well, which nobody chooses.
        if disk.facts.iops is not None and disk.facts.iops.choosable and entry.iops:
            arguments.append(f"{entry.iops} IOPS")
        rate = disk.facts.mb_per_s
        if rate is not None and rate.choosable and entry.mib_per_s:
            arguments.append(f"{entry.mib_per_s} MiB/s")
    return ListedVolume(
        volume=entry.name,
        name={tag.get("Key"): tag.get("Value", "") for tag in entry.tags or ()}.get("Name", ""),
        instance=", ".join(str(one.get("InstanceId", "")) for one in entry.attachments or ()),
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
        vendor, found = "aws", _of_aws(content["InstanceTypes"], path)
    elif isinstance(entries, list) and any("capabilities" in entry for entry in _dicts(entries)):
        vendor, found = "azure", _of_azure(entries, path)
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


def _of_aws(entries: list[Any], path: Path) -> Iterator[tuple[str, str, Size]]:
    for entry in _dicts(entries):
        listed = _read(_AwsSize, entry, path)
        size: Size = {"vcpu": listed.processors, "mem_gib": listed.memory_mib / 1024}
        base = _limit(listed.iops, listed.mb_per_s)
        top = _limit(listed.top_iops, listed.top_mb_per_s)
        if base:
            size["uncached"] = base
        if top and top != base:
            size["uncached_burst"] = top
        yield listed.name.partition(".")[0], listed.name, size


def _limit(iops: int, mb_per_s: float) -> dict[str, int]:
    told = {"iops": iops, "mb_per_s": mb_per_s}
    return {key: int(value) for key, value in told.items() if value}


def _of_azure(entries: list[Any], path: Path) -> Iterator[tuple[str, str, Size]]:
    for entry in _dicts(entries):
        listed = _read(_AzureSize, entry, path)
        if listed.kind != "virtualMachines":
            continue
        told = {one.get("name"): one.get("value") for one in listed.capabilities or ()}
        if told.get("PremiumIO") != "True" or "vCPUs" not in told:
            continue
        able = _read(_Capabilities, told, path)
        size: Size = {"vcpu": able.processors, "mem_gib": able.memory_gib}
        if able.disks is not None:
            size["max_data_disks"] = able.disks
        if limit := _limit(able.iops, able.bytes_per_s // BYTES_IN_MB):
            size["uncached"] = limit
        family = (listed.family or "").removeprefix("standard").removesuffix("Family")
        yield family or "others", listed.name, size
