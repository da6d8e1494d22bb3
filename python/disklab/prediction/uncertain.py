"""What a prediction rests on and nobody knows exactly: each value with the range it lies in.

A range is a factor: in eight cases of ten the true value lies between the value divided by it and
the value times it. Calibration files give it for parameters and facts, `calibration/catalogue.yaml`
for the catalogue's service times and limits, each with its reason.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from disklab import reading, spec
from disklab.catalog import Speed, load_catalog
from disklab.catalog.facts import DistributionFacts, Inferred
from disklab.catalog.profile import latency_profile
from disklab.databases.calibration import (
    AT_COLLECTOR_THREADS,
    AT_ROW_BYTES,
    AT_YOUNG_BYTES,
    FOLDER,
    Calibration,
    Part,
    Residual,
    is_cpu_time,
    ways,
)
from disklab.databases.simulating import Job
from disklab.errors import Problem, UserError, refuse
from disklab.prediction.cells import database_part, prepare
from disklab.report.cells import size_of
from disklab.results.bands import TENTH
from disklab.spec import Trial, TrialSpec
from disklab.spec.located import text_of

# Ranges in an experiment file: `credits: 0..100%`, for what is not known of a described system.
#
# A range stands where an amount may stand. The prediction is made in its middle (the arithmetic
# one of shares and of what begins at 0, else the geometric one), and its band reaches over both
# ends.

MOST_RANGES = 4
"""Each doubles the number of files that are read."""

_RANGE = re.compile(
    r"(?P<low>[0-9]+(?:\.[0-9]+)?)(?P<unit>[A-Za-z%]*)\.\.(?P<high>[0-9]+(?:\.[0-9]+)?)"
    r"(?P<last>[A-Za-z%]*)"
)
_QUOTED = re.compile(r"[\"']")
TEXTS = ("title", "source")
_KEY = re.compile(r"([\w.]+)\s*:[^:{},]*$")


@dataclass(frozen=True)
class Range:
    """An amount of which the file says two ends."""

    name: str
    """Its key and line: `credits (line 12)`."""
    start: int
    end: int
    low: str
    middle: str
    high: str


@dataclass(frozen=True, eq=False)
class Ranged:
    """An experiment file and its ranges."""

    path: Path
    text: str
    ranges: tuple[Range, ...]
    only: Mapping[str, Sequence[str]]

    @cached_property
    def middle(self) -> spec.Experiment:
        """The experiment in the middle of all ranges."""
        return self.at({})

    def at(self, signs: Mapping[str, float]) -> spec.Experiment:
        """Return the experiment at an end of each named range: below 0 the low one."""
        text = self.text
        for one in reversed(self.ranges):
            sign = signs.get(one.name, 0.0)
            value = one.middle if not sign else one.low if sign < 0 else one.high
            text = text[: one.start] + value + text[one.end :]
        chosen = {name: list(levels) for name, levels in self.only.items()}
        return spec.parse(text, self.path).only(chosen)


def read_ranged(path: Path, only: Mapping[str, Sequence[str]]) -> Ranged:
    """Return an experiment file with its ranges, if it has any. Raises UserError."""
    text = text_of(path)
    found, problems, offset = [], [], 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        content = line.partition("#")[0]
        for match in _RANGE.finditer(content):
            key = _KEY.search(content[: match.start()])
            if key is None or key[1] in TEXTS or _QUOTED.search(content[: match.start()]):
                continue  # of a sentence
            place = f"{path}:{number}: {key[1]}"
            span = (offset + match.start(), offset + match.end())
            made = _range(f"{key[1]} (line {number})", match, span)
            if made is None:
                rule, way_out = "is not a range", "write the lower end first, as in 0..100%"
                problems.append(Problem(place, match[0], rule, way_out))
            else:
                found.append(made)
        offset += len(line)
    if len(found) > MOST_RANGES:
        rule = f"a file may hold {MOST_RANGES} ranges"
        way_out = "give a value for those that matter least"
        problems.append(Problem(str(path), f"{len(found)} ranges", rule, way_out))
    refuse(problems)
    return Ranged(path, text, tuple(found), only)


def _range(name: str, match: re.Match[str], span: tuple[int, int]) -> Range | None:
    """Return a range; None: its ends are not in order, or their units do not fit together."""
    last = match["last"] or match["unit"]
    first = match["unit"] or last
    low, high = match["low"] + first, match["high"] + last
    ends = size_of(low), size_of(high)
    if ends[0] is None or ends[1] is None or not ends[0] < ends[1]:
        return None
    arithmetic = first == "%" or ends[0] == 0
    if first == last:
        least, most = float(match["low"]), float(match["high"])
        value = (least + most) / 2 if arithmetic else math.sqrt(least * most)
        whole = last != "%" and "." not in match["low"] + match["high"] and value >= 1
        return Range(name, *span, low, f"{round(value) if whole else value:g}{last}", high)
    if not {first, last} <= {"B", "KiB", "MiB", "GiB", "TiB"}:
        return None
    return Range(name, *span, low, f"{round(math.sqrt(ends[0] * ends[1]))}B", high)


WITHIN = {"fitted": 1.3, "measured": 1.3, "assumed": 1.6}
"""Of parameters whose calibration file gives no range, by their status."""

Kind = Literal[
    "parameter",
    "fact",
    "service time",
    "limit",
    "outside the range",
    "speed of a vCPU",
    "carried over",
    "range",
]
Key = tuple[Kind, str]
"""A kind, and a name that is the same in every cell of an experiment."""

OUTSIDE: Key = ("outside the range", "CPU times")
SPEEDS: dict[bool, Key] = {
    False: ("speed of a vCPU", "server"),
    True: ("speed of a vCPU", "client"),
}
"""By whether it is the client's: of the VM measured and of the trial's, one over the other."""
WAITS: Key = ("carried over", "times between processes")
"""Times that are no processor's, such as those of wake-ups: measured on one family of machines."""
WAIT = "overhead_ns"
"""End of the names of such times."""
OF_SIZE: Key = ("service time", "each KiB of large I/Os")
AT_ONCE: Key = ("service time", "several I/Os at once")
MIXED: Key = ("limit", "reads beside writes")
ALONE: Sequence[set[int]] = (set(), {0}, {100})
"""Of 100 I/Os how many are reads, where there is no mixture; of no fio at all: nothing."""
LARGE_BYTES = 16 << 10
"""Service times are those of I/Os of up to so many bytes, one at a time."""


