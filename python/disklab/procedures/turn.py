"""One trial or repeat at its place in the order, and what its procedure needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from disklab.procedures.effort import Effort
from disklab.procedures.jobs import Seeds
from disklab.spec import Trial, TrialSpec

Key = tuple[int, int]
"""Trial and repeat."""


@dataclass(frozen=True)
class Turn:
    """One trial or repeat at its place in the order."""

    trial: Trial
    repeat: int
    bed: str
    """Turns of the same bed can run on the same hosts, database and data."""
    effort: Effort
    seed: int
    """The run's."""

    @property
    def key(self) -> Key:
        """What results know it by."""
        return self.trial.index, self.repeat

    @property
    def procedure(self) -> str:
        """Which procedure measures it."""
        procedure = self.trial.spec.procedure
        assert procedure is not None, "the spec decides on a procedure"
        return procedure.kind

    @property
    def spec(self) -> TrialSpec:
        """The trial with the figures of the share: what is really run."""
        return self.trial.here

    @property
    def scale(self) -> float:
        """By how much the data are smaller than the full system's."""
        return float(self.trial.share.scale)

    @property
    def seeds(self) -> Seeds:
        """The random streams of this turn."""
        return Seeds(self.seed, *self.key)
