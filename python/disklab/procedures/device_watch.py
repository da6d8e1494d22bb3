"""What an emulated disk does while fio uses it, told about once a second: fio tells at its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from disklab.engine.messages import View
from disklab.events import Emit, Progress
from disklab.procedures.record import followed
from disklab.telemetry import Disk, Emulator, Source
from disklab.telemetry.gaps import Gaps

# As the experiment file calls the disk.
NAME = "device"
INTERVAL_S = 1.0


def behind(path: Path) -> Path:
    """Return the block device that a file lies on, or that a path is."""
    status = path.stat()
    number = status.st_rdev if path.is_block_device() else status.st_dev
    # Symbolic links to the devices, by their numbers: see sysfs(5).
    shown = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    return Path("/dev") / shown.name


@dataclass
class DeviceWatch:
    """Tells of each second what the device and its limits did.

    The rate is that of the block device, which is what fio completes; what splits a large I/O on
    its way counts more often. A 99th percentile is known only at the end, from fio.
    """

    emit: Emit
    phase: str
    sources: tuple[Source, ...]
    slow: int = 1
    """Seconds of this machine for each second of the disk."""
    client: Gaps = field(default_factory=Gaps)
    """When fio asked for nothing between two seconds in which it did."""
    _idle_s: float = 0.0
    _last_s: float = 0.0
    _done: float = 0.0
    _queue: float = 0.0
    """I/Os under way in the last second, on average."""
    _seen: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, emit: Emit, phase: str, path: Path, show: Callable[[], View], slow: int = 1
    ) -> DeviceWatch:
        """Begin to watch what fio opens as `path`; `show` returns its volume as it is now."""
        sources = (Disk(NAME, behind(path)), Emulator(NAME, show))
        watch = cls(emit, phase, sources, slow)
        # Remembers where the counters stand.
        watch._ask(0.0)
        return watch

    def tick(self, elapsed_s: float) -> None:
        """Tell of the last second when it is over; `elapsed_s` is since the start, of here."""
        interval_s = elapsed_s - self._last_s
        if interval_s < INTERVAL_S:
            return
        self._last_s = elapsed_s
        self._ask(interval_s)
        rate = sum(self._seen.get(f"disk {NAME}: {kind}_iops", 0.0) for kind in ("read", "write"))
        self._done += rate * interval_s / self.slow
        self._note_idle(rate, interval_s / self.slow)
        t_s = elapsed_s / self.slow
        told = Progress(self.phase, t_s, round(self._done), None, rate, seen=dict(self._seen))
        self.emit(told)

    def _note_idle(self, rate: float, interval_s: float) -> None:
        """Count a second in which nothing was done and nothing was under way."""
        if not rate and not self._queue:
            # Before its first I/O fio starts.
            self._idle_s += interval_s if self._done else 0.0
            return
        self.client.add(self._idle_s)
        self._idle_s = 0.0

    def _ask(self, interval_s: float) -> None:
        for source in self.sources:
            for metric, value in source.sample(interval_s / self.slow, self.slow):
                if metric == "queue":
                    self._queue = value
                if followed(source.name, metric):
                    self._seen[f"{source.name}: {metric}"] = value
