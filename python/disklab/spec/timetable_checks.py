"""What is wrong with a timetable: what its database, its cluster or the order does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from disklab.catalog.facts import GIB
from disklab.catalog.quantity import about_bytes
from disklab.catalog.suggest import did_you_mean
from disklab.database_facts import facts_of, has_one_primary
from disklab.database_settings import settings_of
from disklab.errors import Problem
from disklab.kits import is_kit, kit_of
from disklab.spec import feasible
from disklab.spec.amounts import only
from disklab.spec.located import Key, Site
from disklab.spec.model import ClusterTrial, DeviceTrial, Stop, TrialSpec, WrittenTrial
from disklab.spec.procedures import Load, Procedure, load_problems
from disklab.spec.timetable import (
    CLIENT,
    DISK_KINDS,
    LINK_KINDS,
    MOST_EVENTS,
    TimedEvent,
    failure_problems,
    in_order,
    nodes_of_zone,
)

VERIFIED = ("rows", "tool")
"""Workloads that can be broken under: what was acknowledged is looked for afterwards."""


def timetable_problems(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
    """Yield what is wrong with the timetable of a trial, all of it."""
    events = spec.events
    if not events:
        return
    if spec.cluster is None or spec.database is None or spec.workload.kind not in VERIFIED:
        rule = "a timetable is for a cluster under rows, which are verified, or a kit's tool"
        yield Problem(site.place(("events",)), "events", rule, "leave it out")
        return
    yield from _ending_problems(spec, site)
    trial = only(ClusterTrial, decided(spec))
    taken = facts_of(spec.database.engine).events
    for number, event in enumerate(events):
        place = site.place(("events", number))
        wanted = "lose" if event.kind == "lose_zone" else event.kind
        if wanted not in (*taken, *DISK_KINDS, *LINK_KINDS):
            title = facts_of(spec.database.engine).title
            rule = f"{event.kind} is not known for {title}, which can {', '.join(taken) or 'none'}"
            yield Problem(place, event.kind, rule, "leave it out, or use another database")
        if event.kind in LINK_KINDS and spec.cluster.network is None:
            rule = "without cluster.network nodes have no links: they share this machine's loopback"
            yield Problem(place, event.kind, rule, "write cluster: {network: azure/standard}")
        if event.volume is not None and event.volume not in spec.cluster.volumes:
            way_out = did_you_mean(event.volume, spec.cluster.volumes, "name one of its volumes")
            yield Problem(place, event.volume, "the nodes have no such volume", way_out)
        if event.kind == "move":
            yield from _move_problems(trial, event, place)
        if event.kind == "replace" and spec.cluster.nodes == 1:
            rule = "a replaced node gets its data from others, and this cluster has one node"
            yield Problem(place, "replace", rule, "write start, or use several nodes")
    yield from _order_problems(trial, site)


def _ending_problems(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
    """Yield what does not fit the end of the measurement."""
    if len(spec.events) > MOST_EVENTS:
        rule = f"a timetable has {MOST_EVENTS} events at most"
        yield Problem(site.place(("events",)), str(len(spec.events)), rule, "leave some out")
    if spec.procedure is not None and spec.procedure.searches:
        kind = spec.procedure.kind
        rule = f"a timetable needs a single load, and procedure {kind} tries many"
        yield Problem(site.place(("procedure", kind)), kind, rule, "use closed_loop or fixed")
    stop = spec.workload.stop
    if stop is None or stop.duration_s is None or stop.operations is not None:
        rule = "a timetable needs a load that ends after a duration alone"
        shown = site.text(("workload", "stop")) if stop else "(missing)"
        place = site.place(("workload", "stop"))
        yield Problem(place, shown, rule, "write stop: {duration: 300s}")
        return
    for number, event in enumerate(spec.events):
        if not 0 < event.at_s < stop.duration_s:
            rule = f"the load runs from 0 s to {stop.duration_s:g} s"
            way_out = "give a time between, or a longer workload.stop.duration"
            place = site.place(("events", number, "at"))
            yield Problem(place, site.text(("events", number, "at")), rule, way_out)


NEEDS = {
    "add": ("to come",),
    "decommission": ("up",),
    "migrate": ("up",),
    "move": ("up", "killed", "lost"),
    "repair": ("up",),
    "credits": ("up",),
    "kill": ("up",),
    "start": ("killed", "lost"),
    "restart": ("up",),
    "lose": ("up", "killed"),
    "replace": ("killed", "lost"),
    "promote": ("up",),
    "slow": ("up",),
    "stall": ("up",),
    "mend": ("up", "killed"),
}
AFTER = {
    "kill": "killed",
    "lose": "lost",
    "start": "up",
    "replace": "up",
    "move": "up",
    "add": "up",
    "decommission": "gone",
}
"""In which state a node is behind an event; others change none."""
ASKED = ("start", "restart", "replace", "promote", "decommission", "migrate", "move", "repair")
"""Procedures that end when the node answers."""
AWAY = ("to come", "gone")
"""States of nodes that are no part of the cluster."""


@dataclass
class Walk:
    """The states of nodes, disks and links, event by event."""

    spec: ClusterTrial
    state: dict[str, str] = field(default_factory=dict)
    broken: set[tuple[str, str | None]] = field(default_factory=set)
    """Nodes and volumes, None for the data's, that are slow or stalled."""
    links: set[tuple[str, ...]] = field(default_factory=set)
    """Those that are not as they were, by their ends."""
    cut: set[tuple[str, ...]] = field(default_factory=set)
    """Those of them that carry nothing."""
    primary: str | None = None
    """The node that takes changes; None: all do."""
    former: set[str] = field(default_factory=set)
    """Nodes whose log has ended before that of the primary began."""

    @classmethod
    def of(cls, spec: ClusterTrial) -> Walk:
        """Return the states before the first event."""
        state = {f"n{number}": "up" for number in range(1, spec.cluster.nodes + 1)}
        more = sum(event.kind == "add" for event in spec.events)
        for number in range(more):
            state[f"n{spec.cluster.nodes + number + 1}"] = "to come"
        database = spec.database
        has_primary = has_one_primary(database.engine, database.replication_factor)
        return cls(spec, state, primary="n1" if has_primary else None)

    def problem(self, event: TimedEvent) -> tuple[str, str] | None:
        """Return what is wrong with the next event, and the way out."""
        if event.kind in LINK_KINDS:
            return self._link_problem(event)
        if event.kind == "lose_zone":
            return self._zone_problem(event)
        node, kind = event.node, event.kind
        if node not in self.state:
            return self._no_such()
        if self.state[node] not in NEEDS[kind] or (
            kind == "mend" and (node, event.volume) not in self.broken
        ):
            well = kind == "mend" and self.state[node] == "up"
            found = "well" if well else self.state[node]
            rule = f"at {event.at_s:g} s {node} is {found}, which {kind} is not for"
            return rule, "look at the order of the events"
        if kind in ASKED and (node,) in self.cut:
            rule = f"at {event.at_s:g} s {node} cannot be asked for it: its link is cut"
            return rule, f"write {{at: ..., join: {node}}} before"
        return self._primary_problem(event) or self._data_problem(event)

    def _no_such(self) -> tuple[str, str]:
        last = [*self.state][-1]
        return f"the cluster has no such node; it has n1 to {last}", f"write {last}"

    def _primary_problem(self, event: TimedEvent) -> tuple[str, str] | None:
        node, kind, primary = event.node, event.kind, self.primary
        if primary is None:
            rule = "every node takes changes, and none is promoted"
            return (rule, "leave it out") if kind == "promote" else None
        state = self.state[primary]
        if kind == "promote" and state == "up":
            rule = f"at {event.at_s:g} s the primary {primary} is up, and there would be two"
            return rule, f"write {{at: ..., kill: {primary}}}, or lose, before"
        if kind == "replace" and node == primary:
            rule = f"a standby is a copy of the primary, and {node} is it"
            return rule, "promote a standby before"
        if kind == "replace" and state != "up":
            rule = f"at {event.at_s:g} s the primary {primary}, of which it is a copy, is {state}"
            return rule, f"write {{at: ..., start: {primary}}}, or promote a standby, before"
        if kind == "start" and node in self.former:
            rule = (
                f"{node} was the primary: its log may have something that the log of "
                f"{primary} does not"
            )
            return rule, "write replace"
        return None

    def _data_problem(self, event: TimedEvent) -> tuple[str, str] | None:
        node, kind = event.node, event.kind
        copies = self.spec.database.replication_factor
        if kind == "start" and self.state[node] == "lost" and lost_with_vm(self.spec):
            rule = f"the data of {node} were on a disk of its VM and are lost with it"
            way_out = "promote a standby, and write replace" if node == self.primary else None
            return rule, way_out or "write replace"
        left = sum(one not in AWAY for one in self.state.values())
        if kind == "decommission" and left <= copies:
            rule = f"each of {copies} copies is on a node of its own, and no more would be left"
            return rule, "add a node first, or use fewer copies"
        away = [name for name, state in self.state.items() if state in ("killed", "lost")]
        if kind == "repair" and copies > 1 and away:
            found = f"at {event.at_s:g} s {away[0]} is {self.state[away[0]]}"
            rule = f"{found}, and a repair asks every copy"
            return rule, f"write {{at: ..., start: {away[0]}}}, or replace, before"
        return None

    def _zone_problem(self, event: TimedEvent) -> tuple[str, str] | None:
        zones = self.spec.cluster.zones
        known = [str(one + 1) for one in range(zones)]
        if event.node not in known:
            return f"the cluster has {zones} zones", f"write {known[-1]}, or raise cluster.zones"
        if not any(self.state[one] in NEEDS["lose"] for one in self._in_zone(event)):
            rule = f"at {event.at_s:g} s no node of zone {event.node} is left to be lost"
            return rule, "look at the order of the events"
        return None

    def _link_problem(self, event: TimedEvent) -> tuple[str, str] | None:
        ends = event.ends
        for end in ends:
            if end != CLIENT and end not in self.state:
                return self._no_such()
            if self.state.get(end) in AWAY:
                rule = f"at {event.at_s:g} s {end} is {self.state[end]}, so it has no link"
                return rule, "look at the order of the events"
        if event.kind == "join" and tuple(sorted(ends)) not in self.links:
            rule = f"at {event.at_s:g} s the link of {event.node} is as it was at first"
            return rule, "leave it out, or name the ends that an earlier event does"
        return None

    def _in_zone(self, event: TimedEvent) -> list[str]:
        return nodes_of_zone(self.spec.cluster, event.node)

    def take(self, event: TimedEvent) -> None:
        """Let the event happen."""
        if event.kind in LINK_KINDS:
            ends = tuple(sorted(event.ends))
            change = self.links.discard if event.kind == "join" else self.links.add
            change(ends)
            change = self.cut.add if event.kind == "cut" else self.cut.discard
            change(ends)
            return
        lost = self._in_zone(event) if event.kind == "lose_zone" else []
        for node in lost:
            if self.state[node] in NEEDS["lose"]:
                self.state[node] = "lost"
                self._is_well(node)
        if lost:
            return
        node, kind = event.node, event.kind
        self.state[node] = AFTER.get(kind, self.state[node])
        if kind == "promote" and self.primary is not None:
            self.former.add(self.primary)
            self.primary = node
        elif kind == "replace":
            self.former.discard(node)
        if kind in ("slow", "stall"):
            self.broken.add((node, event.volume))
        elif kind == "mend":
            self.broken.discard((node, event.volume))
        elif kind in ("lose", "migrate", "move"):
            self._is_well(node)

    def _is_well(self, node: str) -> None:
        self.broken = {one for one in self.broken if one[0] != node}

    @property
    def is_whole(self) -> bool:
        """Whether all nodes of the cluster are up, and no link or disk is broken."""
        up = all(one == "up" or one in AWAY for one in self.state.values())
        return up and not self.broken and not self.links


