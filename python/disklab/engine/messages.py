"""What the engine says: docs/contracts/3-control-socket.md. Keys of a newer engine are ignored."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from disklab.catalog.profile import Scope, Unit, VolumeProfile


class Message(BaseModel):
    """Something that the engine said."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Envelope(Message):
    """What this machine can do through the whole path, measured at start."""

    p50_ns: int
    p99_ns: int
    iops: int
    bytes_per_s: int

    def dilated(self, factor: int) -> Envelope:
        """Return it in the time of a host of which a second takes so many seconds here."""
        return Envelope(
            p50_ns=self.p50_ns // factor,
            p99_ns=self.p99_ns // factor,
            iops=self.iops * factor,
            bytes_per_s=self.bytes_per_s * factor,
        )


class Ready(Message):
    """The first event of a host that came up."""

    pid: int
    transport: str
    envelope: Envelope | None
    volumes: list[Any] = []


class Hello(Message):
    """Who answers."""

    version: str
    host: str
    pid: int
    transport: str
    time_dilation: int = 1
    """Seconds of this machine for each second of the host."""
    envelope: Envelope | None


class AttachedVolume(Message):
    """A volume that was just made."""

    device: str
    file: str | None
    backing_file: str | None
    reused: bool


class UblkDevice(Message):
    """A ublk device of a host."""

    device: str
    volume: str | None
    """None: the host has no record of a volume with its mark."""
    live: bool
    """Whether its process lives. A dead one has no disk any more."""


class ListedVolume(Message):
    """A volume in a list."""

    name: str
    device: str
    size_bytes: int
    caching: str
    disks: list[str]
    failure: str | None = None
    """Why it takes no more writes: this machine lost some of its data."""


class Operation(Message):
    """Counters of one kind of I/O."""

    ios: int
    bytes: int
    failed: int


class CacheCounters(Message):
    """One volume's use of the host cache."""

    hit_ios: int
    miss_ios: int
    hit_bytes: int
    miss_bytes: int
    write_ios: int
    destaged_bytes: int
    evicted_bytes: int
    dirty_bytes: int
    cached_bytes: int


class Credits(Message):
    """A credit bucket, in the units of its limit."""

    left: int
    capacity: int


class LimitCounters(Message):
    """One limit: what it granted, whom it delayed."""

    place: str
    unit: Unit
    scope: Scope
    per_s: int
    granted: int
    delayed_ios: int
    delayed_ns: int
    credits: Credits | None
    binding: bool


class VolumeCounters(Message):
    """What a volume did and what held it up."""

    operations: dict[str, Operation]
    in_flight: int
    queued: int
    cache: CacheCounters | None
    limits: list[LimitCounters]

    def limits_since(
        self, before: VolumeCounters
    ) -> list[tuple[LimitCounters, LimitCounters | None]]:
        """Return each limit with what it granted and delayed since a look, and what it was then."""
        earlier = {(limit.place, limit.unit, limit.scope): limit for limit in before.limits}
        pairs = [
            (limit, earlier.get((limit.place, limit.unit, limit.scope))) for limit in self.limits
        ]
        counted = ("granted", "delayed_ios", "delayed_ns")
        return [
            (now.model_copy(update={n: getattr(now, n) - getattr(was, n) for n in counted}), was)
            if was
            else (now, was)
            for now, was in pairs
        ]

    def hit_ratio(self, before: VolumeCounters | None = None) -> float | None:
        """Return the share of reads since a look that hit the cache; None: no cache, no reads."""
        if self.cache is None:
            return None
        earlier = before.cache if before else None
        hits = self.cache.hit_ios - (earlier.hit_ios if earlier else 0)
        misses = self.cache.miss_ios - (earlier.miss_ios if earlier else 0)
        return hits / (hits + misses) if hits + misses else None


class Lateness(Message):
    """By how much replies were late, in nanoseconds, since the attach or between two views."""

    p50: int
    p99: int
    max: int
    buckets: list[tuple[int, int]] = []
    """The histogram: largest value of a bucket (6 % wide), replies in it; ascending."""

    def since(self, before: Lateness) -> Lateness:
        """Return the lateness of the replies between an earlier view and this one.

        Quantiles are rounded up to their bucket's end; all zero when there was no reply.
        """
        earlier = dict(before.buckets)
        new = [(value, count - earlier.get(value, 0)) for value, count in self.buckets]
        return Lateness.of([bucket for bucket in new if bucket[1] > 0])

    @property
    def whole_ns(self) -> int:
        """The lateness of all replies together, each at its bucket's end."""
        return sum(value * count for value, count in self.buckets)

    def quantile(self, ppm: int) -> int:
        """Return what `ppm` of a million do not exceed, in nanoseconds; 0: there is none."""
        total = sum(count for _, count in self.buckets)
        return _quantile(self.buckets, -(-total * ppm // 1_000_000))

    @classmethod
    def of(cls, buckets: list[tuple[int, int]]) -> Lateness:
        """Return the summary of a histogram."""
        total = sum(count for _, count in buckets)
        return cls(
            p50=_quantile(buckets, -(-total * 50 // 100)),
            p99=_quantile(buckets, -(-total * 99 // 100)),
            max=buckets[-1][0] if buckets else 0,
            buckets=buckets,
        )


def _quantile(buckets: list[tuple[int, int]], rank: int) -> int:
    """Return the value of the reply with this rank, counted from 1; 0: there is none."""
    seen = 0
    for value, count in buckets:
        seen += count
        if seen >= rank:
            return value
    return 0


class EmulatorCounters(Message):
    """How well the emulator keeps the model's time."""

    transport: str
    replies: int
    timed_from_issue: int = 0
    """I/Os whose time began when the block layer issued them, not when they arrived."""
    late_replies: int
    lateness_ns: Lateness
    latency_ns: dict[str, Lateness] = {}
    """From issue to reply by kind of I/O, since the attach; kinds that did not occur are absent."""
    overhead_ns: int
    backing_read_ios: int
    backing_write_ios: int
    unkept_sectors: int = 0
    """Un-flushed sectors that a host failure can no longer undo."""
    still_ns: Lateness = Lateness(p50=0, p99=0, max=0)
    """Each time that the emulator stood still, of the whole host: nothing was taken or answered."""

    def late_ratio(self, before: EmulatorCounters | None = None) -> float:
        """Return the share of replies since a look that were late; 0 to 1."""
        replies = self.replies - (before.replies if before else 0)
        late = self.late_replies - (before.late_replies if before else 0)
        return late / replies if replies else 0.0

    def longest_stop_s(self, before: EmulatorCounters) -> float:
        """Return the longest time in which it answered nothing that it should have, since a look.

        Both are needed: replies may be late because the machine's own disk was, and an I/O that
        reaches an emulator that stands still may have no issue time, and so is not late.
        """
        late = self.lateness_ns.since(before.lateness_ns)
        still = self.still_ns.since(before.still_ns)
        return max(late.max, still.max) / 1e9


class View(Message):
    """One volume as it is now."""

    profile: VolumeProfile
    counters: VolumeCounters
    emulator: EmulatorCounters
    faults: list[dict[str, Any]]
    failure: str | None = None
    """Why it takes no more writes: this machine lost some of its data."""

    def began_anew(self, before: View) -> bool:
        """Return whether the volume was attached again since an earlier look: it counts from 0."""
        return self.emulator.replies < before.emulator.replies
