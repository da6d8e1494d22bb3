"""What the page offers to choose, taken from the catalogue, the calibrations and the databases.

Nothing here is a second catalogue: limits, service times, prices, memory plans and refusals are
those that a prediction would have, asked of the same functions. The page puts them together by the
rules of `jobs.js`, which tests hold against `prediction.cells.prepare`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from disklab import spec
from disklab.catalog import (
    Catalog,
    DiskEntry,
    HostRequest,
    Places,
    VmEntry,
    VolumeRequest,
    cpu_speed,
    resolve,
)
from disklab.catalog.facts import GIB, Burst, Formula, PriceFormula, Rate
from disklab.catalog.load import cite
from disklab.catalog.price import DEFAULT_TERMS, REGIONS, Price, io_charge, list_price, vm_price
from disklab.catalog.profile import latency_profile
from disklab.catalog.resolve import MOST_VOLUME_BYTES, host_profile
from disklab.database_facts import facts_of, in_page
from disklab.databases.calibration import Calibration, cpu_costs, package_calibration
from disklab.databases.simulating import Job, network
from disklab.databases.statements import STATUS
from disklab.databases.yugabytedb.simulated import caches
from disklab.errors import Problem, UserError
from disklab.prediction.cells import prepare
from disklab.spec.payloads import row_shape
from disklab.spec.procedures import Load

Json = dict[str, Any]
Shape = tuple[str, int, float | None]

VOLUME = "cluster.volumes.data"
PLACES = Places(
    disks=f"{VOLUME}.disks",
    vm="cluster.vm",
    caching=f"{VOLUME}.caching",
    chunk=f"{VOLUME}.stripe",
    size=f"{VOLUME}.size",
    latency=f"{VOLUME}.latency",
    host_cache="cluster.host_cache",
    scale="rehearse.scale",
)
"""How an experiment file names each part; a message begins with the file and its line besides."""

OF_ROWS = ("cassandra", "postgresql", "mariadb", "mysql")
"""Databases whose rows, row size, mixture and threads the page turns."""

LOCAL = ("local", "nvme")

USUAL_VM = "aws/r8g.2xlarge"
"""That the page begins with (`USUAL` of jobs.js)."""

BASE = """\
title: Base
cluster:
  nodes: {nodes}
  vm: {vm}
  volumes:
    data: {{disks: {disks}, filesystem: xfs}}
database: {{engine: {engine}, replication_factor: {nodes}, settings: {settings}}}
dataset: {{rows: 1000, row: {row}}}
workload:
  operations: {{read: 50%, write: 50%}}
  load: {{threads: 1}}
  stop: {{operations: {operations}}}
"""

COURSE = "warm_up: 300s, stop: {duration: 1800s}"
"""Of sysbench, as in the study of YugabyteDB."""

SYSBENCH = """\
title: Base
cluster:
  nodes: 1
  vm: {vm}
  volumes:
    data: {{disks: {disks}, filesystem: xfs}}
