"""Faults on a timetable: what happens to which node while the load runs, and what cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import Field, computed_field, model_validator

from disklab.catalog import Caching
from disklab.database_facts import facts_of
from disklab.errors import Problem
from disklab.spec.amounts import Seconds, Unreadable
from disklab.spec.located import Site
from disklab.spec.part import Part

if TYPE_CHECKING:
    from disklab.spec.model import Cluster, TrialSpec

EventKind = Literal[
    "kill",
    "start",
    "restart",
    "lose",
    "replace",
    "add",
    "decommission",
    "migrate",
    "repair",
    "credits",
    "slow",
    "stall",
    "mend",
]
KINDS: tuple[EventKind, ...] = get_args(EventKind)
DISK_KINDS = ("credits", "slow", "stall", "mend")
"""They concern disks and leave the database to see what it makes of that: any database will do."""
NEW_HOST_KINDS = ("add", "migrate")
"""They need a host beside the cluster's."""
REHEARSED_KINDS = ("add", "decommission", "migrate", "repair", "credits")
"""The simulator does not know them."""
NOT_YET = {
    "stop": "write kill: the process ends without being asked",
    "fail": "write stall, or slow",
    "cut": "write kill: the node is away then, though the others notice it sooner",
    "lossy": "leave it out",
    "zone": "write one lose for each node of the zone, at the same time",
    "move": "write migrate; or lose and start, with which attached disks wait for the next VM",
}
"""What people will look for, and what comes nearest to it."""
MOST_EVENTS = 100


class OtherHost(Part):
    """What the host of a new node is where it is another one than the cluster's."""

    vm: str | None = Field(default=None, examples=["azure/Standard_L8s"])
    """VM size; None: the cluster's."""
    disks: str | None = Field(default=None, examples=["local", "2 x azure/P30"])
    """Disks of its data volume; None: the cluster's."""
    caching: Caching | None = Field(default=None, examples=["None"])
    """Host caching of its data volume; None: the cluster's."""


class TimedEvent(Part):
    """Something that happens to a node while the load runs."""

    at_s: Seconds = Field(alias="at", examples=["60s"])
    """When, from the start of the measured load."""
    kill: str | None = Field(default=None, examples=["n2"])
    """The node's database process is killed (SIGKILL). VM, page cache and disks stay."""
    start: str | None = Field(default=None, examples=["n2"])
    """A database that was killed, or whose host was lost, is started on the disks that it has."""
    restart: str | None = Field(default=None, examples=["n2"])
    """The VM restarts: the database is ended in order, its page cache is gone, disks and host
    cache stay, and it starts again. The time that a VM takes to boot is not in it."""
    lose: str | None = Field(default=None, examples=["n2"])
    """The VM is deallocated, or its host fails: the database is killed, local disks are empty, the
    host cache is cold, and what ReadWrite caching had not yet written is gone."""
    replace: str | None = Field(default=None, examples=["n2"])
    """A node that is away is replaced by an empty one at its address, by the database's own
    procedure: Cassandra streams its share from the other copies."""
    add: str | None = Field(default=None, examples=["n4"])
    """A node more joins, with the next number: it streams its share from the others (bootstrap)."""
    decommission: str | None = Field(default=None, examples=["n2"])
    """A node leaves in order: it streams what it has to the others, and ends."""
    migrate: str | None = Field(default=None, examples=["n2"])
    """A node moves to another VM, such as `host` says: an empty one joins at its place in the ring
    and streams its share, then the old one is decommissioned. It keeps its name."""
    repair: str | None = Field(default=None, examples=["n2"])
    """A node is repaired (`nodetool repair -full`): it compares its copies with the others'."""
    credits: str | None = Field(default=None, examples=["n2"])
    """The burst credits of the node's disks and VM are gone."""
    host: OtherHost | None = Field(default=None, examples=[{"vm": "azure/Standard_L8s"}])
    """The host of a node that is added or migrated; None: one like the cluster's."""
    slow: str | None = Field(default=None, examples=["n2"])
    """I/Os of the node's data volume take ten times as long, until mend."""
    stall: str | None = Field(default=None, examples=["n2"])
    """The node's data volume serves nothing, until mend."""
    mend: str | None = Field(default=None, examples=["n2"])
    """The node's data volume is well again."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for word in (word for word in NOT_YET if word in given):
                rule = f"{word} cannot be rehearsed yet; there are {', '.join(KINDS)}"
                raise Unreadable(rule, NOT_YET[word])
        return given

    @model_validator(mode="after")
    def _one(self) -> TimedEvent:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = f" (here: {', '.join(given)})" if given else ""
            rule = f"an event is exactly one of {', '.join(KINDS)}{found}"
            raise Unreadable(rule, "write for example {at: 60s, kill: n2}")
        if self.host is not None and self.kind not in NEW_HOST_KINDS:
            rule = f"host is that of a new node, which {self.kind} does not make"
            raise Unreadable(rule, f"leave it out, or use {' or '.join(NEW_HOST_KINDS)}")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kind(self) -> EventKind:
        """What happens."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def node(self) -> str:
        """To which node."""
        return str(getattr(self, self.kind))


def in_order(events: Sequence[TimedEvent]) -> list[tuple[int, TimedEvent]]:
    """Return the events by time, each with its place in the file; those of one time as written."""
    return sorted(enumerate(events), key=lambda one: one[1].at_s)


def newcomers(events: Sequence[TimedEvent]) -> dict[int, str]:
    """Return the nodes that come later, by the place of their event in the file, in order of time.

    An added node has its own name, the host that n2 moves to that of n2 with a letter: `n2b`.
    """
    moves: dict[str, int] = {}
    found = {}
    for number, event in in_order(events):
        if event.kind == "add":
            found[number] = event.node
        elif event.kind == "migrate":
            moves[event.node] = moves.get(event.node, 0) + 1
            found[number] = event.node + ascii_lowercase[moves[event.node] % len(ascii_lowercase)]
    return found


