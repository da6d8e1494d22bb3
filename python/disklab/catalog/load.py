"""Reading catalogue files: the package's own and the user's, with all problems at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field

from disklab import reading
from disklab.catalog.evidence import Measurement, ProfileFacts, profiled
from disklab.catalog.facts import (
    DiskFacts,
    DistributionFacts,
    Facts,
    FamilyFacts,
    Inferred,
    LatencyFacts,
    NetworkFacts,
    PriceList,
    Provenance,
    SeriesFacts,
    Source,
    VmFacts,
)
from disklab.catalog.form import Form, Lines, Location
from disklab.catalog.nvme import NvmeEvidence, NvmeLike, with_limits
from disklab.catalog.processor import Benchmark
from disklab.catalog.profile import HostProfile, Latency, circular
from disklab.catalog.quantity import LOCAL_DISKS
from disklab.catalog.suggest import did_you_mean
from disklab.catalog.weather import ANY, LOCAL, WeatherFacts
from disklab.errors import Problem, UserError, refuse

# The form of a catalogue file.


class CatalogueFile(Facts):
    """One catalogue file."""

    sources: dict[str, Source] = Field(default={})
    families: dict[str, FamilyFacts] = Field(default={})
    latencies: dict[str, LatencyFacts] = Field(default={})
    evidence: dict[str, list[Measurement]] = Field(default={})
    """Published measurements by kind of disk; a user's file adds to the package's."""
    profiles: dict[str, ProfileFacts] = Field(default={})
    """Latency profiles that follow from `evidence`."""
    vm_series: dict[str, SeriesFacts] = Field(default={})
    prices: list[PriceList] = Field(default=[])
    networks: dict[str, NetworkFacts] = Field(default={})
    processors: dict[str, list[Benchmark]] = Field(default={})
    """Benchmarks of processors by VM series; a user's file adds to the package's."""
    weather: dict[str, WeatherFacts] = Field(default={})
    """By family of disks, vendor, `local` or `any`; a user's numbers replace the package's."""
    nvme_evidence: list[NvmeEvidence] = Field(default=[])
    """Measurements of local NVMe disks; a user's file adds to the package's."""
    nvme_like: dict[str, NvmeLike] = Field(default={})
    nvme_unthrottled: list[str] = Field(default=[])
    """Series of which the vendor says that the published figures are no limit."""


FORM = Form(CatalogueFile, reading.CATALOGUE, "disklab catalog --schema")


@dataclass(frozen=True)
class DiskEntry:
    """A disk of the catalogue with the family that it shares facts with."""

    name: str
    family_name: str
    family: FamilyFacts
    facts: DiskFacts
    builtin: bool

    @property
    def vendor(self) -> str:
        """The part of the name before the slash."""
        return self.name.split("/", 1)[0]


@dataclass(frozen=True)
class VmEntry:
    """A VM size of the catalogue with its series."""

    name: str
    series_name: str
    series: SeriesFacts
    facts: VmFacts
    builtin: bool
    inferred: Mapping[str, Inferred] = field(default_factory=dict, hash=False)
    """Which of its limits no vendor publishes, by their fields."""

    @property
    def told(self) -> Mapping[str, Inferred]:
        """The same as far as the file of its series says so."""
        short = self.name.partition("/")[2]
        parts = self.series.inferred.items()
        return {part: known for part, known in parts if not known.sizes or short in known.sizes}

    @property
    def vendor(self) -> str:
        """The part of the name before the slash."""
        return self.name.split("/", 1)[0]


@dataclass
class Catalog:
    """Everything that is known, by name."""

    sources: dict[str, Source] = field(default_factory=dict)
    families: dict[str, FamilyFacts] = field(default_factory=dict)
    latencies: dict[str, LatencyFacts] = field(default_factory=dict)
    disks: dict[str, DiskEntry] = field(default_factory=dict)
    vms: dict[str, VmEntry] = field(default_factory=dict)
    prices: list[PriceList] = field(default_factory=list)
    networks: dict[str, NetworkFacts] = field(default_factory=dict)
    evidence: dict[str, list[Measurement]] = field(default_factory=dict)
    profiles: dict[str, ProfileFacts] = field(default_factory=dict)
    processors: dict[str, list[Benchmark]] = field(default_factory=dict)
    weather: dict[str, WeatherFacts] = field(default_factory=dict)
    nvme_evidence: list[NvmeEvidence] = field(default_factory=list)
    nvme_like: dict[str, NvmeLike] = field(default_factory=dict)
    nvme_unthrottled: list[str] = field(default_factory=list)
    service_times: dict[str, Latency] = field(default_factory=dict)
    """Latency profiles that were worked out already: exact fractions take their time."""
    bought: dict[Any, Any] = field(default_factory=dict)
    """Disks that were worked out already, by what was asked: advice asks of each on every VM."""
    hosts: dict[Any, HostProfile] = field(default_factory=dict)
    """The same of VMs without volumes."""

    def disk_names(self) -> list[str]:
        """Return every name that a disk expression may use."""
        return [*self.disks, *(name for name in self.families if self.tiers(name)), *LOCAL_DISKS]

    def tiers(self, family_name: str) -> list[DiskEntry]:
        """Return the fixed sizes of a family, smallest first; none where sizes are chosen."""
        members = [disk for disk in self.disks.values() if disk.family_name == family_name]
        tiers = [disk for disk in members if disk.facts.size_gib.fixed]
        return sorted(tiers, key=lambda disk: disk.facts.size_gib.most)


def user_files() -> list[Path]:
    """Return the user's own catalogue files: `$DISKLAB_CATALOG`, else the one in the home."""
    if named := os.environ.get("DISKLAB_CATALOG"):
        return [Path(part) for part in named.split(os.pathsep) if part]
    home = Path(os.environ.get("XDG_CONFIG_HOME", "") or Path.home() / ".config")
    usual = home / "disklab" / "catalog.yaml"
    return [usual] if usual.is_file() else []


