"""The nodes of a kit as a `Database`: each word of the kit done at its time."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from disklab.database_settings import Setting, setting_problems
from disklab.databases.kit.node import CONF, USERS, KitNode
from disklab.databases.kit.programs import look, path_of
from disklab.databases.nodes import MIB, Nodes
from disklab.databases.place import ServerHost
from disklab.databases.protocol import Conditions, NodePlace, Observation, Progress, Request, Sizes
from disklab.databases.record import Needed
from disklab.databases.this_machine import ThisMachine
from disklab.errors import MachineError, Problem, refuse
from disklab.kits import KitFolder, kit_of
from disklab.kits.plan import HARNESS, Plan, Spot, names_in, texts_of
from disklab.kits.schema import Act, Kit, Program

LEAST_PAGE_CACHE = 32 * MIB
LEDGER = "ledger"
"""In a run folder, what loads note of what was acknowledged."""


class KitCluster(Nodes[KitNode]):
    """Nodes that disklab makes, starts and stops. See `Database` for what each method promises."""

    def __init__(
        self, request: Request, plan: Plan, places: Sequence[NodePlace], scripts: Mapping[str, str]
    ) -> None:
        """Take what is asked for and where, and the programs that lie beside the kit."""
        super().__init__(plan.kit.title, places)
        self.request, self.kit, self._plan, self._scripts = request, plan.kit, plan, scripts
        self.nodes = [KitNode(place, scripts, plan) for place in places]
        self._created = False
        for node in self.nodes:
            # What a start has filled that was killed goes on as it is.
            node.is_made = request.kept is not None
        self._acknowledged: list[float] = []
        """What loads have counted since the data set was made."""
        self._here = places[0].run_dir
        if places[0].host.elsewhere is not None:
            # Loads run on this machine: so do their programs, and what they note.
            self._own = tempfile.TemporaryDirectory(prefix="disklab-kit-")
            self._here = Path(self._own.name)
            self._here.chmod(0o711)

    @property
    def versions(self) -> Mapping[str, str]:
        """What the kit has."""
        return {self.kit.title: self.kit.version}

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the scale could not be followed, and what its settings promise."""
        reasons = memory_parts(self.kit, self.request.sizes)[1]
        notes = self._scale_notes(reasons, self._plan.memory["node"], "files are")
        for name, kind in self.kit.settings.items():
            value = self._plan.chosen(name)
            promise = kind.promises.get(value, kind.promises.get("else"))
            notes += [f"{self.kit.title} with {name} {value}: {promise}"] if promise else []
        return tuple(notes)

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the nodes: by a protocol of ours, or by the words of the kit."""
        speaks = self.kit.speaks
        port = self.kit.ports[speaks.port] if speaks else next(iter(self.kit.ports.values()))
        ours: dict[str, object] = {"protocol": speaks.protocol if speaks else "kit"}
        ours["contact_points"] = [f"{self.nodes[0].place.address}:{port}"]
        if speaks is not None:
            ours["table"] = self.request.table_name
            ours |= {"database": speaks.database, "user": speaks.user, "password": "", "tls": False}
        if self.kit.loads:
            # On this machine and not on a node.
            names = {f"program.{own.name}": own.script for own in self.kit.programs if own.script}
            files = {name: self._here / CONF / file for name, file in names.items()}
            files |= {"harness": self._here / CONF / HARNESS.name, "ledger": self._here / LEDGER}
            values = self._plan.values(0) | {name: str(file) for name, file in files.items()}
            ours["kit"] = {"values": values, "acknowledged": self._acknowledged}
        return ours

    @property
    def _serving(self) -> list[KitNode]:
        return [node for node in self.nodes if node.place.name not in self._away]

    def _bring_up(self) -> None:
        for node in self._serving:
            if not node.is_made:
                node.make()
        self._launch(self._serving)
        if not self._created:
            self._empty_ledger()
            self._do(() if self.request.kept is not None else self.kit.phases.create)
            self._created = True

    def _launch(self, nodes: Sequence[KitNode]) -> None:
        """Start the processes of nodes, one kind after the other; return when all are ready."""
        for position in range(len(self.kit.processes)):
            having = [node for node in nodes if position < len(node.processes)]
            for node in having:
                node.launch(position)
            for node in having:
                node.wait_until_ready(position)

    def _do(self, acts: Sequence[Act]) -> None:
        for act in acts:
            for node in self._serving if act.nodes == "each" else self._serving[:1]:
                node.do(act)

    def _empty_ledger(self) -> None:
        """Write the programs of loads, and forget what they have noted."""
        self._acknowledged.clear()
        here = ThisMachine()
        folder = here.open_run_dir(self._here)
        for name, script in self._scripts.items():
            here.write(folder, name, script)
        here.remove(self._here / LEDGER)
        here.own_folder(self._here / LEDGER, here.account(USERS))

    def wait_until_whole(self) -> None:
        """Return when every node shows the signs of `whole`."""
        phases = self.kit.phases
        for node in self._serving:
            node.wait_until("is whole", partial(node.shows, phases.whole), phases.whole_within)

    def settle(self, conditions: Conditions) -> None:
        """Empty it, let what runs behind end, sync: in this order."""
        try:
            if conditions.empty:
                self._do(self.kit.phases.empty)
                self._empty_ledger()
                self._do(self.kit.phases.create)
            if conditions.compacted:
                self._do(self.kit.phases.settle)
        except MachineError:
            self._check()
            raise
        for node in self._serving if conditions.flushed else ():
            node.sync()

    def reconfigure(self, settings: Mapping[str, Setting]) -> None:
        """Have these settings from the next restart on: each start writes its configuration."""
        self.request = replace(self.request, settings=settings)
        self._plan = replace(self._plan, settings=settings)
        for node in self.nodes:
            node.plan = self._plan

    def observe(self) -> Observation:
        """Return its counters, those of all nodes added up."""
        serving = [node for node in self._serving if node.is_running()]
        self._check()
        sums: dict[str, dict[str, float]] = {"counter": {}, "gauge": {}}
        for counter in self.kit.counters:
            counts = [each for node in serving if (each := node.counted(counter)) is not None]
            if counts:
                sums[counter.kind][counter.name] = sum(counts)
        pids = tuple(pid for node in serving for pid in node.pids)
        return Observation(pids, sums["gauge"], sums["counter"])

    def _start_again(self, node: KitNode) -> None:
        self._launch([node])

    def replace_node(self, name: str) -> None:
        """Start a node with empty disks in the place of a lost one; returns when all are whole."""
        node = self._named(name)
        if len(self.nodes) == 1:
            raise node.failure("cannot be replaced: it has no copy")
        node.make()
        self._launch([node])
        self._away.discard(name)
        self.wait_until_whole()


def memory_parts(kit: Kit, sizes: Sizes) -> tuple[dict[str, int], list[str]]:
    """Return the parts of a node's memory in bytes, and why one is not what the scale asks for."""
    whole = int(sizes.memory_bytes * sizes.scale)
    shares = [(name, int(whole * part.share), part.least) for name, part in kit.memory.items()]
    parts = {name: max(scaled, least) for name, scaled, least in shares}
    parts["node"] = max(whole, sum(parts.values()) + LEAST_PAGE_CACHE)
    return parts, sizes.too_small(shares)