database: {{engine: yugabytedb, replication_factor: 1}}
workload: {{sysbench: {{script: {script}, tables: 1, rows_per_table: 1000, threads: 1}}, {course}}}
"""
SCRIPTS = ("oltp_read", "oltp_insert")

DEVICE = """\
title: Base
device: {{vm: {vm}, volume: {{disks: {disks}}}}}
workload: {{fio: {{rw: randread, bs: 4k, jobs: 1, depth: 1}}, stop: {{duration: {seconds}s}}}}
"""

OPERATIONS = 3_000_000
"""That a measurement of the page has: the studies' own number, and enough that a sketch of it is a
two hundred and fiftieth."""

SECONDS = 60
"""Of fio on a device, as in the study of local disks."""


def offer(catalog: Catalog, vms: frozenset[str] | None = None) -> Json:
    """Return everything that the page lets its reader choose, as JSON.

    `vms`: those that are offered beside the studies' own; None: all.
    """
    studies, shown = presets(), scenes()
    engines = {engine: _engine(catalog, engine) for engine in OF_ROWS}
    plans: dict[Shape, Json | None] = {}
    usual = {USUAL_VM, *(scene["choice"]["vm"] for scene in shown), *_vms_of(studies)}
    wanted = catalog.vms.keys() if vms is None else {*vms, *usual}
    return {
        "vms": {
            name: _vm(catalog, catalog.vms[name], engines, plans)
            for name in sorted(catalog.vms, key=_generation)
            if name in wanted
        },
        "disks": {name: _disk(catalog, entry) for name, entry in catalog.disks.items()},
        "latencies": {
            name: latency_profile(catalog, name).model_dump(mode="json")
            for name in sorted(_latencies(catalog))
        },
        "engines": {**engines, "yugabytedb": _yugabytedb(catalog)},
        "device": _base_of_device(catalog),
        "most_volume_bytes": MOST_VOLUME_BYTES,
        "operations": OPERATIONS,
        "seconds": SECONDS,
        "regions": REGIONS,
        "presets": studies,
        "scenes": shown,
    }


def scenes() -> list[Json]:
    """Return what the page opens with: an idea with one slider each."""
    text = (resources.files("disklab") / "knob/scenes.yaml").read_text(encoding="utf-8")
    listed: list[Json] = yaml.safe_load(text)
    return listed


def _generation(vm: str) -> int:
    """Return a sorting key: the newest generation of each vendor first."""
    number = re.search(r"_v(\d+)$", vm) or re.search(r"/[a-z]+(\d+)", vm)
    return -int(number[1]) if number else 0


def presets() -> list[Json]:
    """Return the studies as choices, each with the points that were published."""
    folder = resources.files("disklab")
    listed = yaml.safe_load((folder / "knob/presets.yaml").read_text(encoding="utf-8"))
    published = yaml.safe_load((folder / "reference/published.yaml").read_text(encoding="utf-8"))
    for preset in listed:
        if (row := preset["base"].pop("row", None)) is not None:
            shape = row_shape(row)
            preset["base"] |= {"columns": shape.columns, "bytes": shape.column_bytes}
        for points in preset["published"].values():
            paths = points.pop("paths", None) or [points.pop("path")]
            points["rate"] = [rate for path in paths for rate in _at(published, path)]
    found: list[Json] = listed
    return found


def _vms_of(studies: list[Json]) -> Iterator[str]:
    for side in (study[part] for study in studies for part in ("base", "a", "b")):
        yield from (side[key] for key in ("vm", "client") if side.get(key))


def _at(published: Any, path: str) -> list[float | None]:
    for step in path.split("/"):
        published = published[int(step) if step.isdecimal() else step]
    return published if isinstance(published, list) else [published]


def _latencies(catalog: Catalog) -> set[str]:
    of_disks = (name for family in catalog.families.values() for name in family.latency.values())
    of_vms = (name for vm in catalog.vms.values() for name in vm.series.latency.values())
    return {*of_disks, *of_vms}


def _problem(problem: Problem) -> Json:
    return {
        "place": problem.place,
        "value": problem.value,
        "rule": problem.rule,
        "way_out": problem.way_out,
    }


def _refused(ask: Callable[[], object]) -> list[Json]:
    try:
        ask()
    except UserError as error:
        return [_problem(problem) for problem in error.problems]
    return []


def _usual(catalog: Catalog, vm: VmEntry) -> str:
    """Return a small disk of the VM's vendor, for questions about the VM alone."""
    return next(
        f"{name}({entry.facts.size_gib.least}GiB)" if not entry.facts.size_gib.fixed else name
        for name, entry in catalog.disks.items()
        if entry.vendor == vm.vendor and not entry.family.needs_premium_storage
    )


