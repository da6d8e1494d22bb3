"""A bed on hosts that exist: who makes its load, and what its hosts do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from disklab.engine.load import EngineLoad, LoadDone
from disklab.errors import MachineError
from disklab.machines.protocol import Machine
from disklab.measurement import clients as client_hosts
from disklab.measurement.far_load import Client, FarLoad
from disklab.measurement.host_counters import HostCounters, Look, sources_of, spent
from disklab.measurement.hosted import Hosted
from disklab.measurement.machines_of import cpu_line, stolen_ratio
from disklab.procedures.bed import Bed, OnProgress
from disklab.procedures.timetable import Conductor
from disklab.procedures.turn import Turn
from disklab.results import TrialResult
from disklab.telemetry import Source
from disklab.workloads.protocol import Begin, Load, Workload


@dataclass
class FarBed(Bed):
    """A bed whose database is on hosts that exist, built by disklab or found running."""

    hosted: Sequence[Hosted] = ()
    """The hosts of its nodes that are watched."""
    clients: Sequence[Client] = ()
    """Who makes the load; none: this machine."""
    ends: dict[str, LoadDone] = field(default_factory=dict)
    """By client: its part of the last run."""
    began_after_ms: Callable[[], dict[str, float]] = dict
    """By client: how long after the first of them it began the last run; empty for one."""
    spent: list[dict[str, Any]] = field(default_factory=list)
    """What each host of nodes and clients did in the last run."""

    def start_load(self, begin: Begin) -> Load:
        """Start a load on the client hosts, where there are some."""
        if not self.clients or not isinstance(begin, EngineLoad):
            return begin()
        # TPC-C is made by one generator: the engine refuses more.
        several = begin.job.workload.kind == "rows"
        load = FarLoad(begin.job, self.clients if several else self.clients[:1])
        self.ends, self.began_after_ms = load.ends, load.began_after_ms
        return load

    def sources(self, undo: ExitStack) -> list[Source]:
        """Return what the database's hosts do each second."""
        names = [node.machine.name for node in self.hosted]
        counters = [HostCounters(node.machine, dict(node.folders)) for node in self.hosted]
        for own in counters:
            undo.enter_context(own.newest)
        return sources_of(names, counters)

    def run(
        self,
        workload: Workload,
        begin: Begin,
        on_progress: OnProgress,
        conductor: Conductor | None = None,
    ) -> LoadDone:
        """Run a load; see `Bed.run`. Its hosts are looked at before and after."""
        watched = [node.machine for node in self.hosted]
        watched += [one.machine for one in self.clients]
        looks = [Look.at(machine) for machine in watched]
        done = super().run(workload, begin, on_progress, conductor)
        self.spent = [
            spent(machine.name, before, Look.at(machine))
            for machine, before in zip(watched, looks, strict=True)
        ]
        return done

    def spent_by(self, name: str) -> dict[str, Any]:
        """Return what a host did in the last run; nothing when that is not known."""
        return next((one for one in self.spent if one["host"] == name), {})


def of_hosts(
    machines: Sequence[Machine], cpu: Sequence[str], bed: FarBed | None
) -> list[dict[str, Any]]:
    """Return what a result tells of its nodes' hosts. `cpu`: their counters before the turn."""
    told = []
    for machine, before in zip(machines, cpu, strict=True):
        stolen = stolen_ratio(before, cpu_line(machine))
        one: dict[str, Any] = {"host": machine.name, "stolen_ratio": round(stolen, 4)}
        one |= {} if bed is None else bed.spent_by(machine.name)
        # A host that is gone is named by the failure already.
        with suppress(MachineError):
            one["clock"] = client_hosts.in_ms(machine.clock())
        told.append(one)
    return told


def of_clients(
    clients: Sequence[Client], turn: Turn, result: TrialResult, bed: FarBed | None
) -> dict[str, Any]:
    """Return what clients add to a result, their faults included."""
    began = {} if bed is None else bed.began_after_ms()
    told = client_hosts.seen(clients, {} if bed is None else bed.ends, began)
    if bed is not None:
        told = [one | bed.spent_by(one["host"]) for one in told]
    if result.status not in {"ok", "invalid"}:
        return {"clients": told}
    load = turn.spec.workload.load
    is_open = load is not None and load.rate_per_s is not None
    invalid, doubts = client_hosts.judged(told, is_open=is_open)
    reasons = [*result.invalid_reasons, *invalid]
    return {
        "clients": told,
        "status": "invalid" if reasons else "ok",
        "valid": not reasons,
        "invalid_reasons": reasons,
        "warnings": [*result.warnings, *doubts],
    }
