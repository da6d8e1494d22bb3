"""What the simulator is asked of any database: the parts that all their jobs have.

A job is that of `crates/disklab-sim/src/cell.rs`, field by field. What the simulator does not model
is refused with the reason, never guessed. A database that it models has a `SIMULATED` in the
`simulated.py` of its folder.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from disklab.catalog import Catalog
from disklab.catalog.facts import GIB, RoundTripFacts
from disklab.catalog.profile import Profile
from disklab.catalog.resolve import together
from disklab.databases import statements
from disklab.databases.calibration import Calibration, carried, unmeasured
from disklab.databases.protocol import Sizes
from disklab.errors import Problem
from disklab.results import RuleFinding
from disklab.spec import Cluster, ClusterTrial, TimedEvent, TrialSpec, resolve_volumes
from disklab.spec.model import Database, Dataset
from disklab.spec.share import Share, threads_of
from disklab.spec.timetable import CLIENT, in_order, nodes_of
from disklab.traces import Trace

Job = dict[str, Any]

PPM = 1_000_000
FULL = Fraction(1)
NS_PER_S = 1_000_000_000

# Linux's own read-ahead where nobody sets one: 128 KiB (mm.h, VM_READAHEAD_PAGES).
KERNEL_READ_AHEAD_BYTES = 128 << 10

REHEARSE = "rehearse it"
OTHERWISE = "; or record its block trace (docs/traces.md) and predict that"
INSTEAD = f"{REHEARSE}{OTHERWISE}"
"""Of a database that has no model."""

INTERVAL_S = 1.0
"""Of the course of a timetable, as a rehearsal's."""

CLIENT_TIMEOUT_S = 12.0
"""How long a client waits for a machine that has vanished without closing its connections.

**Source:** the request time-out of disklab's load engine; drivers of Cassandra have 12 s too.
"""

AS_LEFT = "as-left"

JOURNAL_WRITES = {"xfs": 1, "ext4": 2}
"""Of a sync that changes metadata: XFS's log; ext4's transaction, then its commit record."""
HOST_CACHE = {"empty": "cold", "written": "written", "warm": "warm", AS_LEFT: AS_LEFT}


@dataclass(frozen=True)
class Delays:
    """What a node that breaks waits for without a disk."""

    start_s: float
    """Until its process answers."""
    join_s: float
    """Until a replacement streams."""
    notice_s: float
    """Until clients notice that its machine has vanished."""
    ring_s: float
    """Until a change of the ring is known, or a standby looks for its primary again."""
    gossip_s: float
    """From one round of gossip, or one try to connect, to the next."""

    def dilated(self, time_dilation: float) -> Delays:
        """Return them in seconds of a system that a rehearsal runs in slow motion.

        Its processes start, and its nodes gossip, at their own pace.
        """
        return Delays(
            start_s=self.start_s / time_dilation,
            join_s=self.join_s / time_dilation,
            notice_s=self.notice_s / time_dilation,
            ring_s=self.ring_s / time_dilation,
            gossip_s=self.gossip_s / time_dilation,
        )


@dataclass(frozen=True)
class Breaking:
    """What the simulator knows of a database's nodes that break."""

    delays: Delays
    job: Callable[
        [Sequence[TimedEvent], Database, Delays, Cluster | None, Sequence[Mapping[str, Any]]], Job
    ]
    """Returns a timetable as a part of a job; see `cassandra.simulated_faults.faults_job`."""
    lever_of: Callable[[str, str], str]
    """Returns what makes a rebuild faster that is bound by a resource of the simulator (the first
    argument). The second: its kind, such as `stream` or `replay`."""
    replaces: bool = True
    """Whether what failures cost in a year is known: how long an empty node that takes a lost one's
    place needs."""
    more_copies: int = 1
    """How many copies more make one that the database can have."""
    first: str = ""
    """What the first node is called, where the load sees whether it is that one that breaks."""


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal's job takes from the machine that it was run on, whatever the database."""

    share: Share
    course: Job
    """When a pass of the load begins to be counted, and when it ends: a part of `workload`."""
    kernel: str
    """Whose rules of reading ahead hold."""
    network: Job
    """Of a rehearsal without a network of its own."""

    @property
    def pages_counted_every_ns(self) -> int:
        """How often its kernel counts the lists of its pages, in the described system's time.

        Source: mm/memcontrol-v1.c and mm/memcontrol.c of Linux 6.18: a look at a group's
        `memory.stat` brings the counts up to date, and telemetry has one each second.
        """
        return NS_PER_S // self.share.time_dilation


