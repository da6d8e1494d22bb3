"""What a catalogue file holds: families of disks, VM series, latencies, prices and their sources.

The files of the package and those of users have this one form. Every number has a provenance: its
own, or that of the whole family or series; a provenance names sources, and a source has a place and
a date. Units are the last part of a name; `mb_bytes` says how many bytes the vendor's MB has.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from disklab.catalog.profile import Medium
from disklab.reading import digits

GIB = 1 << 30

Status = Literal["published", "measured", "fitted", "inferred", "assumed"]
"""How far a number can be trusted: a vendor's own, somebody's measurement, a model fitted to one,
derived from a neighbouring number, or chosen by us."""


class Facts(BaseModel):
    """A frozen part of a catalogue file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Sources = Annotated[list[str], BeforeValidator(_as_list)]
"""Keys of `sources`; one alone needs no list."""


def _amount(value: object) -> object:
    return {"value": value} if isinstance(value, int | float | Decimal) else value


def _rate(value: object) -> object:
    if isinstance(value, dict) and {"included", "least", "most", "of_vm"} & value.keys():
        return value
    return {"included": value}


def _span(value: object) -> object:
    return {"least": 1, "most": value, "fixed": True} if isinstance(value, int) else value


class Source(Facts):
    """Where numbers come from."""

    at: str
    """Repository path@commit, an address, or words."""
    date: str | None = None
    """The date that the document shows; absent: it shows none."""


class Provenance(Facts):
    """Who says so, when, and how sure that is."""

    source: Sources = Field(min_length=1)
    """Keys of `sources`."""
    date: str | None = None
    """Only where it differs from the sources' own date."""
    status: Status = "published"
    note: str | None = None


class Step(Facts):
    """A value that holds up to a size."""

    up_to_gib: int | None = None
    value: Decimal


class Formula(Facts):
    """An amount: fixed, by steps of the size, or linear in size or IOPS between two ends."""

    value: Decimal | None = None
    per_gib: Decimal | None = None
    per_iops: Decimal | None = None
    at_least: Decimal = Decimal(0)
    at_most: Decimal | None = None
    steps: list[Step] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Formula:
        kinds = (self.value, self.per_gib, self.per_iops, self.steps)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give exactly one of value, per_gib, per_iops and steps")
        return self

    def at(self, size_gib: Fraction, iops: int) -> Fraction:
        """Return the amount for a size and a number of provisioned IOPS."""
        if self.steps is not None:
            for step in self.steps:
                if step.up_to_gib is None or size_gib <= step.up_to_gib:
                    return Fraction(step.value)
            return Fraction(self.steps[-1].value)
        if self.value is not None:
            amount = Fraction(self.value)
        elif self.per_gib is not None:
            amount = size_gib * Fraction(self.per_gib)
        else:
            amount = iops * Fraction(self.per_iops or 0)
        if self.at_least:
            amount = max(Fraction(self.at_least), amount)
        return amount if self.at_most is None else min(Fraction(self.at_most), amount)

    def __str__(self) -> str:
        """Return the formula as people write it: `min(80000, max(3000, 500 x GiB))`."""
        if self.steps is not None:
            return ", ".join(
                f"{_plain(step.value)}"
                + ("" if step.up_to_gib is None else f" up to {step.up_to_gib} GiB")
                for step in self.steps
            )
        if self.value is not None:
            return _plain(self.value)
        slope, unit = (self.per_gib, "GiB") if self.per_gib is not None else (self.per_iops, "IOPS")
        text = f"{_plain(slope or Decimal(0))} x {unit}"
        if self.at_least:
            text = f"max({_plain(self.at_least)}, {text})"
        return text if self.at_most is None else f"min({_plain(self.at_most)}, {text})"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


Amount = Annotated[Formula, BeforeValidator(_amount)]


class Rate(Facts):
    """IOPS or MB/s of a disk: what is included, and within which ends more can be asked for."""

    included: Amount
    least: Amount | None = None
    most: Amount | None = None
    of_vm: int = 0
    """What a VM has beside, once for all its disks of the kind: those of a volume share it."""

    @property
    def choosable(self) -> bool:
        """Whether the buyer sets it."""
        return self.most is not None


class SizeRange(Facts):
    """Sizes that a disk can have, in GiB."""

    least: int = Field(ge=1)
    most: int = Field(ge=1)
    fixed: bool = False
    """A tier: `most` is its size, smaller ones perform and are billed like it."""


