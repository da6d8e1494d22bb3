"""Everything that could be bought: VM sizes x disks x counts x sizes x caching, and why not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any

from disklab.advice.bounds import (
    SLACK,
    Machine,
    Strength,
    cache_bytes,
    ceiling,
    copies_read,
    cpu_ceiling,
    seconds_of,
    serving_nodes,
    strength_of,
)
from disklab.advice.levers import COMPACTION, in_words, rooms
from disklab.advice.promise import most_used
from disklab.advice.question import LOCAL, Question
from disklab.catalog import Caching, Catalog, HostRequest, Resolution, VolumeRequest, resolve
from disklab.catalog.facts import GIB, Rate
from disklab.catalog.load import DiskEntry, VmEntry
from disklab.catalog.price import NoPrice, vm_price, volume_price
from disklab.catalog.quantity import parse_disks
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration
from disklab.errors import UserError
from disklab.results.required import MAY_BE_LOST, SURVIVES_DEALLOCATION
from disklab.spec import ClusterTrial

MOST_IN_STRIPE = 16
"""Disks of a stripe; more than that are rented for capacity alone, which larger disks have."""

COUNT_STEPS = (1.0, 1.5, 2.0, 3.0)
"""Stripes of so many times as many disks as the data need: more disks are more IOPS."""

IOPS_STEPS = (1.0, 1.5, 2.0, 3.0)
"""Where IOPS are chosen: so many times what the reads need at least."""

BYTES_PER_IO = 32 << 10
"""Where MB/s are chosen: for I/Os of this size, rows and index with some read-ahead."""


@dataclass(frozen=True)
class Disks:
    """A volume that could be bought."""

    expression: str
    kind: str
    """The family, `nvme` or `local`."""
    caching: Caching = "None"

    def __str__(self) -> str:
        """Return it as people say it: `4 x P30, ReadOnly`."""
        name = self.expression.replace("azure/", "").replace("aws/", "").replace("gcp/", "")
        name = {"local": "its temp disk"}.get(name, name.replace("nvme", "local NVMe"))
        return name if self.caching == "None" else f"{name}, {self.caching}"


def named(vm: str, disks: Disks, settings: Mapping[str, Any] | None = None) -> str:
    """Return a VM with its disks in words: `E16s_v5 with 4 x P30, ReadOnly`.

    With its nodes, where they are others than the file's.
    """
    nodes = f"{settings[NODES]} x " if settings and NODES in settings else ""
    return nodes + f"{vm.rpartition('/')[2].removeprefix('Standard_')} with {disks}"


@dataclass(frozen=True)
class Candidate:
    """One option: every node of this VM size with these disks."""

    vm: str
    disks: Disks
    usd_per_month: float
    """All nodes with their disks."""
    strength: Strength = field(hash=False, compare=False, repr=False)
    made: Resolution = field(hash=False, compare=False, repr=False)
    """The VM with the volume, as the catalogue resolves them; without credits that are spent."""
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    """What it changes beside VM and disks, by dotted path: levers."""
    fixed: dict[str, Any] = field(default_factory=dict, hash=False)
    """Those of them without which its disks do not hold the data."""

    lossy: bool = False
    """Whether its data are gone with one VM, which the promise forbids."""

    @property
    def hardware(self) -> str:
        """What is rented, in words: with its nodes, where they are others than the file's."""
        return named(self.vm, self.disks, self.settings)

    @property
    def name(self) -> str:
        """The option in words, its levers with it."""
        levers = [in_words(path, value) for path, value in self.settings.items() if path != NODES]
        return ", ".join([self.hardware, *levers])

    @property
    def local(self) -> bool:
        """Whether its data go with the VM."""
        return self.disks.kind in LOCAL

    def ordered(self, nodes: int) -> str:
        """Return the hardware as people order it; `nodes`: where it does not say its own."""
        return self.hardware if NODES in self.settings else f"{nodes} x {self.hardware}"

    def nodes_of(self, usual: int) -> int:
        """Return how many nodes it has; `usual`: those of the file."""
        return int(self.settings.get(NODES, usual))

    @property
    def disk_count(self) -> int:
        """How many disks each node is given; those that come with a VM do not count."""
        return 0 if self.disks.kind in LOCAL else parse_disks(self.disks.expression).count

    def plainer_than(self, other: Candidate) -> str:
        """Return what is plainer about it: fewer disks, a newer VM size; empty: nothing is.

        VM sizes of different lines (E and L, r and m) are none older than the other, and disks that
        come with a VM lose what attached ones keep.
        """
        same_bed = (self.disk_count == 0, self.lossy, self.settings.get(NODES)) == (
            other.disk_count == 0,
            other.lossy,
            other.settings.get(NODES),
        )
        line, generation = _generation(self.vm)
        other_line, other_generation = _generation(other.vm)
        newer = generation - other_generation if line == other_line else 0
        fewer = other.disk_count - self.disk_count
        if not same_bed or min(fewer, newer) < 0:
            return ""
        reasons = ["has fewer disks"] * (fewer > 0) + ["is a newer VM size"] * (newer > 0)
        return " and ".join(reasons)

    def patch(self) -> dict[str, Any]:
        """Return what it changes in the experiment file."""
        data = {
            "cluster.volumes.data.disks": self.disks.expression,
            "cluster.volumes.data.caching": self.disks.caching,
        }
        return {"cluster.vm": self.vm, **data, **self.settings}


