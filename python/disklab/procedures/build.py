"""Making a bed: hosts with their volumes, memory groups, a database that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path

from disklab.catalog import Catalog, find_vm
from disklab.catalog.facts import GIB
from disklab.catalog.resolve import Places as Words
from disklab.database_facts import facts_of
from disklab.databases import Database, NodePlace, Request, Sizes, provision, record_of
from disklab.databases.this_machine import ThisMachine
from disklab.errors import Problem, UserError
from disklab.hosts.addresses import free_addresses
from disklab.hosts.control_group import UNLIMITED_BYTES, ControlGroup, GroupRoot
from disklab.hosts.delays import Link, NetworkWish, RoundTrip
from disklab.hosts.left_databases import make_run_dir, record_group, remove_database
from disklab.hosts.namespaces import EmulatedHosts, HostWish
from disklab.hosts.node import EmulatedNode, NodeWish, Progress, VolumeWish
from disklab.hosts.places import Places
from disklab.hosts.protocol import Node
from disklab.procedures.bed import Bed, empty_cache
from disklab.procedures.conditions import BedState
from disklab.procedures.emulated_hosts import EmulatedBedHosts
from disklab.procedures.turn import Turn
from disklab.spec import Cluster, ClusterTrial, Trial, newcomers
from disklab.spec.timetable import CLIENT, cluster_on, zone_of
from disklab.workloads.rows import WARM_UP_TABLE


@dataclass(frozen=True)
class Site:
    """Where beds are made, and what they are made with."""

    catalog: Catalog
    places: Places
    log_folder: Path | None
    """Inside the run's folder: what stays of a database. None: that folder is another user's, and
    `take_logs` takes it from each node's own."""
    seed: int
    make_node: Callable[[Catalog, NodeWish, Places, Progress], Node] = EmulatedNode.build
    provision: Callable[[Request, list[NodePlace], Progress], Database] = provision
    take_logs: Callable[[Path], None] | None = None

    def logs(self, node: str) -> Path:
        """Return where the database on a host logs; it runs in another working directory."""
        own = self.places.database(node) / "logs"
        return own if self.log_folder is None else self.log_folder.absolute()


def build(turn: Turn, prefix: str, site: Site, say: Progress) -> Bed:
    """Return a bed whose database answers and holds nothing yet.

    `prefix` begins the names of its hosts; no other host of this machine has such names.
    Raises UserError, MachineError or EngineError; then nothing is left.
    """
    trial, spec = turn.trial, turn.on_cluster
    with ExitStack() as undo:
        nodes: list[Node] = []
        asked = clusters_of(spec)
        for number, (name, own) in enumerate(asked.items(), 1):
            wish = node_wish(trial, f"{prefix}-{name}", own)
            say(f"host {number} of {len(asked)}: {volumes_in_words(wish)}")
            node = site.make_node(site.catalog, wish, site.places, say)
            undo.callback(node.remove)
            # After the database has stopped: its configuration, its group, and what did not stop.
            undo.callback(remove_database, site.places.database(node.name))
            make_run_dir(site.places.database(node.name))
            if site.take_logs is not None:
                undo.callback(site.take_logs, site.logs(node.name))
            nodes.append(node)
        groups = [_group(node.name, site.places.database(node.name)) for node in nodes]
        request = request_of(turn, sizes_of(turn, site.catalog))
        network = None
        if spec.cluster.network is not None:
            say("hosts in namespaces, and the network between them")
            network = network_of(asked, prefix, nodes, site)
            undo.callback(network.close)
            # From here on this thread, and all that it starts, is on the client's host.
            undo.enter_context(network[CLIENT].inside_network())
            addresses = [network[name].address for name in asked]
        else:
            addresses = free_addresses(len(nodes), record_of(request.engine).ports)
        made = _Made(nodes, addresses, groups, network)
        places = list(_node_places(spec, asked, made, site))
        database = site.provision(request, places, say)
        undo.callback(database.stop)
        say("starting the database")
        database.start()
        hosts = EmulatedBedHosts(
            nodes=nodes,
            time_dilation=trial.share.time_dilation,
            groups=groups,
            network=network,
            data_device=spec.cluster.device_of("data"),
            memory_of=partial(_memory_bytes, catalog=site.catalog),
            names=tuple(asked),
            later=len(asked) - spec.cluster.nodes,
        )
        compiles = facts_of(request.engine).compiles
        state = first_state(spec, nodes)
        return Bed(turn.bed, hosts, database, state, undo.pop_all(), not compiles, compiles)


