"""What the sections of a trial ask of each other, and what they leave to disklab."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.catalog.facts import GIB
from disklab.catalog.quantity import about_bytes
from disklab.database_facts import facts_of
from disklab.errors import Problem
from disklab.spec import feasible
from disklab.spec.failures import failure_problems
from disklab.spec.located import Key, Site
from disklab.spec.model import Stop, TrialSpec
from disklab.spec.procedures import Load, Procedure, load_problems
from disklab.spec.timetable_checks import timetable_problems

# How long a trial measures when its file does not say: long enough for credits, caches and pauses
# to show, short enough for a matrix (assumed).
DEFAULT_DURATION_S = 60.0


def section_problems(spec: TrialSpec, site: Site) -> list[Problem]:
    """Return what sections of a trial ask of each other."""
    kind = spec.workload.kind
    found = [*_wrong_operations(spec, site), *_missing_operations(spec, site)]

    def needs(key: Key, why: str, way_out: str) -> None:
        found.append(Problem(site.place(key), "(missing)", why, way_out))

    if (spec.cluster is None) == (spec.device is None):
        rule = "an experiment has either a cluster or a device"
        found.append(Problem(site.place(("workload",)), "(file)", rule, "write one of them"))
        return found
    if spec.device is not None:
        found += device_problems(spec, site)
        return found
    if kind in ("fio", "trace"):
        what = "fio runs" if kind == "fio" else "a block trace is replayed"
        rule = f"{what} on a device, and this is a cluster"
        found.append(
            Problem(site.place(("workload", kind)), kind, rule, "write operations, or device")
        )
    if spec.database is None:
        needs(("database",), "a cluster has a database", "add database: {engine: cassandra}")
    found += jvm_problems(spec, site)
    if kind == "rows":
        if spec.dataset is None:
            way_out = "add dataset: {rows: 10M, row: 5 x 818B}"
            needs(("dataset",), "operations on rows need rows", way_out)
        found += load_problems(spec.procedure, spec.workload.load, site)
    else:
        found += benchmark_problems(spec, site)
    found += feasible.contradictory_volumes(spec.the_cluster, site)
    found += feasible.unused_volumes(spec.the_cluster, spec.database, site)
    found += timetable_problems(spec, site)
    found += failure_problems(spec, site)
    return found


HEAP_SHARE = 2
"""At least half of a VM's memory is for page cache and what a JVM has beside its heap."""

MODERN = ("zgc", "shenandoah")


