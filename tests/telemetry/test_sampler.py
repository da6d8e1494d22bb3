"""When sources are asked, what is kept, and what becomes of one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab.errors import DisklabError, MachineError
from disklab.telemetry import Machine, ProcessCpu, Sampler
from disklab.telemetry.judgement import Course
from disklab.telemetry.sources import Disk, Growth

pytestmark = pytest.mark.alone

Row = tuple[str, float, str, str, float]


class Steady:
    """A source with one counter that grows by a hundred a second."""

    name = "steady"

    def __init__(self) -> None:
        self._growth = Growth()

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
        grown = self._growth.of("count", time.monotonic() * 100)
        if grown is not None:
            yield "per_s", grown / elapsed_s


def test_rows_and_rates_are_in_the_time_of_what_is_watched() -> None:
    rows: list[Row] = []
    with Sampler([Steady()], lambda *row: rows.append(row)) as sampler:
        sampler.enter("measure", 4)
        time.sleep(1.2)
    # A hundred each second here are four hundred in each of its own.
    assert sampler.mean("measure", "steady", "per_s") == pytest.approx(400, rel=0.2)
    assert max(t_s for phase, t_s, *_ in rows if phase == "measure") < 1.2 / 2


class Slow(Steady):
    name = "slow"

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
        time.sleep(3)
        yield "asked", 1.0


class Dying(Steady):
    name = "dying"

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
        if elapsed_s:
            raise MachineError("node n1 was killed by SIGKILL")
        yield "alive", 1.0


def test_rates_are_by_phase_and_cover_all_of_it() -> None:
    rows: list[Row] = []
    with Sampler([Steady()], lambda *row: rows.append(row)) as sampler:
        sampler.enter("warm-up")
        time.sleep(0.3)
        sampler.enter("measure")
        time.sleep(1.4)
    seen = [row for row in rows if row[2] == "steady"]
    assert {row[0] for row in seen} <= {"build", "warm-up", "measure"}
    for phase in ("warm-up", "measure"):
        assert sampler.mean(phase, "steady", "per_s") == pytest.approx(100, rel=0.2)
    course = sampler.course("measure", "steady", "per_s")
    # A whole second, and what was left of the phase when it ended.
    assert course.count == 2
    assert course.seconds == pytest.approx(1.4, abs=0.3)
    # Times count from the beginning of the phase.
    assert max(row[1] for row in seen if row[0] == "measure") == pytest.approx(1.4, abs=0.3)
    assert sampler.mean("measure", "telemetry", "cores steady") is not None


def test_a_slow_source_delays_no_other() -> None:
    rows: list[Row] = []
    with Sampler([Slow(), Steady()], lambda *row: rows.append(row)) as sampler:
        sampler.enter("measure")
        time.sleep(2.3)
        course = sampler.course("measure", "steady", "per_s")
    assert course.count == 2


def test_a_phase_that_is_over_before_a_source_has_answered_is_seen() -> None:
    """On a busy machine a source may begin to be asked when the phase behind it is over."""

    class Late(Steady):
        def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
            time.sleep(0.2)
            yield from super().sample(elapsed_s, slow)

    with Sampler([Late()], lambda *_: None) as sampler:
        time.sleep(0.05)
        sampler.enter("measure")
        time.sleep(0.01)
    assert sampler.mean("measure", "steady", "per_s") is not None


def test_a_failure_is_told_at_once_and_kept() -> None:
    told: list[DisklabError] = []
    with Sampler([Dying(), Steady()], lambda *_: None, told.append) as sampler:
        sampler.enter("measure")
        time.sleep(0.3)
        assert [str(error) for error in told] == ["node n1 was killed by SIGKILL"]
        assert sampler.failures["measure", "dying"] is told[0]
        time.sleep(1.2)
    assert len(told) == 1
    assert sampler.mean("measure", "steady", "per_s") is not None, "the others go on"


def test_a_source_that_was_away_is_asked_again() -> None:
    """A condition restarts the servers; what they do afterwards is theirs, not other programs'."""

    class Restarted(Steady):
        away = False

        def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
            if self.away:
                raise MachineError("node n2 ended by itself with code 0")
            yield from super().sample(elapsed_s, slow)

    source, told = Restarted(), list[DisklabError]()
    with Sampler([source], lambda *_: None, told.append) as sampler:
        source.away = True
        sampler.enter("between")
        time.sleep(0.2)
        sampler.enter("condition")
        time.sleep(0.2)
        source.away = False
        sampler.enter("measure")
        time.sleep(1.5)
    assert told
    assert ("measure", "steady") not in sampler.failures
    # What its counters grew by while nobody saw them is no part of the phase.
    assert sampler.mean("measure", "steady", "per_s") == pytest.approx(100, rel=0.2)