def _problems(kit: Kit, request: Request, nodes: Sequence[NodePlace]) -> Iterator[Problem]:
    yield from setting_problems(request.engine, request.settings)
    if len(nodes) > 1 and not kit.several_nodes:
        rule = f"the kit {kit.kit} has one node"
        yield Problem("cluster.nodes", str(len(nodes)), rule, "write nodes: 1")
    if request.tls:
        yield Problem("database.tls", "true", "no kit has TLS so far", "leave it out")
    if request.version not in (None, kit.version):
        rule = f"the kit {kit.kit} has {kit.title} {kit.version}"
        yield Problem("database.version", str(request.version), rule, "leave it out")
    for name, need in kit.volumes.items():
        if need == "required" and not all(name in place.volumes for place in nodes):
            rule = f"{kit.title} needs a volume {name}"
            yield Problem("cluster.volumes", name, rule, "add it to cluster.volumes")


def _server_programs(kit: Kit) -> Iterator[Program]:
    """Yield the programs that a kit's nodes need; those of a load are had with it."""
    tools = ("loads.", "fill.", "check.")
    texts = [text for place, text in texts_of(kit) if not place.startswith(tools)]
    needed = {re.sub("^(program|folder)[.]", "", n) for text in texts for n in names_in(text)}
    yield from (each for each in kit.programs if each.name in needed and each.script is None)


def needed_on(engine: str, host: ServerHost, version: str | None) -> Needed | Problem:
    """Return what a node will need of a host, or what that lacks."""
    del version
    kit = kit_of(engine).kit
    missing = filter(None, (look(program, host) for program in _server_programs(kit)))
    ports = tuple(kit.ports.values())
    return next(missing, Needed(f"a {kit.title} node", host.account(USERS), ports, by_ip=True))


def spot_of(of: KitFolder, place: NodePlace, progress: Progress) -> Spot:
    """Return what a node's templates mean; fetches the programs that the servers need.

    Each volume has a folder of the server's own; one that is missing lies beside the data.
    """
    data, kit = place.volumes["data"], of.kit
    conf = place.run_dir / CONF
    programs = {program.name: str(conf / (program.script or "")) for program in kit.programs}
    for program in _server_programs(kit):
        there = place.run_dir / program.name
        programs[program.name] = path_of(of, program, place.host, progress, there)
    volumes = {}
    for name in kit.volumes:
        volume = place.volumes.get(name, data)
        own = kit.kit if name == "data" or volume != data else f"{kit.kit}-{name}"
        volumes[name] = str(volume / own)
    return Spot(place.name, place.address, volumes, str(conf), programs)


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> KitCluster:
    """Return a cluster that is ready to start."""
    of = kit_of(request.engine)
    refuse(_problems(of.kit, request, nodes))
    plan = Plan(
        kit=of.kit,
        spots=[spot_of(of, place, progress) for place in nodes],
        memory=memory_parts(of.kit, request.sizes)[0],
        settings=request.settings,
        copies=request.replication_factor,
        slow=request.sizes.time_dilation,
    )
    scripts = {each.script: of.beside[each.script] for each in of.kit.programs if each.script}
    scripts |= {HARNESS.name: HARNESS.read_text(encoding="utf-8")} if scripts else {}
    return KitCluster(request, plan, nodes, scripts)
