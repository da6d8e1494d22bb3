"""How long a run still takes: the plan's guess, corrected by what trials took so far."""

from __future__ import annotations

from collections.abc import Iterable

from disklab.events import PlannedTrial

# The guess of the plan gives way to what trials took, the more of them there are.
WEIGHT_OF_PLAN = 2.0


class TimeLeft:
    """The time left of one start of a run."""

    def __init__(self, planned: Iterable[PlannedTrial]) -> None:
        self._expected = {(one.trial, one.repeat): one.expected_s for one in planned}
        self._planned_done_s = 0.0
        self._done_s = 0.0
        self._phase_left_s = 0.0

    def phase_began(self) -> None:
        """Take a phase of the trial under way, of which nothing is known yet."""
        self._phase_left_s = 0.0

    def progressed(self, done: float | None, of: float | None, t_s: float | None) -> None:
        """Take how much of a phase is done after `t_s`: what is left of it takes as long."""
        if done and of and t_s:
            self._phase_left_s = max(of - done, 0.0) * t_s / done

    def finished(self, key: tuple[int, int], took_s: float) -> None:
        """Take a trial and repeat that ended, and how long it took."""
        self.phase_began()
        expected = self._expected.pop(key, None)
        if expected is not None:
            self._planned_done_s += expected
            self._done_s += took_s

    def left_s(self, under_way: tuple[int, int] | None = None, in_trial_s: float = 0.0) -> float:
        """Return the seconds that what is left will take.

        `under_way`: the trial and repeat that goes on, for so long already; None: it counts whole.
        One that takes longer than expected makes those behind it longer, too. It takes at least
        what its phase will.
        """
        planned = sum(self._expected.values())
        weight = WEIGHT_OF_PLAN * (planned / len(self._expected) if self._expected else 1.0)
        done_s, planned_done_s = self._done_s + weight, self._planned_done_s + weight
        factor = done_s / planned_done_s
        current = 0.0 if under_way is None else self._expected.get(under_way, 0.0)
        if current and in_trial_s > current * factor:
            factor = (done_s + in_trial_s) / (planned_done_s + current)
        least = 0.0 if under_way is None else self._phase_left_s
        return (planned - current) * factor + max(current * factor - in_trial_s, least)
