"""Several generators of client hosts: added up; their clocks or cores may spoil a result."""

from __future__ import annotations

import getpass
import json
import os
import signal
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from disklab.databases.postgresql.configuration import PORT
from disklab.engine.load import LoadDone, LoadProgress
from disklab.hosts.addresses import free_addresses
from disklab.measurement import clients
from disklab.results import Histogram, decode, encode, merged
from hypothesis import given
from hypothesis import strategies as st

from tests.machines.ssh_server import SshServer

from .bench import MEASURE, Bench
from .test_built_postgresql import EXPERIMENT, volume

LATENCIES = st.lists(st.integers(1_000, 10_000_000_000), min_size=1, max_size=60)


def done_of(latencies: list[int], elapsed_s: float, failed: int = 0) -> LoadDone:
    text = encode(Histogram.of(latencies))
    return LoadDone.model_validate(
        {
            "elapsed_s": elapsed_s,
            "ops_per_s": len(latencies) / elapsed_s,
            "operations": {
                "read": {
                    "count": len(latencies),
                    "failed": failed,
                    "ops_per_s": len(latencies) / elapsed_s,
                    **{f"{name}_ms": 0.0 for name in ("mean", "p50", "p95", "p99", "p99.9", "max")},
                }
            },
            "response": {"read": text},
            "service": {"read": text},
            "lateness": text,
            "unsent": 1,
            "abandoned": 0,
            "errors": {"timeout": failed},
            "last_error": None,
            "wrong_rows": 0,
            "missing_rows": 0,
            "cpu_ns": 5,
            "started_unix_ns": 7,
            "interrupted": False,
        }
    )


@given(LATENCIES, LATENCIES)
def test_histograms_of_two_clients_are_those_of_one_that_saw_all(
    first: list[int], second: list[int]
) -> None:
    both = clients.merged_done([done_of(first, 2.0, failed=1), done_of(second, 4.0, failed=2)])
    alone = Histogram.of([*first, *second])
    for text in (both.response["read"], both.service["read"], str(both.lateness)):
        assert (decode(text).counts == alone.counts).all()
    read = both.operations["read"]
    assert (read.count, read.failed) == (len(first) + len(second), 3)
    assert both.errors == {"timeout": 3}
    assert both.elapsed_s == 4.0
    assert both.ops_per_s == read.ops_per_s == read.count / 4.0
    assert read.p99_ms == alone.summary_ms()["p99"]
    assert (both.unsent, both.cpu_ns) == (2, 10)


def progress_of(t_s: float, total: int, latencies: list[int]) -> LoadProgress:
    return LoadProgress.model_validate(
        {
            "t_s": t_s,
            "operations": total,
            "errors": 1,
            "ops_per_s": len(latencies),
            "p50_ms": None,
            "p99_ms": None,
            "late_ns_p99": int(t_s),
            "in_flight": 2,
            "cpu_ns": 10,
            "last_error": None,
            "histograms": {"read": encode(Histogram.of(latencies))},
        }
    )


def test_totals_of_a_client_that_has_ended_still_count() -> None:
    now = progress_of(3.0, 50, [2_000_000])
    also = progress_of(3.1, 40, [8_000_000])
    gone = progress_of(2.0, 30, [1_000])
    both = clients.progress([now, also], [gone])
    assert (both.operations, both.errors, both.cpu_ns) == (120, 3, 30)
    # What it did in its own last second is not this second's.
    assert both.ops_per_s == 2
    assert both.in_flight == 4
    expected = merged([Histogram.of([2_000_000]), Histogram.of([8_000_000])])
    assert (decode(both.histograms["read"]).counts == expected.counts).all()
    assert both.p99_ms == expected.percentile(99) / 1e6


def one(ahead_ms: float, error_ms: float = 0.2, cores: float = 0.3) -> list[dict[str, object]]:
    return [{"host": "c1", "clock": {"ahead_ms": ahead_ms, "error_ms": error_ms}, "cores": cores}]


def test_an_open_loop_is_invalid_when_a_clock_is_off() -> None:
    assert clients.judged(one(4.0), is_open=True) == ([], [])
    (reason,), doubts = clients.judged(one(-5.5), is_open=True)
    assert "the clock of c1 is 5.5 ms off" in reason
    assert doubts == []
    # A closed loop has no arrivals that a clock could spoil.
    assert clients.judged(one(900.0), is_open=False) == ([], [])


def test_a_clock_that_is_not_known_well_enough_is_a_doubt() -> None:
    invalid, (doubt,) = clients.judged(one(1.0, error_ms=9.0), is_open=True)
    assert invalid == []
    assert "known to 9.0 ms only" in doubt


def test_a_client_without_a_free_core_is_named() -> None:
    (reason,), _ = clients.judged(one(0.0, cores=0.97), is_open=False)
    assert "c1 used 0.97 cores" in reason


def began(after_ms: float, error_ms: float = 0.2) -> list[dict[str, object]]:
    clock = {"ahead_ms": 0.0, "error_ms": error_ms}
    first = {"host": "c1", "clock": clock, "cores": 0.3, "began_after_ms": 0.0}
    return [first, {**first, "host": "c2", "began_after_ms": after_ms}]


def test_generators_that_did_not_begin_together_are_a_doubt() -> None:
    for is_open in (False, True):
        assert clients.judged(began(3.0), is_open=is_open) == ([], [])
        _, (doubt,) = clients.judged(began(480.0), is_open=is_open)
        assert "the load of c2 began 480 ms after that of c1" in doubt
    # Clocks that are known no better cannot tell.
    assert clients.judged(began(60.0, error_ms=20.0), is_open=False) == ([], [])


