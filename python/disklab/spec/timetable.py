"""Faults on a timetable: what happens to which node while the load runs, and what cannot."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    computed_field,
    field_validator,
    model_validator,
)

from disklab.catalog import Caching, load_catalog
from disklab.catalog.weather import LEAST_YEAR_S, MOST_YEAR_S, compressed_year, weather_of_disks
from disklab.errors import Problem
from disklab.spec.amounts import Bandwidth, Part, Ratio, Seconds, Unreadable, counted, seconds
from disklab.spec.located import Site

if TYPE_CHECKING:
    from disklab.spec.model import Cluster, WrittenTrial

# How often machines and disks fail, as the experiment states it.

MOST_YEARLY = 1000.0
"""Three a day: more are no failures of hosts but a way to run them."""

_YEARLY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(%)?", re.ASCII)


def _yearly(value: Any) -> float:
    found = _YEARLY.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if found is None:
        raise Unreadable("is not a number of failures a year", "write for example 8%, or 2")
    amount = float(found[1]) / (100 if found[2] else 1)
    if amount > MOST_YEARLY:
        raise Unreadable(f"lies between 0 and {MOST_YEARLY:.0f} a year", "write for example 8%")
    return amount


Yearly = Annotated[
    float,
    BeforeValidator(_yearly),
    WithJsonSchema({"type": ["string", "number"], "title": "a year", "examples": ["8%", 2]}),
]


class Failures(Part):
    """How often what fails, of each VM or disk; predictions of Cassandra tell what it costs."""

    vm_lost_per_year: Yearly = Field(default=0.0, examples=["8%"])
    """VMs whose host fails, or that are deallocated, as a share of all in a year: data on disks of
    the VM are lost, attached disks wait for the next VM."""
    vm_restarts_per_year: Yearly = Field(default=0.0, examples=[4])
    """Restarts of a VM in a year, planned ones too: no data are lost."""
    disk_lost_per_year: Yearly = Field(default=0.0, examples=["0.2%"])
    """Attached disks that lose their data, as a share of all in a year."""
    replaced_after_s: Seconds = Field(alias="replaced_after", examples=["15min"])
    """From the loss of a VM until another one runs in its place and the database can start on it.
    """
    restarted_after_s: Seconds = Field(
        default="0s", validate_default=True, alias="restarted_after", examples=["2min"]
    )
    """How long a VM that restarts takes to boot."""

    @model_validator(mode="after")
    def _some(self) -> Failures:
        if not (self.vm_lost_per_year or self.vm_restarts_per_year or self.disk_lost_per_year):
            raise Unreadable("nothing in it ever fails", "write for example vm_lost_per_year: 8%")
        return self


def failure_problems(spec: WrittenTrial, site: Site) -> Iterator[Problem]:
    """Yield what is wrong with the stated failures of a trial."""
    asked = spec.require is not None and spec.require.recovery_s is not None
    if asked and spec.failures is None and not spec.events:
        place = site.place(("require", "recovery"))
        shown = site.text(("require", "recovery"))
        rule = "nothing is lost that could recover"
        way_out = "state failures: {vm_lost_per_year: 8%, replaced_after: 15min}, or events"
        yield Problem(place, shown, rule, way_out)
    if spec.failures is None:
        return
    if spec.cluster is None or spec.database is None or spec.workload.kind != "rows":
        rule = "failures are those of a cluster under operations on rows"
        yield Problem(site.place(("failures",)), "failures", rule, "leave it out")


EventKind = Literal[
    "kill",
    "start",
    "restart",
    "lose",
    "lose_zone",
    "replace",
    "promote",
    "add",
    "decommission",
    "migrate",
    "move",
    "repair",
    "credits",
    "slow",
    "stall",
    "mend",
    "cut",
    "slow_link",
    "lossy",
    "join",
]
KINDS: tuple[EventKind, ...] = get_args(EventKind)
DISK_KINDS = ("credits", "slow", "stall", "mend")
"""They concern disks and leave the database to see what it makes of that: any database will do."""
LINK_KINDS = ("cut", "slow_link", "lossy", "join")
"""They concern links of hosts in namespaces; any database will do."""
NEW_HOST_KINDS = ("add", "migrate")
"""They need a host beside the cluster's."""
OTHER_VM_KINDS = (*NEW_HOST_KINDS, "move")
"""They may say what the next host is."""
MEASURED_KINDS = ("kill", "start", "restart", "cut", "slow_link", "lossy", "join")
"""What may happen to a database that disklab has built on hosts: its own processes, no machine; and
ways between hosts that allow it."""
_DISK, _HOST = (
    "the underlying disk is yours, and disklab does not break it",
    "disklab does not lose, move or add a machine of yours",
)
_ASKED = "disklab does that only to databases in rehearsals"
WHY_NOT_MEASURED: dict[str, str] = {
    **dict.fromkeys(DISK_KINDS, _DISK),
    **dict.fromkeys((*OTHER_VM_KINDS, "lose", "lose_zone", "replace"), _HOST),
    **dict.fromkeys(("decommission", "repair", "promote"), _ASKED),
}
"""Why every other event is refused on hosts."""
NOT_YET = {
    "stop": "write kill: the process ends without being asked",
    "fail": "write stall, or slow",
    "zone": "write lose_zone",
    "partition": "write cut: n1-n2 for every two nodes that are separated",
}
"""What people will look for, and what comes nearest to it."""
MOST_EVENTS = 100
MOST_TIMES = 1000
"""A volume that is slower serves nothing: a stall."""
CLIENT = "client"
"""What a link's end is called that is no node's: the host of the load."""
BETWEEN = "-"
"""Stands between the two ends of a link."""


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
    procedure: Cassandra streams its share from the other copies, a standby of PostgreSQL gets a
    copy of the primary (`pg_basebackup`)."""
    promote: str | None = Field(default=None, examples=["n2"])
    """A standby of PostgreSQL becomes the primary, which is away: the time from its loss to this
    event is what noticing it takes. Clients find it by their list of hosts."""
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
    move: str | None = Field(default=None, examples=["n2"])
    """A node's attached disks move to another VM, `host.vm`, as clouds do it: the database ends in
    order, the disks are detached and attached to the new VM, whose host cache is cold, and the
    database starts there on what they hold. Nothing is streamed. Address and name stay."""
    lose_zone: str | None = Field(default=None, examples=["2"])
    """All nodes of an availability zone are lost at once, each as `lose` says."""
    cut: str | None = Field(default=None, examples=["n2", "n1-n2"])
    """The link of a node, or the way between two (`client` may be one), carries nothing, and
    nobody is told, until join. Needs `cluster.network`, as all links do."""
    slow_link: str | None = Field(default=None, examples=["n2", "n1-n2"])
    """The link is slow until join: `round_trip` is added to each round trip, and not more than
    `bandwidth` is sent by the node, or by each of the two to the other."""
    lossy: str | None = Field(default=None, examples=["n2", "n1-n2"])
    """The link loses so many of its packets (`loss`) until join."""
    join: str | None = Field(default=None, examples=["n2", "n1-n2"])
    """The link is as it was at first."""
    round_trip_s: Seconds | None = Field(default=None, alias="round_trip", examples=["20ms"])
    """Of a slow link."""
    bandwidth_bytes_per_s: Bandwidth | None = Field(
        default=None, alias="bandwidth", examples=["10MB/s"]
    )
    """Of a slow link."""
    loss_ratio: Ratio | None = Field(default=None, alias="loss", examples=["5%"])
    """Of a lossy link."""
    host: OtherHost | None = Field(default=None, examples=[{"vm": "azure/Standard_L8s"}])
    """The host of a node that is added, migrated or moved; None: one like the cluster's."""

    @field_validator("lose_zone", mode="before")
    @classmethod
    def _number(cls, given: Any) -> Any:
        return str(given) if isinstance(given, int) and not isinstance(given, bool) else given

    slow: str | None = Field(default=None, examples=["n2"])
    """I/Os of the node's data volume take ten times as long, or `times`, until mend."""
    times: float | None = Field(default=None, gt=1, le=MOST_TIMES, examples=[4])
    """How many times as long I/Os of a slow volume take; None: ten."""
    stall: str | None = Field(default=None, examples=["n2"])
    """The node's data volume serves nothing, until mend."""
    mend: str | None = Field(default=None, examples=["n2"])
    """The node's data volume is well again."""
    volume: str | None = Field(default=None, examples=["commitlog"])
    """Of slow, stall and mend: another volume of the node than that with its data."""

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
        if self.host is not None and self.kind not in OTHER_VM_KINDS:
            rule = f"host is that of a new node, which {self.kind} does not make"
            raise Unreadable(rule, f"leave it out, or use {', '.join(OTHER_VM_KINDS)}")
        if self.times is not None and self.kind != "slow":
            raise Unreadable("only a slow volume has times", "write {at: 60s, slow: n2, times: 4}")
        if self.volume is not None and self.kind not in ("slow", "stall", "mend"):
            rule = "only slow, stall and mend are of one volume"
            raise Unreadable(rule, "write {at: 60s, stall: n2, volume: commitlog}")
        self._check_link()
        return self

    def _check_link(self) -> None:
        slow = self.round_trip_s is not None or self.bandwidth_bytes_per_s is not None
        if slow is not (self.kind == "slow_link"):
            rule = "a slow link, and nothing else, has a round_trip, a bandwidth or both"
            raise Unreadable(rule, "write {at: 60s, slow_link: n2, round_trip: 20ms}")
        if (self.loss_ratio is not None) is not (self.kind == "lossy"):
            rule = "a lossy link, and nothing else, has a loss"
            raise Unreadable(rule, "write {at: 60s, lossy: n2, loss: 5%}")
        if len(self.ends) > 2 or (len(self.ends) == 2 and self.ends[0] == self.ends[1]):
            raise Unreadable("a link is that of a node, or between two", "write n2 or n1-n2")
        if self.ends == (CLIENT,):
            rule = "without the client's link there is no load"
            raise Unreadable(rule, f"write {CLIENT}{BETWEEN}n2 for its connection to a node")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kind(self) -> EventKind:
        """What happens."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def node(self) -> str:
        """To which node; of a link, its end or both (`n1-n2`); of a zone, its number."""
        return str(getattr(self, self.kind))

    @property
    def ends(self) -> tuple[str, ...]:
        """The ends of the link that it concerns: one, whose whole link it is, or two; or none."""
        return tuple(self.node.split(BETWEEN)) if self.kind in LINK_KINDS else ()


def year_seconds(value: Any) -> float:
    """Read how long a compressed year takes, in seconds."""
    year_s = seconds(value)
    if not LEAST_YEAR_S <= year_s <= MOST_YEAR_S:
        rule = f"a compressed year takes {LEAST_YEAR_S:g} s to {MOST_YEAR_S / 3600:g} h"
        raise Unreadable(rule, "write for example 10min")
    return year_s


def drawn_events(given: dict[str, Any], cluster: Cluster | None) -> list[dict[str, Any]]:
    """Return the timetable that `{weather: {seed: 1, year_in: 10min}}` stands for."""
    asked = given.get("weather")
    form = "write events: {weather: {seed: 1, year_in: 10min}}, or a list of events"
    if set(given) != {"weather"} or not isinstance(asked, dict) or set(asked) - {"seed", "year_in"}:
        raise Unreadable("events are a list, or drawn: weather, with a seed and year_in", form)
    if cluster is None:
        raise Unreadable("weather is that of a cluster's disks", "leave it out")
    year_s = year_seconds(asked.get("year_in", "10min"))
    seed = counted(least=0)(asked.get("seed", 1))
    disks = cluster.volumes[cluster.device_of("data")].disks
    weather = weather_of_disks(load_catalog(), disks, cluster.vm.partition("/")[0])
    stream = random.Random(seed)  # noqa: S311 - chance that anybody can draw again
    found = []
    for spell in compressed_year(weather, year_s, seed):
        zone = zone_of(stream.randrange(cluster.zones), cluster.zones)
        node = f"n{stream.randrange(cluster.nodes) + 1}"
        for name in nodes_of_zone(cluster, zone) if spell.shared else [node]:
            what = {"stall": name} if spell.times is None else {"slow": name, "times": spell.times}
            found.append({"at": f"{spell.at_s:.1f}s", **what})
            found.append({"at": f"{spell.at_s + spell.lasts_s:.1f}s", "mend": name})
    return found


def _drawn(given: Any, info: ValidationInfo) -> Any:
    return drawn_events(given, info.data.get("cluster")) if isinstance(given, dict) else given


_WEATHER_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["weather"],
    "properties": {
        "weather": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"seed": {"type": ["integer", "string"]}, "year_in": {"type": "string"}},
        }
    },
}


class _OrWeather:
    """Lets the schema of a file have events that are drawn."""

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(core), _WEATHER_SCHEMA]}


Events = Annotated[list[TimedEvent], BeforeValidator(_drawn), _OrWeather()]
"""Events of a timetable, or weather: each kind of it at least once, drawn."""


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


def zone_of(number: int, zones: int) -> str:
    """Return the zone of the node with this number, from 0: nodes are spread in turn."""
    return str(number % zones + 1)


def nodes_of_zone(cluster: Cluster, zone: str) -> list[str]:
    """Return the nodes of the cluster, as it was at first, that are in a zone."""
    numbers = range(cluster.nodes)
    return [f"n{one + 1}" for one in numbers if zone_of(one, cluster.zones) == zone]


def nodes_of(event: TimedEvent, cluster: Cluster | None) -> list[str]:
    """Return the nodes that an event concerns."""
    if event.kind == "lose_zone":
        return [] if cluster is None else nodes_of_zone(cluster, event.node)
    ends = event.ends or (event.node,)
    return [end for end in ends if end != CLIENT]
