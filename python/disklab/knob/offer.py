"""What the page offers to choose, taken from the catalogue, the calibrations and the databases.

Nothing here is a second catalogue: limits, service times, prices, memory plans and refusals are
those that a prediction would have, asked of the same functions. What follows from amounts that the
reader chooses is asked with unknown ones (`trace`), and is data too, which `jobs.js` evaluates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, cast

import yaml

from disklab import spec
from disklab.catalog import (
    Caching,
    Catalog,
    DiskEntry,
    HostRequest,
    Places,
    VmEntry,
    VolumeRequest,
    cpu_speed,
    resolve,
)
from disklab.catalog.facts import GIB, PriceFormula
from disklab.catalog.load import cite
from disklab.catalog.price import DEFAULT_TERMS, REGIONS, Price, io_charge, list_price, vm_price
from disklab.catalog.profile import latency_profile
from disklab.catalog.provisioning import Terms, provision, uncached_limits
from disklab.catalog.quantity import DiskExpression
from disklab.catalog.resolve import (
    AttachedDisks,
    count_problems,
    host_profile,
    size_problems,
    vendor_problems,
)
from disklab.database_facts import facts_of
from disklab.databases.calibration import Calibration, cpu_costs, package_calibration
from disklab.databases.registry import simulated_of
from disklab.databases.simulating import Job, network
from disklab.databases.yugabytedb.simulated import caches
from disklab.errors import Problem, UserError
from disklab.knob.trace import traced
from disklab.prediction.cells import prepare
from disklab.spec.amounts import only
from disklab.spec.feasible import LARGER, impossible, larger, too_large
from disklab.spec.located import Site
from disklab.spec.model import Dataset
from disklab.spec.payloads import RowShape, row_shape

Json = dict[str, Any]
Tree = Any
"""What a rule says of every choice: `trace.traced`."""
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
database: {{engine: {engine}, replication_factor: {copies}, settings: {settings}}}
dataset: {{rows: {rows}, row: 2 x 40B}}
workload:
  operations: {{read: 50%, write: 50%}}
  load: {{threads: {threads}}}
  stop: {{operations: {operations}}}
"""

COURSE = "warm_up: 300s, stop: {duration: 1800s}"
"""Of sysbench, as in the study of YugabyteDB."""