def cluster_on(cluster: Cluster, on: OtherHost | None) -> Cluster:
    """Return what the cluster would be if all of it were on this host."""
    if on is None:
        return cluster
    data = cluster.device_of("data")
    changed: dict[str, object] = {}
    if on.disks is not None:
        # Another stripe has the usual chunk, and a single disk none.
        changed |= {"disks": on.disks, "stripe_bytes": None}
    if on.caching is not None:
        changed["caching"] = on.caching
    volume = cluster.volumes[data].model_copy(update=changed)
    volumes = {**cluster.volumes, data: volume}
    return cluster.model_copy(update={"vm": on.vm or cluster.vm, "volumes": volumes})


def timetable_problems(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield what is wrong with the timetable of a trial, all of it."""
    events = spec.events
    if not events:
        return
    if spec.cluster is None or spec.database is None or spec.workload.kind != "rows":
        rule = "a timetable is for a cluster under operations on rows, which are verified"
        yield Problem(site.place(("events",)), "events", rule, "leave it out")
        return
    yield from _ending_problems(spec, site)
    taken = facts_of(spec.database.engine).events
    for number, event in enumerate(events):
        place = site.place(("events", number))
        if event.kind not in (*taken, *DISK_KINDS):
            title = facts_of(spec.database.engine).title
            rule = f"{event.kind} is not known for {title}, which can {', '.join(taken) or 'none'}"
            yield Problem(place, event.kind, rule, "leave it out, or use another database")
        if event.kind == "lose" and spec.cluster.network is not None:
            rule = "the disks of a host in namespaces cannot be lost yet: it has them mounted"
            yield Problem(place, "lose", rule, "leave cluster.network out, or write kill")
        if event.kind == "replace" and spec.cluster.nodes == 1:
            rule = "a replaced node gets its data from others, and this cluster has one node"
            yield Problem(place, "replace", rule, "write start, or use several nodes")
    yield from _order_problems(spec, site)


def _ending_problems(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield what does not fit the end of the measurement."""
    if len(spec.events) > MOST_EVENTS:
        rule = f"a timetable has {MOST_EVENTS} events at most"
        yield Problem(site.place(("events",)), str(len(spec.events)), rule, "leave some out")
    if spec.procedure is not None and spec.procedure.variable is not None:
        rule = "a timetable runs beside one load, and procedure variable tries many"
        place = site.place(("procedure", "variable"))
        yield Problem(place, "variable", rule, "use closed_loop or fixed")
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
    "repair": ("up",),
    "credits": ("up",),
    "kill": ("up",),
    "start": ("killed", "lost"),
    "restart": ("up",),
    "lose": ("up", "killed"),
    "replace": ("killed", "lost"),
    "slow": ("up",),
    "stall": ("up",),
    "mend": ("up", "killed"),
}
AFTER = {
    "kill": "killed",
    "lose": "lost",
    "start": "up",
    "replace": "up",
    "add": "up",
    "decommission": "gone",
}
"""In which state a node is behind an event; others change none."""
AWAY = ("to come", "gone")
"""States of nodes that are no part of the cluster."""


def _order_problems(spec: TrialSpec, site: Site) -> Iterator[Problem]:
    """Yield the events that find their node in another state than they need."""
    assert spec.cluster is not None
    names = [f"n{number}" for number in range(1, spec.cluster.nodes + 1)]
    state = dict.fromkeys(names, "up")
    more = sum(event.kind == "add" for event in spec.events)
    state |= dict.fromkeys(
        (f"n{spec.cluster.nodes + number + 1}" for number in range(more)), "to come"
    )
    copies = spec.database.replication_factor if spec.database is not None else 1
    broken: set[str] = set()
    for number, event in in_order(spec.events):
        place = site.place(("events", number, event.kind))
        node, kind = event.node, event.kind
        if node not in state:
            rule = f"the cluster has no such node; it has n1 to {[*state][-1]}"
            yield Problem(place, node, rule, f"write {[*state][-1]}")
            continue
        if state[node] not in NEEDS[kind] or (kind == "mend" and node not in broken):
            found = "well" if kind == "mend" and state[node] == "up" else state[node]
            rule = f"at {event.at_s:g} s {node} is {found}, which {kind} is not for"
            yield Problem(place, node, rule, "look at the order of the events")
            continue
        if kind == "start" and state[node] == "lost" and lost_with_vm(spec):
            rule = f"the data of {node} were on a disk of its VM and are lost with it"
            yield Problem(place, node, rule, "write replace")
        if kind == "decommission" and sum(one not in AWAY for one in state.values()) <= copies:
            rule = f"each of {copies} copies is on a node of its own, and no more would be left"
            yield Problem(place, node, rule, "add a node first, or use fewer copies")
        state[node] = AFTER.get(kind, state[node])
        if kind in ("slow", "stall"):
            broken.add(node)
        elif kind in ("mend", "lose", "migrate"):
            broken.discard(node)
    if all(one != "up" for one in state.values()):
        rule = "at the end no node is left, so nothing can be read back"
        yield Problem(site.place(("events",)), "events", rule, "start or replace one")


def lost_with_vm(spec: TrialSpec) -> bool:
    """Return whether the tables lie on a disk of the VM's own."""
    assert spec.cluster is not None
    disks = spec.cluster.volumes["data"].disks.strip().split("x")[-1].strip()
    return disks in ("local", "nvme", "ephemeral-os")