def ends_whole(spec: ClusterTrial) -> bool:
    """Return whether all nodes, links and disks are well behind the last event."""
    walk = Walk.of(spec)
    for _, event in in_order(spec.events):
        walk.take(event)
    return walk.is_whole


def _order_problems(spec: ClusterTrial, site: Site) -> Iterator[Problem]:
    """Yield the events that find their node in another state than they need."""
    walk = Walk.of(spec)
    for number, event in in_order(spec.events):
        wrong = walk.problem(event)
        if wrong is None:
            walk.take(event)
            continue
        yield Problem(site.place(("events", number, event.kind)), event.node, *wrong)
        if event.node in walk.state and walk.state[event.node] in NEEDS.get(event.kind, ()):
            # What comes after is judged as if it had been right.
            walk.take(event)
    if all(one != "up" for one in walk.state.values()):
        rule = "at the end no node is left, so nothing can be read back"
        yield Problem(site.place(("events",)), "events", rule, "start or replace one")


def _move_problems(spec: ClusterTrial, event: TimedEvent, place: str) -> Iterator[Problem]:
    if event.host is None or event.host.vm is None or event.host.disks is not None:
        rule = "a move is to another VM size, with the same disks"
        yield Problem(place, "move", rule, "write host: {vm: azure/Standard_E8s_v5}")
    if lost_with_vm(spec):
        rule = "the data are on a VM's own disk, which cannot be moved"
        yield Problem(place, "move", rule, "write migrate, which streams them")