SYSBENCH = """\
title: Base
cluster:
  nodes: {nodes}
  vm: {vm}
  volumes:
    data: {{disks: {disks}, filesystem: xfs}}
database: {{engine: yugabytedb, replication_factor: {copies}}}
workload: {{sysbench: {{script: {script}, tables: {tables}, rows_per_table: {rows},
  threads: {threads}}}, {course}}}
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


USUAL = {
    **{"nodes": 1, "copies": 1, "rows": 1000, "threads": 1, "tables": 1},
    **{"settings": "{}", "script": SCRIPTS[0], "operations": OPERATIONS},
}
"""What a base experiment has where nothing else is asked for."""


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
        **_shared_rules(catalog),
        "operations": OPERATIONS,
        "seconds": SECONDS,
        "presets": studies,
        "scenes": shown,
    }


def _shared_rules(catalog: Catalog) -> Json:
    """Return refusals of a volume that hold for every VM and disk, and of amounts out of bounds."""
    own = next(vm for vm in catalog.vms.values() if vm.facts.nvme is not None)
    other = next(entry for entry in catalog.disks.values() if entry.vendor != own.vendor)
    nvme = own.facts.nvme
    assert nvme is not None

    def too_many(name: str) -> Tree:
        def rule(count: int, most: int, vm: str, source: str, disk: str) -> Tree:
            facts = {"max_data_disks": most, "nvme": nvme.model_copy(update={"count": most})}
            entry = replace(own, name=str(vm), facts=own.facts.model_copy(update=facts))
            disks = DiskExpression(str(disk) if name == "data" else name, count)
            there = AttachedDisks()
            return [*map(_problem, count_problems(entry, disks, there, PLACES.disks, str(source)))]

        return traced(rule, "count", "most", "vm", "source", "disk")

    def of_another(vm: str, own_vendor: str, disk: str, vendor: str, disks: str) -> Tree:
        entry, server = (
            replace(other, name=f"{vendor}/{disk}"),
            replace(own, name=f"{own_vendor}/{vm}"),
        )
        problems = vendor_problems(server, entry, DiskExpression(str(disks)), PLACES.disks)
        return [*map(_problem, problems)]

    def too_much(size_bytes: int, count: int, disk: str) -> Tree:
        disks = DiskExpression(str(disk), count)
        return [*map(_problem, size_problems(disks, size_bytes, PLACES.disks))]

    return {
        "too_many": {name: too_many(name) for name in ("data", *LOCAL)},
        "of_another": traced(of_another, "vm", "own_vendor", "disk", "vendor", "disks"),
        "too_much": traced(too_much, "size_bytes", "count", "disk"),
        "cached_local": {
            name: next(
                problems
                for vm in catalog.vms
                if (problems := _refusals(catalog, vm, name, PLACES.caching, "ReadOnly"))
            )
            for name in LOCAL
        },
        "ends": {
            "rows": {key: _ends(catalog, BASE, key) for key in ENDS},
            "sysbench": {key: _ends(catalog, SYSBENCH, key) for key in (*ENDS, "tables")},
        },
    }


ENDS = ("nodes", "copies", "rows", "threads")
"""Amounts that an experiment file bounds."""


def _ends(catalog: Catalog, text: str, key: str) -> Json:
    """Return what a file says of an amount that is no number, too small or too large."""
    vm = next(iter(catalog.vms.values()))
    own = {"vm": vm.name, "disks": _usual(catalog, vm), "engine": "cassandra", "course": COURSE}

    def refusal(value: str) -> Json:
        filled = text.format(**{**USUAL, **own, key: value})
        (first, *_) = _refused(lambda: spec.parse(filled, Path("knob.yaml")))
        return {**first, "place": first["place"].partition(": ")[2]}

    broken = {"whole": refusal("x"), "below": refusal("0"), "above": refusal("9" * 15)}
    return {**broken, "most": int(broken["above"]["rule"].rpartition(" ")[2])}


def scenes() -> list[Json]:
    """Return what the page opens with: an idea with one slider each."""
    return cast("list[Json]", _listed("knob/scenes.yaml"))


def _listed(file: str) -> Any:
    return yaml.safe_load((resources.files("disklab") / file).read_text(encoding="utf-8"))


def _generation(vm: str) -> int:
    """Return a sorting key: the newest generation of each vendor first."""
    number = re.search(r"_v(\d+)$", vm) or re.search(r"/[a-z]+(\d+)", vm)
    return -int(number[1]) if number else 0


def presets() -> list[Json]:
    """Return the studies as choices, each with the points that were published."""
    listed: list[Json] = _listed("knob/presets.yaml")
    published = _listed("reference/published.yaml")
    for preset in listed:
        if (row := preset["base"].pop("row", None)) is not None:
            shape = row_shape(row)
            preset["base"] |= {"columns": shape.columns, "bytes": shape.column_bytes}
        for points in preset["published"].values():
            paths = points.pop("paths", None) or [points.pop("path")]
            points["rate"] = [rate for path in paths for rate in _at(published, path)]
    return listed


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


def _problem(problem: Problem, larger: str = LARGER) -> Json:
    return {
        "place": problem.place.removeprefix("knob.yaml: "),
        "value": problem.value,
        "rule": problem.rule,
        "way_out": problem.way_out.replace(LARGER, larger),
    }


def _refused(ask: Callable[[], object]) -> list[Json]:
    try:
        ask()
    except UserError as error:
        return [_problem(problem) for problem in error.problems]
    return []


def _refusals(
    catalog: Catalog, vm: str, disks: str, place: str = "", caching: Caching = "None"
) -> list[Json]:
    """Return why a VM does not take these disks; `place`: only what is wrong there."""
    request = VolumeRequest(disks, caching=caching)
    problems = _refused(partial(resolve, catalog, HostRequest(vm), request, None, PLACES))
    return [problem for problem in problems if problem["place"] == (place or problem["place"])]


def _first(catalog: Catalog, fits: Callable[[DiskEntry], object]) -> str:
    """Return the first disk of the catalogue that fits; empty: none does."""
    return next((name for name, entry in catalog.disks.items() if fits(entry)), "")


def _usual(catalog: Catalog, vm: VmEntry) -> str:
    """Return a small disk of the VM's vendor, for questions about the VM alone."""
    own = _first(catalog, lambda e: e.vendor == vm.vendor and not e.family.needs_premium_storage)
    sizes = catalog.disks[own].facts.size_gib
    return own if sizes.fixed else f"{own}({sizes.least}GiB)"


