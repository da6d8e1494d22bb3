"""What a disk of a vendor gives when it is bought: its size, IOPS and MB/s within the formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from disklab.catalog.facts import GIB, Formula, Rate, VmLimit
from disklab.catalog.facts import Burst as BurstFacts
from disklab.catalog.load import Catalog, DiskEntry, VmEntry, cite
from disklab.catalog.profile import Burst, DiskProfile, Limit, Scope, Unit, latency_profile
from disklab.catalog.quantity import DiskExpression, about_bytes, format_rate
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError

# From IOPS and MB/s in the catalogue to the token buckets of a profile.

# "30 minutes from a full bucket" is Azure's rule for disks (bursting2, 2025-01-14) and for VMs.
VM_BURST_SECONDS = 30 * 60

# Temp disks and host caches hand their MB/s out in steps: 1 MiB I/Os at depth 64 on a temp disk of
# 512 MB/s end near 50, 100, 150, 200 and 245 ms on all six hosts measured in 2019 (catalogue source
# measurements_2019). Their IOPS limits, and every limit of remote disks, showed no steps in the
# same runs, so those refill continuously.
CACHED_BYTES_WINDOW_NS = 50_000_000


def burst_credits(top: int, base: int, seconds: int, scale: Fraction) -> int:
    """Return the credits of a bucket that lasts `seconds` at the top rate, scaled down."""
    return int((top - base) * seconds * scale)


def _limit(scope: Scope, ios: int | None) -> list[Limit]:
    return [] if ios is None else [Limit(scope=scope, unit="ios", per_s=ios)]


def _byte_limit(scope: Scope, mb: int | None, mb_bytes: int, window_ns: int = 0) -> list[Limit]:
    if mb is None:
        return []
    return [Limit(scope=scope, unit="bytes", per_s=mb * mb_bytes, window_ns=window_ns)]


@dataclass(frozen=True)
class Bought:
    """What was provisioned and found possible. Absent: the disk has no such limit of its own."""

    size_gib: Fraction
    iops: int | None
    bytes_per_s: int | None
    on_demand: bool
    """On-demand instead of credit bursting."""
    count: int = 1
    """How many of them make the volume."""


def disk_limits(disk: DiskEntry, bought: Bought, scale: Fraction) -> list[Limit]:
    """Return the limits of one disk; `scale` shrinks its credits."""
    facts, family = disk.facts, disk.family
    if facts.of_count:
        fewest, *more = facts.of_count
        step = max([fewest, *(each for each in more if each <= bought.count)])
        reads, writes, *mb_per_s = facts.of_count[step]
        parts = [rate * family.mb_bytes // bought.count for rate in mb_per_s]
        return [
            *_two_ways([reads // bought.count, writes // bought.count], "ios"),
            *_two_ways(parts, "bytes"),
        ]
    bursts = facts.credit_burst
    if bought.on_demand:
        bursts = facts.on_demand_burst
    if bursts is not None and bursts.below_gib is not None and bought.size_gib >= bursts.below_gib:
        bursts = None
    found: list[Limit] = []
    if bought.iops is not None:
        top, stated = (bursts.iops, bursts.credit_ios) if bursts else (None, None)
        burst = _burst(bursts, top, bought.iops, stated, scale)
        found.append(Limit(unit="ios", per_s=bought.iops, burst=burst))
    found += _by_direction(facts.read_iops, facts.write_iops, bought.size_gib, "ios", 1)
    if bought.bytes_per_s is not None:
        top, stated = (
            floor(formula.at(bought.size_gib, 0) * family.mb_bytes) if formula else None
            for formula in ((bursts.mb_per_s, bursts.credit_mb) if bursts else (None, None))
        )
        burst = _burst(bursts, top, bought.bytes_per_s, stated, scale)
        found.append(Limit(unit="bytes", per_s=bought.bytes_per_s, burst=burst))
    mb = family.mb_bytes
    found += _by_direction(facts.read_mb_per_s, facts.write_mb_per_s, bought.size_gib, "bytes", mb)
    unit = family.io_unit_bytes
    return [
        limit.model_copy(update={"io_unit_bytes": unit if limit.unit == "ios" else None})
        for limit in found
    ]


def _burst(
    facts: BurstFacts | None, top: int | None, base: int, stated: int | None, scale: Fraction
) -> Burst | None:
    """Return the burst above a baseline, or None if the top rate is not above it.

    `stated`: the vendor's own number of credits.
    """
    if facts is None or top is None or top <= base:
        return None
    if facts.endless:
        return Burst(per_s=top, credits=None)
    full = (top - base) * facts.minutes * 60 if stated is None else stated
    return Burst(per_s=top, credits=int(full * scale))


def _by_direction(
    read: Formula | None, write: Formula | None, size_gib: Fraction, unit: Unit, factor: int
) -> list[Limit]:
    """Return limits that reads and writes have apart."""
    scopes: tuple[tuple[Scope, Formula | None], ...] = (("read", read), ("write", write))
    return [
        Limit(scope=scope, unit=unit, per_s=max(1, floor(formula.at(size_gib, 0) * factor)))
        for scope, formula in scopes
        if formula is not None
    ]


def cached_limits(vm: VmEntry, scale: Fraction) -> list[Limit]:
    """Return the budget of the host's own SSD, host cache and temp disk, with VM bursting."""
    limit, top = vm.facts.cached, vm.facts.cached_burst or VmLimit()
    if limit is None:
        return []
    unit, window = vm.series.cached_mb_bytes, CACHED_BYTES_WINDOW_NS
    return [
        *_bursting(_limit("all", limit.iops), top.iops, scale),
        *_bursting(
            _byte_limit("all", limit.mb_per_s, unit, window),
            top.mb_per_s and top.mb_per_s * unit,
            scale,
        ),
        *_byte_limit("read", limit.read_mb_per_s, unit, window),
        *_byte_limit("write", limit.write_mb_per_s, unit, window),
    ]