def _vm(
    catalog: Catalog, vm: VmEntry, engines: Mapping[str, Json], plans: dict[Shape, Json | None]
) -> Json:
    profile = host_profile(catalog, vm, HostRequest(vm.name)).model_dump(mode="json")
    cache = profile["cache"]
    if cache is not None:
        cache["latency"] = vm.series.latency["host_cache"]

    def refusals(disks: str, caching: str = "None") -> list[Json]:
        request = VolumeRequest(disks, caching=caching)  # type: ignore[arg-type]
        return _refused(partial(resolve, catalog, HostRequest(vm.name), request, None, PLACES))

    premium = next(
        (
            name
            for name, entry in catalog.disks.items()
            if entry.vendor == vm.vendor and entry.family.needs_premium_storage
        ),
        None,
    )
    cached = next(
        (
            name
            for name, entry in catalog.disks.items()
            if entry.family.host_cache_max_gib and not entry.family.needs_premium_storage
        ),
        "",
    )
    facts = vm.facts
    made: Json = {
        "cores": facts.vcpu,
        "speed": cpu_speed(catalog, vm.name).value,
        "memory_gib": facts.mem_gib,
        "network_bytes_per_s": network(facts.net_mbit_per_s),
        "cached": profile["cached"],
        "uncached": profile["uncached"],
        "cache": cache,
        "most_disks": facts.max_data_disks,
        "source": cite(catalog, vm.series.provenance),
        "retires": vm.series.retires,
        "usd": _usd(catalog, vm),
        "local": {name: _local(catalog, vm, name) for name in LOCAL},
        "nvme_disks": facts.nvme.count if facts.nvme else 0,
        "caching": [
            problem
            for problem in refusals(cached, "ReadOnly")
            if problem["place"] == PLACES.caching
        ],
        "premium": [
            problem
            for problem in (refusals(premium) if premium else [])
            if problem["place"] == PLACES.vm
        ],
    }
    for engine, usual in engines.items():
        # VMs of one memory and as many vCPUs get one plan.
        shape = (engine, facts.vcpu, facts.mem_gib)
        if shape not in plans:
            plans[shape] = _memory_of(catalog, vm, engine, usual)
        made[engine] = plans[shape]
    made["yugabytedb"] = _memory_of_yugabytedb(vm)
    return made


def _usd(catalog: Catalog, vm: VmEntry) -> float | None:
    price = vm_price(catalog, vm.name, region=REGIONS.get(vm.vendor, ""))
    return price.usd_per_month if isinstance(price, Price) else None


def _local(catalog: Catalog, vm: VmEntry, name: str) -> Json:
    """Return a disk that the VM brings along, or why it has none."""
    request = VolumeRequest(name)
    try:
        made = resolve(catalog, HostRequest(vm.name), request, None, PLACES)
    except UserError as error:
        return {"problems": [_problem(problem) for problem in error.problems]}
    disk = made.volume.disks[0].model_dump(mode="json")
    path = {"local": "temp", "nvme": "nvme"}[name]
    return {
        "disk": {**disk, "latency": vm.series.latency[path]},  # type: ignore[index]
        "size_bytes": made.volume.size_bytes,
    }


def _rational(amount: Any) -> list[int]:
    exact = Fraction(amount)
    return [exact.numerator, exact.denominator]


def _formula(formula: Formula | None) -> Json | None:
    if formula is None:
        return None
    steps = formula.steps or []
    return {
        "value": None if formula.value is None else _rational(formula.value),
        "per_gib": None if formula.per_gib is None else _rational(formula.per_gib),
        "per_iops": None if formula.per_iops is None else _rational(formula.per_iops),
        "at_least": _rational(formula.at_least),
        "at_most": None if formula.at_most is None else _rational(formula.at_most),
        "steps": [[step.up_to_gib, _rational(step.value)] for step in steps],
        "text": str(formula),
    }


def _rate(rate: Rate | None) -> Json | None:
    if rate is None:
        return None
    return {
        "included": _formula(rate.included),
        "of_vm": rate.of_vm,
        "least": _formula(rate.least),
        "most": _formula(rate.most),
    }


def _burst(burst: Burst | None) -> Json | None:
    if burst is None:
        return None
    formulas = {name: _formula(getattr(burst, name)) for name in ("mb_per_s", "credit_mb")}
    return {**burst.model_dump(mode="json"), **formulas}


def _disk(catalog: Catalog, entry: DiskEntry) -> Json:
    facts, family = entry.facts, entry.family
    return {
        "vendor": entry.vendor,
        "title": family.title,
        "medium": family.medium,
        "size_gib": facts.size_gib.model_dump(mode="json"),
        "iops": _rate(facts.iops),
        "mb_per_s": _rate(facts.mb_per_s),
        "iops_per_mb_per_s": facts.iops_per_mb_per_s,
        "mb_bytes": family.mb_bytes,
        "io_unit_bytes": family.io_unit_bytes,
        "read_iops": _formula(facts.read_iops),
        "write_iops": _formula(facts.write_iops),
        "read_mb_per_s": _formula(facts.read_mb_per_s),
        "write_mb_per_s": _formula(facts.write_mb_per_s),
        "burst": _burst(facts.credit_burst),
        "latency": family.latency,
        "premium": family.needs_premium_storage,
        "sources": {
            field: cite(catalog, family.provenance, field)
            for field in ("default", "iops", "mb_per_s")
        },
        "caching": _uncached(catalog, entry),
        "usd": _disk_usd(catalog, entry),
    }