def jvm_problems(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield what is wrong with the JVM of a database."""
    database, cluster = spec.database, spec.cluster
    if database is None or cluster is None:
        return
    jvm, key = database.jvm, ("database", "jvm")
    if jvm.collector is None and jvm.heap_bytes is None:
        return
    if facts_of(database.engine).simulator != "cassandra":
        rule = f"{facts_of(database.engine).title} runs in no Java virtual machine"
        yield Problem(site.place(key), "(given)", rule, "leave it out")
        return
    major = (database.version or "").partition(".")[0]
    if jvm.collector in MODERN and major == "3":
        rule = "Cassandra 3 runs on Java 8, which does not have it"
        place = site.place((*key, "collector"))
        yield Problem(
            place, str(jvm.collector), rule, "choose g1 or parnew, or version 4.0 or later"
        )
    vm = feasible.catalogue().vms.get(cluster.vm)
    memory = int((vm.facts.mem_gib or 0) * GIB) if vm is not None else 0
    if jvm.heap_bytes is not None and memory and jvm.heap_bytes * HEAP_SHARE > memory:
        rule = f"{cluster.vm} has {about_bytes(memory)}, of which a heap takes half at most"
        place = site.place((*key, "heap"))
        yield Problem(place, about_bytes(jvm.heap_bytes), rule, "choose a smaller heap")


def device_problems(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield what a device experiment leaves no room for."""
    kind = spec.workload.kind
    if kind not in ("fio", "trace"):
        rule = "a device experiment runs fio, or a block trace"
        way_out = "write fio: {rw: randread, bs: 8k}, or trace: FILE"
        yield Problem(site.place(("workload",)), kind, rule, way_out)
    key: Key
    if kind == "trace" and spec.workload.warm_up_s:
        key = ("workload", "warm_up")
        rule = "a trace is counted from its first I/O"
        way_out = "leave it out; before: {host_cache: warm} fills the host cache"
        yield Problem(site.place(key), site.text(key), rule, way_out)


def _wrong_operations(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield bounds on operations that the workload does not have."""
    require, work = spec.require, spec.workload
    for name in ("read", "write"):
        if require is None or getattr(require, name) is None:
            continue
        place, shown = site.place(("require", name)), site.text(("require", name))
        if work.kind == "trace":
            continue  # its I/Os are reads and writes too
        if work.operations is None:
            rule = f"{work.kind} has no {name}s of rows"
            yield Problem(place, shown, rule, "write all: {p99: 10ms}, for all operations together")
        elif not getattr(work.operations, name):
            rule = f"the workload has no {name}s"
            yield Problem(place, shown, rule, f"leave it out, or give operations some {name}s")


def _missing_operations(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield operations that the database, or a timetable's check, does not do."""
    operations, database = spec.workload.operations, spec.database
    if operations is None or database is None:
        return
    place = site.place(("workload", "operations"))
    facts = facts_of(database.engine)
    for name in operations.shares:
        if name in facts.rows.lacks:
            rule = f"{facts.title} has no {name} of rows here: {facts.rows.lacks[name]}"
            yield Problem(place, name, rule, "use read, write or insert, or another database")
        if spec.events and name in ("update", "delete"):
            rule = "a timetable tells lost writes by a version of the whole row, and it has none"
            yield Problem(place, name, rule, "use write, or leave out events")


def benchmark_problems(spec: TrialSpec, site: Site) -> list[Problem]:
    """Return what sysbench and TPC-C, which bring tables and load along, leave no room for."""
    kind = spec.workload.kind
    found = []
    if kind in ("sysbench", "tpcc") and spec.before.dataset == "empty":
        rule = f"{kind} works on the rows of its own tables"
        place = site.place(("before", "dataset"))
        found.append(Problem(place, "empty", rule, "leave it out"))
    if spec.workload.load is not None:
        found += beside_problems(kind, spec.workload.load, site)
    return found


def beside_problems(kind: str, load: Load, site: Site) -> list[Problem]:
    """Return what is wrong with a load beside a benchmark that has its own."""
    if kind == "sysbench" and load.rate_per_s is not None:
        if load.arrivals == "poisson":
            return []
        at = site.place(("workload", "load", "arrivals"))
        rule = "sysbench draws its arrivals at random (Poisson)"
        return [Problem(at, load.arrivals, rule, "leave arrivals out")]
    given = "threads" if load.threads is not None else "rate"
    own = {"sysbench": "sysbench.threads", "tpcc": "tpcc.connections and its think times"}
    rule = f"the load of {kind} is {own.get(kind, 'its own')}"
    place = site.place(("workload", "load", given))
    return [Problem(place, site.text(("workload", "load", given)), rule, "leave it out")]


def decided(spec: TrialSpec) -> TrialSpec:
    """Return the spec with what the file leaves open: procedure, load, stop, client's VM."""
    work = spec.workload
    procedure = spec.procedure or Procedure.of(work.load)
    update: dict[str, object] = {}
    if work.stop is None and work.trace is None:
        update["stop"] = Stop.model_validate({"duration": f"{DEFAULT_DURATION_S}s"})
    if work.kind == "rows" and work.load is None and (load := procedure.chosen.own_load()):
        update["load"] = load
    client = spec.client
    if client.vm is None and spec.cluster is not None:
        client = client.model_copy(update={"vm": spec.cluster.vm})
    return spec.model_copy(
        update={
            "workload": work.model_copy(update=update),
            "procedure": procedure,
            "client": client,
        }
    )