def uncached_limits(vm: VmEntry, scale: Fraction, disk: str = "") -> list[Limit]:
    """Return the budget of the storage network, with VM bursting; `disk`: for disks of a name."""
    limit, top = vm.facts.uncached, vm.facts.uncached_burst or VmLimit()
    unit = vm.series.uncached_mb_bytes
    if caps := vm.series.caps.get(disk):
        steps = [least for least in caps if isinstance(least, int) and least <= vm.facts.vcpu]
        cap = caps.get(vm.name.partition("/")[2]) or caps[max(steps)]
        return [*_two_ways(cap[:2], "ios"), *_two_ways([rate * unit for rate in cap[2:]], "bytes")]
    if limit is None:
        return []
    top_bytes = top.mb_per_s and top.mb_per_s * unit
    return [
        *_bursting(_limit("all", limit.iops), top.iops, scale),
        *_bursting(_byte_limit("all", limit.mb_per_s, unit), top_bytes, scale),
    ]


def _two_ways(rates: Sequence[int], unit: Unit) -> list[Limit]:
    """Return the limits of reads and of writes; one for both where they are equal."""
    scopes: tuple[Scope, ...] = ("all",) if rates[0] == rates[1] else ("read", "write")
    return [Limit(scope=scope, unit=unit, per_s=rates[scope == "write"]) for scope in scopes]


def _bursting(limits: list[Limit], high: int | None, scale: Fraction) -> Iterator[Limit]:
    """Yield limits of a VM with the burst above each; None or no higher: they have none."""
    for limit in limits:
        burst = None
        if high is not None and high > limit.per_s:
            full = burst_credits(high, limit.per_s, VM_BURST_SECONDS, scale)
            burst = Burst(per_s=high, credits=full)
        yield limit.model_copy(update={"burst": burst})


