"""Stops of a JVM, from its unified log (-Xlog:gc,safepoint)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

# Every stop of all threads ends with such a line; a collection has the name of its collector.
# Source: JDK 17 and 21, src/hotspot/share/runtime/safepoint.cpp (SafepointTracing::end).
_STOP = re.compile(rb'Safepoint "(\w+)",.*?\bTotal: +(\d+) ns')
_COLLECTION = re.compile(rb"^(G1|Gen|Parallel|Serial|Z|Shenandoah|CollectForMetadata)")


@dataclass
class GcLog:
    """Reads on where it left off; totals since it began."""

    path: Path
    pauses: int = 0
    """Stops for garbage collection."""
    pause_s: float = 0.0
    stopped_s: float = 0.0
    """All stops, those for collections included."""
    _offset: int = 0
    _longest_s: float = field(default=0.0)

    def advance(self) -> None:
        """Read what was written since the last time."""
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
            self._longest_s = max(self._longest_s, seconds)
            if _COLLECTION.match(name):
                self.pauses += 1
                self.pause_s += seconds

    def take_longest_s(self) -> float:
        """Return the longest stop since this was last asked."""
        longest, self._longest_s = self._longest_s, 0.0
        return longest
