"""What cannot be, although every word of it is known: refused cells and their reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, lru_cache, partial
from math import trunc

from disklab.catalog import (
    AttachedDisks,
    Catalog,
    HostRequest,
    Places,
    Resolution,
    VmEntry,
    VolumeRequest,
    find_vm,
    load_catalog,
    parse_disks,
    resolve,
)
from disklab.catalog.provisioning import find_disk
from disklab.catalog.quantity import DiskExpression, about_bytes
from disklab.catalog.suggest import did_you_mean
from disklab.database_facts import facts_of, named_by, names
from disklab.database_settings import setting_problem
from disklab.errors import Problem, UserError, refuse
from disklab.kits import is_kit
from disklab.spec.amounts import byte_count
from disklab.spec.located import Key, Site
from disklab.spec.model import (
    Client,
    Cluster,
    ClusterTrial,
    Database,
    Dataset,
    Table,
    TrialSpec,
    Volume,
)
from disklab.spec.timetable import cluster_on, newcomers

FULL = Fraction(1)

LEAST_REPLICAS = {"TWO": 2, "THREE": 3}
"""Copies that a consistency level asks for by its name."""


@cache
def catalogue() -> Catalog:
    """Return the catalogue, the user's own files with it."""
    return load_catalog()


_Device = tuple[str, int | None, str, Volume, Key]


VOLUMES: Key = ("cluster", "volumes")


def volumes_of(spec: TrialSpec) -> Iterator[_Device]:
    """Yield VM, its assumed host cache, name, volume and key of every device of a node, once."""
    if spec.device is not None:
        yield (
            spec.device.vm,
            spec.device.host_cache_bytes,
            "data",
            spec.device.volume,
            ("device", "volume"),
        )
    else:
        for name, volume in spec.cluster.volumes.items():
            if spec.cluster.device_of(name) == name:
                cluster = spec.cluster
                yield cluster.vm, cluster.host_cache_bytes, name, volume, (*VOLUMES, name)


def places_of(key: Key, vm: Key, site: Site) -> Places:
    """Return where each part of a volume stands."""
    return Places(
        disks=site.place((*key, "disks")),
        vm=site.place(vm),
        caching=site.place((*key, "caching")),
        chunk=site.place((*key, "stripe")),
        size=site.place((*key, "size")),
        latency=site.place((*key, "latency")),
        host_cache=site.place((vm[0], "host_cache")),
    )


def unknown_names(site: Site) -> Iterator[Problem]:
    """Yield VM sizes and disks that the catalogue does not have: slips, never refusals.

    It reads the values as written, so that they are told together with everything else.
    """
    for key in (("cluster", "vm"), ("device", "vm"), ("client", "vm")):
        vm = site.word(key)
        if vm is not None:
            yield from _problems_of(partial(find_vm, catalogue(), vm, Places(vm=site.place(key))))
    network = site.word(("cluster", "network"))
    if network is not None and network not in catalogue().networks:
        known = sorted(catalogue().networks)
        rule = "the catalogue has no network of this name"
        way_out = did_you_mean(network, known, f"choose one of {', '.join(known)}")
        yield Problem(site.place(("cluster", "network")), network, rule, way_out)
    yield from unknown_version(site)
    yield from unknown_settings(site)
    volumes = site.mapping(("cluster", "volumes"))
    keys: list[Key] = [("cluster", "volumes", name) for name in volumes]
    for volume in (*keys, ("device", "volume")):
        disks = site.word((*volume, "disks"))
        if disks is not None:
            size = site.word((*volume, "size"))
            yield from _problems_of(partial(_look_up, disks, size, site.place((*volume, "disks"))))


def _engine(site: Site) -> str | None:
    """Return the database of a file; None: it names none that there is."""
    return named_by(site.word(("database", "engine")), site.word(("database", "kit")))


