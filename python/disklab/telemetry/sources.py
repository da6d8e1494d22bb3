"""What is watched: each source reads its own counters and returns what happened since last time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from disklab.databases.protocol import Database
from disklab.engine.messages import LimitCounters, View
from disklab.errors import DisklabError, MachineError
from disklab.hosts.control_group import ControlGroup
from disklab.telemetry.gaps import LEAST_GAP_S, METRIC

Metric = tuple[str, float]
"""A name with its unit, and its value over the interval that has just ended."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CPUS = os.cpu_count() or 1
# /sys/block/*/stat counts sectors of 512 bytes, whatever the device's own are.
SECTOR_BYTES = 512


class Source(Protocol):
    """Something that is asked about once a second."""

    @property
    def name(self) -> str:
        """What the rows are filed under, such as `cpu server` or `disk data`."""
        ...

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterable[Metric]:
        """Return what happened in the interval that has just ended.

        The interval and the values are in the described system's time, of which a second takes
        `slow` seconds here. The first call only remembers where counters stand; it returns
        what needs no interval.
        """
        ...


class Growth:
    """How much counters grew since they were last seen."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def of(self, name: str, value: float) -> float | None:
        """Return the growth; None the first time, and when a counter began anew."""
        last = self._last.get(name)
        self._last[name] = value
        return None if last is None or value < last else value - last


WAKE_UP_NS = 10_000
"""A turn's wait for a processor on a quiet machine: 2 to 9 us in `python -m campaigns.busy`."""
HELD_UP_RATIO = 0.01
"""Of the operations: those beyond the 99th percentile."""


def held_up_ns(waits_ns: Iterable[int], elapsed_ns: float) -> float:
    """Return by how much one in a hundred of the operations that come evenly is held up.

    What comes during a wait is held up until its end: longer than `x` by waits of `w` for the sum
    of `w - x` over the time.
    """
    longest = sorted(waits_ns, reverse=True)
    sum_ns = 0
    for count, wait_ns in enumerate(longest, 1):
        sum_ns += wait_ns
        held_ns = (sum_ns - HELD_UP_RATIO * elapsed_ns) / count
        if count == len(longest) or held_ns >= longest[count]:
            return max(held_ns, 0.0)
    return 0.0


class ProcessCpu:
    """CPU of some processes with threads and children: `cores` of this machine, `rss_bytes`.

    And for how long their threads were ready and had none (`waiting_cores`; what each wake-up takes
    is left out), how often they got one
    (`turns_per_s`), and how often the one did that got it most (`first_turns_per_s`); by how much
    that one's waits held up one operation in a hundred (`held_up_s`).
    """

    def __init__(self, role: str, pids: Callable[[], Iterable[int]]) -> None:
        """Take `client`, `server` or `emulator`, and who that is now."""
        self.name = f"cpu {role}"
        self._pids = pids
        self._growth = Growth()
        self._known: set[int] = set()
        self._delays: dict[tuple[int, int], tuple[int, int]] = {}
        self._first: tuple[int, int] | None = None
        """The thread that got most turns, by process and its own number."""
        self._peeked: list[tuple[int, int]] = []
        self._last_ticks = _now_ticks()

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield cores used (1.0: one core all the time) and resident memory."""
        cores = rss = 0.0
        seen = False
        delays: dict[tuple[int, int], tuple[int, int]] = {}
        given = set(self._pids())
        last_ticks, self._last_ticks = self._last_ticks, _now_ticks()
        for pid in given:
            fields = process_fields(pid)
            # One whose parent is asked about is counted with it. Field 4 is the parent; the list
            # begins with field 3 of proc(5).
            if fields is None or int(fields[1]) in given:
                continue
            if pid not in self._known:
                self._known.add(pid)
                # Field 22 is when it began. All of the time of one that began since is new.
                if int(fields[19]) > last_ticks:
                    self._growth.of(str(pid), 0.0)
            children = children_of(pid)
            for one in (pid, *children):
                delays |= run_delays(one)
            family = [fields, *map(process_fields, children)]
            rss += sum(int(one[21]) * PAGE_BYTES for one in family if one is not None)
            # Fields 14 to 17: user and system time, its own and of those children that have ended;
            # a database that serves each connection by a process would lose most of them else.
            ticks = int(fields[13]) + int(fields[14])
            ticks += sum(int(one[11]) + int(one[12]) for one in family if one is not None)
            grown = self._growth.of(str(pid), ticks)
            if grown is not None:
                seen = True
                cores += grown / TICKS_PER_S / (elapsed_s * slow)
        self.peek()
        peeked, self._peeked = self._peeked, []
        grown_by = self._waited(delays)
        if seen:
            yield "cores", cores
            waited_ns, turns = (sum(each) for each in zip(*grown_by, strict=True))
            waited_ns = max(waited_ns - WAKE_UP_NS * turns, 0)
            yield "waiting_cores", waited_ns / 1e9 / (elapsed_s * slow)
            yield "turns_per_s", turns / elapsed_s
            yield "first_turns_per_s", max(turns for _, turns in grown_by) / elapsed_s
            waits = [
                max(now[0] - was[0] - WAKE_UP_NS * (now[1] - was[1]), 0)
                for was, now in pairwise(peeked)
            ]
            yield "held_up_s", held_up_ns(waits, elapsed_s * slow * 1e9) / slow / 1e9
        yield "rss_bytes", rss

    def _waited(self, delays: dict[tuple[int, int], tuple[int, int]]) -> list[tuple[int, int]]:
        """Return how long threads that were there at the last look waited since (ns), and turns."""
        last, self._delays = self._delays, delays
        grown = {
            key: (now[0] - last[key][0], now[1] - last[key][1])
            for key, now in delays.items()
            if key in last
        }
        self._first = max(grown, key=lambda key: grown[key][1], default=None)
        self._peeked = [delays[self._first]] if self._first else []
        return [*grown.values()] or [(0, 0)]

    def peek(self) -> None:
        """Look at the thread with most turns: a mean over a second does not tell a long wait."""
        if self._first is not None and (now := run_delay(*self._first)) is not None:
            self._peeked.append(now)


def run_delay(pid: int, tid: int) -> tuple[int, int] | None:
    """Return a thread's wait for a processor (ns), and its turns; None: it is gone."""
    with suppress(OSError, ValueError):
        text = Path(f"/proc/{pid}/task/{tid}/schedstat").read_text(encoding="ascii")
        _, waited_ns, turns = map(int, text.split())
        return waited_ns, turns
    return None


