"""One trial or repeat at its place in the order, and what its procedure needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from disklab.errors import Problem, UserError
from disklab.procedures.jobs import Effort, Seeds
from disklab.spec import ClusterTrial, Trial, TrialSpec
from disklab.spec.amounts import only
from disklab.workloads.protocol import Workload
from disklab.workloads.rows import Rows
from disklab.workloads.sysbench import Sysbench
from disklab.workloads.tool import Tool
from disklab.workloads.tpcc import Tpcc

# Choosing the workload of a trial.

WORKLOADS: dict[str, Callable[[ClusterTrial, int, int], Workload]] = {
    "rows": Rows,
    "sysbench": Sysbench,
    "tpcc": Tpcc,
    "tool": Tool,
}
"""By `workload.kind`. fio runs on a device, without a database."""


def workload_of(spec: TrialSpec, seed: int, time_dilation: int = 1) -> Workload:
    """Return the workload of a trial as it is run here; `seed` is the run's.

    `time_dilation`: seconds of this machine for each second of the load, in whose time it is asked
    and answers.

    Raises UserError for what it lacks on this machine.
    """
    if (together := spec.workload.writes_per_commit) is not None:
        rule = "the load clients commit each write separately"
        way_out = "leave it out, or predict it: `disklab predict` and `disklab advise` have it"
        raise UserError(Problem("workload.writes_per_commit", str(together), rule, way_out))
    return WORKLOADS[spec.workload.kind](only(ClusterTrial, spec), seed, time_dilation)


Key = tuple[int, int]
"""Trial and repeat."""


@dataclass(frozen=True)
class Turn:
    """One trial or repeat at its place in the order."""

    trial: Trial
    repeat: int
    bed: str
    """Turns of the same bed can run on the same hosts, database and data."""
    plan: Effort
    """In this machine's time."""
    seed: int
    """The run's."""
    connections: int
    """Clients at once on its bed, at most, whichever turn it is."""

    @property
    def key(self) -> Key:
        """What results know it by."""
        return self.trial.index, self.repeat

    @property
    def procedure(self) -> str:
        """Which procedure measures it."""
        return self.trial.spec.procedure.kind

    @property
    def spec(self) -> TrialSpec:
        """The trial with the figures of the share: what is really run."""
        return self.trial.here

    @property
    def on_cluster(self) -> ClusterTrial:
        """The same, of a turn that has a bed. Raises WrongKindError for that of a device."""
        return only(ClusterTrial, self.spec)

    def workload(self) -> Workload:
        """Return its load. Raises UserError for what that lacks on this machine."""
        return workload_of(self.spec, self.seed, self.trial.share.time_dilation)

    @property
    def scale(self) -> float:
        """By how much the data are smaller than the full system's."""
        return float(self.trial.share.scale)

    @property
    def effort(self) -> Effort:
        """How much is measured, in the described system's time."""
        return self.plan.dilated(self.trial.share.time_dilation)

    @property
    def seeds(self) -> Seeds:
        """The random streams of this turn."""
        return Seeds(self.seed, *self.key)
