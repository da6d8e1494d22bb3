"""Which figures other work spoiled: by the share of an operation's time that was waiting for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from disklab.telemetry.judgement import SLOWED_BY_OTHERS
from disklab.telemetry.sources import ProcessCpu, held_up_ns
from disklab.telemetry.spoiled import Wait, in_words, marks

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