def run_delays(pid: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, by thread, for how long it was ready without a processor (ns), and its turns.

    **Source:** Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat; it is counted without
    CONFIG_SCHEDSTATS too.
    """
    delays = {}
    with suppress(OSError):
        for tid in map(int, os.listdir(f"/proc/{pid}/task")):
            if (delay := run_delay(pid, tid)) is not None:
                delays[pid, tid] = delay
    return delays


def _now_ticks() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S


class Machine:
    """The whole machine: `busy_cores`, `steal_cores`, `iowait_cores`, `available_bytes`."""

    FILES = ("/proc/stat", "/proc/meminfo")

    def __init__(self, name: str = "machine") -> None:
        self.name = name
        self._growth = Growth()

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield cores in use, cores that the hypervisor gave to others, and free memory."""
        stat, meminfo = (Path(file).read_text(encoding="ascii") for file in self.FILES)
        yield from self.metrics(stat, meminfo, elapsed_s, slow)

    def metrics(self, stat: str, meminfo: str, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield them of the content of its files."""
        line = stat.partition("\n")[0]
        # proc(5): user nice system idle iowait irq softirq steal; guest times are inside user.
        times = [int(word) for word in line.split()[1:9]]
        busy = sum(times[:3]) + times[5] + times[6]
        for name, ticks in (("busy", busy), ("iowait", times[4]), ("steal", times[7])):
            grown = self._growth.of(name, ticks)
            if grown is not None:
                yield f"{name}_cores", grown / TICKS_PER_S / (elapsed_s * slow)
        for line in meminfo.splitlines():
            if line.startswith("MemAvailable:"):
                yield "available_bytes", int(line.split()[1]) * 1024.0


class Disk:
    """A block device as the kernel sees it: rates, queue, latency."""

    # Places in /sys/block/*/stat. Source: the kernel's Documentation/block/stat.rst.
    FIELDS: Mapping[str, int] = {
        **{"read_ios": 0, "read_sectors": 2, "read_ms": 3},
        **{"write_ios": 4, "write_sectors": 6, "write_ms": 7},
        **{"busy_ms": 9, "queue_ms": 10, "flush_ios": 15, "flush_ms": 16},
    }

    def __init__(self, volume: str, device: Path) -> None:
        self.name = f"disk {volume}"
        self._stat = Path("/sys/block") / device.resolve().name / "stat"
        self._growth = Growth()

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield IOPS, bytes a second, mean queue and mean latency of what ended."""
        yield from self.metrics(self._stat.read_text(encoding="ascii"), elapsed_s, slow)

    def metrics(self, stat: str, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield them of the content of its file."""
        words = [int(word) for word in stat.split()]
        grown = {
            name: self._growth.of(name, words[place])
            for name, place in self.FIELDS.items()
            if place < len(words)
        }
        # The kernel counts its own milliseconds.
        known = {
            name: value / slow if name.endswith("_ms") else value
            for name, value in grown.items()
            if value is not None
        }
        if len(known) < len(grown):
            return
        for kind in ("read", "write", "flush"):
            ios = known.get(f"{kind}_ios", 0.0)
            yield f"{kind}_iops", ios / elapsed_s
            if ios:
                yield f"{kind}_latency_ms", known[f"{kind}_ms"] / ios
            if f"{kind}_sectors" in known:
                yield f"{kind}_bytes_per_s", known[f"{kind}_sectors"] * SECTOR_BYTES / elapsed_s
        yield "queue", known["queue_ms"] / 1000 / elapsed_s
        yield "utilisation", min(known["busy_ms"] / 1000 / elapsed_s, 1.0)


class Emulator:
    """One volume as the emulator counts it: cache hits, limits, credits, its own lateness.

    Raises MachineError when the volume has failed.
    """

    def __init__(self, volume: str, show: Callable[[], View], suffix: str = "") -> None:
        """Take what returns the volume as it is now; `suffix` tells nodes apart."""
        self.name = f"emulator {volume}{suffix}"
        self._volume = volume
        self._show = show
        self._growth = Growth()
        self._before: View | None = None

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:  # noqa: ARG002 - its own
        """Yield what the model and the emulator did in the interval."""
        view = self._show()
        before, self._before = self._before, view
        if view.failure is not None:
            raise MachineError(f"volume {self._volume} failed: {view.failure}")
        cache = view.counters.cache
        if cache is not None:
            yield "cached_bytes", cache.cached_bytes
            yield "dirty_bytes", cache.dirty_bytes
            hits = self._growth.of("hits", cache.hit_ios)
            misses = self._growth.of("misses", cache.miss_ios)
            if hits is not None and misses is not None:
                yield "hit_iops", hits / elapsed_s
                yield "miss_iops", misses / elapsed_s
                if hits + misses:
                    yield "hit_ratio", hits / (hits + misses)
        yield "queued_ios", view.counters.queued
        for limit in view.counters.limits:
            yield from self._limit(limit, elapsed_s)
        if before is None:
            return
        stop_s = view.emulator.longest_stop_s(before.emulator)
        if stop_s >= LEAST_GAP_S:
            yield METRIC, stop_s
        replies = view.emulator.replies - before.emulator.replies
        if replies > 0:
            late = view.emulator.late_replies - before.emulator.late_replies
            lateness = view.emulator.lateness_ns.since(before.emulator.lateness_ns)
            yield "late_ratio", late / replies
            yield "lateness_p50_ns", lateness.p50
            yield "lateness_p99_ns", lateness.p99

    def _limit(self, limit: LimitCounters, elapsed_s: float) -> Iterator[Metric]:
        name = limit_name(limit)
        if limit.credits is not None and limit.credits.capacity:
            yield f"credits_ratio {name}", limit.credits.left / limit.credits.capacity
        granted = self._growth.of(f"granted {name}", limit.granted)
        delayed = self._growth.of(f"delayed {name}", limit.delayed_ns)
        if granted is not None and limit.per_s:
            # Above 1 while burst credits are spent.
            yield f"utilisation {name}", granted / limit.per_s / elapsed_s
        if delayed is not None:
            # By Little's law: how many I/Os waited for this limit, on average.
            yield f"waiting_ios {name}", delayed / 1e9 / elapsed_s


def limit_name(limit: LimitCounters) -> str:
    """Return what a limit's metrics are called: `disk 0 ios`, `vm cached bytes`."""
    return f"{limit.place} {limit.unit}" + ("" if limit.scope == "all" else f" {limit.scope}")


def node_suffix(number: int) -> str:
    """Return what tells a node's volumes from those of the first one, which keep their names."""
    return "" if number == 1 else f" n{number}"


class Memory:
    """The memory group of a database node: `anonymous_bytes`, `page_cache_bytes`, ..."""

    def __init__(self, node: str, group: ControlGroup) -> None:
        self.name = f"memory {node}"
        self._group = group

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:  # noqa: ARG002 - gauges only
        """Yield what the group holds."""
        use = self._group.use()
        yield "anonymous_bytes", use.anonymous
        yield "page_cache_bytes", use.page_cache
        yield "dirty_bytes", use.dirty


class DatabaseWatch:
    """What a database says about itself; raises MachineError when a node has died."""

    name = "database"

    def __init__(self, database: Database) -> None:
        self.pids: tuple[int, ...] = ()
        """The processes at the last look."""
        self._database = database
        self._growth = Growth()

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:  # noqa: ARG002 - see below
        """Yield its gauges, and of its counters the growth in the interval, not the rate.

        Dropped messages and pauses are few: a number says more than a rate.
        """
        seen = self._database.observe()
        self.pids = seen.pids
        for name, value in seen.metrics.items():
            yield name, of_system(name, value, slow)
        for name, value in seen.counters.items():
            grown = self._growth.of(name, value)
            if grown is not None:
                yield name, of_system(name, grown, slow)

    def serving(self) -> tuple[int, ...]:
        """Return the processes that serve now: a restart between two looks has made others."""
        if not self.pids or any(process_fields(pid) is None for pid in self.pids):
            with suppress(DisklabError):
                self.pids = self._database.observe().pids
        return self.pids


def of_system(name: str, value: float, slow: int) -> float:
    """Return a database's value in the described system's time: it measures its pauses here."""
    return value / slow if name.endswith("_s") else value


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def process_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; None: there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