def unknown_version(site: Site) -> Iterator[Problem]:
    """Yield a version that is newer than all that disklab knows of the database."""
    engine, version = _engine(site), site.word(("database", "version"))
    newest = facts_of(engine).newest if engine is not None else None
    if newest is None or version is None:
        return
    wish = re.match(r"(\d{1,4})(?:\.(\d{1,4}))?", version, re.ASCII)
    last = tuple(map(int, newest.split(".")))
    if wish is not None and (int(wish[1]), int(wish[2] or 0)) > last:
        rule = f"the newest {facts_of(engine).title} that disklab knows is {newest}"
        yield Problem(site.place(("database", "version")), version, rule, f"write {newest}")


def unknown_settings(site: Site) -> Iterator[Problem]:
    """Yield settings that the database does not take of an experiment, and wrong values of them."""
    engine = _engine(site)
    if engine is None:
        return
    release = site.word(("database", "version"))
    for name, given in site.mapping(("database", "settings")).items():
        if given.value is not None and not isinstance(given.value, dict | list):
            place = site.place(("database", "settings", name))
            problem = setting_problem(engine, name, given.value, place, release)
            if problem is not None:
                yield problem


def _problems_of(look_up: Callable[[], object]) -> tuple[Problem, ...]:
    try:
        look_up()
    except UserError as error:
        return error.problems
    return ()


def _look_up(disks: str, size: str | None, place: str) -> None:
    expression = parse_disks(disks, place)
    if expression.is_local:
        return
    try:
        size_bytes = None if size is None else byte_count(size)
    except ValueError:  # told with the other amounts
        return
    find_disk(catalogue(), expression, size_bytes, place)


def resolve_volumes(
    spec: TrialSpec, site: Site | None = None, scale: Fraction = FULL
) -> dict[str, Resolution]:
    """Return each device of a node as the catalogue resolves it.

    `scale`: of the host cache and of burst credits.
    Raises UserError with every rule that VM, disks and caching break together.
    """
    devices = tuple(volumes_of(spec))
    try:
        return dict(_resolved(devices, scale))
    except UserError:
        if site is None:
            raise
    vm_key: Key = ("cluster" if spec.cluster else "device", "vm")
    _resolve(devices, [places_of(key, vm_key, site) for *_, key in devices], scale)
    raise AssertionError("what was refused is refused again, with its places")


# A matrix has few kinds of nodes and many cells of each.
@lru_cache(maxsize=256)
def _resolved(devices: tuple[_Device, ...], scale: Fraction) -> tuple[tuple[str, Resolution], ...]:
    return tuple(_resolve(devices, [Places()] * len(devices), scale).items())


def _resolve(
    devices: tuple[_Device, ...], places: list[Places], scale: Fraction
) -> dict[str, Resolution]:
    problems: list[Problem] = []
    found: dict[str, Resolution] = {}
    there = {"nvme": 0, "local": 0, "ephemeral-os": 0, "": 0}
    for (vm, held, name, volume, _), where in zip(devices, places, strict=True):
        request = VolumeRequest(
            disks=volume.disks,
            name=name,
            caching=volume.caching,
            chunk_bytes=volume.chunk_bytes if volume.stripe_bytes else None,
            size_bytes=volume.size_bytes,
            latency=volume.latency,
            barriers=volume.barriers,
        )
        attached = AttachedDisks(there[""], there["nvme"], there["local"], there["ephemeral-os"])
        try:
            made = resolve(catalogue(), HostRequest(vm, held, scale), request, attached, where)
        except UserError as error:
            problems += error.problems
            continue
        found[name] = made
        kind = made.expression.name if made.expression.is_local else ""
        there[kind] += made.expression.count
    refuse(problems)
    return found


