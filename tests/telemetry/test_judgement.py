"""When a measurement is invalid, and what is said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from disklab.catalog.profile import DiskProfile, Distribution, Latency, VolumeProfile
from disklab.engine.messages import CacheCounters, EmulatorCounters, Lateness, View, VolumeCounters
from disklab.telemetry import Judgement, Sampler, judge

CPUS = 2
DISK_NS = 1_000_000


@dataclass
class Told:
    """A source that says what a test wants."""

    name: str
    metrics: dict[str, float] = field(default_factory=dict)

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
        yield from self.metrics.items()


def judged(
    after: View | None = None,
    generators: int = 1,
    disk: dict[str, float] | None = None,
    **cores: float,
) -> Judgement:
    """Judge a phase in which these cores were used: by roles, `busy` and `steal`."""
    used = {"client": 0.1, "server": 0.5, "emulator": 0.1, "busy": 0.8, "steal": 0.0, **cores}
    machine = {"busy_cores": used.pop("busy"), "steal_cores": used.pop("steal")}
    sources = [Told(f"cpu {role}", {"cores": count}) for role, count in used.items()]
    sources += [Told("machine", machine), Told("disk data", disk or {})]
    with Sampler(sources, lambda *_: None) as sampler:
        sampler.enter("measure")
        time.sleep(0.01)
    volumes = {}
    if after is not None:
        none = {"emulator": view([]).emulator, "counters": cached([], 0).counters}
        volumes["data"] = (after.model_copy(update=none), after)
    return judge(sampler, "measure", volumes, generators=generators, cpus=CPUS)


def view(lateness: list[tuple[int, int]], slow_ns: int = DISK_NS) -> View:
    """Return a disk of 1 ms whose replies were late by these nanoseconds, so often.

    Its slowest I/Os, more than one in a hundred, take `slow_ns`.
    """
    same = Distribution(quantiles_ppm_ns=[(980_000, DISK_NS), (1_000_000, slow_ns)])
    disk = DiskProfile(
        name="disk",
        medium="remote",
        limits=[],
        latency=Latency(read=same, write=same, flush=same),
    )
    replies = sum(count for _, count in lateness)
    return View(
        profile=VolumeProfile(
            name="data", size_bytes=1 << 30, caching="None", chunk_bytes=65536, disks=[disk]
        ),
        counters=VolumeCounters(operations={}, in_flight=0, queued=0, cache=None, limits=[]),
        emulator=EmulatorCounters(
            transport="fuse",
            replies=replies,
            late_replies=0,
            lateness_ns=Lateness.of(lateness),
            overhead_ns=0,
            backing_read_ios=0,
            backing_write_ios=0,
        ),
        faults=[],
    )


def test_a_machine_with_room_is_valid() -> None:
    found = judged(after=view([(50_000, 10_000)]))
    assert (found.invalid, found.warnings) == ([], [])
    assert found.cpu_ratio == pytest.approx({"client": 0.05, "server": 0.25, "emulator": 0.05})


def test_a_machine_that_only_conducts_is_not_judged() -> None:
    """Where hosts of others make load and data, what this one does besides is its own business."""
    with Sampler([Told("machine", {"busy_cores": 2.0, "steal_cores": 1.0})], lambda *_: None) as it:
        it.enter("measure")
        time.sleep(0.01)
    found = judge(it, "measure", {}, cpus=CPUS)
    assert (found.invalid, found.warnings, found.machine_was_full) == ([], [], False)


def test_a_client_whose_thread_is_full_was_the_limit() -> None:
    (reason,) = judged(client=0.95).invalid
    assert "the client was the limit: it used 0.95 cores of its one thread" in reason
    assert judged(client=0.95, generators=2).invalid == []


def test_tools_may_not_eat_a_full_machine() -> None:
    (reason,) = judged(client=0.5, emulator=0.3, server=1.1, busy=1.99).invalid
    assert "client and emulator took 40%" in reason
    found = judged(client=0.2, emulator=0.2, server=1.5, busy=1.99)
    assert found.invalid == []
    (warning,) = found.warnings
    assert "this machine's CPU was the limit, not the disks" in warning


def test_other_programs_that_fill_the_machine_are_no_limit_of_the_database() -> None:
    (warning,) = judged(client=0.02, emulator=0.02, server=0.1, busy=2.0).warnings
    assert warning.startswith("other programs kept 93% of this machine's 2 cores busy")


def test_stolen_time_is_said() -> None:
    (warning,) = judged(steal=0.2).warnings
    assert "10%" in warning


def test_an_emulator_late_beside_its_disk_is_invalid() -> None:
    (reason,) = judged(after=view([(150_000, 10_000)])).invalid
    assert "half of its replies were late by 150 us" in reason
    (reason,) = judged(after=view([(10_000, 9_800), (2_000_000, 200)])).invalid
    assert "1 % of its replies were late by 2000 us" in reason
    assert judged(after=view([(10_000, 9_950), (2_000_000, 50)])).invalid == []


def test_lateness_is_held_against_the_disks_own_slow_ios() -> None:
    late = [(10_000, 9_800), (2_000_000, 200)]
    assert judged(after=view(late, slow_ns=4_000_000)).invalid == []
    (reason,) = judged(after=view(late, slow_ns=2_500_000)).invalid
    assert "an I/O itself takes 1000 us, one in a hundred 1500 us longer" in reason


def test_lateness_is_held_against_what_ios_took() -> None:
    after = view([(10_000, 9_800), (2_000_000, 200)])
    large_writes = {"write_iops": 900.0, "write_latency_ms": 3.0}
    assert judged(after=after, disk=large_writes).invalid == []
    # A mean over both sides: few slow writes excuse nothing.
    mixed = {**large_writes, "read_iops": 9_000.0, "read_latency_ms": 1.0}
    assert judged(after=after, disk=mixed).invalid
    # What was late itself is no excuse.
    always = view([(2_000_000, 10_000)])
    assert judged(after=always, disk={"read_iops": 300.0, "read_latency_ms": 3.0}).invalid


def test_flushes_that_hold_writes_up_are_told_of() -> None:
    disk = {"flush_iops": 20.0, "flush_latency_ms": 15.0}
    (warning,) = judged(after=view([(50_000, 10_000)]), disk=disk).warnings
    assert "a FLUSH of volume data was under way 30% of the time" in warning
    disk["flush_latency_ms"] = 2.5
    assert judged(after=view([(50_000, 10_000)]), disk=disk).warnings == []


def test_few_replies_say_little_and_fewer_nothing() -> None:
    assert judged(after=view([(5_000_000, 19)])).invalid == []
    (reason,) = judged(after=view([(5_000_000, 20)])).invalid
    assert "half of its replies were late by 5000 us" in reason
    # A disk that is rarely asked may be late by less than an I/O of it takes.
    assert judged(after=view([(900_000, 999)])).invalid == []
    assert judged(after=view([(900_000, 1000)])).invalid


def cached(lateness: list[tuple[int, int]], hit_ratio: float) -> View:
    """Return a disk of 1 ms behind a host cache that answered so many of its reads."""
    plain = view(lateness)
    hits = round(plain.emulator.replies * hit_ratio)
    cache = dict.fromkeys(CacheCounters.model_fields, 0) | {"hit_ios": hits}
    counters = plain.counters.model_copy(update={"cache": CacheCounters(**cache)})
    return plain.model_copy(update={"counters": counters})


def test_cache_hits_are_held_against_what_a_hit_takes() -> None:
    def told(late_ns: int, hit_ratio: float) -> list[str]:
        took = {"read_iops": 900.0, "read_latency_ms": 0.15 + late_ns / 1e6}
        return judged(after=cached([(late_ns, 10_000)], hit_ratio), disk=took).invalid

    # 100 us on top of hits of 150 us, a tenth of what the disk behind them takes.
    (reason,) = told(100_000, 1.0)
    assert "half of its replies were late by 100 us or more (30% of a cache hit's 150 us" in reason
    assert told(20_000, 1.0) == []
    assert told(90_000, 0.2) == []
    assert told(150_000, 0.2)


def test_a_disk_that_has_lost_data_makes_a_trial_invalid_and_says_why() -> None:
    after = view([(50_000, 10_000)]).model_copy(update={"failure": "this machine failed"})
    assert judged(after=after).invalid == ["volume data failed: this machine failed"]