PLAINER_RATIO = 1.05
"""What is plainer may cost so many times the cheapest. **Assumed:** each disk more is one more to
make, watch and replace, which a few percent of a list price do not pay."""

_GENERATION = re.compile(
    r"azure/Standard_(?P<azure>[A-Z])[A-Za-z]*\d.*?(_v(?P<version>\d+))?"
    r"|aws/(?P<aws>[a-z]+)(?P<number>\d+).*"
)
"""`Standard_E16s_v5` is the fifth of Azure's E, `r6i.large` the sixth of AWS's r."""


def _generation(vm: str) -> tuple[str, int]:
    """Return the line of a VM size and its generation there; a size of its own: its name, 1."""
    parts = _GENERATION.fullmatch(vm)
    if parts is None:
        return vm, 1
    return parts["azure"] or parts["aws"], int(parts["version"] or parts["number"] or 1)


@dataclass
class Field:
    """The candidates of a question, and what became of the others."""

    candidates: list[Candidate]
    """The cheapest first."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reasons why combinations cannot be, and how often."""
    tight: list[Candidate] = field(default_factory=list)
    """Those that hold the data of the first day and have no room for them to grow."""
    ruled_out: dict[str, str] = field(default_factory=dict)
    """Options that could be bought and cannot do it, by the limit that says so."""
    dear: Candidate | None = None
    """The cheapest of those that cost more than the budget, and might do it."""
    unpriced: set[str] = field(default_factory=set)
    """Disks and VM sizes of which no price is known, so that nobody can say what they cost."""

    @property
    def considered(self) -> int:
        """How many combinations were looked at."""
        return (
            len(self.candidates)
            + len(self.tight)
            + sum(self.refused.values())
            + len(self.ruled_out)
        )


def field_of(question: Question, catalog: Catalog, calibration: Calibration) -> Field:
    """Return the candidates of a question: possible, within budget and within their limits."""
    found = Field([])
    for times in NODE_STEPS if question.more_nodes and searches_nodes(question.spec) else (1,):
        shop = _Shop(question, with_nodes(question.spec, times), catalog, calibration)
        machines = list(_machines(shop, found))
        weaker = dominated(machines, shop.machines)
        for vm in machines:
            if vm.name in weaker:
                found.refused[
                    "another VM size costs no more and is at least as good in everything"
                ] += 1
            for disks in _volumes(shop, vm, attached=vm.name not in weaker):
                _consider(shop, vm, disks, found)
    for some in (found.candidates, found.tight):
        some.sort(key=lambda one: (one.usd_per_month, one.name))
    return found


