"""The nodes of a kit as a `Database`: each word of the kit done at its time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from disklab.database_settings import Setting, setting_problems
from disklab.databases.copies import MIB, NO_GROUP, new_password
from disklab.databases.kit.node import KitNode, folders_of
from disklab.databases.kit.programs import path_of
from disklab.databases.place import ServerHost, Way
from disklab.databases.protocol import (
    Coldness,
    Conditions,
    Database,
    NodePlace,
    Observation,
    Progress,
    Request,
    Sizes,
)
from disklab.errors import MachineError, Problem, refuse
from disklab.kits import kit_of
from disklab.kits.plan import HARNESS, Plan, Spot, texts_of
from disklab.kits.schema import Counter, Kit, Step
from disklab.kits.shelf import KitFolder
from disklab.kits.words import at_path, names_in
from disklab.reading import KIT, text
from disklab.waiting import Wait

USERS = ("disklab",)
LEAST_PAGE_CACHE = 32 * MIB
COMMAND_EVERY_S = 10.0
"""A counter that a command tells costs a program each time."""
POLL_SECONDS = 0.2


class KitCluster:
    """Nodes that disklab makes, starts and stops. See `Database` for what each method promises."""

    def __init__(
        self, request: Request, of: KitFolder, plan: Plan, nodes: Sequence[KitNode]
    ) -> None:
        """Take what is asked for, the kit, and its nodes."""
        self.request, self.kit, self._of = request, of.kit, of
        self.nodes = list(nodes)
        self._plan = plan
        self._away: set[str] = set()
        self._created = False
        self._acknowledged: list[float] = []
        """What loads have counted since the data set was made."""
        self._last: dict[tuple[str, str], float] = {}
        self._asked_at: dict[tuple[str, str], float] = {}
        self._limit, self._reasons = memory_limit(of.kit, request.sizes)
        self._way = Way(of.kit.title, [(node.place.host, node.place) for node in nodes])
        self._password = new_password(request)
        for node in self.nodes:
            node.configure(plan)

    @property
    def versions(self) -> Mapping[str, str]:
        """What the kit has."""
        return {self.kit.title: self.kit.version}

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the scale could not be followed, and what its settings promise."""
        notes = [*self._way.notes, *self._reasons, *self._promises()]
        if any(node.place.group is None and not node.place.host.elsewhere for node in self.nodes):
            notes.append(NO_GROUP.format(mib=self._limit // MIB, what="files are"))
        return tuple(notes)

    def _promises(self) -> Iterator[str]:
        for name, kind in self.kit.settings.items():
            value = self._plan.settings.get(name, kind.default)
            promise = kind.promise(value)
            if promise is not None:
                yield f"{self.kit.title} with {name} {value}: {promise}"

    @property
    def target(self) -> Mapping[str, object]:
        """Where a load finds the nodes: by a protocol of ours, or by the words of the kit."""
        speaks = self.kit.speaks
        port = self.kit.ports[speaks.port] if speaks else next(iter(self.kit.ports.values()))
        points = [f"{node.place.address}:{port}" for node in self.nodes]
        if speaks is not None:
            own = {"database": speaks.database, "user": speaks.user, "password": "", "tls": False}
            shared = {"protocol": speaks.protocol, "contact_points": points[:1]}
            table = {"table": self.request.table_name}
            ours = {**shared, **table, **({} if speaks.protocol == "redis" else own)}
        else:
            ours = {"protocol": "kit", "contact_points": points}
        if self.kit.loads:
            ours |= {"kit": self._for_tools()}
        return ours

    def _for_tools(self) -> Mapping[str, object]:
        first = self.nodes[0]
        return {
            "values": {**first.values, "ledger": str(self._ledger)},
            "acknowledged": self._acknowledged,
        }

    @property
    def _ledger(self) -> Path:
        return self.nodes[0].place.run_dir / "ledger"

    @property
    def _serving(self) -> list[KitNode]:
        return [
            node
            for node in self.nodes
            if node.place.name not in self._away and not node.place.comes_later
        ]

    def start(self) -> None:
        """Make volumes the first time; start every node and make the schema."""
        self._away.clear()
        try:
            for node in self._serving:
                if not node.is_made:
                    node.make()
            self._launch(self._serving)
            if not self._created:
                self._empty_ledger()
                self._do(self.kit.phases.create)
                self._created = True
            self.wait_until_whole()
        except BaseException:
            for node in self.nodes:
                with suppress(MachineError):
                    node.kill()
            raise

    def _launch(self, nodes: Sequence[KitNode]) -> None:
        """Start the processes of nodes, one kind after the other; return when all are ready."""
        for position in range(len(self.kit.processes)):
            for node in nodes:
                node.launch(position, self._limit)
            for node in nodes:
                node.wait_until_ready(position)

    def _do(self, steps: Sequence[Step]) -> None:
        for step in steps:
            for node in self._serving if step.nodes == "each" else self._serving[:1]:
                node.do(step)

    def _empty_ledger(self) -> None:
        self._acknowledged.clear()
        host = self.nodes[0].place.host
        host.open_run_dir(self.nodes[0].place.run_dir)
        host.remove(self._ledger)
        host.own_folder(self._ledger, self.nodes[0].account)

    def wait_until_whole(self) -> None:
        """Return when every node shows the signs of `whole`."""
        for probe in self.kit.phases.whole:
            for node in self._serving:
                self._await(node, lambda node=node, probe=probe: node.shows(probe))

    def _await(self, node: KitNode, shows: object) -> None:
        seconds = self.kit.phases.whole_within
        with Wait(f"{self.kit.title} is whole", seconds) as wait:
            while not shows():  # type: ignore[operator]
                node.check()
                if wait.is_over:
                    raise node.failure(f"was not whole within {seconds:g} s")
                wait.pause(POLL_SECONDS)

    def expect(self, connections: int) -> None:
        """Do nothing: a kit's memory is planned once."""

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
        if conditions.flushed:
            for node in self._serving:
                node.sync()

    def make_cold(self) -> Coldness:
        """Restart without page cache: what a server holds itself is a cache too."""
        self._check()
        self.stop()
        for node in self._serving:
            node.drop_page_cache()
        self.start()
        size, cached = (
            sum(each) for each in zip(*(node.cached_bytes() for node in self._serving), strict=True)
        )
        return Coldness("restart", size, cached)

    def stop(self) -> None:
        """End every node in order."""
        for node in self.nodes:
            node.stop()

    def reconfigure(self, settings: Mapping[str, Setting]) -> None:
        """Have these settings from the next restart on: each start writes its configuration."""
        self.request = replace(self.request, settings=settings)
        self._plan = replace(self._plan, settings=written(settings))
        for node in self.nodes:
            node.configure(self._plan)

    def _check(self) -> None:
        for node in self._serving:
            node.check()

    def observe(self) -> Observation:
        """Return its counters, those of all nodes added up."""
        serving = [node for node in self._serving if node.is_running()]
        self._check()
        sums: dict[str, dict[str, float]] = {"counter": {}, "gauge": {}}
        for counter in self.kit.counters:
            values = [
                value for node in serving if (value := self._counted(node, counter)) is not None
            ]
            if values:
                sums[counter.kind][counter.name] = sum(values)
        pids = tuple(pid for node in serving for pid in node.pids)
        return Observation(pids, sums["gauge"], sums["counter"])

    def _counted(self, node: KitNode, counter: Counter) -> float | None:
        """Return a counter of a node; the last known one where it does not answer."""
        key = node.place.name, counter.name
        now = time.monotonic()
        if counter.command is not None and now - self._asked_at.get(key, -1e9) < COMMAND_EVERY_S:
            return self._last.get(key)
        self._asked_at[key] = now
        with suppress(MachineError, OSError, ValueError, RecursionError):
            if counter.command is not None:
                answer = node.run(counter.command, {})
            else:
                answer = node.ask("GET", str(counter.http), str(counter.port), None)
            number = _read(answer, counter)
            if number is not None:
                self._last[key] = number
        return self._last.get(key)

    def _named(self, name: str) -> KitNode:
        return next(node for node in self.nodes if node.place.name == name)

    def kill_node(self, name: str) -> None:
        """End a node's processes at once."""
        self._away.add(name)
        self._named(name).kill()

    def start_node(self, name: str) -> None:
        """Start a killed node on its disks; returns when it is ready."""
        node = self._named(name)
        if not node.has_data():
            raise node.failure("cannot be started: its disks are empty")
        self._launch([node])
        self._away.discard(name)

    def restart_node(self, name: str) -> None:
        """End a node in order, drop its page cache, start it."""
        self._away.add(name)
        node = self._named(name)
        node.stop()
        node.drop_page_cache()
        self.start_node(name)

    def replace_node(self, name: str) -> None:
        """Start a node with empty disks in the place of a lost one; returns when all are whole."""
        node = self._named(name)
        if len(self.nodes) == 1:
            raise node.failure("cannot be replaced: it has no copy")
        node.make()
        self._launch([node])
        self._away.discard(name)
        self.wait_until_whole()

    def set_reachable(self, name: str, *, reachable: bool) -> None:
        """Ask a node nothing while no way leads to it."""
        if reachable:
            self._away.discard(name)
        else:
            self._away.add(name)


def _read(answer: str, counter: Counter) -> float | None:
    if counter.path is not None:
        values = at_path(json.loads(answer), counter.path)
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        return sum(numbers) if numbers else None
    match = re.search(str(counter.matches), answer, re.MULTILINE)
    return None if match is None else float(match[1])


def written(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return an experiment's settings as a file of configuration has them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def memory_parts(kit: Kit, sizes: Sizes) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the parts of a node's memory in bytes, and why one is not what the scale asks for."""
    whole = int(sizes.memory_bytes * sizes.scale)
    parts, reasons = {}, []
    for name, part in kit.memory.items():
        wanted = int(whole * part.share)
        parts[name] = max(wanted, part.least)
        if wanted < part.least:
            reasons.append(
                f"{name} {part.least // MIB} MiB: scaled by {sizes.scale} it would be "
                f"{wanted / MIB:.1f} MiB, too little to work with"
            )
    parts["node"] = max(whole, sum(parts.values()) + LEAST_PAGE_CACHE)
    return parts, tuple(reasons)


def memory_limit(kit: Kit, sizes: Sizes) -> tuple[int, tuple[str, ...]]:
    """Return the limit of a node's memory group, and why it is not what the scale asks for."""
    parts, reasons = memory_parts(kit, sizes)
    return parts["node"], reasons


def _problems(kit: Kit, request: Request, nodes: Sequence[NodePlace]) -> Iterator[Problem]:
    """Yield why a request cannot be had."""
    yield from setting_problems(request.engine, request.settings)
    if len(nodes) > 1 and not kit.several_nodes:
        rule = f"the kit {kit.kit} has one node"
        yield Problem("cluster.nodes", str(len(nodes)), rule, "write nodes: 1")
    if request.tls:
        yield Problem("database.tls", "true", "no kit has TLS so far", "leave it out")
    if request.version not in (None, kit.version):
        rule = f"the kit {kit.kit} has {kit.title} {kit.version}"
        yield Problem("database.version", str(request.version), rule, "leave it out")
    for place in nodes:
        for name, need in kit.volumes.items():
            if need == "required" and name not in place.volumes and name != "data":
                rule = f"{kit.title} needs a volume {name}"
                yield Problem("cluster.volumes", name, rule, "add it to cluster.volumes")


def _server_programs(kit: Kit) -> set[str]:
    """Return the programs that a kit's nodes need; those of a load are had with it."""
    return {
        name.partition(".")[2]
        for place, template in texts_of(kit)
        if not place.startswith(("loads.", "fill", "check"))
        for name in names_in(template)
        if name.startswith(("program.", "folder."))
    }


def spot_of(of: KitFolder, place: NodePlace, host: ServerHost, progress: Progress) -> Spot:
    """Return what a node's templates mean; fetches the programs that the servers need."""
    needed, programs = _server_programs(of.kit), {}
    for program in of.kit.programs:
        programs[program.name] = str(place.run_dir / "conf" / (program.script or ""))
        if program.script is None and program.name in needed:
            programs[program.name] = path_of(of, program, host, progress)
    return Spot(
        name=place.name,
        address=place.address,
        volumes={
            name: str(path)
            for name, path in folders_of(of.kit.kit, tuple(of.kit.volumes), place).items()
        },
        run=str(place.run_dir / "conf"),
        programs=programs,
    )


def provision(request: Request, nodes: list[NodePlace], progress: Progress) -> Database:
    """Return a cluster that is ready to start."""
    of = kit_of(request.engine)
    refuse(_problems(of.kit, request, nodes))
    spots = [spot_of(of, place, place.host, progress) for place in nodes]
    plan = Plan(
        kit=of.kit,
        spots=spots,
        memory=memory_parts(of.kit, request.sizes)[0],
        settings=written(request.settings),
        copies=request.replication_factor,
        slow=request.sizes.time_dilation,
    )
    scripts = {
        program.script: text(of.folder / program.script, KIT)
        for program in of.kit.programs
        if program.script is not None
    }
    if scripts:
        scripts[HARNESS.name] = text(HARNESS, KIT)
    made = [
        KitNode(place, spot, number, place.host.account(USERS), scripts)
        for number, (place, spot) in enumerate(zip(nodes, spots, strict=True))
    ]
    return KitCluster(request, of, plan, made)
