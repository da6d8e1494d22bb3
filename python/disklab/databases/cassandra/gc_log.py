"""Stops of a JVM, from its unified log (-Xlog:gc,safepoint)."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

# Every stop of all threads ends with such a line; a collection has the name of its collector.
# Source: JDK 17 and 21, src/hotspot/share/runtime/safepoint.cpp (SafepointTracing::end).
_STOP = re.compile(rb'Safepoint "(\w+)",.*?\bTotal: +(\d+) ns')
_COLLECTION = re.compile(rb"^(G1|Gen|Parallel|Serial|Z|Shenandoah|CollectForMetadata)")


# Stops are told for as long after they were read; whoever looks once a second misses none.
RECENT_SECONDS = 1.0


@dataclass
class GcLog:
    """Reads on where it left off; totals since it began. Several threads may ask."""

    path: Path
    pauses: int = 0
    """Stops for garbage collection."""
    pause_s: float = 0.0
    stopped_s: float = 0.0
    """All stops, those for collections included."""
    _offset: int = 0
    _recent: list[tuple[float, float]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self, now_s: float) -> None:
        """Read what was written since the last time. `now_s` is monotonic."""
        with self._lock:
            self._recent = [one for one in self._recent if one[0] > now_s - RECENT_SECONDS]
            self._read(now_s)

    def longest_s(self) -> float:
        """Return the longest of the stops that were read within the last second."""
        with self._lock:
            return max((seconds for _, seconds in self._recent), default=0.0)

    def _read(self, now_s: float) -> None:
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                content = log.read()
        except OSError:
            return
        whole, _, rest = content.rpartition(b"\n")
        self._offset += len(content) - len(rest)
        for name, nanoseconds in _STOP.findall(whole):
            seconds = int(nanoseconds) / 1e9
            self.stopped_s += seconds
            self._recent.append((now_s, seconds))
            if _COLLECTION.match(name):
                self.pauses += 1
                self.pause_s += seconds
