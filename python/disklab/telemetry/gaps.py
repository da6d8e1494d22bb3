"""Times in which somebody stood still while it was measured: emulator, client, or this machine.

Percentiles do not see them. While an emulator stands still for four seconds a closed loop sends
nothing, so that few replies are late; what is missing is the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Shorter ones are what a busy machine does to any program; percentiles judge them.
LEAST_GAP_S = 0.25
# A stop as long as this is in every figure: in the rate, in the longest and in the 99.9th
# percentile. No disk of the catalogue takes so long by itself.
MOST_GAP_S = 1.0
# Of what was measured: a rate that is this much too low is a difference between disks.
MOST_GAP_RATIO = 0.05
BEAT_S = 0.1
# The clocks are read one after the other.
LEAST_SUSPENDED_S = 0.05
METRIC = "gap_s"
SUSPENDED = "suspended_s"


@dataclass
class Gaps:
    """How long somebody stood still, in seconds of what is watched."""

    longest_s: float = 0.0
    total_s: float = 0.0

    def add(self, gap_s: float) -> None:
        """Take one; short ones do not count."""
        if gap_s >= LEAST_GAP_S:
            self.longest_s = max(self.longest_s, gap_s)
            self.total_s += gap_s

    @classmethod
    def of(cls, gaps_s: Iterable[float]) -> Gaps:
        """Return the sum of some."""
        found = cls()
        for gap_s in gaps_s:
            found.add(gap_s)
        return found

    def reason(self, who: str, measured_s: float) -> str | None:
        """Return why a measurement of so many seconds is invalid; None: it is not for this."""
        ratio = self.total_s / measured_s if measured_s else 0.0
        lasting = self.total_s > MOST_GAP_S and ratio > MOST_GAP_RATIO
        if self.longest_s <= MOST_GAP_S and not lasting:
            return None
        total = "" if self.total_s <= self.longest_s else f", {self.total_s:.1f} s in all"
        share = f" ({ratio:.0%} of what was measured)" if measured_s else ""
        return f"{who} stood still for {self.longest_s:.1f} s{total}{share}"


def suspended(who_s: float) -> str | None:
    """Return why a measurement is invalid in which this machine was suspended for so long."""
    if who_s < LEAST_SUSPENDED_S:
        return None
    return f"this machine was suspended for {who_s:.1f} s"


def client_gap_s(last_s: float, now_s: float, interval_s: float = 1.0) -> float:
    """Return by how much an interval of a load was too long: its own thread counts them."""
    return max(now_s - last_s - interval_s, 0.0)


class Pulse:
    """A thread that wakes ten times a second, and sees when it could not.

    Then the whole machine stood still, or this process; the clock that goes on while a machine is
    suspended tells the two from that.
    """

    def __init__(
        self,
        on_gap: Callable[[float], None] | None = None,
        on_suspended: Callable[[float], None] | None = None,
    ) -> None:
        """Take what is told of a gap's seconds at its end, on the pulse's thread."""
        self.gaps = Gaps()
        self.suspended_s = 0.0
        self._on_gap = on_gap
        self._on_suspended = on_suspended
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def reasons(self, measured_s: float) -> list[str]:
        """Return why a measurement is invalid beside which this pulse went."""
        found = [self.gaps.reason(MACHINE, measured_s), suspended(self.suspended_s)]
        return [reason for reason in found if reason is not None]

    def _beat(self) -> None:
        last = time.monotonic()
        asleep_s = max(_asleep_s() for _ in range(3))
        while not self._over.is_set():
            self._over.wait(BEAT_S)
            now = time.monotonic()
            gap_s, last = now - last - BEAT_S, now
            slept_s = _asleep_s() - asleep_s
            if gap_s >= LEAST_GAP_S:
                self.gaps.add(gap_s)
                if self._on_gap is not None:
                    self._on_gap(gap_s)
            if slept_s >= LEAST_SUSPENDED_S:
                asleep_s += slept_s
                self.suspended_s += slept_s
                if self._on_suspended is not None:
                    self._on_suspended(slept_s)


MACHINE = "this machine, or disklab itself,"


def _asleep_s() -> float:
    """Return for how long this machine was suspended since its start.

    Too little where this thread was interrupted between the two clocks, and never too much.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