_settled: list[Catalog] = []


def settle_on(catalog: Catalog) -> None:
    """Let `load_catalog` return this one from now on: root's part reads no user's files."""
    _settled[:] = [catalog]


@contextmanager
def settled_on(catalog: Catalog) -> Iterator[None]:
    """Let `load_catalog` return this one until the end."""
    before = list(_settled)
    settle_on(catalog)
    try:
        yield
    finally:
        _settled[:] = before


@contextmanager
def with_more(*files: Path | None) -> Iterator[None]:
    """Let `load_catalog` return the user's catalogue with more files until the end."""
    more = [path for path in files if path is not None]
    with settled_on(load_catalog([*user_files(), *more])):
        yield


def load_catalog(files: Iterable[Path] | None = None) -> Catalog:
    """Return the package's catalogue with the user's files added.

    `files` default to `user_files()`. Raises UserError with every problem of every file.
    """
    if _settled and files is None:
        return _settled[0]
    base = _builtin()
    catalog = Catalog(
        dict(base.sources),
        dict(base.families),
        dict(base.latencies),
        dict(base.disks),
        dict(base.vms),
        list(base.prices),
        dict(base.networks),
        {kind: list(rows) for kind, rows in base.evidence.items()},
        dict(base.profiles),
        {series: list(rows) for series, rows in base.processors.items()},
        dict(base.weather),
        list(base.nvme_evidence),
        dict(base.nvme_like),
        list(base.nvme_unthrottled),
    )
    problems: list[Problem] = []
    for path in user_files() if files is None else files:
        problems += _add_file(catalog, path)
    refuse(problems)
    if catalog.evidence != base.evidence or catalog.profiles != base.profiles:
        _profile(catalog)
    if catalog.vms.keys() != base.vms.keys() or catalog.nvme_evidence != base.nvme_evidence:
        _limit(catalog)
    return catalog


@cache
def _builtin() -> Catalog:
    """Return the catalogue of the package."""
    catalog = Catalog()
    problems: list[Problem] = []
    # References lead from any file to any other, so they are checked when all are read.
    documents = []
    for path in sorted(_yaml_files(Path(str(resources.files("disklab") / "data")))):
        document, found = _validated(reading.text(path, reading.CATALOGUE), str(path))
        problems += found
        if document is not None:
            problems += _add(catalog, document, builtin=True, place=str(path))
            documents.append((path, document))
    for path, document in documents:
        for location, value, rule, known in _dangling(catalog, document):
            place = f"{path}: {'.'.join(map(str, location))}"
            problems.append(Problem(place, value, rule, did_you_mean(value, known, "define it")))
    refuse(problems)
    _profile(catalog)
    _limit(catalog)
    return catalog