def lost_with_vm(spec: ClusterTrial) -> bool:
    """Return whether the tables lie on a disk of the VM's own."""
    disks = spec.cluster.volumes["data"].disks.strip().split("x")[-1].strip()
    return disks in ("local", "nvme", "ephemeral-os")


# What the sections of a trial ask of each other, and what they leave to disklab.

# How long a trial measures when its file does not say: long enough for credits, caches and pauses
# to show, short enough for a matrix (assumed).
DEFAULT_DURATION_S = 60.0


def section_problems(spec: WrittenTrial, site: Site) -> list[Problem]:
    """Return what sections of a trial ask of each other."""
    kind = spec.workload.kind
    found = [*_wrong_operations(spec, site), *_missing_operations(spec, site)]

    def needs(key: Key, why: str, way_out: str) -> None:
        found.append(Problem(site.place(key), "(missing)", why, way_out))

    if (spec.cluster is None) == (spec.device is None):
        rule = "an experiment has either a cluster or a device"
        found.append(Problem(site.place(("workload",)), "(file)", rule, "write one of them"))
        return found
    if spec.cluster is None:
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
    found += feasible.contradictory_volumes(spec.cluster, site)
    found += feasible.unused_volumes(spec.cluster, spec.database, site)
    found += timetable_problems(spec, site)
    found += failure_problems(spec, site)
    return found


