"""A configuration as an address of the simulator's page, where its knobs can be turned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import quote, urlencode

from pydantic import Field, ValidationError

from disklab.catalog import load_catalog, parse_disks
from disklab.catalog.facts import GIB
from disklab.errors import UserError
from disklab.results.figures import Amount, Count, Record

PAGE = "knob.html"
"""As `disklab knob` writes it, with every VM."""

SAYS = "what if? The simulator with this configuration; `disklab knob` opens it with every VM"
UNBUILT = (
    "Turn its knobs: run `disklab knob` once, which builds and opens the simulator as a page; "
    "pages written afterwards link to it"
)


class Data(Record):
    """A volume as the page has it."""

    disks: str
    caching: Literal["None", "ReadOnly", "ReadWrite"] = "None"
    latency: str | None = None
    read_ahead_bytes: Count | None = None


class Cluster(Record):
    """The nodes as the page has them."""

    nodes: Count
    vm: str
    volumes: dict[str, Data]


class Jvm(Record):
    """Of a Java database."""

    collector: str | None = None


class Database(Record):
    """What of a database has a knob."""

    engine: Literal["cassandra", "postgresql"]
    replication_factor: Count = 1
    settings: dict[str, Any] = Field(default_factory=dict)
    jvm: Jvm = Jvm()


class Dataset(Record):
    """The rows."""

    rows: Count
    columns: Count
    column_bytes: Count


class Operations(Record):
    """The mixture."""

    read: Amount


class Load(Record):
    """A rate or threads."""

    threads: Count | None = None
    rate_per_s: Amount | None = None


class Workload(Record):
    """What is done."""

    operations: Operations
    keys: Literal["uniform", "gaussian", "zipfian"] = "uniform"
    load: Load | None = None


class Client(Record):
    """Where the load comes from."""

    vm: str | None = None


class Before(Record):
    """The state that it begins in."""

    page_cache: str = "cold"
    host_cache: str = "written"
    credits_ratio: Amount = 1.0


class Configuration(Record):
    """What of a trial's specification the page has knobs for."""

    cluster: Cluster
    database: Database
    dataset: Dataset
    workload: Workload
    client: Client | None = None
    before: Before = Before()


def beside(page: str) -> str:
    """Return the name of the simulator's page that lies beside a page."""
    return f"{PurePosixPath(page).stem}.what-if.html"


def vms(specs: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the VMs of configurations, and those of their series."""
    catalog = load_catalog()
    parts = (spec.get(part) or {} for spec in specs for part in ("cluster", "client"))
    named = {str(part.get("vm")) for part in parts}
    series = {catalog.vms[name].series_name for name in named & catalog.vms.keys()}
    return frozenset(name for name, vm in catalog.vms.items() if vm.series_name in series)


def address(
    specs: Sequence[Mapping[str, Any]], promise_ms: float | None = None, page: str = PAGE
) -> str | None:
    """Return the page's address with one configuration or two; None: it has no such system."""
    if not specs:
        return None
    state = {}
    try:
        for side, spec in zip("ab", (specs[0], specs[-1]), strict=True):
            for key, value in _choice(Configuration.model_validate(spec)).items():
                state[f"{side}.{key}"] = value
    except (ValidationError, UserError, KeyError):
        return None
    if promise_ms is not None:
        state["promise"] = f"{promise_ms:g}"
    return f"{quote(page)}#{urlencode(state)}"


def left_out(spec: Mapping[str, Any]) -> list[str]:
    """Return what of a configuration the page has no knob for, in words."""
    collector = ((spec.get("database") or {}).get("jvm") or {}).get("collector")
    missing = [] if collector in (None, "g1") else [f"the collector {collector}"]
    compaction = ((spec.get("database") or {}).get("table") or {}).get("compaction")
    return [*missing, *([f"{compaction} compaction"] if compaction == "leveled" else [])]


def _choice(one: Configuration) -> dict[str, str]:
    """Return a configuration by the names of the page's knobs (`USUAL` of jobs.js)."""
    data, load = one.cluster.volumes["data"], one.workload.load or Load()
    ahead, cache = data.read_ahead_bytes, one.before.host_cache
    client = one.client.vm if one.client is not None else None
    found: dict[str, object] = {
        "engine": one.database.engine,
        "vm": one.cluster.vm,
        "client": "" if client in (None, one.cluster.vm) else client,
        "nodes": one.cluster.nodes,
        "copies": one.database.replication_factor,
        "caching": data.caching,
        "latency": data.latency or "",
        "ahead": -1 if ahead is None else ahead >> 10,
        "rows": one.dataset.rows,
        "columns": one.dataset.columns,
        "bytes": one.dataset.column_bytes,
        "read": round(one.workload.operations.read * 100),
        "keys": one.workload.keys,
        "memory": "warm" if one.before.page_cache == "warm" else "cold",
        "cache": cache if cache in ("empty", "warm") else "written",
        "credits": round(one.before.credits_ratio * 100),
        "rate": round(load.rate_per_s or 0),
        **({"threads": load.threads} if load.threads else {}),
        **dict(_disks(data.disks)),
    }
    reads = str(one.database.settings.get("concurrent_reads", ""))
    if reads.isdecimal():
        found["slots"] = reads
    return {key: str(value) for key, value in found.items()}


def _disks(expression: str) -> Iterator[tuple[str, object]]:
    disks = parse_disks(expression)
    yield "disk", disks.name
    yield "count", disks.count
    entry = load_catalog().disks.get(disks.name)
    if entry is not None:
        yield "size", (disks.size_bytes or 0) // GIB or entry.facts.size_gib.most
        yield "iops", disks.iops or 0
        yield "mbps", (disks.bytes_per_s or 0) // entry.family.mb_bytes