class Known(Part):
    """How well a value is known."""

    within: float
    because: str


class Abroad(Part):
    """What is known less well on VMs of a series other than the calibrated one."""

    waits: Known
    residuals: dict[str, float]
    """By figure: the factor that is left where the calibration is right at home."""
    widths: dict[str, float]
    """By figure: how much wider a band is than the ranges and residuals make it."""
    source: str


class CatalogueRanges(Part):
    """The file of ranges of catalogue values."""

    service_times: dict[str, Known]
    limits: dict[str, Known]
    of_size: Known
    at_once: Known
    mixed: Known
    outside_range: Known
    abroad: Abroad


@dataclass(frozen=True)
class Unknown:
    """A value that is not known exactly."""

    key: Key
    within: float
    because: str
    follows: Key | None = None
    """The unknown that the measurements tell together with this one."""
    correlation: float = 0.0

    @property
    def name(self) -> str:
        """As tables and sentences call it."""
        kind, name = self.key
        return name if kind in ("parameter", "fact") else f"{kind}: {name}"

    @property
    def deviation(self) -> float:
        """The standard deviation of its logarithm; of a range, which is moved to its ends, 1."""
        if self.key[0] == "range":
            return 1.0
        return math.log(self.within) / TENTH


@dataclass(frozen=True)
class Uncertain:
    """A cell whose unknowns can be moved."""

    trial: Trial
    calibration: Calibration | None
    job: Job
    place: str
    ranged: Ranged | None = None
    """The ranges of the experiment file."""

    def unknowns(self) -> Iterator[Unknown]:
        """Yield what this cell rests on."""
        if self.calibration is not None:
            yield from _of_calibration(self.calibration, self.trial.spec, self.job)
            carried = self.ways
            if _outside(self.trial, self.calibration) and SPEEDS[False] not in carried:
                yield _unknown(OUTSIDE, ranges().outside_range)
            yield from _of_ways(carried)
        yield from _of_host(self.host)
        fio = self.trial.spec.workload.fio
        parts = [] if fio is None else [fio, *fio.beside]
        if any(part.block_bytes > LARGE_BYTES for part in parts):
            yield _unknown(OF_SIZE, ranges().of_size)
        if sum(jobs * depth for jobs, depth in (part.load for part in parts)) > 1:
            yield _unknown(AT_ONCE, ranges().at_once)
        if {part.read_percent for part in parts} not in ALONE and _apart(self.host):
            yield _unknown(MIXED, ranges().mixed)
        for one in self.ranged.ranges if self.ranged else ():
            yield Unknown(("range", one.name), 1.0, f"the file says {one.low} to {one.high}")

    @property
    def ways(self) -> dict[Key, tuple[Speed, Speed]]:
        """How its CPU times are carried to other VMs; empty: they are not."""
        if self.calibration is None or self.trial.spec.cluster is None:
            return {}
        carried = ways(self.trial.spec, load_catalog(), self.calibration)
        return {SPEEDS[of_client]: (measured, own) for of_client, measured, own in carried}

    @property
    def residuals(self) -> dict[str, Residual]:
        """How far published figures are from predicted ones when every value is right."""
        known = dict(self.calibration.residuals) if self.calibration else {}
        if SPEEDS[False] not in self.ways:
            return known
        for name, within in ranges().abroad.residuals.items():
            at_home = known.get(name, Residual(within=within, pairs=within))
            wider = max(within, at_home.within)
            known[name] = at_home.model_copy(update={"within": wider})
        return known

    @property
    def widths(self) -> dict[str, float]:
        """How much wider bands are than what is known tells, as studies left out have shown."""
        return ranges().abroad.widths if SPEEDS[False] in self.ways else {}

    @property
    def host(self) -> dict[str, Any]:
        """The profile of a node, with its volumes."""
        return dict(_host_of(self.job))

    def moved(self, shifts: Mapping[Key, float]) -> Job:
        """Return the job with each unknown's logarithm moved by so much."""
        trial = self._at({name: way for (kind, name), way in shifts.items() if kind == "range"})
        calibration = self.calibration
        if calibration is not None:
            outside = _outside(trial, calibration)
            calibration = _moved(calibration, shifts, shifts.get(OUTSIDE, 0.0) * outside)
        job = copy.deepcopy(prepare(trial, load_catalog(), calibration, self.place).needed())
        _move_host(_host_of(job), shifts)
        return job

    def _at(self, signs: Mapping[str, float]) -> Trial:
        """Return the trial at an end of each range. Raises UserError where it is refused there."""
        if self.ranged is None or not signs:
            return self.trial
        trials = _trials(self.ranged, tuple(sorted(signs.items())))
        trial = trials[self.trial.index]
        if trial.refused is not None:
            raise UserError(*trial.refused.problems[:1])
        return trial