def _uncached(catalog: Catalog, entry: DiskEntry) -> list[Json]:
    """Return why a disk cannot use any host cache; one of a size that is chosen: at its largest."""
    host = next(
        vm.name
        for vm in catalog.vms.values()
        if vm.series.host_cache == "supported" and vm.series.premium_storage and vm.facts.cached
    )
    size = "" if entry.facts.size_gib.fixed else f"({entry.facts.size_gib.most}GiB)"
    request = VolumeRequest(f"{entry.name}{size}", caching="ReadOnly")
    refused = _refused(partial(resolve, catalog, HostRequest(host), request, None, PLACES))
    return [problem for problem in refused if problem["place"] == PLACES.caching]


def _disk_usd(catalog: Catalog, entry: DiskEntry) -> Json | None:
    """Return what a disk costs a month: a figure, or the parts of its formula."""
    listed = list_price(catalog, entry, REGIONS.get(entry.vendor, ""), DEFAULT_TERMS)
    if listed is None:
        return None
    _, figure = listed
    if isinstance(figure, PriceFormula):
        return {name: float(amount) for name, amount in figure.model_dump().items()}
    return {"fixed": float(figure + io_charge(catalog, entry)[0])}


def _job(catalog: Catalog, text: str, engine: str | None) -> Job:
    """Return the job of an experiment file that has one trial."""
    (trial,) = spec.parse(text, Path("knob.yaml")).trials("predict")
    calibration = package_calibration(engine) if engine else None
    return prepare(trial, catalog, calibration, "knob.yaml").needed()


def _base(catalog: Catalog, engine: str, vm: str, **changed: object) -> Job:
    """Return the job of the base experiment; `changed`: its settings, nodes or row."""
    own = {"settings": "{}", "nodes": 1, "row": "2 x 40B", "operations": OPERATIONS, **changed}
    text = BASE.format(vm=vm, disks=_usual(catalog, catalog.vms[vm]), engine=engine, **own)
    return _job(catalog, text, engine)


def _costs(catalog: Catalog, calibration: Calibration) -> Json:
    """Return CPU times, and the speeds of the vCPUs that they were measured on."""
    series = {"server": calibration.server_vm, "client": calibration.client_vm}
    return {
        "values": cpu_costs(calibration.values()),
        "speeds": {who: cpu_speed(catalog, vm).value for who, vm in series.items() if vm},
    }


def _memory_of(catalog: Catalog, vm: VmEntry, engine: str, usual: Json) -> Json | None:
    """Return what of a database's job follows from the VM; None: no such job can be made."""
    try:
        (part,) = _base(catalog, engine, vm.name).values()
    except UserError:
        return None
    cluster = part["cluster"]
    of_vm = {"page_cache_bytes": cluster["page_cache_bytes"]}
    if "collector" in cluster:
        return {**of_vm, "collector": cluster["collector"]}
    return {**of_vm, "database": _differing(usual["job"]["database"], part["database"])}


def _differing(usual: Json, other: Json) -> Json:
    return {key: value for key, value in other.items() if usual.get(key) != value}


MOST_SERVERS = 15
"""Of a database whose servers hold all rows each, on the page."""


def _servers(catalog: Catalog, engine: str) -> Json:
    """Return what the number of servers changes in a database's job, or why there are not so many.

    Of those whose servers hold all rows each.
    """
    vm, row = next(iter(catalog.vms)), "{} x {}B".format(*TOO_LONG)
    first = _base(catalog, engine, vm)

    def answer(nodes: int) -> Json:
        try:
            job = _base(catalog, engine, vm, nodes=nodes)
        except UserError as error:
            both = _refused(partial(_base, catalog, engine, vm, nodes=nodes, row=row))
            return {"problems": _unplaced(error), "alone": len(both) == len(error.problems)}
        ((usual, own),) = zip(first.values(), job.values(), strict=True)
        return {"database": _differing(usual["database"], own["database"])}

    return {str(nodes): answer(nodes) for nodes in range(1, MOST_SERVERS + 1)}


TOO_LONG = (31, 997)
"""Columns, and bytes of each, of a row that no server keeps in one page."""