class Burst(Facts):
    """Bursting of a disk: a top rate, with credits or without end."""

    iops: int | None = None
    mb_per_s: Amount | None = None
    minutes: int = 30
    """How long a full bucket lasts at the top rate."""
    credit_ios: int | None = None
    """The bucket in I/Os where the vendor states it (AWS); else it follows from `minutes`."""
    credit_mb: Amount | None = None
    """The bucket of the throughput in the vendor's MB, where it is stated."""
    endless: bool = False
    """Paid for by use instead of credits."""
    below_gib: int | None = None
    """Only disks smaller than this burst."""


class Performance(Facts):
    """A higher pair of limits that is bought with a switch."""

    iops: int
    mb_per_s: int


DiskCap = tuple[int, int, int, int]
"""Reads and writes a second, and MB/s of reads and of writes."""


class DiskFacts(Facts):
    """One disk of a family."""

    size_gib: Annotated[SizeRange, BeforeValidator(_span)]
    iops: Annotated[Rate, BeforeValidator(_rate)] | None = None
    read_iops: Amount | None = None
    write_iops: Amount | None = None
    iops_per_mb_per_s: int | None = None
    """The IOPS follow from the MB/s, up to `iops`."""
    mb_per_s: Annotated[Rate, BeforeValidator(_rate)] | None = None
    read_mb_per_s: Amount | None = None
    write_mb_per_s: Amount | None = None
    of_count: dict[int, DiskCap] = {}
    """What a stripe of so many and more has together, where that is not so many times one."""
    credit_burst: Burst | None = None
    on_demand_burst: Burst | None = None
    performance_plus: Performance | None = None


class FamilyFacts(Facts):
    """What the disks of a family share."""

    title: str
    medium: Medium = "remote"
    provenance: dict[str, Provenance]
    """`default`, and fields whose numbers come from elsewhere."""
    io_unit_bytes: int | None = None
    """An I/O counts once for each started unit; absent: once."""
    whole_write_bytes: int | None = None
    """An aligned write of so many bytes is there or not, whatever cuts the power: never a part of
    it. Null: nothing is promised beyond a sector."""
    mb_bytes: int = 1_000_000
    needs_premium_storage: bool = False
    host_cache_max_gib: int | None = None
    """The largest disk that may use the host cache; null: none may."""
    shared: bool = False
    """The disks of one name on a VM have one limit: what the VM has, and the parts of all."""
    latency_promise: str | None = None
    latency: dict[str, str]
    """Profile names of `latencies` by date; `default` is used when none is asked for."""
    notes: list[str] = []
    disks: dict[str, DiskFacts] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_defaults(self) -> FamilyFacts:
        for field in ("provenance", "latency"):
            if "default" not in getattr(self, field):
                raise ValueError(f"{field} needs a 'default'")
        return self


class DistributionFacts(Facts):
    """Service times as percentiles, as a constant, or in the shape of another distribution."""

    status: Status
    source: Sources = Field(min_length=1)
    date: str | None = None
    note: str | None = None
    percentiles_us: dict[Decimal, Decimal] | None = None
    constant_us: Decimal | None = None
    like: str | None = None
    """`NAME/read`, `NAME/write` or `NAME/flush` of another latency profile."""
    mean_us: Decimal | None = None
    """With `like`: the shape is scaled until this is its mean, at 4 KiB."""
    at_kib: int = 4
    """The I/O size of `percentiles_us`."""
    per_kib_us: Decimal = Decimal(0)
    within: Decimal | None = None
    """In eight cases of ten the true times are these divided or multiplied by at most this."""

    @model_validator(mode="after")
    def _one_form(self) -> DistributionFacts:
        forms = (self.percentiles_us, self.constant_us, self.like)
        if sum(form is not None for form in forms) != 1:
            raise ValueError("give exactly one of percentiles_us, constant_us and like")
        if self.percentiles_us is not None:
            points = list(self.percentiles_us.items())
            if (
                not points
                or points != sorted(points)
                or sorted(v for _, v in points) != [v for _, v in points]
            ):
                raise ValueError("percentiles and their times must both grow")
            if not 0 <= points[0][0] <= points[-1][0] <= 100:
                raise ValueError("percentiles lie between 0 and 100")
        return self