def dominated(machines: Sequence[VmEntry], prices: Mapping[str, float]) -> set[str]:
    """Return the VM sizes that give attached disks no more than another, which costs no more."""
    found = set()
    kept: list[tuple[VmEntry, tuple[float, ...]]] = []
    for vm in sorted(machines, key=lambda one: (prices[one.name], one.name)):
        amounts = _amounts(vm)
        if any(
            vm.series.latency.get("host_cache") == other.series.latency.get("host_cache")
            and vm.series.caps == other.series.caps
            and all(mine <= its for mine, its in zip(amounts, others, strict=True))
            for other, others in kept
        ):
            found.add(vm.name)
        else:
            kept.append((vm, amounts))
    return found


def _amounts(vm: VmEntry) -> tuple[float, ...]:
    """Return what a VM size has of everything that attached disks need of it."""
    facts, series = vm.facts, vm.series
    budgets: list[float] = []
    for limit in (facts.cached, facts.cached_burst, facts.uncached, facts.uncached_burst):
        names = ("iops", "mb_per_s", "read_mb_per_s", "write_mb_per_s", "cache_gib")
        budgets += [float(getattr(limit, name, None) or 0) for name in names]
    network = float("inf") if facts.net_mbit_per_s is None else float(facts.net_mbit_per_s)
    own = (float(facts.vcpu), facts.mem_gib or 0.0, network, float(facts.max_data_disks or 0))
    cached = float(series.host_cache != "none")
    return (*own, *budgets, float(series.premium_storage), cached)


def searches_nodes(spec: ClusterTrial) -> bool:
    """Return whether more nodes carry more, and nothing in the file counts on their number."""
    named_nodes = bool(spec.events) or spec.failures is not None
    facts = facts_of(spec.database.engine)
    return not (facts.primary or facts.whole_nodes or named_nodes)


def with_nodes(spec: ClusterTrial, times: int) -> ClusterTrial:
    """Return the file with so many times its nodes."""
    cluster = spec.cluster.model_copy(update={"nodes": spec.cluster.nodes * times})
    return spec.model_copy(update={"cluster": cluster})


def spec_of(spec: ClusterTrial, option: Candidate) -> ClusterTrial:
    """Return the file with an option's number of nodes."""
    nodes = option.nodes_of(spec.cluster.nodes)
    cluster = spec.cluster.model_copy(update={"nodes": nodes})
    return spec if nodes == spec.cluster.nodes else spec.model_copy(update={"cluster": cluster})


@dataclass
class _Shop:
    """What every combination is looked at with; prices are looked up once."""

    question: Question
    spec: ClusterTrial
    """The question's, with the nodes that are looked through now."""
    catalog: Catalog
    calibration: Calibration
    machines: dict[str, float] = field(default_factory=dict)
    """USD a month by VM size."""
    disks: dict[str, float | None] = field(default_factory=dict)
    rooms: dict[str, float] = field(init=False)
    """Bytes that each node's data volume must have by compaction strategy, the file's own first."""
    today: dict[str, float] = field(init=False)
    """Those that the data of the first day must have."""
    disk_words: list[str] = field(init=False)
    """What is wished for, but for names of VM sizes."""

    def __post_init__(self) -> None:
        """Work out the room that the data need, and which words are not of VM sizes."""
        self.rooms = rooms(self.spec, self.question.growth_ratio)
        self.today = rooms(self.spec)
        of_vms = _vm_words(self.question, self.catalog)
        self.disk_words = [word for word in self.question.wanted if word not in of_vms]

    @property
    def settings(self) -> dict[str, Any]:
        """What another number of nodes changes in the file."""
        own, nodes = self.question.spec.cluster.nodes, self.spec.cluster.nodes
        return {} if nodes == own else {NODES: nodes}

    def price(self, expression: str) -> float | None:
        """Return what a volume costs a month; None: nobody says it in USD."""
        if expression not in self.disks:
            found = volume_price(
                self.catalog, expression, region=self.question.region, terms=self.question.terms
            )
            known = None if isinstance(found, NoPrice) else found.usd_per_month
            self.disks[expression] = known
        return self.disks[expression]