def _profile(catalog: Catalog) -> None:
    """Work out the latency profiles that follow from measurements."""
    for name, facts in catalog.profiles.items():
        catalog.latencies[name] = profiled(catalog, facts)
        catalog.service_times.pop(name, None)


def without(catalog: Catalog, sources: Iterable[str]) -> Catalog:
    """Return a catalogue that has not read the measurements of some sources."""
    left = set(sources)
    evidence = {
        kind: [row for row in rows if row.source not in left]
        for kind, rows in catalog.evidence.items()
    }
    nvme = [each for each in catalog.nvme_evidence if each.source not in left]
    apart = replace(
        catalog,
        latencies=dict(catalog.latencies),
        vms=dict(catalog.vms),
        evidence=evidence,
        nvme_evidence=nvme,
        service_times={},
        bought={},
        hosts={},
    )
    _profile(apart)
    _limit(apart)
    return apart


def _limit(catalog: Catalog) -> None:
    """Work out the limits of NVMe disks that follow from measurements."""
    catalog.vms.update({vm.name: vm for vm in with_limits(catalog)})


def _yaml_files(folder: Path) -> Iterator[Path]:
    """Yield the catalogue's files; beside them lie the calibrations of predictions."""
    for path in folder.rglob("*.yaml"):
        if path.parent.name != "calibration":
            yield path


def _add_file(catalog: Catalog, path: Path) -> list[Problem]:
    """Add a user's file; return what is wrong with it."""
    try:
        return _add_text(catalog, reading.text(path, reading.CATALOGUE), str(path), builtin=False)
    except UserError as error:
        return list(error.problems)


def _add_text(catalog: Catalog, text: str, place: str, *, builtin: bool) -> list[Problem]:
    """Add a document; return what is wrong with it."""
    document, problems = _validated(text, place)
    if document is None:
        return problems
    lines = Lines(text, place, reading.CATALOGUE)
    problems += _add(catalog, document, builtin=builtin, place=place)
    for location, value, rule, known in islice(_dangling(catalog, document), reading.MOST_TOLD):
        way_out = did_you_mean(value, known, "define it in this file")
        problems.append(Problem(lines.place(location), repr(value), rule, way_out))
    if not problems:
        for name in document.latencies:
            if circle := circular(catalog, name):
                place = lines.place(("latencies", name))
                rule = f"{circle} leads in a circle"
                problems.append(Problem(place, repr(name), rule, "end the chain of `like`"))
    return problems


def _validated(text: str, place: str) -> tuple[CatalogueFile | None, list[Problem]]:
    ours = place.startswith(_package_place())
    return FORM.validated(text, place, ours=ours)


@cache
def _package_place() -> str:
    return str(resources.files("disklab"))


def _add(catalog: Catalog, document: CatalogueFile, *, builtin: bool, place: str) -> list[Problem]:
    """Add a validated document; return names that are taken or malformed."""
    problems = []

    def taken(kind: str, name: str, known: Iterable[str]) -> None:
        if name in known:
            rule = f"a {kind} of this name is in the catalogue already"
            way_out = "use another name, or a vendor prefix of your own"
            problems.append(Problem(place, repr(name), rule, way_out))

    for source_name, source in document.sources.items():
        taken("source", source_name, catalog.sources)
        catalog.sources[source_name] = source
    for latency_name, latency in document.latencies.items():
        taken("latency profile", latency_name, catalog.latencies)
        catalog.latencies[latency_name] = latency
    _add_evidence(catalog, document, taken)
    for family_name, family in document.families.items():
        problems += _vendor_problems(family_name, place)
        taken("family", family_name, catalog.families)
        catalog.families[family_name] = family
        for short, facts in family.disks.items():
            name = f"{family_name.split('/')[0]}/{short}"
            taken("disk", name, catalog.disks)
            catalog.disks[name] = DiskEntry(name, family_name, family, facts, builtin)
    for series_name, series in document.vm_series.items():
        problems += _vendor_problems(series_name, place)
        for short, vm in series.sizes.items():
            name = f"{series_name.split('/')[0]}/{short}"
            taken("VM size", name, catalog.vms)
            entry = VmEntry(name, series_name, series, vm, builtin)
            catalog.vms[name] = replace(entry, inferred=entry.told)
    for network_name, network in document.networks.items():
        problems += _vendor_problems(network_name, place)
        taken("network", network_name, catalog.networks)
        catalog.networks[network_name] = network
    # A user's own price goes before the package's.
    at = len(catalog.prices) if builtin else 0
    catalog.prices[at:at] = document.prices
    return problems