class LatencyFacts(Facts):
    """Service times of a path by operation."""

    note: str | None = None
    read: DistributionFacts
    write: DistributionFacts
    flush: DistributionFacts


class Inferred(Facts):
    """How well a limit is known that its vendor does not publish."""

    within: Decimal = Field(ge=1)
    """In eight cases of ten the true limit is this one divided or multiplied by at most this."""
    status: Status = "inferred"
    source: Sources = Field(min_length=1)
    because: str
    sizes: list[str] = []
    """Of which sizes of the series; none: of all."""


class VmLimit(Facts):
    """A budget of a VM."""

    iops: int | None = None
    mb_per_s: int | None = None
    read_mb_per_s: int | None = None
    write_mb_per_s: int | None = None
    cache_gib: int | None = None
    """Only of the cached budget: how much the host cache holds."""


class NvmeFacts(Facts):
    """The local NVMe disks of a VM, rates for all of them together."""

    count: int = Field(ge=1)
    size_gb: int
    """Of one disk, in 10^9 bytes."""
    total_iops: int | None = None
    total_read_iops: int | None = None
    total_write_iops: int | None = None
    total_mb_per_s: int | None = None
    total_read_mb_per_s: int | None = None
    total_write_mb_per_s: int | None = None


class NvmeWrite(Facts):
    """Measured write limits of one NVMe disk, where the vendor lists reads only."""

    iops: int
    mib_per_s: int
    source: list[str]
    status: Status
    note: str | None = None


class VmFacts(Facts):
    """One VM size."""

    vcpu: int
    mem_gib: float | None = None
    temp_gib: int = 0
    max_data_disks: int | None = None
    net_mbit_per_s: int | None = None
    cached: VmLimit | None = None
    cached_burst: VmLimit | None = None
    uncached: VmLimit | None = None
    uncached_burst: VmLimit | None = None
    nvme: NvmeFacts | None = None
    conflicts: dict[str, dict[str, float]] = {}
    """Figures of other pages that contradict the ones used."""
    usd_per_hour: dict[str, Decimal] = {}
    eur_per_month_2020: dict[str, Decimal] = {}


def _sized(name: str, columns: list[Any], row: Any) -> dict[str, Any]:
    """Return a row of a series as the facts of a size."""
    if not isinstance(row, list) or len(row) != len(columns):
        raise ValueError(f"{name} has not one value for each of the {len(columns)} columns")
    found: dict[str, Any] = {}
    for column, value in zip(map(str, columns), row, strict=True):
        part, _, field = column.rpartition(".")
        if value is not None:
            (found.setdefault(part, {}) if part else found)[field] = value
    return found


def _step(key: object) -> object:
    """Return the vCPUs that a key is: in JSON keys are texts."""
    return key if (number := digits(key)) is None else number


class SeriesFacts(Facts):
    """What the sizes of a VM series share."""

    provenance: dict[str, Provenance]
    premium_storage: bool
    host_cache: Literal["supported", "size-unknown", "none"]
    ephemeral_os: bool = False
    cached_mb_bytes: int = 1_000_000
    uncached_mb_bytes: int = 1_000_000
    retires: str | None = None
    """The day on which the vendor takes its machines away, so that nobody should buy them now."""
    confidential: bool = False
    """Their memory is encrypted, and they start from images made for that: bought on purpose."""
    latency: dict[Literal["temp", "ephemeral_os", "host_cache", "nvme"], str] = {}
    nvme_write: NvmeWrite | None = None
    caps: dict[str, dict[Annotated[int | str, BeforeValidator(_step)], DiskCap] | None] = {}
    """What a VM lets through to attached disks of a name where that is not `uncached`, by the least
    vCPUs, or of one size by its name. Null: it takes none of them."""
    inferred: dict[str, Inferred] = {}
    """By field, such as `uncached` or `nvme.total_write_iops`: limits that no page has."""
    notes: list[str] = []
    sizes: dict[str, VmFacts] = Field(min_length=1)
    """In a file also as `columns`, a list of `vcpu`, `uncached.iops` and so on, and `rows`: of each
    size one list of values, null where none is published."""

    @model_validator(mode="before")
    @classmethod
    def _rows(cls, data: Any) -> Any:
        """Turn rows into sizes."""
        if not isinstance(data, dict) or not {"columns", "rows"} & data.keys():
            return data
        columns, rows = data.get("columns"), data.get("rows")
        if not isinstance(columns, list) or not isinstance(rows, dict) or "sizes" in data:
            raise ValueError("give sizes, or columns (a list) with rows (a list for each size)")
        rest = {key: value for key, value in data.items() if key not in ("columns", "rows")}
        return {**rest, "sizes": {name: _sized(name, columns, row) for name, row in rows.items()}}

    @model_validator(mode="after")
    def _has_default(self) -> SeriesFacts:
        if "default" not in self.provenance:
            raise ValueError("provenance needs a 'default'")
        fewest = min(size.vcpu for size in self.sizes.values())
        for disk, caps in self.caps.items():
            steps = [step for step in caps or () if isinstance(step, int)]
            if caps and min(steps, default=fewest + 1) > fewest:
                raise ValueError(f"caps of {disk} begin with the {fewest} vCPUs of the least size")
        return self