def nvme_limits(vm: VmEntry) -> list[Limit]:
    """Return the limits of one local NVMe disk: its share of the VM's figures."""
    nvme = vm.facts.nvme
    if nvme is None:
        return []
    write = vm.series.nvme_write

    def share(total: int | None) -> int | None:
        return None if total is None else max(1, total // nvme.count)

    write_iops, write_bytes = share(nvme.total_write_iops), None
    if write is not None:
        write_iops, write_bytes = write.iops, write.mib_per_s * (1 << 20)
    mb = 1_000_000  # the vendors' pages of NVMe disks count in 10^6
    return [
        *_limit("all", share(nvme.total_iops)),
        *_limit("read", share(nvme.total_read_iops)),
        *_limit("write", write_iops),
        *_byte_limit("all", share(nvme.total_mb_per_s), mb),
        *_byte_limit("read", share(nvme.total_read_mb_per_s), mb),
        *_byte_limit("write", share(nvme.total_write_mb_per_s), mb),
        *_byte_limit("write", write_bytes, 1),
    ]


# Source perf_plus_search, 2024-12-09: disks of 513 GiB and larger.
PERFORMANCE_PLUS_GIB = 513


@dataclass(frozen=True)
class DiskOfVolume:
    """One disk of a volume; this alone is known of those that a VM brings along."""

    profile: DiskProfile
    size_bytes: int
    latency_name: str


@dataclass(frozen=True)
class Provisioned(DiskOfVolume):
    """A disk that is bought."""

    entry: DiskEntry
    iops: int | None = None
    """What is bought; None: the disk has no such limit of its own."""
    bytes_per_s: int | None = None


@dataclass(frozen=True)
class _Purchase:
    """A disk of the catalogue and what was asked of it."""

    catalog: Catalog
    entry: DiskEntry
    expression: DiskExpression
    place: str
    problems: list[Problem]

    def refuse(self, value: str, rule: str, way_out: str) -> None:
        """Note a broken rule."""
        self.problems.append(Problem(self.place, value, rule, way_out))

    def source(self, field: str = "default") -> str:
        """Return where the numbers of a field come from."""
        return cite(self.catalog, self.entry.family.provenance, field)


@dataclass(frozen=True)
class Terms:
    """What was said about the disks beside their expression, and where."""

    place: str = "DISKS"
    size_bytes: int | None = None
    """The size of the whole volume; it chooses the tier where only a family is named."""
    latency: str | None = None
    latency_place: str = "--latency"
    scale: Fraction = Fraction(1)
    """Shrinks burst credits."""


def provision(catalog: Catalog, expression: DiskExpression, terms: Terms) -> Provisioned:
    """Return one disk as asked for. Raises UserError with every broken rule."""
    place, latency, latency_place = terms.place, terms.latency, terms.latency_place
    entry = find_disk(catalog, expression, terms.size_bytes, place)
    problems: list[Problem] = []
    purchase = _Purchase(catalog, entry, expression, place, problems)
    size = _size_gib(purchase)
    iops, bytes_per_s = None, None
    if size is not None:
        iops = _iops(purchase, size)
        bytes_per_s = _bytes_per_s(purchase, size, iops)
        if (each := entry.facts.iops_per_mb_per_s) and iops is not None and bytes_per_s is not None:
            iops = min(iops, bytes_per_s * each // entry.family.mb_bytes)
    _check_switches(purchase, size)
    profile_name = entry.family.latency.get(latency or "default")
    if profile_name is None:
        dates = [date for date in entry.family.latency if date != "default"]
        rule = f"{entry.family.title} has the latency profiles {', '.join(dates) or 'default only'}"
        problems.append(Problem(latency_place, repr(latency), rule, "choose one, or leave it out"))
    if problems or size is None or profile_name is None:
        raise UserError(*problems)
    if expression.performance_plus and entry.facts.performance_plus is not None:
        plus = entry.facts.performance_plus
        iops, bytes_per_s = plus.iops, plus.mb_per_s * entry.family.mb_bytes
    bought = Bought(size, iops, bytes_per_s, expression.on_demand_burst, expression.count)
    profile = DiskProfile(
        name=entry.name,
        medium=entry.family.medium,
        limits=disk_limits(entry, bought, terms.scale),
        latency=latency_profile(catalog, profile_name),
    )
    return Provisioned(profile, int(size * GIB), profile_name, entry, iops, bytes_per_s)


def find_disk(
    catalog: Catalog, expression: DiskExpression, size_bytes: int | None, place: str
) -> DiskEntry:
    """Return the disk that an expression names; a family with a size gives the next tier up."""
    name = expression.name
    if name in catalog.disks:
        return catalog.disks[name]
    tiers = catalog.tiers(name)
    if not tiers:
        otherwise = "`disklab catalog` lists all disks"
        way_out = did_you_mean(name, catalog.disk_names(), otherwise)
        raise UserError(Problem(place, repr(name), "no such disk in the catalogue", way_out))
    each = expression.size_bytes
    if each is None and size_bytes is not None:
        each = ceil(size_bytes / expression.count)
    if each is None:
        rule = f"{name} is a family of {len(tiers)} sizes, and no size is given"
        way_out = f"write for example {name}(200GiB), or {tiers[0].name}"
        raise UserError(Problem(place, repr(str(expression)), rule, way_out))
    for tier in tiers:
        if each <= tier.facts.size_gib.most * GIB:
            return tier
    last = tiers[-1]
    source = cite(catalog, last.family.provenance)
    rule = f"{name} ends at {last.facts.size_gib.most} GiB ({source})"
    raise UserError(Problem(place, about_bytes(each), rule, "choose a smaller disk, or several"))


def _size_gib(purchase: _Purchase) -> Fraction | None:
    entry, wish = purchase.entry, purchase.expression.size_bytes
    sizes = entry.facts.size_gib
    if wish is None:
        if sizes.fixed:
            return Fraction(sizes.most)
        rule = f"the size of {entry.name} is chosen, from {sizes.least} to {sizes.most} GiB"
        example = min(max(250, sizes.least), sizes.most)
        way_out = f"write for example {entry.name}({example}GiB)"
        purchase.refuse(repr(str(purchase.expression)), rule, way_out)
        return None
    size = wish / Fraction(GIB)
    # A vendor bills whole GiB; a smaller device is what --size is for.
    if size.denominator == 1 and sizes.least <= size <= sizes.most:
        return size
    rule = f"{entry.name} has whole GiB from {sizes.least} to {sizes.most} ({purchase.source()})"
    tiers = purchase.catalog.tiers(entry.family_name)
    larger = [tier for tier in tiers if tier.facts.size_gib.most >= size]
    way_out = "choose a size in that range"
    if sizes.fixed and larger and size > sizes.most:
        way_out = f"choose {larger[0].name}"
    purchase.refuse(about_bytes(wish), rule, way_out)
    return None


def _iops(purchase: _Purchase, size: Fraction) -> int | None:
    entry, wish = purchase.entry, purchase.expression.iops
    rate = entry.facts.iops
    if rate is None or wish is None:
        if wish is not None:
            _refuse_fixed(purchase, f"{wish} IOPS", "fixed IOPS")
        return None if rate is None else _included(purchase, rate, size, 0)
    fixed = _included(purchase, rate, size, 0)
    if rate.most is None:
        if wish != fixed:
            _refuse_fixed(purchase, f"{wish} IOPS", f"{fixed} IOPS")
        return fixed
    least, most = _ends(rate, rate.most, size, 0)
    if not (wish < least or wish > most):
        return wish
    low, high, gib = floor(least), floor(most), f"{size} GiB"
    rule = (
        f"{entry.name} gives {low} to {high} IOPS at {gib} = {rate.most} "
        f"({purchase.source('iops')})"
    )
    way_out = f"ask for {low} to {high} IOPS"
    needed = _size_for(rate.most, wish)
    if wish > most and needed is not None and needed <= entry.facts.size_gib.most:
        way_out = f"ask for at most {high} IOPS, or for at least {needed} GiB"
    purchase.refuse(f"{wish} IOPS on {gib}", rule, way_out)
    return None


def _bytes_per_s(purchase: _Purchase, size: Fraction, iops: int | None) -> int | None:
    entry, wish = purchase.entry, purchase.expression.bytes_per_s
    rate, unit = entry.facts.mb_per_s, entry.family.mb_bytes
    if rate is None:
        if wish is not None:
            _refuse_fixed(purchase, format_rate(wish), "fixed MB/s")
        return None
    fixed = _included(purchase, rate, size, 0 if iops is None else iops, unit)
    if wish is None:
        return fixed
    if rate.most is None:
        if wish != fixed:
            _refuse_fixed(purchase, format_rate(wish), format_rate(fixed))
        return fixed
    if iops is None:  # then the IOPS are impossible themselves, and the ends not known
        return None
    low, high = (floor(end * unit) for end in _ends(rate, rate.most, size, iops))
    if low <= wish <= high:
        return wish
    rule = (
        f"{entry.name} gives {format_rate(low)} to {format_rate(high)} at {iops} IOPS = {rate.most}"
        f" ({purchase.source('mb_per_s')})"
    )
    way_out = f"ask for {format_rate(low)} to {format_rate(high)}"
    if wish > high and rate.most.per_iops:
        needed = ceil(wish / (unit * Fraction(rate.most.per_iops)))
        if wish <= rate.most.at(size, needed) * unit:
            way_out = f"ask for at most {format_rate(high)}, or for at least {needed} IOPS"
    purchase.refuse(f"{format_rate(wish)} with {iops} IOPS", rule, way_out)
    return None


def _included(purchase: _Purchase, rate: Rate, size: Fraction, iops: int, unit: int = 1) -> int:
    """Return what a disk has without being asked, with its share of what the VM has."""
    count = purchase.expression.count if rate.of_vm else 1
    amount = (count * rate.included.at(size, iops) + rate.of_vm) * unit // count
    most = rate.included.at_most
    return amount if most is None else min(floor(Fraction(most) * unit), amount)


def _ends(rate: Rate, most: Formula, size: Fraction, iops: int) -> tuple[Fraction, Fraction]:
    low = Fraction(1) if rate.least is None else rate.least.at(size, iops)
    return low, most.at(size, iops)


def _size_for(most: Formula, wish: int) -> int | None:
    """Return the GiB from which a formula gives `wish`; None: never."""
    if most.per_gib is None or (most.at_most is not None and wish > most.at_most):
        return None
    return ceil(wish / Fraction(most.per_gib))


def _refuse_fixed(purchase: _Purchase, value: str, fixed: str) -> None:
    entry = purchase.entry
    rule = f"{entry.name} has {fixed}, which follow from its size or IOPS and cannot be chosen"
    free = [
        disk.name
        for disk in purchase.catalog.disks.values()
        if disk.vendor == entry.vendor and disk.facts.mb_per_s and disk.facts.mb_per_s.choosable
    ]
    way_out = "leave it out, or choose " + " or ".join([*free[:2], "another size"])
    purchase.refuse(value, rule, way_out)


def _check_switches(purchase: _Purchase, size: Fraction | None) -> None:
    entry, expression = purchase.entry, purchase.expression
    if expression.on_demand_burst and entry.facts.on_demand_burst is None:
        rule = f"{entry.name} has no on-demand bursting"
        if "on_demand_burst" in entry.family.provenance:
            rule += f" ({purchase.source('on_demand_burst')})"
        purchase.refuse("on-demand-burst", rule, "leave it out, or choose azure/P30 or larger")
    if not expression.performance_plus:
        return
    if entry.facts.performance_plus is None:
        rule = f"{entry.name} has no Performance Plus"
        way_out = "leave it out, or choose azure/P30, azure/E30 or larger"
        purchase.refuse("performance-plus", rule, way_out)
    elif size is not None and size < PERFORMANCE_PLUS_GIB:
        rule = f"Performance Plus needs {PERFORMANCE_PLUS_GIB} GiB or more"
        rule += f" ({purchase.source('performance_plus')})"
        purchase.refuse(f"{float(size):g} GiB", rule, "leave it out, or choose a larger size")