__all__ = ["volume"]
CLIENT_FOLDERS = ".disklab-load-"


def client_folders(bench: Bench) -> set[Path]:
    """Return the folders of load clients that this test's runs made, and that are there still."""
    changes = [file.read_text() for file in bench.folder.glob("disklab-runs/*/changes.jsonl")]
    lines = [json.loads(line) for text in changes for line in text.splitlines()]
    paths = {Path(line["change"]["path"]) for line in lines if line.get("change")}
    return {path for path in paths if path.name.startswith(CLIENT_FOLDERS) and path.exists()}


def works_in(folder: Path) -> list[str]:
    """Return the programs whose working directory is a folder, or was when it was removed."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        # Of another's process, which lies on a disk that is gone, this is an I/O error.
        with suppress(OSError):
            if os.readlink(f"/proc/{process}/cwd").removesuffix(" (deleted)") == str(folder):
                found.append(process)
    return found


def is_full(volume: Path) -> bool:
    return any('"filled"' in file.read_text() for file in volume.glob("*/.disklab-filled"))


def prepared(bench: Bench, ssh_server: SshServer, volume: Path, text: str = EXPERIMENT) -> None:
    """Write the files: one server and two clients, all of them this machine by other names."""
    address = free_addresses(1, (PORT,))[0]
    bench.write("e.yaml", text)
    node = f"{{address: box, private_address: {address}, volumes: {{data: {volume}}}}}"
    far = f"{{address: {getpass.getuser()}@box, private_address: 127.0.0.1, role: client}}"
    near = "{local: true, role: client}"
    hosts = f"{{n1: {node}, c1: {far}, c2: {near}}}"
    bench.write("h.yaml", f"ssh_config: {ssh_server.config}\nhosts: {hosts}\n")


def test_two_clients_share_a_load_and_nothing_of_them_is_left(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    prepared(bench, ssh_server, volume, EXPERIMENT.replace("[2, 4]", "[4]"))
    out = bench.plan()
    assert out.count("load    comes from here") == 2
    assert client_folders(bench) == set()
    run = bench.measured()
    assert client_folders(bench) == set()
    results = run.results()
    assert len(results) == 1
    for one in results:
        assert one.errors == {}
        assert any("the load came from c1, c2" in text for text in one.warnings)
        told = (one.model_extra or {})["clients"]
        assert [each["host"] for each in told] == ["c1", "c2"]
        # Each has half of the threads of a closed loop on one server.
        first, second = (each["operations"] for each in told)
        assert first > 0
        assert second > 0
        # One of them began first, and the other at the same moment, as far as a busy machine can.
        after_ms = [each["began_after_ms"] for each in told]
        assert min(after_ms) == 0
        assert max(after_ms) < 100, after_ms
        for each in told:
            assert 0 < each["cores"] < 1.5
            assert abs(each["clock"]["ahead_ms"]) <= 1 + each["clock"]["error_ms"]
        # Both parts are in the rate.
        assert one.ops_per_s * one.duration_s >= 0.9 * (first + second)


@pytest.mark.long
def test_the_load_that_a_killed_run_has_left_is_ended_before_it_goes_on(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    text = EXPERIMENT.replace("duration: 2s", "duration: 8s").replace("[2, 4]", "[2]")
    prepared(bench, ssh_server, volume, text)
    with bench.start(*MEASURE, "--yes", "--repeat", "1") as process:

        def loads_full_data() -> bool:
            assert process.poll() is None
            return is_full(volume) and any(map(works_in, client_folders(bench)))

        bench.wait_until(loads_full_data)
        process.kill()
        process.communicate(timeout=60)
    left = client_folders(bench)
    # The one over SSH outlives its conductor; the one of this machine does not.
    assert len(left) == 2
    assert any(works_in(folder) for folder in left)
    (first,) = bench.runs()
    code, _, err = bench.run("measure", "--resume", first.folder.name, "--yes")
    assert code == 0, err
    assert client_folders(bench) == set()
    assert not any(works_in(folder) for folder in left)
    (result,) = bench.whole_run().results()
    assert result.errors == {}
    assert [phase for phase in result.phases if phase.name == "fill"] == []


@pytest.mark.long
def test_hosts_that_are_silent_for_30_s_are_named_and_lose_no_second(
    bench: Bench, ssh_server: SshServer, volume: Path
) -> None:
    text = EXPERIMENT.replace("duration: 2s", "duration: 35s").replace("[2, 4]", "[2]")
    prepared(bench, ssh_server, volume, text)
    with bench.start(*MEASURE, "--yes", "--repeat", "1") as process:
        bench.wait_until(lambda: is_full(volume))
        time.sleep(3)
        # The server too: nobody can connect again meanwhile.
        stopped = [ssh_server.process.pid, *ssh_server.connections()]
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(30)
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    told = " ".join(err.split())
    for name in ("n1", "c1"):
        assert f"{name} (" in told
        assert f"{name}: connected again" in told
    assert "silent" in told
    run = bench.whole_run()
    (result,) = run.results()
    assert result.errors == {}
    ends = [one.t_s for one in run.seconds(0, 0) if one.phase == "measure"]
    assert len(ends) >= 33
    # Each interval has a second; a lost one would leave a hole.
    assert all(later - earlier < 1.5 for earlier, later in pairwise(ends))