def _vm(
    catalog: Catalog, vm: VmEntry, engines: Mapping[str, Json], plans: dict[Shape, Json | None]
) -> Json:
    profile = host_profile(catalog, vm, HostRequest(vm.name)).model_dump(mode="json")
    cache = profile["cache"]
    if cache is not None:
        cache["latency"] = vm.series.latency["host_cache"]

    facts, caps = vm.facts, vm.series.caps
    least = {name: catalog.disks[name].facts.size_gib.least for name in caps}
    premium = _first(catalog, lambda e: e.vendor == vm.vendor and e.family.needs_premium_storage)
    cached = _first(
        catalog, lambda e: e.family.host_cache_max_gib and not e.family.needs_premium_storage
    )
    price = vm_price(catalog, vm.name, region=REGIONS.get(vm.vendor, ""))
    made: Json = {
        "cores": facts.vcpu,
        "speed": cpu_speed(catalog, vm.name).value,
        "memory_bytes": int((facts.mem_gib or 0) * GIB),
        "network_bytes_per_s": network(facts.net_mbit_per_s),
        "cached": profile["cached"],
        "uncached": profile["uncached"],
        "caps": {
            name: [
                limit.model_dump(mode="json") for limit in uncached_limits(vm, Fraction(1), name)
            ]
            for name, cap in caps.items()
            if cap
        },
        "refused": {
            name: _refusals(catalog, vm.name, f"{name}({least[name]}GiB)")
            for name, cap in caps.items()
            if cap is None
        },
        "cache": cache,
        "most_disks": facts.max_data_disks,
        "source": cite(catalog, vm.series.provenance),
        "larger": traced(lambda count: larger(vm, DiskExpression("nvme", count)), "count"),
        "usd": price.usd_per_month if isinstance(price, Price) else None,
        "local": {name: _local(catalog, vm, name) for name in LOCAL},
        "nvme_disks": facts.nvme.count if facts.nvme else 0,
        "caching": _refusals(catalog, vm.name, cached, PLACES.caching, "ReadOnly"),
        "premium": _refusals(catalog, vm.name, premium, PLACES.vm) if premium else [],
    }
    for engine, usual in engines.items():
        # VMs of one memory and as many vCPUs get one plan.
        shape = (engine, facts.vcpu, facts.mem_gib)
        if shape not in plans:
            plans[shape] = _memory_of(catalog, vm, engine, usual)
        made[engine] = plans[shape]
    return made


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


