"""When a measurement is invalid, and which figures other work spoiled: what is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from disklab.catalog.profile import DiskProfile, Distribution, Latency, VolumeProfile
from disklab.engine.messages import EmulatorCounters, Lateness, View, VolumeCounters
from disklab.errors import MachineError
from disklab.telemetry import Judgement, Sampler, judge
from disklab.telemetry.gaps import Gaps, Pulse, client_gap_s, suspended
from disklab.telemetry.judgement import SLOWED_BY_OTHERS
from disklab.telemetry.sources import ProcessCpu, held_up_ns
from disklab.telemetry.spoiled import Wait, in_words, marks

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
    on_server: bool = False,
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
        none = {"emulator": view([]).emulator, "counters": after.counters}
        volumes["data"] = (after.model_copy(update=none), after)
    return judge(sampler, "measure", volumes, generators=generators, cpus=CPUS, on_server=on_server)


def view(lateness: list[tuple[int, int]]) -> View:
    """Return a disk of 1 ms whose replies were late by these nanoseconds, so often."""
    same = Distribution(quantiles_ppm_ns=[(1_000_000, DISK_NS)])
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


def test_a_client_on_the_server_may_take_what_it_takes_there() -> None:
    found = judged(on_server=True, client=0.7, emulator=0.1, server=1.1, busy=1.99)
    assert found.invalid == []
    (reason,) = judged(on_server=True, client=0.2, emulator=0.7, server=1.0, busy=1.99).invalid
    assert "emulator took 35%" in reason


def test_other_programs_that_fill_the_machine_are_no_limit_of_the_database() -> None:
    (warning,) = judged(client=0.02, emulator=0.02, server=0.1, busy=2.0).warnings
    assert warning.startswith("other programs kept 93% of this machine's 2 cores busy")


def test_stolen_time_is_said() -> None:
    (warning,) = judged(steal=0.2).warnings
    assert "10%" in warning


def test_a_source_that_fails_is_told_of_the_phase_in_which_it_did() -> None:
    class Dying(Told):
        def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
            if elapsed_s:
                raise MachineError("gone\nand more")
            yield from ()

    with Sampler([Dying("disk data")], lambda *_: None) as sampler:
        sampler.enter("measure")
        time.sleep(0.3)
    assert judge(sampler, "fill", {}, cpus=CPUS).warnings == []
    (warning,) = judge(sampler, "measure", {}, cpus=CPUS).warnings
    assert warning == "disk data was not watched all the time (gone)"


def test_only_a_servers_one_thread_holds_all_others_up() -> None:
    turns = {"turns_per_s": 1e7, "first_turns_per_s": 1e7, "held_up_s": 0.01}
    cpu = {"cores": 0.2, "waiting_cores": 0.5, **turns}
    sources = [Told(f"cpu {role}", cpu) for role in ("client", "server")]
    machine = Told("machine", {"busy_cores": 1.6, "steal_cores": 0.0})
    with Sampler([*sources, machine], lambda *_: None) as sampler:
        sampler.enter("measure")
        time.sleep(0.01)
    waits = judge(sampler, "measure", {}, cpus=CPUS).waits
    assert [wait.blocks > 0 for wait in waits] == [False, True]


def test_flushes_that_hold_writes_up_are_told_of() -> None:
    disk = {"flush_iops": 20.0, "flush_latency_ms": 15.0}
    (warning,) = judged(after=view([(50_000, 10_000)]), disk=disk).warnings
    assert "a FLUSH of volume data was under way 30% of the time" in warning
    disk["flush_latency_ms"] = 2.5
    assert judged(after=view([(50_000, 10_000)]), disk=disk).warnings == []


def spoiled(lateness: list[tuple[int, int]], mean_ms: float, p99_ms: float) -> set[str]:
    """Return the marks of operations of one I/O each that take so long with their lateness."""
    waits = [wait for wait in judged(after=view(lateness)).waits if "replies" in wait.what]
    mean_s = sum(ns * count for ns, count in lateness) / sum(count for _, count in lateness) / 1e9
    rate = waits[0].per_s / mean_s if waits else 1e3
    return set(marks(waits, rate, mean_ms, p99_ms, achieved=False))


def test_an_emulator_is_held_against_what_operations_take() -> None:
    assert spoiled([(150_000, 10_000)], 1.2, 3.0) == {"rate"}
    assert spoiled([(150_000, 10_000)], 0.9, 3.0) == {"rate", "median", "tail"}
    assert spoiled([(150_000, 10_000)], 4.0, 9.0) == set()
    # A hit of the host cache takes less, and must be on time in its own measure.
    assert spoiled([(20_000, 10_000)], 0.5, 0.9) == set()
    assert spoiled([(20_000, 10_000)], 0.1, 0.2) == {"rate", "median", "tail"}


def test_a_few_late_replies_spoil_the_tail_alone() -> None:
    some = [(10_000, 9_800), (2_000_000, 200)]
    assert spoiled(some, 1.0, 4.0) == {"tail"}
    # Small against the tail that was measured.
    assert spoiled(some, 1.0, 8.0) == set()
    # One in two hundred is beyond the 99th percentile.
    assert spoiled([(10_000, 9_950), (2_000_000, 50)], 1.0, 4.0) == set()


def test_a_disk_that_is_rarely_asked_says_nothing_of_its_emulator() -> None:
    assert spoiled([(5_000_000, 19)], 6.0, 8.0) == set()
    assert spoiled([(5_000_000, 20)], 6.0, 8.0) == {"rate", "median", "tail"}


def test_a_disk_that_has_lost_data_makes_a_trial_invalid_and_says_why() -> None:
    after = view([(50_000, 10_000)]).model_copy(update={"failure": "this machine failed"})
    assert judged(after=after).invalid == ["volume data failed: this machine failed"]


# Stops itself in the middle: whoever starts it lets it go on.
BESIDE_A_STOP = """
import os, signal, time
from disklab.telemetry.gaps import Pulse
with Pulse() as pulse:
    time.sleep(0.5)
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.5)
print(pulse.gaps.longest_s, pulse.suspended_s)
"""


@pytest.mark.parametrize(
    ("gaps_s", "measured_s", "reason"),
    [
        ([], 60.0, None),
        ([0.2] * 100, 60.0, None),
        ([0.9, 0.9], 60.0, None),
        ([4.0], 60.0, "the client stood still for 4.0 s (7% of what was measured)"),
        ([4.0], 3600.0, "the client stood still for 4.0 s (0% of what was measured)"),
        (
            [0.5] * 8,
            60.0,
            "the client stood still for 0.5 s, 4.0 s in all (7% of what was measured)",
        ),
        # Of a short measurement a moment is a large part, and every machine has such moments.
        ([0.9], 5.0, None),
    ],
)
def test_a_long_stop_is_a_reason_and_so_are_many_short_ones(
    gaps_s: list[float], measured_s: float, reason: str | None
) -> None:
    assert Gaps.of(gaps_s).reason("the client", measured_s) == reason


def test_an_interval_of_a_load_that_was_too_long_is_a_stop() -> None:
    assert client_gap_s(3.0, 8.1) == pytest.approx(4.1)
    # The last interval of a load is a short one.
    assert client_gap_s(3.0, 3.4) == 0.0


def test_a_suspended_machine_is_a_reason() -> None:
    assert suspended(0.0) is None
    assert suspended(12.0) == "this machine was suspended for 12.0 s"


def test_a_pulse_sees_that_its_process_was_stopped() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BESIDE_A_STOP], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(1.5)
        os.kill(child.pid, signal.SIGCONT)
        longest_s, suspended_s = map(float, child.stdout.read().split())
    assert longest_s > 1.0
    assert suspended_s == 0.0


def test_a_pulse_beside_nothing_sees_nothing() -> None:
    with Pulse() as pulse:
        time.sleep(0.5)
    assert pulse.reasons(0.5) == []


CPU = "for a processor that other programs had"
LATE = "for replies of volume data that this machine made late"


def test_nothing_is_spoiled_where_little_was_waited() -> None:
    # Redis, always, beside 12 loops: 112 operations a second, each 8.9 ms of which 0.2 ms waited.
    waits = [Wait(CPU, 112 * 0.2e-3, 1.0), Wait(LATE, 112 * 0.1e-3, 0.4)]
    assert marks(waits, 112.0, 8.9, 50.0, achieved=False) == {}
    assert marks([], 112.0, 8.9, 50.0, achieved=False) == {}


def test_what_waits_for_a_processor_most_of_the_time_counts_for_nothing() -> None:
    found = marks([Wait(CPU, 8.0, 4.0)], 2_000.0, 8.0, 45.0, achieved=False)
    assert set(found) == {"rate", "median", "tail"}
    (text,) = in_words(found)
    assert text.startswith(
        "other programs disturbed the rate and the median and the 99th percentile"
    )
    assert "50% of their time" in text


def test_a_tail_alone_is_spoiled_by_a_flush_that_was_late() -> None:
    """Redis, everysec: a flush a second that is 20 ms late holds up the 20 requests behind it."""
    found = marks([Wait(LATE, 0.02, 20.0)], 1_000.0, 0.6, 27.0, achieved=True)
    assert set(found) == {"tail"}
    # One such in two minutes is beyond one operation in a hundred.
    assert marks([Wait(LATE, 0.0002, 20.0)], 1_000.0, 0.6, 27.0, achieved=True) == {}


def test_what_one_thread_waits_for_all_wait_for() -> None:
    """Redis, always, at a load of 30: 19 requests stand behind a thread that waits a third."""
    waits = [Wait(CPU, 0.34, 2.0, blocks=0.34)]
    assert set(marks(waits, 981.0, 19.6, 61.0, achieved=False)) == {"rate", "median", "tail"}
    # At an offered rate that was done the rate counts all the same.
    assert set(marks(waits, 981.0, 19.6, 61.0, achieved=True)) == {"median", "tail"}
    # One of many threads that waits as long holds nobody else up.
    beside = [Wait(CPU, 0.34, 2.0)]
    assert marks(beside, 981.0, 19.6, 61.0, achieved=False) == {}


@pytest.mark.parametrize(
    ("p50_ms", "others", "marked"),
    [
        # 0.1 core for 1,000 operations a second: each is 0.1 ms of work, and little else.
        (0.11, 0.9, {"median"}),
        (0.11, 0.2, set()),
        (9.0, 0.9, set()),
    ],
)
def test_what_is_mostly_work_is_slower_beside_others(
    p50_ms: float, others: float, marked: set[str]
) -> None:
    """Redis, everysec, beside copies of memory: p50 0.11 ms where it was 0.08."""
    slowed = 0.1 * others * SLOWED_BY_OTHERS
    found = marks(
        [Wait(CPU, 0.0, 0.0)],
        1_000.0,
        0.9,
        16.0,
        achieved=True,
        p50_ms=p50_ms,
        slowed_cores=slowed,
    )
    assert {name for name in found if name != "tail"} == marked


@pytest.mark.parametrize(("share", "figures"), [(0.08, 0), (0.12, 1), (0.2, 3)])
def test_each_figure_has_a_bound_of_its_own(share: float, figures: int) -> None:
    # A median has half as much room again as a rate; with it goes the tail.
    assert len(marks([Wait(CPU, share * 16, 0.1)], 1_600.0, 10.0, 40.0, achieved=False)) == figures


def test_a_share_at_its_bound_spoils_nothing_and_a_hundredth_of_the_operations_is_reached() -> None:
    # A tenth of ten operations in flight, in waits whose length nobody knows.
    assert marks([Wait(CPU, 1.0, 0.0)], 1_000.0, 10.0, 40.0, achieved=False) == {}
    assert set(marks([Wait(LATE, 0.002, 20.0)], 10.0, 100.0, 27.0, achieved=False)) == {"tail"}


MS = 1_000_000


@pytest.mark.parametrize(
    ("waits_ms", "held_ms"),
    [
        ([], 0),
        # A second's only wait holds up all that comes within it: 4 % of it, 1 % more than 30 ms.
        ([40, *[0] * 9], 30),
        ([5, *[0] * 9], 0),
        ([1] * 10, 0),
        ([5] * 10, 4),
        ([40, 1, 1, 1, 1, 1, 1, 1, 1, 1], 30),
        ([100] * 10, 99),
    ],
)
def test_one_in_a_hundred_is_held_up_by_long_waits(waits_ms: list[int], held_ms: float) -> None:
    assert held_up_ns([one * MS for one in waits_ms], 1000 * MS) == pytest.approx(held_ms * MS)


def test_threads_that_are_ready_and_have_no_processor_are_seen() -> None:
    """More loops than processors: each of ours is ready all the time, and runs for a part of it."""
    count = 2 * len(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        source = ProcessCpu("server", lambda: [one.pid for one in loops])
        list(source.sample(0.0))
        time.sleep(0.1)
        list(source.sample(0.1))
        begun = time.monotonic()
        for _ in range(10):
            time.sleep(0.1)
            source.peek()
        seen = dict(source.sample(time.monotonic() - begun))
    finally:
        for one in loops:
            one.kill()
            one.wait()
    # Running or waiting, each of them, all the time.
    assert seen["cores"] + seen["waiting_cores"] == pytest.approx(count, rel=0.15)
    assert seen["waiting_cores"] > count / 4
    assert seen["turns_per_s"] > 0
    # It waits for more than its share of a tenth of a second, again and again.
    assert 0.005 < seen["held_up_s"] < 1.0