@lru_cache(maxsize=1 << MOST_RANGES)
def _trials(ranged: Ranged, signs: tuple[tuple[str, float], ...]) -> dict[int, Trial]:
    return {one.index: one for one in ranged.at(dict(signs)).trials("predict")}


def unknowns_of(cells: Sequence[Uncertain]) -> list[Unknown]:
    """Return every value that one of the cells rests on, each once, in a fixed order."""
    found: dict[Key, Unknown] = {}
    for cell in cells:
        for unknown in cell.unknowns():
            found.setdefault(unknown.key, unknown)
    return list(found.values())


@cache
def ranges() -> CatalogueRanges:
    """Return how well the catalogue's values are known."""
    path = Path(str(resources.files("disklab") / FOLDER / "catalogue.yaml"))
    text = reading.text(path, reading.CALIBRATION, str(path))
    return CatalogueRanges.model_validate(reading.yaml_value(text, reading.CALIBRATION, str(path)))


def _unknown(key: Key, known: Known) -> Unknown:
    return Unknown(key, known.within, known.because)


def _of_ways(carried: Mapping[Key, tuple[Speed, Speed]]) -> Iterator[Unknown]:
    """Yield what is known less well where CPU times are those of another VM series."""
    for key, speeds in carried.items():
        away = math.hypot(*(math.log(speed.within) for speed in speeds))
        yield Unknown(key, math.exp(away), "; ".join(speed.note for speed in speeds))
    if SPEEDS[False] in carried:
        yield _unknown(WAITS, ranges().abroad.waits)