class PriceFormula(Facts):
    """A price that follows from size, IOPS and MB/s."""

    per_gib: Decimal
    per_iops: Decimal = Decimal(0)
    iops_included: int = 0
    per_mb_per_s: Decimal = Decimal(0)
    mb_per_s_included: int = 0

    def at(self, size_gib: Decimal, iops: Decimal, mb_per_s: Decimal) -> Decimal:
        """Return the price of a disk."""
        return (
            size_gib * self.per_gib
            + max(Decimal(0), iops - self.iops_included) * self.per_iops
            + max(Decimal(0), mb_per_s - self.mb_per_s_included) * self.per_mb_per_s
        )


PriceTerms = Literal["pay-as-you-go", "reserved-1y", "reserved-3y", "spot"]
"""How something is bought: by the hour, bound for one or three years, or taken away on demand."""


@dataclass(frozen=True)
class ListedPrice:
    """One price of a vendor's list: of a VM by the hour, of a disk or a part of it by the month.

    `per_gib` is for each GiB, `per_iops` for each I/O a second, `per_mb_per_s` for each MB/s.
    """

    part: Literal["vm", "disk", "per_gib", "per_iops", "per_mb_per_s"]
    name: str
    """Without its vendor."""
    amount: Decimal
    region: str
    currency: str
    terms: PriceTerms = "pay-as-you-go"


class PriceList(Facts):
    """Prices of one date in one region on the same terms."""

    source: Sources = []
    """None: whoever wrote the file says so."""
    region: str
    currency: str = "USD"
    per: Literal["month", "hour"]
    date: str = ""
    terms: PriceTerms = "pay-as-you-go"
    status: Status = "published"
    note: str | None = None
    vms: dict[str, Decimal] = {}
    """VM sizes: Linux, shared hardware."""
    disks: dict[str, Decimal] = {}
    io_charges: dict[str, Decimal] = {}
    """What the I/Os of a disk cost at most: all that the vendor bills in an hour, each hour."""
    quotes: dict[str, list[tuple[int, int, int, Decimal]]] = {}
    """GiB, IOPS, MB/s and price, as published."""
    formulas: dict[str, PriceFormula] = {}


class RoundTripFacts(Facts):
    """How long a message and its answer take between two VMs."""

    percentiles_us: dict[float, float] = Field(min_length=1)
    """Microseconds by percent; straight lines between them, flat outside."""
    source: Sources = []
    """Keys of `sources`; none for what is assumed without one."""
    date: str | None = None
    status: Status
    note: str

    @field_validator("percentiles_us")
    @classmethod
    def _rises(cls, percentiles: dict[float, float]) -> dict[float, float]:
        times = [percentiles[percent] for percent in sorted(percentiles)]
        if times != sorted(times) or times[0] < 0:
            raise ValueError("a higher percentile takes at least as long")
        if min(percentiles) < 0 or max(percentiles) > 100:
            raise ValueError("percentiles are from 0 to 100")
        return percentiles

    def at_us(self, percent: float) -> float:
        """Return the microseconds that so many percent of the round trips stay within."""
        points = sorted(self.percentiles_us.items())
        for (left, low), (right, high) in pairwise(points):
            if left <= percent <= right:
                return low + (high - low) * (percent - left) / (right - left)
        return points[0][1] if percent < points[0][0] else points[-1][1]


class NetworkFacts(Facts):
    """The network between the VMs of a region."""

    note: str | None = None
    within_zone: RoundTripFacts
    between_zones: RoundTripFacts