def _add_evidence(
    catalog: Catalog, document: CatalogueFile, taken: Callable[[str, str, Iterable[str]], None]
) -> None:
    for name, profile in document.profiles.items():
        taken("latency profile", name, {**catalog.latencies, **catalog.profiles})
        catalog.profiles[name] = profile
    for kind, rows in document.evidence.items():
        catalog.evidence.setdefault(kind, []).extend(rows)
    for series, benchmarks in document.processors.items():
        catalog.processors.setdefault(series, []).extend(benchmarks)
    for of, weather in document.weather.items():
        older = catalog.weather.get(of, WeatherFacts())
        catalog.weather[of] = older.model_copy(update=weather.given())
    catalog.nvme_evidence.extend(document.nvme_evidence)
    catalog.nvme_like.update(document.nvme_like)
    catalog.nvme_unthrottled.extend(document.nvme_unthrottled)


def _vendor_problems(name: str, place: str) -> list[Problem]:
    if name.count("/") == 1 and all(name.split("/")):
        return []
    rule = "the name of a family or series reads vendor/name"
    return [Problem(place, repr(name), rule, f"call it for example mine/{name.strip('/')}")]


Dangling = tuple[Location, str, str, Iterable[str]]
"""Where a reference stands, its value, the rule that it breaks, and what would have been known."""


def _dangling(catalog: Catalog, document: CatalogueFile) -> Iterator[Dangling]:
    """Yield references to sources, latencies and disks that do not exist."""
    for section, named in (("families", document.families), ("vm_series", document.vm_series)):
        for name, part in named.items():
            at: Location = (section, name)
            for key, provenance in part.provenance.items():
                yield from _unknown_sources(catalog, (*at, "provenance", key), provenance.source)
            for path, profile in part.latency.items():
                yield from _unknown_latency(catalog, (*at, "latency", path), profile)
            for disk in getattr(part, "caps", {}):
                yield from _unknown_disk(catalog, (*at, "caps", disk), disk)
            for key, known in getattr(part, "inferred", {}).items():
                yield from _unknown_sources(catalog, (*at, "inferred", key), known.source)
    for index, evidence in enumerate(document.nvme_evidence):
        yield from _unknown_sources(catalog, ("nvme_evidence", index), [evidence.source])
    for name, profiles in document.latencies.items():
        for operation in ("read", "write", "flush"):
            at = ("latencies", name, operation)
            yield from _unknown_shape(catalog, at, getattr(profiles, operation))
    yield from _dangling_evidence(catalog, document)
    yield from _dangling_processors(catalog, document)
    yield from _dangling_networks(catalog, document)
    yield from _dangling_prices(catalog, document)
    yield from _dangling_weather(catalog, document)


def _dangling_evidence(catalog: Catalog, document: CatalogueFile) -> Iterator[Dangling]:
    at: Location
    for kind, rows in document.evidence.items():
        for index, row in enumerate(rows):
            yield from _unknown_sources(catalog, ("evidence", kind, index), [row.source])
    for name, profile in document.profiles.items():
        for operation in ("read", "write", "flush"):
            facts, at = getattr(profile, operation), ("profiles", name, operation)
            if isinstance(facts, str):
                continue
            yield from _unknown_sources(catalog, at, facts.source)
            shape, _, of = facts.shape.partition("/")
            if shape not in catalog.latencies or of not in ("read", "write"):
                rule = "a shape reads NAME/read or NAME/write of `latencies`"
                yield (*at, "shape"), facts.shape, rule, catalog.latencies
            if facts.of not in catalog.evidence and facts.mean_ms is None:
                rule = "a profile is of a key of `evidence`, or has a mean_ms that is assumed"
                yield (*at, "of"), facts.of, rule, catalog.evidence