def _too_long(catalog: Catalog, engine: str) -> Json:
    """Return why a row is too long, as a template of its columns, their bytes and its own."""
    columns, bytes_ = TOO_LONG
    layout = in_page(engine)
    try:
        _base(catalog, engine, next(iter(catalog.vms)), row=f"{columns} x {bytes_}B")
    except UserError as error:
        (problem,) = _unplaced(error)
    marks = {str(layout.of(columns, bytes_)): "{row}", str(columns): "{columns}"}
    marks[str(bytes_)] = "{bytes}"
    for text, mark in marks.items():
        problem = {key: part.replace(text, mark) for key, part in problem.items()}
    return problem


def _unplaced(error: UserError) -> list[Json]:
    """Return problems of a job without the file, which the page does not have."""
    problems = map(_problem, error.problems)
    return [{**one, "place": one["place"].removeprefix("knob.yaml: ")} for one in problems]


def _memory_of_yugabytedb(vm: VmEntry) -> Json:
    memory = int((vm.facts.mem_gib or 0) * GIB)
    return {
        "memory_bytes": memory,
        "block_cache_bytes": caches(memory, 0, package_calibration("yugabytedb"))[0],
    }


def _yugabytedb(catalog: Catalog) -> Json:
    """Return YugabyteDB under sysbench: its jobs, and what of them a node's memory decides."""
    calibration, vm = package_calibration("yugabytedb"), next(iter(catalog.vms.values()))
    disks = _usual(catalog, vm)
    jobs = {}
    for script in SCRIPTS:
        text = SYSBENCH.format(vm=vm.name, disks=disks, script=script, course=COURSE)
        jobs[script] = _job(catalog, text, "yugabytedb")["sql"]
    return {
        "title": facts_of("yugabytedb").title,
        "key": "sql",
        "job": jobs[SCRIPTS[0]],
        "transactions": {name: job["workload"]["transactions"] for name, job in jobs.items()},
        "status": STATUS,
        "course": COURSE,
        "tablets_per_node": calibration.fact("tablets_per_node"),
        "beside_bytes": calibration.fact("memory_beside_caches_bytes"),
        "connection_bytes": calibration.fact("memory_of_connection_bytes"),
        "least_ratio": calibration.ratio("least_page_cache_ratio"),
        "costs": _costs(catalog, calibration),
        "range": _range(calibration),
    }


SETTINGS: Mapping[str, str] = {
    "": "{}",
    "study of 2019": (
        "{commitlog_sync: periodic, commitlog_sync_period_in_ms: 10000, trickle_fsync: true, "
        "trickle_fsync_interval_in_kb: 10240, compaction_throughput_mb_per_sec: 128}"
    ),
}
"""Of Cassandra, by the name that the page gives them; its own defaults, and those of the studies of
2019 but for the slots, which are turned by themselves."""


def _engine(catalog: Catalog, engine: str) -> Json:
    facts, calibration = facts_of(engine), package_calibration(engine)
    vm = next(iter(catalog.vms))
    named = SETTINGS if engine == "cassandra" else {"": "{}"}
    job = _base(catalog, engine, vm)
    (key,) = job
    made: Json = {
        "title": facts.title,
        "key": key,
        "job": job[key],
        "log_volume": facts.log_volumes[0],
        "headroom": facts.headroom_ratio["size-tiered"],
        "stored": facts.stored.model_dump(mode="json"),
        "arrivals": Load.model_fields["arrivals"].default,
        "ownership_ppm": [],
        "max_in_flight": calibration.fact("max_in_flight"),
        "costs": _costs(catalog, calibration),
        "settings": {
            name: {
                "text": text,
                "database": _base(catalog, engine, vm, settings=text)[key]["database"],
            }
            for name, text in named.items()
        },
        "range": _range(calibration),
    }
    if facts.in_page is not None:
        made["row"] = facts.in_page.model_dump(mode="json")
        made["too_long"] = _too_long(catalog, engine)
        made["servers"] = _servers(catalog, engine)
    if "ownership_ppm" in calibration.physical:
        made["ownership_ppm"] = calibration.physical["ownership_ppm"].value
    return made


def _range(calibration: Calibration) -> Json:
    return calibration.range.model_dump(mode="json")


def _base_of_device(catalog: Catalog) -> Job:
    vm = next(iter(catalog.vms.values()))
    text = DEVICE.format(vm=vm.name, disks=_usual(catalog, vm), seconds=SECONDS)
    part: Job = _job(catalog, text, None)["device"]
    return part
