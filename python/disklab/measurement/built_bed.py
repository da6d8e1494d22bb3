"""A bed that disklab built on hosts: what is written down there beside the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disklab.engine.load import LoadDone
from disklab.machines.protocol import Machine
from disklab.measurement import settings
from disklab.measurement.canary import Beside
from disklab.measurement.far_bed import FarBed
from disklab.measurement.host_links import FarLinks
from disklab.measurement.journal import Journal
from disklab.measurement.site import DATA
from disklab.procedures.bed import OnProgress
from disklab.procedures.breaking import Ground
from disklab.procedures.conditions import Step
from disklab.procedures.timetable import Conductor
from disklab.spec import Cluster, TrialSpec
from disklab.spec.timetable import CLIENT
from disklab.workloads.protocol import Begin, Workload

FILLED = ".disklab-filled"
"""In a database's folder: which data set it has, and what has become of it."""
KEPT_SECRET = ".disklab-secret"  # noqa: S105 - the name of a file
"""Beside it: what its data directory was made for."""


@dataclass
class BuiltBed(FarBed):
    """A bed that disklab built: its data set is written down on each host, beside the data."""

    set_token: str = ""
    """Which folders on hosts belong together."""
    journal: Journal | None = None
    only_reads: Callable[[], bool] = lambda: False
    """Whether the turn that runs leaves the data as they are."""
    may_drop: Sequence[Machine] = ()
    """Hosts of its nodes whose whole clean page cache may be dropped before a cold trial."""
    beside: Beside | None = None
    """The short probes of its disks before and after each trial."""

    def ground(self, cluster: Cluster) -> Ground:
        """Return what a timetable happens to: the database's nodes, by the order of their hosts."""
        called = {f"n{number}": node.machine.name for number, node in enumerate(self.hosted, 1)}
        assert self.journal is not None, "a built bed has a journal"
        ends: dict[str, Sequence[Machine]] = {
            node.machine.name: (node.machine,) for node in self.hosted
        }
        ends[CLIENT] = [one.machine for one in self.clients]
        links = FarLinks(ends, self.journal)
        # Before the database is stopped, whose nodes say goodbye to each other.
        self.undo.callback(links.restore)
        return Ground({}, self.database, self.data_device, cluster, called=called, links=links)

    def take(
        self, step: Step, spec: TrialSpec, workload: Workload, on_progress: OnProgress
    ) -> None:
        """Take a step; see `Bed.take`. The host knows before and after whether data are full."""
        if step in ("empty", "fill"):
            self.remember("changing")
        if step == "drop page cache":
            for machine in self.may_drop:
                settings.drop_page_cache(machine)
        super().take(step, spec, workload, on_progress)
        if step == "drop page cache" and self.may_drop:
            names = ", ".join(machine.name for machine in self.may_drop)
            self.coldness += f", after all clean pages of {names}"
        if step == "set read-ahead":
            self._change_read_ahead(spec)
        if step in ("empty", "fill", "settle"):
            self.remember(self.state.data)

    def run(
        self,
        workload: Workload,
        begin: Begin,
        on_progress: OnProgress,
        conductor: Conductor | None = None,
    ) -> LoadDone:
        """Run a load; see `FarBed.run`. What is killed while it writes loses its data."""
        filled = self.state.data == "filled"
        if filled and not self.only_reads():
            self.remember("changing")
        done = super().run(workload, begin, on_progress, conductor)
        if filled and not self.only_reads():
            self.remember(self.state.data)
        return done

    def remember(self, data: str) -> None:
        """Write down on the hosts what has become of the data set."""
        told = {"bed": self.name, "data": data, "wear": self.wear, "settled": self.state.settled}
        for node in self.hosted:
            beside = {name: str(folder) for name, folder in node.folders.items()}
            own = {**told, "set": self.set_token, "folders": beside}
            node.machine.files.write(node.folder / FILLED, json.dumps(own).encode())

    def _change_read_ahead(self, spec: TrialSpec) -> None:
        assert self.journal is not None, "a built bed has a journal"
        assert spec.cluster is not None, "a cluster experiment"
        asked = spec.cluster.volumes[DATA].read_ahead_bytes
        for node in self.hosted:
            name, folder = node.machine.name, str(node.folder)
            settings.ask_read_ahead(name, node.machine, folder, asked, self.journal)
        self._note(read_ahead_bytes=asked)