HEAP_SHARE = 2
"""At least half of a VM's memory is for page cache and what a JVM has beside its heap."""

MODERN = ("zgc", "shenandoah")


def jvm_problems(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
    """Yield what is wrong with the JVM of a database."""
    database, cluster = spec.database, spec.cluster
    if database is None or cluster is None:
        return
    jvm, key = database.jvm, ("database", "jvm")
    if jvm.collector is None and jvm.heap_bytes is None:
        return
    if not facts_of(database.engine).in_java:
        rule = f"{facts_of(database.engine).title} does not run in a Java virtual machine"
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
        rule = f"{cluster.vm} has {about_bytes(memory)}, and a heap can take at most half of it"
        place = site.place((*key, "heap"))
        yield Problem(place, about_bytes(jvm.heap_bytes), rule, "choose a smaller heap")


def device_problems(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
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


def _wrong_operations(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
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


def _missing_operations(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
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
            rule = (
                f"a timetable recognises lost writes by a version of the whole row; "
                f"{name} writes none"
            )
            yield Problem(place, name, rule, "use write, or leave out events")


def benchmark_problems(spec: WrittenTrial, site: Site) -> list[Problem]:
    """Return what sysbench and TPC-C, which bring tables and load along, leave no room for."""
    kind = spec.workload.kind
    found = []
    if kind in ("sysbench", "tpcc") and spec.before.dataset == "empty":
        rule = f"{kind} works on the rows of its own tables"
        place = site.place(("before", "dataset"))
        found.append(Problem(place, "empty", rule, "leave it out"))
    if spec.workload.load is not None:
        found += beside_problems(kind, spec.workload.load, site)
    return [*found, *_tool_problems(spec, site)]


def _tool_problems(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
    """Yield what a trial asks of a load tool that its kit does not have."""
    tool, database = spec.workload.tool, spec.database
    if tool is None or database is None or not is_kit(database.engine):
        return
    kit, at = kit_of(database.engine).kit, ("workload", "tool")
    load = kit.loads.get(tool.load)
    if load is None:
        way_out = did_you_mean(tool.load, kit.loads, f"choose {', '.join(kit.loads)}")
        rule = f"the kit {kit.kit} has no such load"
        yield Problem(site.place((*at, "load")), tool.load, rule, way_out)
        return
    if tool.fill is not None and kit.fill is None:
        rule = f"the kit {kit.kit} has no fill"
        yield Problem(site.place((*at, "fill")), str(tool.fill), rule, "leave it out")
    if spec.workload.load is not None and spec.workload.load.rate_per_s and not load.at_rate:
        rule = f"{tool.load} of the kit {kit.kit} has no rate"
        place = site.place(("workload", "load", "rate"))
        yield Problem(place, f"{spec.workload.load.rate_per_s:g}/s", rule, "leave it out")
    if spec.events and not load.survives_faults:
        others = [name for name, other in kit.loads.items() if other.survives_faults]
        rule = "this tool ends at the first operation that fails, so it shows nothing about faults"
        way_out = f"use {' or '.join(others)}" if others else "leave out events"
        yield Problem(site.place((*at, "load")), tool.load, rule, way_out)
    units = settings_of(database.engine)
    for name, value in tool.parameters.items():
        place, kind = site.place((*at, "parameters", name)), load.parameters.get(name)
        if kind is None:
            way_out = did_you_mean(name, load.parameters, f"it has {', '.join(load.parameters)}")
            yield Problem(place, str(value), f"{tool.load} has no such parameter", way_out)
            continue
        broken = kind.rule_broken(value, units)
        if broken is not None:
            yield Problem(place, str(value), broken, f"such as {kind.default}")


def beside_problems(kind: str, load: Load, site: Site) -> list[Problem]:
    """Return what is wrong with a load beside a benchmark that has its own."""
    if kind == "tool" and load.rate_per_s is not None:
        return []
    if kind == "sysbench" and load.rate_per_s is not None:
        if load.arrivals == "poisson":
            return []
        at = site.place(("workload", "load", "arrivals"))
        rule = "sysbench draws its arrivals at random (Poisson)"
        return [Problem(at, load.arrivals, rule, "leave arrivals out")]
    given = "threads" if load.threads is not None else "rate"
    if kind == "sysbench" and load.at_most_per_s is not None:
        key: Key = ("workload", "load", "at_most")
        rule = "sysbench has no ceiling for its threads: its --rate is an open loop"
        return [Problem(site.place(key), site.text(key), rule, "write load: {rate: 2000/s}")]
    own = {
        "sysbench": "sysbench.threads",
        "tpcc": "tpcc.connections and its think times",
        "tool": "tool.threads",
    }
    rule = f"the load of {kind} is {own.get(kind, 'its own')}"
    place = site.place(("workload", "load", given))
    return [Problem(place, site.text(("workload", "load", given)), rule, "leave it out")]


def decided(spec: WrittenTrial) -> TrialSpec:
    """Return the spec with what the file leaves open: procedure, load, stop, client's VM."""
    work = spec.workload
    procedure = spec.procedure or Procedure.of(work.load)
    update: dict[str, object] = {}
    if work.stop is None and work.trace is None:
        update["stop"] = Stop.model_validate({"duration": f"{DEFAULT_DURATION_S}s"})
    if work.kind == "rows" and work.load is None and (load := procedure.chosen.own_load()):
        update["load"] = load
    fields = {
        **dict(spec),
        "workload": work.model_copy(update=update),
        "procedure": procedure,
    }
    if spec.cluster is None:
        return DeviceTrial.model_validate(fields)
    if spec.client.vm is None:
        fields["client"] = spec.client.model_copy(update={"vm": spec.cluster.vm})
    return ClusterTrial.model_validate(fields)