@dataclass(frozen=True)
class Simulated:
    """A database that the simulator models."""

    key: str
    """Of a job, under which it stands with the parameters that it was calibrated with."""
    unmodelled: Callable[[ClusterTrial, str], Iterable[Problem]]
    """Yields what of a trial the simulator does not model. The second argument: the file."""
    warnings: Callable[[ClusterTrial, Catalog, Calibration], Iterable[str]]
    job: Callable[[ClusterTrial, Catalog, Calibration], Job]
    rehearsed: Callable[[ClusterTrial, Catalog, Calibration, Rehearsed], Job] | None = None
    """Returns the job of what was rehearsed; None: rehearsals of it are not simulated."""
    without: tuple[str, ...] = ()
    """Mechanisms of the simulator that a rehearsal's client does not have."""
    breaking: Breaking | None = None
    """None: its nodes do not break."""
    rules: Callable[[Job], Iterable[RuleFinding]] | None = None
    """Yields which of its makers' rules an answer keeps; None: they have none."""


def left_caches(spec: TrialSpec, place: str) -> Iterator[Problem]:
    """Yield why a trial does not go on with the caches that another one left."""
    procedure = spec.procedure
    searches = procedure is not None and procedure.searches
    if AS_LEFT not in (spec.before.page_cache, spec.before.host_cache):
        return
    if spec.device is None and not searches:
        return
    rule = "only trials of rows at a stated load pass their caches on to the next one"
    way_out = "say cold or warm, and empty, written or warm"
    yield Problem(f"{place}: before", AS_LEFT, rule, way_out)