def _machines(shop: _Shop, found: Field) -> Iterator[VmEntry]:
    question, catalog = shop.question, shop.catalog
    vendor = question.spec.cluster.vm.split("/")[0]
    wanted = _wanted(question)
    words = _vm_words(question, catalog)
    for vm in catalog.vms.values():
        if vm.vendor != vendor or not _named(f"{vm.name} {vm.series_name}", words):
            continue
        if (why := _not_offered(vm)) is not None and not _exactly(vm.name, question.wanted):
            found.refused[f"the VM size {why}"] += 1
            continue
        price = vm_price(catalog, vm.name, region=question.region, terms=question.terms)
        if isinstance(price, NoPrice):
            found.refused["no price of the VM size is known"] += 1
            found.unpriced.add(vm.name)
        else:
            shop.machines[vm.name] = price.usd_per_month
            if cpu_ceiling(shop.spec, vm.facts.vcpu, shop.calibration).per_s < wanted:
                found.ruled_out[named(vm.name, Disks("any disks", ""), shop.settings)] = CPU_LOW
            else:
                yield vm


def _not_offered(vm: VmEntry) -> str | None:
    """Return why a VM size is for those alone who name it."""
    if vm.series.retires is not None:
        return f"retires on {vm.series.retires}"
    return "is for confidential computing" if vm.series.confidential else None


def _vm_words(question: Question, catalog: Catalog) -> list[str]:
    """Return the words of the wish that name VM sizes."""
    names = [f"{name} {vm.series_name}".casefold() for name, vm in catalog.vms.items()]
    return [w for w in question.wanted if any(w.casefold() in name for name in names)]


def _exactly(name: str, words: Sequence[str]) -> bool:
    """Return whether a VM size was asked for by its own name, not by a part of it."""
    own = name.rpartition("/")[2].removeprefix("Standard_").casefold()
    return any(word.casefold() in (own, f"standard_{own}", name.casefold()) for word in words)


def _named(name: str, words: list[str]) -> bool:
    return not words or any(word.casefold() in name.casefold() for word in words)


def _volumes(shop: _Shop, vm: VmEntry, *, attached: bool) -> Iterator[Disks]:
    """Yield the volumes that hold the data, of every family, each once; or the VM's own alone."""
    words = shop.disk_words
    found = {disks: None for need in shop.rooms.values() for disks in _own_volumes(vm, need)}
    if attached:
        found |= {d: None for need in shop.rooms.values() for d in _attached(shop, vm, need)}
    for disks in found:
        if _named(f"{disks.kind} {disks.expression}", words):
            yield disks


def _own_volumes(vm: VmEntry, need: float) -> Iterator[Disks]:
    if vm.facts.nvme is not None:
        count = vm.facts.nvme.count
        yield Disks("nvme" if count == 1 else f"{count} x nvme", "nvme")
    if vm.facts.temp_gib * GIB >= need:
        yield Disks("local", "local")


def _attached(shop: _Shop, vm: VmEntry, need: float) -> Iterator[Disks]:
    question, spec, catalog = shop.question, shop.spec, shop.catalog
    for disk in catalog.disks.values():
        if disk.vendor != vm.vendor or disk.family.medium != "remote":
            continue
        if disk.family.needs_premium_storage and not vm.series.premium_storage:
            continue
        sizes = disk.facts.size_gib
        makers = _tiers(disk, need) if sizes.fixed else _chosen(question, spec, disk, need)
        for expression in makers:
            yield Disks(expression, disk.family_name)
            at_most = disk.family.host_cache_max_gib
            cacheable = vm.facts.cached is not None and vm.facts.cached.cache_gib is not None
            if at_most is not None and sizes.most <= at_most and cacheable:
                yield Disks(expression, disk.family_name, "ReadOnly")