@dataclass(frozen=True)
class _Made:
    """What nodes are put on, in order."""

    nodes: Sequence[Node]
    addresses: Sequence[str]
    groups: Sequence[ControlGroup | None]
    network: EmulatedHosts | None


def _node_places(
    spec: ClusterTrial, asked: Mapping[str, Cluster], made: _Made, site: Site
) -> Iterator[NodePlace]:
    parts = zip(made.nodes, made.addresses, made.groups, strict=True)
    for number, ((name, own), (node, address, group)) in enumerate(
        zip(asked.items(), parts, strict=True)
    ):
        yield NodePlace(
            name=name,
            address=address,
            volumes=node_folders(spec, node),
            run_dir=site.places.database(node.name),
            log_dir=site.logs(node.name),
            group=group,
            host=ThisMachine(None if made.network is None else made.network[name]),
            comes_later=number >= spec.cluster.nodes,
            memory_bytes=_other_memory(spec.cluster, own, site.catalog),
        )


def clusters_of(spec: ClusterTrial) -> dict[str, Cluster]:
    """Return each host by its node's name, those of newcomers last: a cluster of nodes like it."""
    cluster = spec.cluster
    found = {f"n{number + 1}": cluster for number in range(cluster.nodes)}
    for number, name in newcomers(spec.events).items():
        found[name] = cluster_on(cluster, spec.events[number].host)
    return found


def _other_memory(cluster: Cluster, other: Cluster, catalog: Catalog) -> int | None:
    """Return the memory of another VM than the cluster's, in bytes; None: it is the same VM."""
    if other.vm == cluster.vm:
        return None
    return _memory_bytes(other.vm, catalog)


def _memory_bytes(vm: str, catalog: Catalog) -> int:
    return int(_memory_gib(vm, catalog) * GIB)


def _memory_gib(name: str, catalog: Catalog) -> float:
    vm = find_vm(catalog, name, Words())
    if vm.facts.mem_gib is None:
        rule = "the catalogue does not know its memory, which the page cache is scaled from"
        raise UserError(Problem("cluster.vm", vm.name, rule, "choose another VM size"))
    return float(vm.facts.mem_gib)


def network_of(
    asked: Mapping[str, Cluster], name: str, nodes: Sequence[Node], site: Site
) -> EmulatedHosts:
    """Return a host in namespaces for each node, and one for the client, on the file's network.

    A node's host sees its volumes, its run directory and the folder of logs, at their places.
    `asked`: a cluster of nodes like it, for each node.
    """
    cluster = next(iter(asked.values()))
    facts = site.catalog.networks[str(cluster.network)]

    def link(number: int, vm_name: str) -> Link:
        mbit_per_s = find_vm(site.catalog, vm_name, Words()).facts.net_mbit_per_s
        bytes_per_s = None if mbit_per_s is None else mbit_per_s * 1_000_000 // 8
        return Link(zone=zone_of(number, cluster.zones), bytes_per_s=bytes_per_s)

    for node in nodes:
        site.logs(node.name).mkdir(parents=True, exist_ok=True)
    wishes = [
        HostWish(
            node_name,
            # The database has a group of its own, whose limit its provider sets.
            grouped=False,
            link=link(number, own.vm),
            shared=(*node.volumes.values(), site.places.database(node.name), site.logs(node.name)),
        )
        for number, ((node_name, own), node) in enumerate(zip(asked.items(), nodes, strict=True))
    ]
    wishes.append(HostWish(CLIENT, link=link(0, cluster.vm)))
    zones = [str(number + 1) for number in range(cluster.zones)]
    within = RoundTrip.of_percentiles(facts.within_zone.percentiles_us)
    between = RoundTrip.of_percentiles(facts.between_zones.percentiles_us)
    distances = {
        (one, other): within if one == other else between
        for one, other in combinations_with_replacement(zones, 2)
    }
    wish = NetworkWish(distances, seed=site.seed)
    return EmulatedHosts.start(site.places, name, wishes, wish)


