"""Stops of a JVM, from its unified log (-Xlog:gc,safepoint)."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

# Every stop of all threads ends with such a line; a collection has the name of its collector.
# Source: JDK 17 and 21, src/hotspot/share/runtime/safepoint.cpp (SafepointTracing::end).
# The database's user writes it, and root may read it: a line of theirs has 250 characters, and 18
# digits of nanoseconds are 31 years.
_STOP = re.compile(rb'Safepoint "(\w{1,100})",.{0,1000}?\bTotal: {1,100}(\d{1,18}) ns')
_COLLECTION = re.compile(rb"^(G1|Gen|Parallel|Serial|Z|Shenandoah|CollectForMetadata)")
# What a collection found and left in the heap, in whole MiB. What lies between the end of one and
# the beginning of the next was allocated, as far as no concurrent cycle freed anything meanwhile.
# Source: JDK 17, src/hotspot/share/gc/shared/gcTraceTime.cpp ("512M->40M(1024M) 5.123ms").
_HEAP = re.compile(
    rb"GC\(\d{1,9}\) Pause (?:Young|Full|Remark|Cleanup)\b[^\n]{0,200}? "
    rb"(\d{1,9})M->(\d{1,9})M\(\d{1,9}M\)"
)
MIB = 1 << 20

PIECE_BYTES = 1 << 20
"""Read at a time, and more than any line of the JVM has."""
MOST_PIECES = 16
"""In one turn; a second's stops are some kilobytes. What is more is read the next time."""
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
    allocated_bytes: int = 0
    """Between the first collection that was read and the last one."""
    _left: int | None = None
    """What the last pause left in the heap, in bytes; None: none was read."""
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
        """Take the whole lines from where the last ended; they are the database user's writing."""
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                for _ in range(MOST_PIECES):
                    content = log.read(PIECE_BYTES)
                    whole = content[: content.rfind(b"\n") + 1]
                    if not whole and len(content) < PIECE_BYTES:
                        return
                    # A piece without an end of line is a part of no line of the JVM's: passed over.
                    self._offset += len(whole) or len(content)
                    self._take(whole, now_s)
                    log.seek(self._offset)
        except OSError:
            return

    def _take(self, lines: bytes, now_s: float) -> None:
        for name, nanoseconds in _STOP.findall(lines):
            seconds = int(nanoseconds) / 1e9
            self.stopped_s += seconds
            self._recent.append((now_s, seconds))
            if _COLLECTION.match(name):
                self.pauses += 1
                self.pause_s += seconds
        for found, left in _HEAP.findall(lines):
            if self._left is not None:
                self.allocated_bytes += max(int(found) * MIB - self._left, 0)
            self._left = int(left) * MIB