def _tiers(disk: DiskEntry, need: float) -> Iterator[str]:
    """Yield stripes of a fixed size that hold the data."""
    fewest = ceil(need / (disk.facts.size_gib.most * GIB))
    for count in dict.fromkeys(ceil(fewest * step) for step in COUNT_STEPS):
        if count <= MOST_IN_STRIPE:
            yield disk.name if count == 1 else f"{count} x {disk.name}"


def _chosen(question: Question, spec: ClusterTrial, disk: DiskEntry, need: float) -> Iterator[str]:
    """Yield disks whose IOPS and MB/s are bought, around what the reads need."""
    iops, mb = disk.facts.iops, disk.facts.mb_per_s
    sizes, unit = disk.facts.size_gib, disk.family.mb_bytes
    wanted = _reads_of_node(question, spec)
    for count in (1, 2):
        gib = max(sizes.least, ceil(need / count / GIB))
        if gib > sizes.most or iops is None:
            continue
        if iops.most is None:
            if count == 1 and disk.facts.credit_burst is None and iops.included.per_gib:
                yield from _larger(disk, gib, wanted)
            continue
        low = int((iops.least or iops.included).at(Fraction(gib), 0))
        high = int(iops.most.at(Fraction(gib), 0))
        rates = [min(high, max(low, _round(wanted * step / count))) for step in IOPS_STEPS]
        for rate in dict.fromkeys(rates):
            each = _throughput(mb, rate, Fraction(gib), unit)
            told = f"{disk.name}({gib}GiB, {rate} IOPS{each})"
            yield told if count == 1 else f"{count} x {told}"


def _larger(disk: DiskEntry, gib: int, wanted: float) -> Iterator[str]:
    """Yield disks whose IOPS follow from their size, from the least that holds the data on."""
    iops, most = disk.facts.iops, disk.facts.size_gib.most
    if iops is None or not iops.included.per_gib:
        return
    for step in (0.0, *IOPS_STEPS):
        each = ceil((wanted * step - iops.of_vm) / float(iops.included.per_gib))
        yield f"{disk.name}({min(most, max(gib, each))}GiB)"


def _throughput(mb: Rate | None, rate: int, gib: Fraction, unit: int) -> str:
    """Return the MB/s that go with some IOPS; empty: they are not chosen."""
    if mb is None or mb.most is None:
        return ""
    low = int(mb.least.at(gib, rate) if mb.least else 1)
    high = int(mb.most.at(gib, rate))
    amount = min(high, max(low, LEAST_MB_PER_S, ceil(rate * BYTES_PER_IO / unit)))
    return f", {amount} {'MiB' if unit == 1 << 20 else 'MB'}/s"


NODES = "cluster.nodes"
"""What an option with another number of nodes than the file's changes."""

NODE_STEPS = (1, 2)
"""Times the file's nodes that are looked through: more nodes may be smaller ones."""

CPU_LOW = "node CPU is too low"

LEAST_MB_PER_S = 125
"""Less is not cheaper where as much is included, and compaction needs some."""


def _round(amount: float) -> int:
    """Return a rate that people would order: whole thousands, at least one."""
    return max(1000, ceil(amount / 1000) * 1000)


def _reads_of_node(question: Question, spec: ClusterTrial) -> float:
    """Return the reads a second of one node, which disks may be full of as far as is allowed."""
    rate, work = question.rate_per_s / most_used(question.require), spec.workload.operations
    reads = READ_OF_AN_ORDER if work is None else work.read * copies_read(spec)
    return rate * reads / serving_nodes(spec)


READ_OF_AN_ORDER = 6.0
"""Of TPC-C, where disks are chosen by what is read. **Assumed:** of the ten rows of stock and the
three of customers that a new order and the transactions beside it read, memory holds half."""


