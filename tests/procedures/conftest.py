"""The lab of the emulated disks, for whole rehearsals, and rehearsals in a world of fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from disklab import spec
from disklab.catalog import load_catalog
from disklab.events import Event
from disklab.hosts.control_group import GroupRoot
from disklab.hosts.places import Places
from disklab.procedures import turn
from disklab.procedures.build import Site
from disklab.procedures.jobs import QUICK
from disklab.procedures.life import Planned, live
from disklab.procedures.plan import expected_s, order
from disklab.procedures.rehearsal import Beds, Emulation
from disklab.results import ExperimentNote, Run, RunInfo

from tests.fakes.world import World
from tests.hosts.conftest import lab

__all__ = ["Rehearsal", "lab", "world"]


@dataclass
class Rehearsal:
    """A rehearsal in a world of fakes; each call makes a new run."""

    folder: Path
    text: str
    runs: int = 0
    run: Run = field(init=False)
    """The last one."""
    events: list[Event] = field(default_factory=list)

    def __call__(self, world: World, run: Run | None = None) -> Run:
        """Run what is left of a run, or a new one."""
        what = spec.parse(self.text)
        if run is None:
            self.runs += 1
            note = ExperimentNote(title=what.title)
            info = RunInfo(id=f"run-{self.runs}", mode="rehearse", experiment=note)
            run = Run.create(self.folder / "runs", info, experiment_text=self.text)
        trials, catalog = what.trials("rehearse"), load_catalog()
        turns = order(trials, 1, 1, QUICK, frozenset(run.finished()))
        places = Places(self.folder / "run", self.folder / "data")
        site = Site(catalog, places, run.folder / "logs", 1, world.make_node, world.provision)
        planned = Planned(what, trials, turns, expected_s(turns), 1, run, catalog)
        self.run, self.events = run, []
        return live(planned, Emulation(Beds(site, "fake")), self.events.append)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path / "disks")
    monkeypatch.setitem(turn.WORKLOADS, "rows", made.workload)
    monkeypatch.setattr(GroupRoot, "of_machine", staticmethod(lambda: None))
    return made