def _dangling_processors(catalog: Catalog, document: CatalogueFile) -> Iterator[Dangling]:
    series = {entry.series_name for entry in catalog.vms.values()}
    for name, rows in document.processors.items():
        if name not in series:
            rule = "benchmarks of a processor are those of a VM series"
            yield ("processors", name), name, rule, series
        for index, row in enumerate(rows):
            at: Location = ("processors", name, index)
            if row.like is None:
                yield from _unknown_sources(catalog, at, [row.source])
            elif all(peer.like for peer in catalog.processors.get(row.like, [])):
                rule = "`like` names a VM series with benchmarks of its own"
                yield (*at, "like"), row.like, rule, catalog.processors


def _dangling_prices(catalog: Catalog, document: CatalogueFile) -> Iterator[Dangling]:
    for index, prices in enumerate(document.prices):
        yield from _unknown_sources(catalog, ("prices", index), prices.source)
        for part_name in ("disks", "quotes", "formulas"):
            for disk in getattr(prices, part_name):
                yield from _unknown_disk(catalog, ("prices", index, part_name, disk), disk)
        for vm in prices.vms:
            if vm not in catalog.vms:
                rule = "a price must be that of a VM size in the catalogue"
                yield ("prices", index, "vms", vm), vm, rule, catalog.vms


def _dangling_weather(catalog: Catalog, document: CatalogueFile) -> Iterator[Dangling]:
    vendors = {name.partition("/")[0] for name in (*catalog.families, *catalog.vms)}
    known = {ANY, LOCAL, *vendors, *catalog.families}
    for of, weather in document.weather.items():
        if of not in known:
            rule = "weather is that of a family of disks, of a vendor, of local disks, or of any"
            yield ("weather", of), of, rule, known
        for name, odds in weather.given().items():
            yield from _unknown_sources(catalog, ("weather", of, name), odds.source)


def _dangling_networks(catalog: Catalog, document: CatalogueFile) -> Iterator[Dangling]:
    for name, network in document.networks.items():
        for distance in ("within_zone", "between_zones"):
            at: Location = ("networks", name, distance)
            yield from _unknown_sources(catalog, at, getattr(network, distance).source)


def _unknown_sources(
    catalog: Catalog, location: Location, keys: Iterable[str]
) -> Iterator[Dangling]:
    for key in keys:
        if key not in catalog.sources:
            yield (*location, "source"), key, "a source must be a key of `sources`", catalog.sources


def _unknown_latency(catalog: Catalog, location: Location, name: str) -> Iterator[Dangling]:
    if name not in {**catalog.latencies, **catalog.profiles}:
        yield location, name, "a latency must be a key of `latencies`", catalog.latencies


def _unknown_disk(catalog: Catalog, location: Location, name: str) -> Iterator[Dangling]:
    if name not in catalog.disks:
        yield location, name, "it must be a disk of the catalogue", catalog.disks


def _unknown_shape(
    catalog: Catalog, location: Location, distribution: DistributionFacts
) -> Iterator[Dangling]:
    yield from _unknown_sources(catalog, location, distribution.source)
    if distribution.like is None:
        return
    shape, _, of = distribution.like.partition("/")
    yield from _unknown_latency(catalog, (*location, "like"), shape)
    if of not in ("read", "write", "flush"):
        rule = "`like` reads NAME/read, NAME/write or NAME/flush"
        yield (*location, "like"), distribution.like, rule, [f"{shape}/read"]


# Where a number comes from, on one line.


def cite(catalog: Catalog, provenance: dict[str, Provenance], field: str = "default") -> str:
    """Return `key, date: place` of the first source of a field, as error messages quote it."""
    key = (provenance.get(field) or provenance["default"]).source[0]
    date = date_of(catalog, provenance, field)
    return f"source {key}{f', {date}' if date else ''}: {catalog.sources[key].at}"


def date_of(catalog: Catalog, provenance: dict[str, Provenance], field: str = "default") -> str:
    """Return the date of a field's numbers; empty: its source shows none."""
    origin = provenance.get(field) or provenance["default"]
    return origin.date or catalog.sources[origin.source[0]].date or ""
