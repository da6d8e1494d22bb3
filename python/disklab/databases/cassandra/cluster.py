"""A Cassandra of our own: nodes on given volumes, the schema, and the states between trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from disklab.databases.cassandra.access import Secrets, StorageKey
from disklab.databases.cassandra.compactions import Calm, activity, parts_in
from disklab.databases.cassandra.configuration import (
    CQL_PORT,
    Installation,
    NodeFiles,
    Replaced,
    Start,
    access_settings,
    default_settings,
    even_tokens,
    node_settings,
    token_for_newcomer,
)
from disklab.databases.cassandra.jolokia import FLUSH, STORAGE
from disklab.databases.cassandra.node import READY_SECONDS, Node
from disklab.databases.cassandra.settings import dilated_timing, merged, statements, usual_timing
from disklab.databases.cassandra.sizing import MIB, MemoryPlan, plan_memory
from disklab.databases.nodes import NO_GROUP
from disklab.databases.place import Way
from disklab.databases.protocol import (
    Coldness,
    Conditions,
    NodePlace,
    Observation,
    Request,
)
from disklab.errors import MachineError
from disklab.hosts.left_databases import record_group
from disklab.waiting import Wait

POLL_SECONDS = 0.5
# Of a replaced node's streaming: 40 GB at Cassandra's 24 MiB/s.
REBUILD_SECONDS = 1800.0
# Metadata blocks and pages in use at that moment stay; above this the cache is not cold.
COLD_RATIO = 0.01
# Of system_distributed and system_traces, whatever the user's tables have; Cassandra lets no node
# leave that they need, unless it is forced. Source: SystemDistributedKeyspace of Cassandra 5.0.
OWN_COPIES = 3


MakeNode = Callable[[NodeFiles, Secrets, Installation], Node]


class Cassandra:
    """A cluster that disklab starts and stops. See `Database` for what each method promises."""

    def __init__(
        self,
        request: Request,
        nodes: Sequence[tuple[NodePlace, Installation]],
        plan: MemoryPlan,
        make: MakeNode = Node,
    ) -> None:
        """Take what is asked for and where, with the programs of each place."""
        self.request = request
        self.plan = plan
        self._installation = nodes[0][1]
        self._secrets = Secrets.new() if request.kept is None else Secrets.of(request.kept)
        self._storage_key = StorageKey()
        self._has_role = request.kept is not None
        self._way = Way("Cassandra", [(place.host, place) for place, _ in nodes])
        first = [place for place, _ in nodes if not place.comes_later]
        made = {
            place.name: make(NodeFiles(place), self._secrets, installation)
            for place, installation in nodes
        }
        self.nodes = [made.pop(place.name) for place in first]
        self._waiting = made
        tokens = even_tokens(len(self.nodes))
        names = (place.name for place in first)
        self._tokens = dict(zip(names, tokens, strict=True))
        self._left: list[Node] = []
        self._memory: dict[str, int] = {}
        """Of nodes that were moved to another VM: its memory, unscaled."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the scale could not be followed in."""
        told = (*self._way.notes, *self.plan.reasons)
        if all(node.files.place.group or node.host.elsewhere for node in self.nodes):
            return told
        return (*told, NO_GROUP.format(mib=self.plan.page_cache // MIB, what="data are"))

    @property
    def secret(self) -> str:
        """What its data are made for: the passwords."""
        return self._secrets.text

    def let_in(self, clients: Sequence[str], addresses: Sequence[str]) -> None:
        """Have the load come from client hosts. Who has its secret is let in, from anywhere."""
        del addresses
        self._way.let_in(clients)

    @property
    def versions(self) -> Mapping[str, str]:
        """Cassandra's and Java's."""
        used = self._installation
        return {"Apache Cassandra": used.distribution.version, "Java": str(used.java.major)}

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load job finds the table."""
        return {
            "protocol": "cql",
            "contact_points": [f"{node.files.place.address}:{CQL_PORT}" for node in self.nodes],
            "user": self._secrets.cql.user,
            "password": self._secrets.cql.password,
            "keyspace": self.request.keyspace,
            "table": self.request.table_name,
        }

    def start(self) -> None:
        """Start the first node, then the others together; make role, keyspace and table."""
        try:
            for node in self.nodes:
                self._make_room(node)
                self._configure(node)
            # The others ask the first one, their seed, for the ring.
            for nodes in (self.nodes[:1], self.nodes[1:]):
                for node in nodes:
                    self._launch(node)
                for node in nodes:
                    node.wait_until_up()
            # A node that another has not met yet gets a statement without the keyspace before it.
            self._wait_for_agreement()
            if not self._has_role:
                self.nodes[0].make_role(self._secrets, len(self.nodes))
                self._has_role = True
            for node in self.nodes:
                node.open_cql()
            for node in self.nodes:
                node.wait_until_ready()
            self.nodes[0].cql.run(*statements(self.request))
            self._wait_for_agreement()
        except BaseException:
            self._kill()
            raise

    def _plan_of(self, node: Node) -> MemoryPlan:
        """Return the memory of a node, whose VM may be another one than the request's."""
        place = node.files.place
        own = self._memory.get(place.name, place.memory_bytes)
        if own is None:
            return self.plan
        return plan_memory(replace(self.request.sizes, memory_bytes=own))

    def _make_room(self, node: Node) -> None:
        if (group := node.files.place.group) is not None:
            group.set_limit(self._plan_of(node).limit)
            record_group(node.files.place.run_dir, group)

    def _configure(self, node: Node, *, replaces: bool = False, joins: bool = False) -> None:
        known = self._installation.known
        usual = default_settings(self._plan_of(node), known, self.request.version)
        defaults = {**usual_timing(known), **usual}
        settings = dilated_timing(
            merged(self.request.settings, defaults, known), self.request.sizes.time_dilation
        )
        addresses = [one.files.place.address for one in self.nodes]
        token = self._tokens[node.files.place.name]
        placed = node_settings(node.files, addresses, token, replaces=replaces, joins=joins)
        own = {**placed, **access_settings(known)}
        alone = len(self.nodes) == 1 and not self._waiting
        # On a host with a network of its own, nobody of this machine has a way to it. On the user's
        # own hosts he decides who has.
        if not node.host.elsewhere and (alone or not node.host.has_network):
            own |= node.close_storage_port(self._storage_key)
        node.configure(own, settings, self._secrets, node.installation.account)

    def kill_node(self, name: str) -> None:
        """End a node's process at once."""
        self._named(name).kill()

    def start_node(self, name: str) -> None:
        """Start a killed node on what its disks hold; returns when it answers queries."""
        node = self._named(name)
        self._configure(node)
        self._bring_up(node)

    def restart_node(self, name: str) -> None:
        """Drain and end a node, drop its page cache, start it."""
        node = self._named(name)
        node.stop()
        node.drop_page_cache()
        self._bring_up(node)

    def replace_node(self, name: str) -> None:
        """Start an empty node at a dead one's address; returns when it has streamed its share.

        **Source:** Cassandra's documentation, "Replacing a dead node": replace_address_first_boot.
        """
        node = self._named(name)
        node.empty()
        self._configure(node, replaces=True)
        self._bring_up(node, replaces=True)

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        """Ask a node nothing while it cannot be reached."""
        self._named(name).is_reachable = reachable

    def leave_disks(self, name: str) -> None:
        """Drain and end a node."""
        self._named(name).stop()

    def start_on_moved_disks(self, name: str, memory_bytes: int) -> None:
        """Start a node on its disks, with the heap and caches of its new VM."""
        node = self._named(name)
        self._memory[name] = memory_bytes
        self._make_room(node)
        self.start_node(name)

    def streamed(self) -> Mapping[str, int]:
        """Return the bytes that each serving node has got by streaming since it started."""
        seen = {node.files.place.name: node.streamed_bytes() for node in self.nodes}
        return {name: count for name, count in seen.items() if count is not None}

    def parts(self, begun_unix: float) -> Mapping[str, float]:
        """Return what a node that came, or went, has spent its seconds with. See `Streaming`."""
        logs = [node.files.log for node in (*self.nodes, *self._left)]
        return parts_in(logs, begun_unix, time.time())

    def wait_until_whole(self) -> None:
        """Return when every node sees all others."""
        self._wait_for_agreement()

    def add_node(self, name: str, near: str | None = None) -> None:
        """Let a node bootstrap; returns when it has streamed its share.

        **Source:** Cassandra's documentation, "Adding, replacing, moving and removing nodes".
        """
        node = self._waiting[name]
        place = None if near is None else self._tokens[near]
        self._tokens[name] = token_for_newcomer(list(self._tokens.values()), place)
        self._make_room(node)
        self.nodes.append(node)
        del self._waiting[name]
        self._configure(node, joins=True)
        self._bring_up(node, joins=True)

    def decommission_node(self, name: str) -> None:
        """Let a node stream what it has to the others and leave the ring."""
        node = self._named(name)
        node.leave(forced=len(self.nodes) <= OWN_COPIES)
        self.nodes.remove(node)
        self._left.append(node)
        del self._tokens[name]

    def repair_node(self, name: str) -> None:
        """Repair a node in full. See `Growing`."""
        limit_s = REBUILD_SECONDS * self.request.sizes.time_dilation
        self._named(name).repair(self.request.keyspace, limit_s)

    def _named(self, name: str) -> Node:
        known = (*self.nodes, *self._waiting.values())
        return next(node for node in known if node.files.place.name == name)

    def _bring_up(self, node: Node, *, replaces: bool = False, joins: bool = False) -> None:
        self._launch(node, replaces=replaces)
        # Streaming is bound by disks, whose time is slower.
        streams = replaces or joins
        limit_s = REBUILD_SECONDS * self.request.sizes.time_dilation if streams else READY_SECONDS
        node.wait_until_up(limit_s)
        node.open_cql()
        node.wait_until_ready()

    def _wait_for_agreement(self) -> None:
        """Return when every node sees all others and has the same schema as they.

        Raises MachineError when that takes too long, or a node dies.
        """
        with Wait("all nodes see each other, with one schema", READY_SECONDS) as wait:
            while True:
                seen = [
                    node.jolokia.read((STORAGE, "LiveNodes"), (STORAGE, "SchemaVersion"))
                    for node in self.nodes
                ]
                schemas = {schema for _, schema in seen}
                if all(len(live) == len(self.nodes) for live, _ in seen) and len(schemas) == 1:
                    return
                for node in self.nodes:
                    node.process.check()
                if wait.is_over:
                    fewest = min(len(live) for live, _ in seen)
                    raise MachineError(
                        f"after {READY_SECONDS:.0f} s a node sees {fewest} of {len(self.nodes)} "
                        f"nodes, and there are {len(schemas)} schemas; look at the nodes' logs"
                    )
                wait.pause(POLL_SECONDS)

    def expect(self, connections: int) -> None:
        """Do nothing: clients are threads of a heap that has its size."""

    def settle(self, conditions: Conditions) -> None:
        """Truncate, flush and sync, wait for compactions, in this order."""
        with self._with_the_reason():
            for table in conditions.to_empty(self.request):
                self.nodes[0].cql.run(f"TRUNCATE {self.request.keyspace}.{table}")
            if conditions.flushed:
                for node in self.nodes:
                    node.jolokia.call(STORAGE, FLUSH, self.request.keyspace, [])
                    node.sync()
            if conditions.compacted:
                with self._unthrottled():
                    self._wait_for_compactions(conditions.time_limit_s)
        self._fit_groups()

    def make_cold(self) -> Coldness:
        """Drop the page cache in place; where that leaves some, restart the nodes without it."""
        self._check()
        for node in self.nodes:
            node.drop_page_cache()
        self._fit_groups()
        left = self._coldness(self.nodes[0].dropped_by)
        if left.left_ratio <= COLD_RATIO:
            return left
        self.stop()
        for node in self.nodes:
            node.drop_page_cache()
        self.start()
        self._fit_groups()
        return self._coldness("restart")

    def stop(self) -> None:
        """Drain and end every node, all at once: a node waits for those that have gone."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for ended in [pool.submit(node.stop) for node in self.nodes]:
                ended.result()

    def observe(self) -> Observation:
        """Return pending compactions, dropped messages and garbage collections.

        Of the nodes that serve: those that are being started or stopped say nothing.
        """
        pending = dropped = gc_pauses = gc_allocated_bytes = 0
        gc_pause_s = stopped_s = longest_s = 0.0
        for node in self.nodes:
            seen = node.observe()
            if seen is None:
                continue
            now, drops = seen
            pending += now
            dropped += drops
            node.gc_log.advance(time.monotonic())
            gc_pauses += node.gc_log.pauses
            gc_pause_s += node.gc_log.pause_s
            gc_allocated_bytes += node.gc_log.allocated_bytes
            stopped_s += node.gc_log.stopped_s
            longest_s = max(longest_s, node.gc_log.longest_s())
        return Observation(
            pids=tuple(pid for node in self.nodes for pid in node.pids),
            metrics={"pending_compactions": pending, "longest_stop_s": longest_s},
            counters={
                "dropped_messages": dropped,
                "gc_pauses": gc_pauses,
                "gc_pause_s": gc_pause_s,
                "gc_allocated_bytes": gc_allocated_bytes,
                "stopped_s": stopped_s,
            },
        )

    def _launch(self, node: Node, *, replaces: bool = False) -> None:
        makes_role = node is self.nodes[0] and not self._has_role
        alone = self.request.replication_factor == 1
        replaced = Replaced(node.files.place.address, alone) if replaces else None
        start = Start(self._plan_of(node), len(self.nodes), makes_role, replaced)
        node.launch(start)

    def _check(self) -> None:
        for node in self.nodes:
            node.process.check()

    @contextmanager
    def _with_the_reason(self) -> Iterator[None]:
        """Let a node's death be the error, and not that it no longer answers."""
        self._check()
        try:
            yield
        except MachineError:
            for node in self.nodes:
                node.process.await_death()
            raise

    def _kill(self) -> None:
        for node in self.nodes:
            node.kill()

    @contextmanager
    def _unthrottled(self) -> Iterator[None]:
        """Let compactions run as fast as they can inside the block, where time was dilated.

        They are throttled to less than the disks take while nothing is measured: what a fill leaves
        would be waited for for minutes.
        """
        if self.request.sizes.time_dilation == 1:
            yield
            return
        with self._every_node_has(_THROUGHPUT, 0):
            yield

    @contextmanager
    def fills(self) -> Iterator[None]:
        """Wait for each write for a minute: a fill is faster than a busy machine's disk, in bursts.

        Of 330,000 rows of 4 kB beside others' work, 300 waited longer than the usual two seconds of
        `write_request_timeout` in slow motion of 2 (Cassandra 5.0.6, 2026-11-29).
        """
        with self._every_node_has(_WRITE_TIMEOUT, FILL_TIMEOUT_MS):
            yield

    @contextmanager
    def _every_node_has(self, attribute: str, value: int) -> Iterator[None]:
        """Let an attribute of each node's be another one inside the block."""
        before = [node.jolokia.read((STORAGE, attribute))[0] for node in self.nodes]
        for node in self.nodes:
            node.jolokia.write(STORAGE, attribute, value)
        yield
        for node, own in zip(self.nodes, before, strict=True):
            # A throughput below one is told as zero, which would lift the limit.
            node.jolokia.write(STORAGE, attribute, max(1, own))

    def _wait_for_compactions(self, limit_s: float) -> None:
        calm = Calm()
        nodes = [(node.files.place.name, node.jolokia) for node in self.nodes]
        with Wait("compactions end", limit_s) as wait:
            while not calm.saw(now := activity(nodes), time.monotonic()):
                self._check()
                if wait.is_over:
                    raise MachineError(
                        f"compactions did not end within {limit_s:.0f} s: {now}; raise "
                        "compaction_throughput in database.settings, or the time limit"
                    )
                wait.pause(POLL_SECONDS, str(now))

    def _fit_groups(self) -> None:
        for node in self.nodes:
            if (group := node.files.place.group) is not None:
                group.set_limit(self._plan_of(node).limit_for(group.use().anonymous))

    def _coldness(self, way: str) -> Coldness:
        # Cassandra reads its own tables all the time: the user's are what must be cold.
        found = [node.cached_bytes(self.request.keyspace) for node in self.nodes]
        return Coldness(way, sum(size for size, _ in found), sum(cached for _, cached in found))


_THROUGHPUT = "CompactionThroughputMbPerSec"
_WRITE_TIMEOUT = "WriteRpcTimeout"
FILL_TIMEOUT_MS = 60_000
