"""Short probes of a disk before and after a trial: what they tell, and when they are missing."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from disklab.errors import MachineError
from disklab.machines.local import LocalMachine
from disklab.measurement import canary
from disklab.measurement.canary import Beside, Canaries, Nest
from disklab.measurement.journal import Change, Journal

from tests.databases.servers import need

from .bench import Bench
from .emulated import Disk, served_hosts

COUNTERS = PurePosixPath("/sys/dev/block/8:16/stat")
CHANGE = Change(number=1, host="n1", kind="remove_file", path="/mnt/data/x")


class Counters(LocalMachine):
    """A host whose disk has been busy for so many milliseconds at each look."""

    def __init__(self, busy_ms: list[int]) -> None:
        super().__init__("n1", "10.0.0.1")
        self.busy_ms = busy_ms

    @property
    def files(self) -> Counters:  # type: ignore[override]
        return self

    def read(self, path: PurePosixPath, most_bytes: int = 1 << 20) -> bytes:
        assert (path, most_bytes) == (COUNTERS, 1 << 20)
        # Documentation/block/stat.rst: the tenth figure is the time in which it was busy.
        return f"9 9 9 9 9 9 9 9 0 {self.busy_ms.pop(0)} 9 9 9 9 9 9 9\n".encode()


class Sleeps:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def monotonic(self) -> float:
        return sum(self.waited)

    def sleep(self, seconds: float, /) -> None:
        self.waited.append(seconds)


def nest(machine: LocalMachine, busy: PurePosixPath | None = COUNTERS) -> Nest:
    return Nest(machine, "n1/data", Path("/mnt/data/x"), CHANGE, busy)


def test_a_first_trial_is_held_against_its_own_two_probes() -> None:
    """The usual figure of a run lies between them then, no further than half of the way."""
    canaries = Canaries({"n1/data": [1272.0, 893.0]})
    (text,) = canaries.doubts("n1/data", (1272.0, 893.0))
    assert text.startswith("short probes of n1/data beside this trial did 1,272 and 893 IOPS")
    assert canaries.doubts("n1/data", (1100.0, 1000.0)) == []


def test_a_disk_that_rests_is_waited_for() -> None:
    clock = Sleeps()
    machine = Counters([1000, 1400, 1650, 1655])
    assert canary.wait_until_quiet(nest(machine), COUNTERS, clock)
    assert clock.waited == [canary.QUIET_LOOK_S] * 3


def test_a_disk_that_never_rests_is_not_waited_for_longer_than_a_trial_may() -> None:
    clock = Sleeps()
    machine = Counters([at * 400 for at in range(100)])
    assert not canary.wait_until_quiet(nest(machine), COUNTERS, clock)
    assert clock.monotonic() == canary.MOST_QUIET_WAIT_S


class Told(Canaries):
    """Figures that are known."""

    def __init__(self, *iops: float | MachineError) -> None:
        super().__init__()
        self.left = list(iops)

    def take(self, spot: str, machine: object, path: Path, size_bytes: int) -> float:
        assert (path, size_bytes) == (Path("/mnt/data/x"), canary.BESIDE_BYTES)
        del machine
        told = self.left.pop(0)
        if isinstance(told, MachineError):
            raise told
        self._seen.setdefault(spot, []).append(told)
        return told


def test_both_figures_are_told_and_a_trial_between_different_ones_is_doubted() -> None:
    beside = Beside(Told(500, 520, 510, 490, 505, 260), [nest(LocalMachine(), None)])
    for _ in range(2):
        beside.begin()
        beside.end(only_reads=True)
        assert beside.doubts() == []
    beside.begin()
    beside.end(only_reads=True)
    host = LocalMachine().name
    assert beside.told(host) == {"canary_iops": {"before": 505, "after": 260}}
    (doubt,) = beside.doubts()
    assert "a short probe of n1/data beside this trial did 260 IOPS where 502 are usual" in doubt


def test_without_counters_a_database_that_has_written_is_not_probed() -> None:
    beside = Beside(Told(500, 480, 470), [nest(LocalMachine(), None)])
    host = LocalMachine().name
    beside.begin()
    beside.end(only_reads=False)
    told = beside.told(host)
    assert told["canary_iops"] == {"before": 500, "after": None}
    assert "the disk did not rest" in told["canary_missing"]
    # What it says of one trial is not said of the next.
    beside.rests = True
    beside.begin()
    beside.end(only_reads=True)
    assert beside.told(host) == {"canary_iops": {"before": 480, "after": 470}}


def test_a_probe_that_fails_and_a_host_without_fio_say_why() -> None:
    broken = MachineError("n1: fio: no room")
    beside = Beside(Told(500, broken), [nest(LocalMachine(), None)], {"n2": "n2: fio: not found"})
    beside.begin()
    beside.end(only_reads=True)
    assert beside.told(LocalMachine().name)["canary_missing"] == "n1: fio: no room"
    nothing = {"before": None, "after": None}
    assert beside.told("n2") == {"canary_iops": nothing, "canary_missing": "n2: fio: not found"}
    assert beside.doubts() == []


def test_a_file_that_cannot_be_made_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(canary, "BESIDE_BYTES", 1 << 60)
    (tmp_path / "data").mkdir()
    (tmp_path / "run").mkdir()
    journal = Journal(tmp_path / "run")
    with pytest.raises(MachineError, match="MiB are needed"):
        canary.make_nest(LocalMachine(), "n1/data", str(tmp_path / "data"), journal)
    assert list((tmp_path / "data").iterdir()) == []
    assert journal.left() == []


EXPERIMENT = """
title: How many reads does a server on this disk do?
cluster:
  nodes: 1
  vm: azure/Standard_E8ds_v4
  volumes: {data: {disks: azure/S10}}