@pytest.mark.parametrize("slow", [1, 12])
def test_a_death_is_noticed_in_this_machines_time(slow: int) -> None:
    """However slow the time of what is watched is: in slow motion a minute would be lost."""
    dies_at = time.monotonic() + 0.5

    class Mortal(Steady):
        def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[tuple[str, float]]:
            if time.monotonic() > dies_at:
                raise MachineError("node n1 was killed by SIGKILL")
            yield "alive", 1.0

    told = threading.Event()
    with Sampler([Mortal()], lambda *_: None, lambda _: told.set()) as sampler:
        sampler.enter("measure", slow)
        assert told.wait(4.0), "a look each second, and a machine with other work"


def test_means_weigh_intervals_by_their_length() -> None:
    course = Course()
    course.add(10.0, 1.0)
    course.add(40.0, 0.5)
    assert course.mean == pytest.approx(20.0)
    assert course.sum == 50.0
    assert (course.most, course.last, course.count) == (40.0, 40.0, 2)


def test_counters_that_begin_anew_do_not_go_backwards() -> None:
    growth = Growth()
    assert growth.of("x", 5) is None
    assert growth.of("x", 7) == 2
    assert growth.of("x", 1) is None
    assert growth.of("x", 4) == 3


def test_cpu_of_a_process_with_its_threads_and_of_the_machine() -> None:
    process, machine = ProcessCpu("client", lambda: [os.getpid(), 1 << 30]), Machine()
    assert "cores" not in dict(process.sample(0.0))
    dict(machine.sample(0.0))
    began = time.monotonic()
    used = time.process_time()
    while time.process_time() - used < 0.4:
        pass
    elapsed = time.monotonic() - began
    seen = dict(process.sample(elapsed))
    # Ticks of 10 ms at each end.
    assert seen["cores"] == pytest.approx(0.4 / elapsed, rel=0.1)
    assert seen["rss_bytes"] > 10 << 20
    assert dict(machine.sample(elapsed))["busy_cores"] >= 0.8 * seen["cores"]


def test_a_disks_counters(tmp_path: Path) -> None:
    disk = Disk("data", Path("/dev/none"))
    stat = tmp_path / "stat"
    disk._stat = stat
    stat.write_text("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
    assert dict(disk.sample(0.0)) == {}
    # 200 reads of 8 KiB that took 400 ms together, 100 writes of 4 KiB in 50 ms, two flushes.
    stat.write_text("200 0 3200 400 100 0 800 50 0 900 500 0 0 0 0 2 20\n")
    assert dict(disk.sample(2.0)) == {
        "read_iops": 100,
        "read_latency_ms": 2,
        "read_bytes_per_s": 100 * 8192,
        "write_iops": 50,
        "write_latency_ms": 0.5,
        "write_bytes_per_s": 50 * 4096,
        "flush_iops": 1,
        "flush_latency_ms": 10,
        "queue": 0.25,
        "utilisation": 0.45,
    }


def test_children_that_came_and_went_between_two_looks_are_counted() -> None:
    """As PostgreSQL's backends do, which are children of a process that is asked about."""
    begun = time.monotonic()
    source = ProcessCpu("server", lambda: [os.getpid()])
    list(source.sample(0.0))
    busy = "import time; end = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    elapsed_s = time.monotonic() - begun
    cores = dict(source.sample(elapsed_s))["cores"]
    assert cores * elapsed_s >= 0.38