def _outside(trial: Trial, calibration: Calibration) -> bool:
    spec = trial.spec
    if spec.cluster is None:
        return False
    return bool(calibration.outside(spec, load_catalog().vms[spec.cluster.vm].series_name))


def _of_calibration(calibration: Calibration, spec: TrialSpec, job: Job) -> Iterator[Unknown]:
    database, operations = spec.database, spec.workload.operations
    absent = set(_as_calibrated(calibration, spec, job))
    if operations is not None and not operations.changes:
        absent.add("writes")
    if database is not None and database.replication_factor == 1:
        absent.add("copies")
    pairs = {one.of[1]: one for one in calibration.correlations}
    for name, one in calibration.parameters.items():
        if one.value == 0 or one.when in absent or (one.unit == "ppm" and one.within is None):
            continue
        pair = pairs.get(name)
        yield Unknown(
            ("parameter", name),
            one.within or WITHIN[one.status],
            one.because,
            ("parameter", pair.of[0]) if pair else None,
            pair.value if pair else 0.0,
        )
    for name, fact in calibration.physical.items():
        if fact.within is not None and fact.when not in absent:
            yield Unknown(("fact", name), fact.within, fact.source)


def _host_of(job: Job) -> dict[str, Any]:
    """Return the profile of a device's host, or of a node of a database."""
    database = database_part(job)
    host: dict[str, Any] = (database["cluster"] if database else job["device"])["host"]
    return host


def _as_calibrated(calibration: Calibration, spec: TrialSpec, job: Job) -> Iterator[str]:
    """Yield what of a trial is as in the calibration, so that what others follow from is known."""
    facts, dataset = calibration.physical, spec.dataset
    if dataset is not None and not dataset.shape.sizes and AT_ROW_BYTES in facts:
        of_row = dataset.columns * dataset.column_bytes
        if of_row == calibration.fact(AT_ROW_BYTES):
            yield "other rows"
    collector = database_part(job).get("cluster", {}).get("collector")
    names = (AT_YOUNG_BYTES, AT_COLLECTOR_THREADS)
    if collector is None or not facts.keys() >= {*names}:
        yield "other collector"
        return
    young_bytes, threads = map(calibration.fact, names)
    if (collector["young_bytes"], collector["threads"]) == (young_bytes, threads):
        yield "other collector"


def _moved(calibration: Calibration, shifts: Mapping[Key, float], outside: float) -> Calibration:
    """Return a calibration with moved values. `outside`: by how much all CPU times move too."""
    parameters = {}
    for name, one in calibration.parameters.items():
        shift = shifts.get(("parameter", name), 0.0) + outside * name.endswith("cpu_ns")
        for of_client, key in SPEEDS.items():
            # A faster vCPU needs less time.
            shift -= shifts.get(key, 0.0) * is_cpu_time(name, of_client=of_client)
        shift += shifts.get(WAITS, 0.0) * name.endswith(WAIT)
        value = max(1, round(one.value * math.exp(shift))) if shift else one.value
        parameters[name] = one.model_copy(update={"value": value})
    physical = dict(calibration.physical)
    for name, fact in physical.items():
        shift = shifts.get(("fact", name), 0.0)
        if shift:
            assert isinstance(fact.value, int)
            value = round(fact.value * math.exp(shift))
            physical[name] = fact.model_copy(update={"value": value})
    return calibration.model_copy(update={"parameters": parameters, "physical": physical})


def _of_host(host: Mapping[str, Any]) -> Iterator[Unknown]:
    for latency in _latencies(host):
        for operation in ("read", "write", "flush"):
            known = _service_time(latency, operation)
            if known is not None and (operation != "flush" or known[1].within is not None):
                name, facts = known
                yield _unknown(("service time", name), _service_band(facts))
    for name, range_of, limits in _limits(host):
        if limits:
            yield _unknown(("limit", name), range_of)