database: {engine: postgresql, settings: {shared_buffers: 64MB}}
dataset: {rows: 2k, row: 5 x 100B}
workload:
  operations: {read: 100%}
  load: {threads: 4}
  stop: {duration: 4s}
before: {page_cache: as-left}
factors:
  workload.load.threads: [2, 4]
"""


@pytest.mark.machine
@pytest.mark.long
@pytest.mark.alone  # its host has a disk mounted, which others' hosts would hold
def test_a_disk_that_gets_slower_beside_a_trial_is_told(bench: Bench, tmp_path: Path) -> None:
    need("postgresql")
    bench.write("e.yaml", EXPERIMENT)
    with served_hosts(1, tmp_path, Disk("azure/S10", "azure/Standard_E8ds_v4")) as served:
        bench.write("h.yaml", served.text())
        words = ("measure", "e.yaml", "--hosts", "h.yaml")
        code, out, err = bench.run(*words, "--plan")
        assert code == 0, err
        assert "a file of 256 MiB beside the data, read for a second" in out
        with bench.start(*words, "--yes", "--quick", "--repeat", "1") as process:

            def one_is_measured() -> bool:
                assert process.poll() is None, process.communicate()
                return any(len(run.results()) == 1 for run in bench.runs())

            bench.wait_until(one_is_measured)
            # The second one is under way: its first figure was taken before this, or is slow too.
            served.lab.run("disk", "set", "data", "--host", "n1", "--latency", "40ms")
            _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        served.nothing_is_left()
    bench.nothing_is_left()
    (run,) = bench.runs()
    # Their order is drawn.
    results = sorted(run.results(), key=lambda one: one.started or "")
    told = [(one.model_extra or {})["hosts"][0] for one in results]
    # 4 KiB one at a time: a standard disk's latency, and no more than its 500 IOPS.
    assert 50 < told[0]["canary_iops"]["before"] < 550, told
    assert 50 < told[0]["canary_iops"]["after"] < 550, told
    # 25 a second at 40 ms.
    assert told[1]["canary_iops"]["after"] < 30
    (noisy,) = [text for text in results[1].warnings if "a short probe of n1/data" in text]
    assert "where" in noisy
