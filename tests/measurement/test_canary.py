"""Probes of a disk around a trial, and what a database's hosts do each second: how judged."""

from __future__ import annotations

import http.server
import json
import threading
import time
from pathlib import Path, PurePosixPath

import pytest
from disklab.databases.cassandra.jolokia import PATH, Jolokia
from disklab.databases.remote_host import RemoteHost, listening
from disklab.errors import MachineError
from disklab.machines.local import LocalMachine
from disklab.measurement import canary
from disklab.measurement.canary import Beside, Canaries, Nest
from disklab.measurement.existing_hosts import (
    HostCounters,
    Look,
    doubts,
    sources_of,
    spent,
    traffic,
)
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


DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0: 1000 10 0 0 0 0 0 0 200 20 0 0 0 0 0 0
  eth1:11 1 0 0 0 0 0 0 22 2 0 0 0 0 0 0
"""


def test_traffic_is_that_of_all_links_but_loopback() -> None:
    assert traffic(DEV) == (1011, 222)
    assert traffic("") == (0, 0)


def test_a_host_is_judged_by_its_cpus_and_its_network() -> None:
    before = Look(10.0, "cpu 100 0 0 100 0 0 0 0", 0, 0)
    after = Look(12.0, "cpu 290 0 0 100 0 0 0 10", 250_000_000, 1_000_000)
    told = spent("n1", before, after)
    assert told == {
        "host": "n1",
        "busy_ratio": 0.95,
        "stolen_ratio": 0.05,
        "received_mb_per_s": 125.0,
        "sent_mb_per_s": 0.5,
    }
    assert [*doubts(told, None)] == []
    (network,) = doubts(told, 1000)
    assert network.startswith("the network of n1 was the limit: it received 125 MB/s, 100%")
    full, steal = doubts({**told, "busy_ratio": 0.96, "stolen_ratio": 0.06}, 10_000)
    assert full.startswith("the CPUs of n1 were the limit")
    assert "(steal)" in steal
    assert spent("n1", before, None) == {"host": "n1"}


def test_counters_of_a_host_become_rates_by_its_own_clock() -> None:
    machine = LocalMachine("n2")
    counters = HostCounters(machine, {"data": PurePosixPath("/")})
    with counters.newest:
        sources = sources_of(["n1", "n2"], [counters, counters])
        assert {one.name for one in sources} >= {"host n1", "network n1", "host n2", "network n2"}
        first = {one.name: dict(one.sample(0.0)) for one in sources}
        assert first["host n1"].keys() == {"available_bytes"}
        time.sleep(0.05)
        # The interval that the sampler tells is not the host's: rates go by the counters' own.
        second = {one.name: dict(one.sample(1e6)) for one in sources}
    assert second["host n1"]["busy_cores"] + second["host n1"]["iowait_cores"] >= 0
    assert second["network n1"].keys() == {"received_bytes_per_s", "sent_bytes_per_s"}


class _Agent(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert self.path == PATH
        assert self.headers["Authorization"].startswith("Basic ")
        (asked,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps([{"status": 200, "value": asked["attribute"]}]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


def test_jmx_is_asked_by_a_program_of_the_host() -> None:
    machine = LocalMachine()
    with http.server.HTTPServer(("127.0.0.1", 0), _Agent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        assert listening(machine, [port]) == [port]
        jmx = Jolokia("127.0.0.1", port, "u", "secret", RemoteHost(machine))
        assert jmx.read(("bean", "LiveNodes")) == ["LiveNodes"]
        server.shutdown()
    assert listening(machine, [port]) == []
    with pytest.raises(MachineError, match="JMX does not answer"):
        jmx.read(("bean", "LiveNodes"))