def _move_host(host: dict[str, Any], shifts: Mapping[Key, float]) -> None:
    for latency in _latencies(host):
        known = {name: _service_time(latency, name) for name in ("read", "write", "flush")}
        move = {name: shifts.get(("service time", of[0])) for name, of in known.items() if of}
        for operation in known:
            # A flush takes as long as a write that finds nothing before it, or has its own range.
            shift = move.get(operation)
            if shift is None and operation == "flush":
                shift = move.get("write")
            factor = math.exp((shift or 0.0) + shifts.get(AT_ONCE, 0.0))
            times = latency[operation]
            times["quantiles_ppm_ns"] = [
                [ppm, round(ns * factor)] for ppm, ns in times["quantiles_ppm_ns"]
            ]
            of_size = math.exp(shifts.get(OF_SIZE, 0.0))
            times["per_kib_ns"] = round(times["per_kib_ns"] * factor * of_size)
    for name, _, limits in _limits(host):
        mixed = shifts.get(MIXED, 0.0)
        for limit in limits:
            shift = shifts.get(("limit", name), 0.0) + mixed * (limit["scope"] != "all")
            factor = math.exp(shift)
            limit["per_s"] = max(1, round(limit["per_s"] * factor))
            if limit["burst"] is not None:
                limit["burst"]["per_s"] = max(1, round(limit["burst"]["per_s"] * factor))


def _apart(host: Mapping[str, Any]) -> bool:
    """Return whether reads and writes of a disk have limits apart."""
    return any(limit["scope"] != "all" for disk in _disks(host) for limit in disk["limits"])


def _disks(host: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for volume in host["volumes"]:
        yield from volume["disks"]


def _latencies(host: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the service times of a host, those of equal disks each time."""
    if host["cache"] is not None:
        yield host["cache"]["latency"]
    for disk in _disks(host):
        yield disk["latency"]


def _limits(host: Mapping[str, Any]) -> Iterator[tuple[str, Known, list[dict[str, Any]]]]:
    """Yield the limits of a host, with how well they are known: some are in no document."""
    vm = load_catalog().vms.get(host["name"])
    inferred = vm.inferred if vm else {}
    for path in ("cached", "uncached"):
        known = _known(inferred[path]) if path in inferred else ranges().limits[f"vm {path}"]
        yield f"vm {path}", known, host[path]
    parts: dict[str, list[dict[str, Any]]] = {}
    for disk in _disks(host):
        for limit in disk["limits"]:
            own = f"nvme.{_nvme_field(limit)}"
            stated = "nvme" if disk["medium"] == "nvme" else "disk"
            is_own = disk["medium"] == "nvme" and own in inferred
            parts.setdefault(own if is_own else stated, []).append(limit)
    for name, limits in parts.items():
        yield name, _known(inferred[name]) if name in inferred else ranges().limits[name], limits


def _nvme_field(limit: Mapping[str, Any]) -> str:
    """Return the key of `NvmeFacts` that a limit of a disk follows from."""
    scope = "" if limit["scope"] == "all" else f"{limit['scope']}_"
    return f"total_{scope}{'iops' if limit['unit'] == 'ios' else 'mb_per_s'}"


def _known(inferred: Inferred) -> Known:
    return Known(within=float(inferred.within), because=inferred.because)


def _service_band(facts: DistributionFacts) -> Known:
    """Return how well service times are known: as their measurements say, else by status."""
    if facts.within is not None and facts.note is not None:
        return Known(within=float(facts.within), because=facts.note)
    return ranges().service_times[facts.status]


def _service_time(
    latency: Mapping[str, Any], operation: str
) -> tuple[str, DistributionFacts] | None:
    """Return the catalogue's name and facts of a distribution; None: it is not the catalogue's."""
    times = latency[operation]
    points = tuple((ppm, ns) for ppm, ns in times["quantiles_ppm_ns"])
    return _names().get((operation, points, times["per_kib_ns"]))


Times = tuple[str, tuple[tuple[int, int], ...], int]


@cache
def _names() -> dict[Times, tuple[str, DistributionFacts]]:
    catalog = load_catalog()
    found: dict[Times, tuple[str, DistributionFacts]] = {}
    for name, facts in catalog.latencies.items():
        profile = latency_profile(catalog, name)
        for operation in ("read", "write", "flush"):
            times = getattr(profile, operation)
            points = tuple((ppm, ns) for ppm, ns in times.quantiles_ppm_ns)
            key = (operation, points, times.per_kib_ns)
            plural = "flushes" if operation == "flush" else f"{operation}s"
            found.setdefault(key, (f"{name} {plural}", getattr(facts, operation)))
    return found