def outside(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> list[str]:
    """Return in what a trial lies outside the calibrated range, in words."""
    beyond = calibration.outside(spec, catalog.vms[spec.cluster.vm].series_name)
    return [*beyond, *unmeasured(spec, catalog, calibration)]


def host_profile(spec: TrialSpec, scale: Fraction = FULL) -> Job:
    """Return the profile of a node with all its volumes. `scale`: of host cache and credits."""
    made = together(tuple(resolve_volumes(spec, scale=scale).values()))
    volumes = [_dumped(volume) for volume in made.volumes]
    host = {**_dumped(made), "volumes": volumes}
    share = spec.before.credits_ratio
    return host if share == 1 else with_credits(host, share)


def replayed(host: Job, trace: Trace, depth: int | None, host_cache: str) -> Job:
    """Return the job of a host's one volume under a trace; `host_cache` in the simulator's words.

    `depth`: so many I/Os under way whatever the trace's times are; None: at its times.
    """
    (volume,) = host["volumes"]
    return {
        "host": host,
        "volume": volume["name"],
        "trace": {
            "at_ns": trace.at_ns.tolist(),
            "offset_bytes": trace.offset_bytes.tolist(),
            "len_bytes": trace.length_bytes.tolist(),
            "is_write": [bool(writes) for writes in trace.is_write],
            "depth": depth,
        },
        "host_cache": host_cache,
    }


def with_credits(host: Job, share: float) -> Job:
    """Return a host that begins with so much of its burst credits."""
    found: Job = copy.deepcopy(host)
    disks = (disk for volume in found["volumes"] for disk in volume["disks"])
    for limits in (found["uncached"], found["cached"], *(disk["limits"] for disk in disks)):
        for burst in (limit["burst"] for limit in limits if limit["burst"] is not None):
            if burst["credits"] is not None:
                burst["start"] = int(burst["credits"] * share)
    return found


# The catalogue resolves equal disks of equal VMs once, and a matrix has many cells of each kind.
_DUMPED: dict[int, tuple[Profile, Job]] = {}
MOST_DUMPED = 256


def _dumped(part: Profile) -> Job:
    known = _DUMPED.get(id(part))
    if known is None:
        if len(_DUMPED) >= MOST_DUMPED:
            _DUMPED.clear()
        # The part is kept beside its form: while it lives, nothing else has its id.
        known = _DUMPED[id(part)] = (part, part.model_dump(mode="json"))
    return known[1]


def delays(spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Job:
    """Return how long a message is on its way: a fixed time and the mean of what comes on top.

    The network that the experiment names comes before that of the calibration.
    """
    if spec.client.on_server:
        # What a message over the loopback takes is the CPU of both ends, and in their costs.
        return {"one_way_ns": 0}
    mean = calibration.fact("one_way_ns")
    if spec.cluster.network is not None:
        named = catalog.networks[spec.cluster.network]
        ways = {"within_zone": way(named.within_zone), "between_zones": way(named.between_zones)}
        return {"one_way_ns": sum(ways["within_zone"].values()), **ways}
    if "spread_ns" not in calibration.physical:
        return {"one_way_ns": mean}
    spread = calibration.fact("spread_ns")
    between, between_spread = (
        calibration.fact("between_zones_ns"),
        calibration.fact("between_zones_spread_ns"),
    )
    return {
        "one_way_ns": mean,
        "within_zone": {"fixed_ns": max(mean - spread, 0), "spread_ns": spread},
        "between_zones": {
            "fixed_ns": max(between - between_spread, 0),
            "spread_ns": between_spread,
        },
    }


TWO_WAYS_MEDIAN, TWO_WAYS_P99 = 1.678, 6.638
"""Median and 99th percentile of the sum of two exponential times of mean 1: the spread of a round
trip, whose ways there and back have one each (gamma distribution of shape 2)."""


def way(trip: RoundTripFacts) -> Job:
    """Return one way of a round trip: the fixed time and spread with its median and its p99."""
    median, p99 = trip.at_us(50), trip.at_us(99)
    spread = (p99 - median) / (TWO_WAYS_P99 - TWO_WAYS_MEDIAN)
    fixed = (median - TWO_WAYS_MEDIAN * spread) / 2
    if fixed < 0:
        # The median counts: a longer tail than an exponential one has cannot be had.
        fixed, spread = 0.0, median / TWO_WAYS_MEDIAN
    return {"fixed_ns": round(fixed * 1000), "spread_ns": round(spread * 1000)}


def network(mbit_per_s: int | None) -> int | None:
    """Return a bandwidth in bytes per second."""
    return None if mbit_per_s is None else mbit_per_s * 10**6 // 8


def sizes_of(spec: ClusterTrial, catalog: Catalog, scale: Fraction) -> Sizes:
    """Return what the memory of a server is planned from."""
    memory = int((catalog.vms[spec.cluster.vm].facts.mem_gib or 0) * GIB)
    return Sizes(memory_bytes=memory, scale=scale, nodes=spec.cluster.nodes)


def servers(
    spec: ClusterTrial,
    catalog: Catalog,
    calibration: Calibration,
    scale: Fraction,
    log_volumes: Sequence[str],
) -> Job:
    """Return servers with all rows each, their clients and caches: parts of a job.

    `log_volumes`: where the log may lie, the first that there is. The page cache is not among them.
    """
    cluster = spec.cluster
    vm = catalog.vms[cluster.vm].facts
    data = cluster.device_of("data")
    named = (name for name in log_volumes if name in cluster.volumes)
    log = next((cluster.device_of(name) for name in named), data)
    read_ahead = cluster.volumes["data"].read_ahead_bytes
    return {
        "cluster": {
            "nodes": cluster.nodes,
            **({"zones": cluster.zones} if cluster.zones > 1 else {}),
            "host": host_profile(spec, scale),
            "cores": vm.vcpu,
            "network_bytes_per_s": network(vm.net_mbit_per_s),
            "data_volume": data,
            "commitlog_volume": None if log == data else log,
            "read_ahead_bytes": KERNEL_READ_AHEAD_BYTES if read_ahead is None else read_ahead,
            "kernel": "6.18",
        },
        "client": clients(spec, catalog),
        "network": delays(spec, catalog, calibration),
        "before": {
            "page_cache": _left_by_fill(spec.before.page_cache),
            "host_cache": HOST_CACHE[_left_by_fill(spec.before.host_cache)],
            "empty": spec.before.dataset == "empty",
        },
    }


def clients(spec: ClusterTrial, catalog: Catalog) -> Job:
    """Return the machines that generate the load: a part of a job."""
    vm = catalog.vms[spec.client.vm or spec.cluster.vm].facts
    return {
        "nodes": spec.client.nodes,
        "cores": vm.vcpu,
        "network_bytes_per_s": None if spec.client.on_server else network(vm.net_mbit_per_s),
        **({"on_server": True} if spec.client.on_server else {}),
    }


def _left_by_fill(state: str) -> str:
    """Return the state of a cache: a trial with a timetable has rows of its own, just filled."""
    return "written" if state == AS_LEFT else state


def course(spec: ClusterTrial) -> Job:
    """Return when a load ends, and from when on it counts: a part of `workload`."""
    work, stop = spec.workload, spec.workload.stop
    duration_s = stop.duration_s if stop else None
    return {
        "stop": {
            "operations": stop.operations if stop else None,
            # The simulator's duration counts from the start; ours from the end of the warm-up.
            "duration_ns": (
                None if duration_s is None else round((duration_s + work.warm_up_s) * NS_PER_S)
            ),
        },
        "warm_up_ns": round(work.warm_up_s * NS_PER_S),
    }


def alone(spec: ClusterTrial, place: str, title: str) -> Iterator[Problem]:
    """Yield why a trial of a server does not begin with what another trial left."""
    if AS_LEFT in (spec.before.page_cache, spec.before.host_cache) and not spec.events:
        rule = (
            f"a simulated trial of {title} is independent of others: no earlier trial has "
            f"left it a cache"
        )
        way_out = "say cold or warm, and empty, written or warm"
        yield Problem(f"{place}: before", AS_LEFT, rule, way_out)
    if spec.procedure.searches:
        rule = "the search for a rate simulates Cassandra so far"
        yield Problem(f"{place}: procedure", spec.procedure.kind, rule, REHEARSE)


def load_of(spec: ClusterTrial, calibration: Calibration) -> Job:
    """Return how a trial's operations of rows arrive."""
    load = spec.workload.load
    if load is None or load.scheduled_per_s is None:
        return {"closed": {"threads": threads_of(spec)}}
    paced = load.threads is not None
    return {
        "open": {
            "rate_per_ks": round(load.scheduled_per_s * 1000),
            "arrivals": "paced" if paced else load.arrivals,
            "max_in_flight": load.threads if paced else calibration.fact("max_in_flight"),
        }
    }


def with_sizes(spec: ClusterTrial, share: Share) -> ClusterTrial:
    """Return a trial with volumes as large as they were in its rehearsal."""
    cluster = spec.cluster
    volumes = {
        name: volume.model_copy(
            update={"size_bytes": int(share.volume_bytes[cluster.device_of(name)].here)}
        )
        for name, volume in cluster.volumes.items()
    }
    changed = cluster.model_copy(update={"volumes": volumes})
    return spec.model_copy(update={"cluster": changed})


OWN_CLIENT = ("client_read_cpu_ns", "client_write_cpu_ns", "client_byte_ps", "client_cpu_ns")
"""Parameters of the studies' client that cost time in the simulator even when it never queues."""


def take_place(job: Job, spec: ClusterTrial, there: Rehearsed) -> None:
    """Give a server's job the kernel, network, client and course of a rehearsal."""
    job["cluster"]["kernel"] = there.kernel
    job["cluster"]["pages_counted_every_ns"] = there.pages_counted_every_ns
    if spec.cluster.network is None:
        job["network"] = there.network
    job["parameters"] = own_client(job["parameters"])
    job["workload"] |= there.course


def server_work(
    spec: ClusterTrial,
    calibration: Calibration,
    of_rows: Callable[[Dataset], Job],
    relation: Callable[[Job], Job | None],
) -> tuple[list[Job], Job]:
    """Return the tables and the load of a trial of servers that have all rows each.

    `of_rows`: returns the table of the rows workload as the database stores it; `relation`: one of
    sysbench or TPC-C, None where it has none.
    """
    work = spec.workload
    if work.kind == "rows":
        dataset = spec.the_dataset
        lists = statements.of_rows(spec, dataset)
        transactions = [
            {"name": name, "share_ppm": round(share * PPM), "statements": lists[name]}
            for name, share in work.the_operations.shares.items()
        ]
        return [of_rows(dataset)], {
            **course(spec),
            "transactions": transactions,
            "load": load_of(spec, calibration),
            "keys": work.keys,
            "asked_rows": work.asked_of(dataset.rows or 0),
        }
    shape = statements.shape_of(spec, statements.Stored(1, 0))
    load: Job = {"closed": {"threads": shape.sessions}}
    if work.load is not None and work.load.rate_per_s is not None:
        load = load_of(spec, calibration)
        load["open"]["max_in_flight"] = shape.connections or shape.sessions
    tables = [made for table in shape.tables if (made := relation(table)) is not None]
    return tables, {
        **course(spec),
        "transactions": [statements.logged(each) for each in shape.transactions],
        "load": load,
        "connections": shape.connections,
        "keys": "uniform",
    }


@dataclass(frozen=True)
class ServerJobs:
    """How jobs of servers that have all rows each are made, whatever the database."""

    loaded: Callable[[ClusterTrial, Catalog, Calibration, Fraction], Job]
    """Returns the job of a load. The last argument: the scale of memory, caches and the log."""
    own_faults: Callable[[Database, Delays], Job]
    """Returns what of a timetable is the database's own."""
    delays: Delays

    def faults(
        self,
        events: Sequence[TimedEvent],
        database: Database,
        delays: Delays,
        cluster: Cluster | None = None,
        hosts: Sequence[Mapping[str, Any]] = (),
    ) -> Job:
        """Return a timetable as `SqlFaults` of `crates/disklab-sim/src/job/faults.rs` has it.

        `cluster`: whose zones may be lost; servers move to no other hosts.
        """
        assert not hosts, "no event that the simulator supports brings a host"
        return sql_faults(events, delays, cluster) | self.own_faults(database, delays)

    def described(self, spec: ClusterTrial, catalog: Catalog, calibration: Calibration) -> Job:
        """Return the job of a trial as its file describes it, with what breaks."""
        job = self.loaded(spec, catalog, calibration, FULL)
        job["parameters"] = carried(job["parameters"], spec, catalog, calibration)
        return job | self._timetable(spec, self.delays)

    def rehearsed(
        self, spec: ClusterTrial, catalog: Catalog, calibration: Calibration, there: Rehearsed
    ) -> Job:
        """Return the job of what was rehearsed."""
        scale = Fraction(there.share.scale)
        job = self.loaded(with_sizes(spec, there.share), catalog, calibration, scale)
        take_place(job, spec, there)
        # A rehearsal's lost server is killed: its sockets close.
        delays = replace(self.delays, notice_s=0.0)
        return job | self._timetable(spec, delays.dilated(there.share.time_dilation))

    def _timetable(self, spec: ClusterTrial, delays: Delays) -> Job:
        if not spec.events:
            return {}
        return {"faults": self.faults(spec.events, spec.database, delays, spec.cluster)}

    def breaking(
        self, less_log: str, levers: Mapping[str, Mapping[str, str]], first: str
    ) -> Breaking:
        """Return what is known of servers that break.

        `less_log`: what leaves less to recover from; `levers`: of other kinds of rebuild than that,
        what helps against what bounds them; `first`: what the first server is called.
        """
        return Breaking(
            self.delays,
            self.faults,
            partial(_lever_of, less_log, levers),
            replaces=False,
            first=first,
        )


def _lever_of(
    less_log: str, levers: Mapping[str, Mapping[str, str]], resource: str, kind: str
) -> str:
    """Return what makes a recovery, or another rebuild, faster that `resource` bounds."""
    own, behind = (levers[kind], "") if kind in levers else ({}, f"; {less_log}")
    if resource.startswith("vm "):
        return f"a VM size with more disk IOPS and MB/s{behind}"
    if kind in levers:
        return own.get(resource, "larger disks, or more of them")
    return f"larger disks, or more of them{behind}" if "disk" in resource else less_log


def own_client(values: Mapping[str, int]) -> dict[str, int]:
    """Return parameters with the rehearsal's client: its CPU is next to nothing.

    **Source:** our own rehearsals of 2026-11-24: 2 to 14 us an operation, of a database's 24 to
    127 us; the studies' client, cassandra-stress, takes 125 to 167 us.
    """
    return {name: 0 if name in OWN_CLIENT else value for name, value in values.items()}


# A timetable of what breaks, as the simulator takes it: which node it happens to, and when.

MILLION = 1_000_000

MOVING = ("migrate", "move", "add")
"""Events that bring a host, such as `host` says."""


def moves_of(events: Sequence[TimedEvent]) -> list[TimedEvent]:
    """Return the events that bring a host, in the order of time."""
    return [event for _, event in in_order(events) if event.kind in MOVING]


@dataclass(frozen=True)
class Step:
    """What happens to one node."""

    event: TimedEvent
    node: int
    what: str
    host: int | None
    volume: int | None = None
    """Which of the host's, where it is not that of the data."""

    def job(self) -> dict[str, Any]:
        """Return it as the simulator takes it."""
        event = self.event
        job: dict[str, Any] = {
            "at_ns": round(event.at_s * NS_PER_S),
            "node": self.node,
            "what": self.what,
        }
        if self.host is not None:
            job["host"] = self.host
        if self.volume is not None:
            job["volume"] = self.volume
        if event.times is not None:
            job["slow_permille"] = round(event.times * 1000)
        if event.ends:
            job["link"] = {
                "extra_ns": round((event.round_trip_s or 0.0) / 2 * NS_PER_S),
                "loss_ppm": round((event.loss_ratio or 0.0) * MILLION),
                "cut": event.kind == "cut",
            }
            if event.bandwidth_bytes_per_s is not None:
                job["link"]["bytes_per_s"] = event.bandwidth_bytes_per_s
        if len(event.ends) > 1:
            (peer,) = set(event.ends) - {f"n{self.node + 1}"}
            job["peer"] = peer if peer == CLIENT else {"node": int(peer.removeprefix("n")) - 1}
        return job


FIRST_RETRY_S, MOST_RETRY_S = 0.1, 1.0
"""Pauses of clients of one primary that cannot connect, which double.

**Source:** disklab's own load engine; a pool of connections with a back-off does the same.
"""


def sql_faults(events: Sequence[TimedEvent], delays: Delays, cluster: Cluster | None) -> Job:
    """Return a timetable and its clients, as `SqlFaults` of the engine's `job/faults.rs` has them.

    What a server needs to come back is its database's own. `cluster`: whose zones may be lost.
    """
    return {
        "events": [step.job() for step in steps_of(events, cluster)],
        "interval_ns": round(INTERVAL_S * NS_PER_S),
        "start_ns": round(delays.start_s * NS_PER_S),
        "timeout_ns": round(CLIENT_TIMEOUT_S * NS_PER_S),
        "vanishes": delays.notice_s > 0,
        # Where all is known, the next try is at once.
        "first_retry_ns": max(round(delays.gossip_s * FIRST_RETRY_S / MOST_RETRY_S * NS_PER_S), 1),
        "most_retry_ns": max(round(delays.gossip_s * NS_PER_S), 1),
        "follow_ns": round(delays.ring_s * NS_PER_S),
    }


def steps_of(events: Sequence[TimedEvent], cluster: Cluster | None) -> list[Step]:
    """Return what happens to which node, in the order of time: a lost zone is its nodes, lost."""
    hosts = iter(range(len(events)))
    found = []
    for _, event in in_order(events):
        what = "lose" if event.kind == "lose_zone" else event.kind
        # What happens to a way between two happens once.
        nodes = nodes_of(event, cluster)[: 1 if event.ends else None]
        host = next(hosts) if event.kind in MOVING else None
        volume = None
        if event.volume is not None and cluster is not None:
            devices = [name for name in cluster.volumes if cluster.device_of(name) == name]
            volume = devices.index(cluster.device_of(event.volume))
        numbers = [int(node.removeprefix("n")) - 1 for node in nodes]
        found += [Step(event, number, what, host, volume) for number in numbers]
    return found