def _consider(shop: _Shop, vm: VmEntry, disks: Disks, found: Field) -> None:
    """Add a combination to where it belongs."""
    question, spec = shop.question, shop.spec
    price = shop.price(disks.expression)
    if price is None:
        found.refused["no price of the disks is known in USD"] += 1
        found.unpriced.add(parse_disks(disks.expression).name)
        return
    usd = round((price + shop.machines[vm.name]) * spec.cluster.nodes, 2)
    base = spec.cluster.volumes["data"]
    request = VolumeRequest(
        disks=disks.expression,
        caching=disks.caching,
        chunk_bytes=base.chunk_bytes if base.stripe_bytes else None,
        latency=None,
    )
    try:
        made = resolve(shop.catalog, HostRequest(vm=vm.name), request)
    except UserError as error:
        found.refused[error.problems[0].rule] += 1
        return
    fits = [name for name, need in shop.rooms.items() if need <= made.volume.size_bytes]
    # Local disks come in steps, so what growth costs there is told.
    tight = not fits and disks.kind in LOCAL
    if tight:
        fits = [name for name, need in shop.today.items() if need <= made.volume.size_bytes]
    if not fits:
        found.refused["the data do not fit, with room for growth and compaction"] += 1
        return
    if spec.before.credits_ratio == 0 and made.has_credits:
        host = without_credits(made)
        made = replace(made, host=host, volume=host.volumes[0])
    strength = strength_of(made, seconds_of(spec), vm)
    own = next(iter(shop.rooms))
    fixed = shop.settings | ({} if own in fits else {COMPACTION: fits[0]})
    lost = lossy(question, disks)
    option = Candidate(vm.name, disks, usd, strength, made, dict(fixed), fixed, lost)
    reason = _hopeless(question, option, shop.calibration)
    budget = question.require.budget_usd_per_month
    if not reason and budget is not None and usd > budget:
        reason = "costs more than the budget"
        near = [one for one in (found.dear, option) if one is not None and not one.lossy]
        found.dear = min(near, key=lambda one: one.usd_per_month, default=None)
    if reason:
        found.ruled_out[option.name] = reason
    else:
        (found.tight if tight else found.candidates).append(option)


def lossy(question: Question, disks: Disks) -> bool:
    """Return whether data on these disks are gone with one VM, which the promise forbids."""
    copies = question.spec.database.replication_factor
    allowed = question.require.durability == MAY_BE_LOST
    return disks.kind in LOCAL and copies == 1 and not allowed


def _hopeless(question: Question, option: Candidate, calibration: Calibration) -> str:
    """Return why an option cannot keep the promise, whatever it does; empty: it might."""
    local = option.disks.kind in LOCAL
    if question.require.durability == SURVIVES_DEALLOCATION and local:
        return "its data do not survive a deallocated VM"
    return too_weak(question, option, calibration)


def too_weak(
    question: Question, option: Candidate, calibration: Calibration, reads: float | None = None
) -> str:
    """Return which limit cannot carry the rate; empty: all may.

    `reads`: disk reads of an operation at least, where a simulation has shown it.
    """
    spec = spec_of(question.spec, option)
    memory = cache_bytes(spec, option.strength.memory_gib, calibration)
    machine = Machine(option.made.host, memory, option.strength.cores)
    most = ceiling(spec, machine, calibration, reads)
    return f"{most.limit} is too low" if most.per_s < _wanted(question) else ""


def _wanted(question: Question) -> float:
    """Return the rate below which a limit rules an option out."""
    return question.raised_per_s * SLACK


def without_credits(made: Resolution) -> Any:
    """Return a host whose limits begin without burst credits."""

    def spent(limits: list[Any]) -> list[Any]:
        return [
            one.model_copy(update={"burst": None})
            if one.burst is not None and one.burst.credits is not None
            else one
            for one in limits
        ]

    volume = made.volume
    disks = [disk.model_copy(update={"limits": spent(disk.limits)}) for disk in volume.disks[:1]]
    volume = volume.model_copy(update={"disks": disks * len(volume.disks)})
    update = {
        "cached": spent(made.host.cached),
        "uncached": spent(made.host.uncached),
        "volumes": [volume],
    }
    return made.host.model_copy(update=update)