def _disk(catalog: Catalog, entry: DiskEntry) -> Json:
    facts, family = entry.facts, entry.family
    has = {
        name: bool(rate and rate.choosable)
        for name, rate in (("iops", facts.iops), ("mbps", facts.mb_per_s))
    }

    def asked(size: int, iops: int, mbps: int, count: int) -> DiskExpression:
        return DiskExpression(
            entry.name,
            count,
            None if facts.size_gib.fixed else size * GIB,
            (iops or None) if has["iops"] else None,
            mbps * family.mb_bytes if has["mbps"] and mbps else None,
        )

    def bought(*amounts: int) -> Json:
        try:
            disk = provision(catalog, asked(*amounts), Terms(PLACES.disks))
        except UserError as error:
            return {"problems": [*map(_problem, error.problems)]}
        limits = [limit.model_dump(mode="json") for limit in disk.profile.limits]
        return {
            "name": entry.name,
            "medium": family.medium,
            "limits": limits,
            "bought": [disk.size_bytes, disk.iops, disk.bytes_per_s],
        }

    choice = ("size", "iops", "mbps", "count")
    return {
        "vendor": entry.vendor,
        "has": {"size": not facts.size_gib.fixed, **has},
        "written": traced(lambda *amounts: str(asked(*amounts)), *choice),
        "bought": traced(bought, *choice),
        "latency": family.latency,
        "premium": family.needs_premium_storage,
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
    return _refusals(catalog, host, f"{entry.name}{size}", PLACES.caching, "ReadOnly")


def _disk_usd(catalog: Catalog, entry: DiskEntry) -> Tree:
    """Return what a disk costs a month, by its bytes, IOPS and bytes a second."""
    listed = list_price(catalog, entry, REGIONS.get(entry.vendor, ""), DEFAULT_TERMS)
    if listed is None:
        return None
    _, figure = listed
    if not isinstance(figure, PriceFormula):
        return float(figure + io_charge(catalog, entry)[0])

    def price(size: Any, iops: Any, bytes_: Any) -> Tree:
        mb_bytes = Fraction(entry.family.mb_bytes)
        return {"usd": figure.at(size / Fraction(GIB), iops, bytes_ / mb_bytes)}

    return traced(price, "size", "iops", "bytes")


def _job(catalog: Catalog, text: str, engine: str | None) -> Job:
    """Return the job of an experiment file that has one trial."""
    (trial,) = spec.parse(text, Path("knob.yaml")).trials("predict")
    calibration = package_calibration(engine) if engine else None
    return prepare(trial, catalog, calibration, "knob.yaml").needed()


def _text(catalog: Catalog, engine: str, vm: str, settings: str = "{}") -> str:
    """Return the base experiment of a database."""
    own = {**USUAL, "vm": vm, "engine": engine, "settings": settings}
    return BASE.format(disks=_usual(catalog, catalog.vms[vm]), **own)


def _base(catalog: Catalog, engine: str, vm: str) -> Job:
    """Return the job of the base experiment."""
    return _job(catalog, _text(catalog, engine, vm), engine)


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
    return {**of_vm, "database": _differing(usual["database"], part["database"])}


def _differing(usual: Json, other: Json) -> Json:
    return {key: value for key, value in other.items() if usual.get(key) != value}


class _Rows(Dataset):
    """Rows of a shape that is chosen later."""

    chosen: Any = None

    @property
    def shape(self) -> RowShape:
        """Return what was chosen."""
        return cast("RowShape", self.chosen)


class _Unwritten:
    """Places of values that stand in no file yet: the `Site` of a choice."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def place(self, key: tuple[str, ...]) -> str:
        """Return the key."""
        return ".".join(key)

    def text(self, _: tuple[str, ...]) -> str:
        """Return the rows, the one value that a refusal quotes."""
        return str(self.rows)


AMOUNTS = (
    *("nodes", "copies", "rows", "columns", "bytes", "read", "threads", "rate_per_ks", "slots"),
    *("tables", "size_bytes", "disks", "vm", "larger"),
)
"""Of a choice, by the names of jobs.js; the last three are words."""


def _answers(catalog: Catalog, engine: str, text: str) -> Json:
    """Return the jobs of choices with an experiment file's other values, and why some have none.

    The VM is the file's: `_memory_of` has what follows from another.
    """
    (trial,) = spec.parse(text, Path("knob.yaml")).trials("predict")
    base, model = only(spec.ClusterTrial, trial.spec), simulated_of(engine)
    calibration = package_calibration(engine)
    assert model is not None

    def chosen(amounts: tuple[Any, ...]) -> tuple[spec.ClusterTrial, Json]:
        choice = dict(zip(AMOUNTS, amounts, strict=True))
        return _chosen(base, choice), choice

    def impossible_(*amounts: Any) -> Tree:
        trial, choice = chosen(amounts)
        named = trial.cluster.volumes["data"].model_copy(update={"disks": str(choice["disks"])})
        cluster = {"vm": str(choice["vm"]), "volumes": {"data": named}}
        there = trial.model_copy(update={"cluster": trial.cluster.model_copy(update=cluster)})
        site = cast("Site", _Unwritten(choice["rows"]))
        problems = [*impossible(trial, site), *too_large(there, choice["size_bytes"], site)]
        return [_problem(problem, str(choice["larger"])) for problem in problems]

    def unmodelled(*amounts: Any) -> Tree:
        return [*map(_problem, model.unmodelled(chosen(amounts)[0], "knob.yaml"))]

    def job(*amounts: Any) -> Tree:
        return model.job(chosen(amounts)[0], catalog, calibration)

    rules = {"impossible": impossible_, "unmodelled": unmodelled, "job": job}
    return {name: traced(rule, *AMOUNTS) for name, rule in rules.items()}


def _chosen(base: spec.ClusterTrial, choice: Mapping[str, Any]) -> spec.ClusterTrial:
    """Return a trial with the amounts of a choice."""
    work, data, database = base.workload, base.dataset, base.database
    changed: Json = {"cluster": base.cluster.model_copy(update={"nodes": choice["nodes"]})}
    copies = choice["nodes"] if facts_of(database.engine).in_page else choice["copies"]
    settings = database.settings
    if database.engine == "cassandra" and choice["slots"]:
        slots = dict.fromkeys(("concurrent_reads", "concurrent_writes"), choice["slots"])
        settings = {**settings, **slots}
    of_database = {"replication_factor": copies, "settings": settings}
    changed["database"] = database.model_copy(update=of_database)
    if data is not None and work.operations is not None and work.load is not None:
        shape = RowShape(choice["columns"], choice["bytes"])
        row = f"{choice['columns']} x {choice['bytes']}B"
        changed["dataset"] = _Rows.model_construct(rows=choice["rows"], row=row, chosen=shape)
        load: Json = {"threads": choice["threads"]}
        if choice["rate_per_ks"]:
            load = {"threads": None, "rate_per_s": choice["rate_per_ks"] / Fraction(1000)}
        shares = {"read": choice["read"] / 100, "write": (100 - choice["read"]) / 100}
        of_work = {
            "operations": work.operations.model_copy(update=shares),
            "load": work.load.model_copy(update=load),
        }
        changed["workload"] = work.model_copy(update=of_work)
    if work.sysbench is not None:
        run = {"tables": choice["tables"], "rows_per_table": choice["rows"]}
        sysbench = work.sysbench.model_copy(update={**run, "threads": choice["threads"]})
        changed["workload"] = work.model_copy(update={"sysbench": sysbench})
    return base.model_copy(update=changed)


def _yugabytedb(catalog: Catalog) -> Json:
    """Return YugabyteDB under sysbench: its jobs, and what of them a node's memory decides."""
    calibration, vm = package_calibration("yugabytedb"), next(iter(catalog.vms.values()))
    own = {**USUAL, "vm": vm.name, "disks": _usual(catalog, vm), "course": COURSE}

    def memory(memory_bytes: int, threads: int, nodes: int) -> Json:
        block_cache, page_cache = caches(memory_bytes, threads / nodes, calibration)
        return {"block_cache_bytes": block_cache, "page_cache_bytes": page_cache}

    return {
        "title": facts_of("yugabytedb").title,
        "key": "sql",
        "answers": {
            script: _answers(catalog, "yugabytedb", SYSBENCH.format(**{**own, "script": script}))
            for script in SCRIPTS
        },
        "memory": traced(memory, "memory_bytes", "threads", "nodes"),
        "course": COURSE,
        "costs": _costs(catalog, calibration),
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
    return {
        "title": facts.title,
        "key": key,
        "database": job[key]["database"],
        "log_volume": facts.log_volumes[0],
        "whole": facts.in_page is not None,
        "costs": _costs(catalog, calibration),
        "settings": {
            name: {
                "text": text,
                "answers": _answers(catalog, engine, _text(catalog, engine, vm, settings=text)),
            }
            for name, text in named.items()
        },
    }


def _base_of_device(catalog: Catalog) -> Job:
    vm = next(iter(catalog.vms.values()))
    text = DEVICE.format(vm=vm.name, disks=_usual(catalog, vm), seconds=SECONDS)
    part: Job = _job(catalog, text, None)["device"]
    return part