def newcomer_problems(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield what the hosts of nodes that a timetable brings cannot be."""
    cluster = spec.cluster
    if cluster is None:
        return
    moves = [number for number, event in enumerate(spec.events) if event.kind == "move"]
    for number in (*newcomers(spec.events), *moves):
        on = spec.events[number].host
        if on is None:
            continue
        where = {part: site.place(("events", number, "host", part)) for part in ("vm", "disks")}
        other = spec.model_copy(update={"cluster": cluster_on(cluster, on)})
        devices = tuple(volumes_of(other))
        at = Places(
            vm=where["vm"] if on.vm else site.place(("cluster", "vm")),
            disks=where["disks"] if on.disks else site.place(("events", number, "host")),
            caching=site.place(("events", number, "host")),
        )
        yield from _problems_of(partial(_resolve, devices, [at] * len(devices), FULL))


def stored_row_bytes(engine: str, dataset: Dataset) -> int:
    """Return the bytes of one copy of a row on disk, uncompressed."""
    return facts_of(engine).stored.of(dataset.columns, dataset.column_bytes)


def node_bytes(spec: ClusterTrial) -> float:
    """Return the bytes of data of each node."""
    copies, tpcc = spec.database.replication_factor, spec.workload.tpcc
    if tpcc is not None:
        room = facts_of(spec.database.engine).tpcc
        return (0 if room is None else room.loaded(tpcc.warehouses)) * copies / spec.cluster.nodes
    dataset = spec.the_dataset
    row_bytes = stored_row_bytes(spec.database.engine, dataset)
    return (dataset.rows or 0) * row_bytes * copies / spec.cluster.nodes


def rows_that_fill(spec: TrialSpec, volume_bytes: int) -> int | None:
    """Return the rows that `fill` stands for; None: rows are given."""
    dataset = spec.dataset
    if spec.cluster is None or dataset is None or dataset.fill_ratio is None:
        return None
    total = dataset.fill_ratio * volume_bytes * spec.nodes
    return max(1, int(total / spec.copies / stored_row_bytes(spec.database.engine, dataset)))


def impossible(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield what full system and trial contradict each other in."""
    if spec.cluster is None:
        return
    cluster, database = spec.cluster, spec.database
    facts, kind = facts_of(database.engine), spec.workload.kind
    if kind not in facts.workloads:
        rule = f"{facts.title} can be asked for {', '.join(facts.workloads)}"
        yield Problem(site.place(("workload",)), kind, rule, "choose another database or workload")
    copies = database.replication_factor
    at = site.place(("database", "replication_factor"))
    if copies > cluster.nodes:
        rule = f"each copy is on a node of its own, and the cluster has {cluster.nodes}"
        yield Problem(at, str(copies), rule, f"use {copies} nodes, or fewer copies")
    least = LEAST_REPLICAS.get(database.consistency, 1)
    if facts.consistency_levels and least > copies:
        rule = f"{database.consistency} waits for {least} copies, and there are {copies}"
        where = site.place(("database", "consistency"))
        yield Problem(where, database.consistency, rule, "use ONE or QUORUM, or more copies")
    reads = spec.workload.operations is not None and spec.workload.operations.reads
    if facts.consistency_levels and database.consistency == "ANY" and reads:
        # Source: `ConsistencyLevel.validateForRead` of Cassandra 3.11.
        rule = f"{facts.title} has ANY only for writes, and this load reads"
        yield Problem(site.place(("database", "consistency")), "ANY", rule, "use ONE")
    yield from _wrong_chunks(database.table, site)
    if spec.client.on_server:
        yield from _apart_from_server(spec.client, cluster, site)


def _apart_from_server(client: Client, cluster: Cluster, site: Site) -> Iterator[Problem]:
    """Yield what says that a client on its server's VM is somewhere else."""
    rule = "with `client.on_server` the load comes from the VM of the one server"
    keys: dict[tuple[str, str], tuple[object, object]] = {
        ("cluster", "nodes"): (cluster.nodes, 1),
        ("cluster", "network"): (cluster.network, None),
        ("client", "nodes"): (client.nodes, 1),
        ("client", "vm"): (client.vm or cluster.vm, cluster.vm),
    }
    for key, (value, only) in keys.items():
        if value != only:
            way_out = "leave this key out" if only is None else f"write {only}"
            way_out += ", or client.on_server: false"
            yield Problem(site.place(key), str(value), rule, way_out)


def _wrong_chunks(table: Table, site: Site) -> Iterator[Problem]:
    length, key = table.chunk_length_bytes, ("database", "table", "chunk_length")
    if length is None:
        return
    if table.compression == "none":
        rule = "a table without compression has no chunks"
        way_out = "say how it is compressed, or leave it out"
        yield Problem(site.place(key), site.text(key), rule, way_out)
    # Source: `chunk_length_in_kb` of org.apache.cassandra.schema.CompressionParams, a Java int.
    if length & (length - 1) or not 1 << 10 <= length <= 1 << 30:
        rule = "a chunk is a power of two from 1KiB to 1GiB"
        yield Problem(site.place(key), site.text(key), rule, "use for example 16KiB")


def too_large(spec: TrialSpec, volume_bytes: int, site: Site) -> Iterator[Problem]:
    """Yield why the data do not fit the data volume."""
    dataset = spec.dataset
    if spec.cluster is None or dataset is None or dataset.rows is None:
        return
    cluster, database = spec.cluster, spec.database
    copies = database.replication_factor
    need, row_bytes = node_bytes(spec), stored_row_bytes(database.engine, dataset)
    headroom = headroom_of(database.engine, database.table)
    if need * headroom <= volume_bytes:
        return
    volume = cluster.volumes["data"]
    rule = (
        f"{dataset.rows} rows of {row_bytes} B x {copies} copies / {cluster.nodes} "
        f"nodes = {about_bytes(need)} a node, {about_bytes(need * headroom)} with room for "
        f"compaction (x {headroom:g}); {volume.disks} of {cluster.vm} holds "
        f"{about_bytes(volume_bytes)}"
    )
    fits = trunc(volume_bytes / headroom * cluster.nodes / copies / row_bytes)
    entry = catalogue().vms.get(cluster.vm)
    more = LARGER if entry is None else larger(entry, parse_disks(volume.disks))
    way_out = f"use at most {fits} rows, more nodes, or {more}"
    key = "rows" if dataset.fill_ratio is None else "fill"
    if dataset.fill_ratio is not None:
        way_out = f"fill at most {100 / headroom:.0f}%"
    yield Problem(site.place(("dataset", key)), site.text(("dataset", key)), rule, way_out)


LARGER = "larger disks"


def larger(vm: VmEntry, disks: DiskExpression) -> str:
    """Return what has more room: of local disks, all that the VM has."""
    nvme = vm.facts.nvme
    if nvme is None or not disks.is_local:
        return LARGER
    if disks.name == "nvme" and disks.count >= nvme.count:
        return LARGER
    return f"disks: {f'{nvme.count} x ' * (nvme.count > 1)}nvme, which the VM has"


def headroom_of(engine: str, table: Table) -> float:
    """Return how much more than its data a table may need while it is rewritten."""
    return facts_of(engine).headroom_ratio[table.compaction]


def unused_volumes(cluster: Cluster, database: Database | None, site: Site) -> Iterator[Problem]:
    """Yield volumes that the database would leave empty: they were paid for and changed nothing."""
    if database is None or not (is_kit(database.engine) or database.engine in names()):
        return
    facts = facts_of(database.engine)
    if not facts.log_volumes:  # its directories lie on every volume
        return
    used = tuple(dict.fromkeys(("data", *facts.log_volumes)))
    for name in cluster.volumes:
        if name not in used:
            rule = f"{facts.title} does not use it: it uses {', '.join(used)}"
            log = f"call its log's volume {used[1]}" if used[1:] else "leave it out"
            place = site.place(("cluster", "volumes", name))
            yield Problem(place, name, rule, did_you_mean(name, used, log))


def contradictory_volumes(cluster: Cluster, site: Site) -> Iterator[Problem]:
    """Yield volumes on one temp disk that ask for two file systems."""
    for name, volume in cluster.volumes.items():
        owner = cluster.volumes[cluster.device_of(name)]
        for field in ("filesystem", "barriers", "read_ahead_bytes", "size_bytes"):
            said = field in volume.model_fields_set and field in owner.model_fields_set
            if said and getattr(volume, field) != getattr(owner, field):
                key = ("cluster", "volumes", name, field.removesuffix("_bytes"))
                rule = f"{name} lies on the temp disk of {cluster.device_of(name)}, one file system"
                yield Problem(site.place(key), str(getattr(volume, field)), rule, "say it once")