def node_wish(trial: Trial, name: str, cluster: Cluster) -> NodeWish:
    """Return the host of a node of `cluster`: its VM and devices, scaled as the trial is."""
    return NodeWish(
        name=name,
        vm=cluster.vm,
        scale=Fraction(trial.share.scale),
        host_cache_bytes=cluster.host_cache_bytes,
        volumes={
            device: VolumeWish(
                disks=volume.disks,
                caching=volume.caching,
                chunk_bytes=volume.chunk_bytes,
                size_bytes=int(trial.share.volume_bytes[device].here),
                filesystem=volume.filesystem,
                read_ahead_bytes=volume.read_ahead_bytes,
                latency=volume.latency,
                barriers=volume.barriers,
            )
            for device, volume in cluster.volumes.items()
            if cluster.device_of(device) == device
        },
    )


def volumes_in_words(wish: NodeWish) -> str:
    """Return the devices of a node on one line."""
    shown = [f"{name} on {volume.disks}" for name, volume in wish.volumes.items()]
    return f"{wish.vm} with {', '.join(shown)}"


def node_folders(spec: ClusterTrial, node: Node) -> dict[str, Path]:
    """Return where each volume of the database is mounted.

    A volume without a device of its own is left out: the database then puts it beside the data.
    """
    folders = {"data": node.volumes[spec.cluster.device_of("data")]}
    for name in spec.cluster.volumes:
        folder = node.volumes[spec.cluster.device_of(name)]
        if folder != folders["data"]:
            folders[name] = folder
    return folders


def sizes_of(turn: Turn, catalog: Catalog) -> Sizes:
    """Return how large the database of a turn is on emulated hosts."""
    trial, spec = turn.trial, turn.on_cluster
    return Sizes(
        memory_bytes=_memory_bytes(spec.cluster.vm, catalog),
        scale=Fraction(trial.share.scale),
        nodes=len(clusters_of(spec)),
        time_dilation=trial.share.time_dilation,
        heap_bytes=spec.database.jvm.heap_bytes,
    )


def request_of(turn: Turn, sizes: Sizes) -> Request:
    """Return the database that a turn and the others of its bed ask for."""
    spec = turn.on_cluster
    rows = spec.dataset if spec.workload.kind == "rows" else None
    return Request(
        engine=spec.database.engine,
        version=spec.database.version,
        sizes=sizes,
        replication_factor=spec.database.replication_factor,
        settings=spec.database.settings,
        table=spec.database.table.model_dump(by_alias=True, exclude_none=True),
        collector=spec.database.jvm.collector,
        tls=spec.database.tls,
        columns=rows.columns if rows else 0,
        row_bytes=rows.columns * rows.column_bytes if rows else 0,
        connections=turn.connections,
        tables_beside=(WARM_UP_TABLE,),
    )


def first_state(spec: ClusterTrial, nodes: Sequence[Node]) -> BedState:
    """Return the state of a bed that was just built for a trial."""
    volume = spec.cluster.volumes[spec.cluster.device_of("data")]
    bursting = any(node.has_credits(device) for node in nodes for device in node.attached)
    return BedState(
        data="empty",
        settled=True,
        caching=volume.caching,
        read_ahead_bytes=volume.read_ahead_bytes,
        host_cache=empty_cache(volume.caching),
        credits="used" if bursting else "none",
        settings=spec.database.settings,
    )


def _group(name: str, run_dir: Path) -> ControlGroup | None:
    """Make a memory group; None: none can be had, and the page cache is the machine's.

    It is noted before it is made, so that `clean` finds it whenever this process is killed.
    """
    root = GroupRoot.of_machine()
    if root is None:
        return None
    record_group(run_dir, ControlGroup(name, root))
    return ControlGroup.make(name, UNLIMITED_BYTES, root)
