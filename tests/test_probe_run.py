"""The probe against real fio on real files, and the starts of real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disklab.errors import MachineError, UserError
from disklab.events import PhaseStarted
from disklab.interrupts import held_back
from disklab.probe import fio
from disklab.probe.cells import KIB, LOADS, MIB, PERCENTILES, Cell, Direction, Plan, Profile, cells
from disklab.probe.fio import StartWatch
from disklab.probe.run import CellEnded, Event, Subject, probe
from disklab.probe.target import open_region

from tests.programs import ended, wait_until

DISKLAB = Path(sys.executable).with_name("disklab")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory whose file system supports O_DIRECT; the skip names what is missing."""
    made = tmp_path / "probed"
    made.mkdir()
    trial = made / "trial"
    trial.write_bytes(b"x" * 4096)
    try:
        os.close(os.open(trial, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip(f"{tmp_path}: its file system does not support O_DIRECT; set TMPDIR elsewhere")
    trial.unlink()
    return made


def short_plan(*directions: Direction, profile: Profile = Profile.SYNC) -> Plan:
    return Plan(
        cells((LOADS[profile],), directions, (4 * KIB,)), duration_s=1.0, size_bytes=8 * MIB
    )


def disklab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return ended([str(DISKLAB), *arguments])


def test_measures_reads_and_writes_of_a_directory(directory: Path) -> None:
    events: list[Event] = []
    plan = short_plan(Direction.RANDREAD, Direction.RANDWRITE)
    with open_region(directory, plan, ours=False, destroy_data=False) as region:
        assert list(directory.iterdir()) == []  # the file is nameless while it is probed
        program = fio.find_fio("libaio")
        results = probe(program, Subject("here", region), plan, events.append)
    assert [r.cell.direction for r in results] == [Direction.RANDREAD, Direction.RANDWRITE]
    for result in results:
        measured = result.measurement
        # Little's law: one I/O at most is under way. What is missing to one is the time between two
        # of them, which was 39 % where another program had the CPU.
        assert 0.2 < measured.iops * measured.latency.mean_ns / 1e9 < 1.05
        assert measured.bytes_per_s == pytest.approx(measured.iops * 4096, rel=0.01)
        assert measured.runtime_s == pytest.approx(1.0, abs=0.2)
        quantiles = [measured.latency.percentiles_ns[p] for p in PERCENTILES]
        assert quantiles == sorted(quantiles)
        assert result.verdict is None  # nothing is known of this disk
    steps = [event.detail for event in events if isinstance(event, PhaseStarted)]
    assert steps == [
        f"here: {step}"
        for step in ("writing 8M before reading it", "sync randread 4k", "sync randwrite 4k")
    ]
    assert sum(isinstance(event, CellEnded) for event in events) == 2


def test_rates_of_a_deep_queue_agree_with_each_other(directory: Path) -> None:
    plan = short_plan(Direction.RANDREAD, profile=Profile.ASYNC)
    with open_region(directory, plan, ours=False, destroy_data=False) as region:
        program = fio.find_fio("libaio")
        (result,) = probe(program, Subject("here", region), plan, lambda event: None)
    # The reason why the probe uses no ramp: with one, these two differ by many per cent.
    assert result.measurement.bytes_per_s == pytest.approx(result.measurement.iops * 4096, rel=0.01)


def test_an_existing_file_is_read_and_never_written(directory: Path) -> None:
    content = os.urandom(8 * MIB)
    file = directory / "precious"
    file.write_bytes(content)
    ran = disklab(
        "probe", str(file), "--bs", "4k", "--duration", "1s", "--profile", "sync", "--json"
    )
    assert ran.returncode == 0, ran.stderr
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [r["factors"]["rw"] for r in told] == ["randread"]
    assert "read only" in told[0]["condition"]
    assert "--readonly" in told[0]["fio"]["command"]
    assert file.read_bytes() == content


def test_only_writes_on_an_existing_file_is_an_error(directory: Path) -> None:
    file = directory / "precious"
    file.write_bytes(b"x" * MIB)
    ran = disklab("probe", str(file), "--bs", "4k", "--rw", "randwrite", "--destroy-data")
    assert ran.returncode == 2
    assert "disklab never writes to a device that it did not create" in ran.stderr
    assert file.read_bytes() == b"x" * MIB


def test_results_are_kept_and_never_overwritten(directory: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    arguments = ["probe", str(directory), "--profile", "sync", "--rw", "randread", "--bs", "4k"]
    arguments += ["--duration", "1s", "--size", "4M", "--out", str(folder)]
    for _ in range(2):
        ran = disklab(*arguments, "--chart", str(tmp_path / "chart.svg"))
        assert ran.returncode == 0, ran.stderr
    runs = sorted(folder.iterdir())
    assert len(runs) == 2
    for run in runs:
        (told,) = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
        assert told["mode"] == "probe"
        # A run like any other: its events are there, and it can be reported later.
        assert "TrialFinished" in (run / "events.jsonl").read_text()
        report = disklab("report", str(run))
        assert report.returncode == 0, report.stderr
        assert told["valid"] is True
        assert set(told["latency_ms"]) >= {"mean", "p50", "p95", "p99", "p99.9", "p99.99", "max"}
        assert told["environment"]["kernel"] == os.uname().release
    assert "randread 4k" in (tmp_path / "chart.svg").read_text()
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_probe_leaves_no_file_and_no_fio(directory: Path, number: signal.Signals) -> None:
    arguments = ["probe", str(directory), "--duration", "5s", "--size", "4M", "--profile", "sync"]
    ours = subprocess.Popen(
        [str(DISKLAB), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    # On a busy machine a line without a phase may come first.
    assert any("writing" in ours.stderr.readline() for _ in range(5))
    mark = f"--filename=/proc/{ours.pid}/fd/"
    wait_until(lambda: running(mark))
    ours.send_signal(number)
    ours.communicate(timeout=60)
    assert list(directory.iterdir()) == []
    # After kill -9 nobody stops fio; it ends by itself with the time of its cell.
    wait_until(lambda: not running(mark))


def running(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            found += [entry.name for word in words if word.startswith(mark)]
    return found


def test_a_failing_fio_is_reported_with_what_it_said(tmp_path: Path) -> None:
    plan = short_plan(Direction.RANDREAD)
    job = fio.Job(fio.find_fio("libaio"), tmp_path / "missing", False, plan)
    with pytest.raises(MachineError, match="refusing extend of file"):
        job.measure(plan.cells[0], lambda elapsed_s: None)


def test_fio_itself_refuses_to_write_what_is_read_only(directory: Path) -> None:
    file = directory / "precious"
    file.write_bytes(b"x" * MIB)
    plan = short_plan(Direction.RANDWRITE)
    job = fio.Job(fio.find_fio("libaio"), file, False, plan)
    with pytest.raises(MachineError):
        job.measure(Cell(Profile.SYNC, Direction.RANDWRITE, 4 * KIB), lambda elapsed_s: None)
    assert file.read_bytes() == b"x" * MIB


def test_no_fio_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="apt-get install fio"):
        fio.find_fio("libaio")


def test_a_signal_waits_until_a_started_program_is_known(request: pytest.FixtureRequest) -> None:
    # Under nohup, and in a script's background, SIGINT is ignored from the start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    known = False
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - where it comes is what is tested
        with held_back():
            signal.raise_signal(signal.SIGINT)
            known = True
        raise AssertionError("the signal was lost")
    assert known


# Two children, which write one block past the page cache 0.4 s apart and then stay for a while.
PARENT = """
import mmap, os, sys, time
for number in range(2):
    if os.fork() == 0:
        time.sleep(0.4 * number + 0.2)
        file = os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
        os.write(file, mmap.mmap(-1, 4096))
        time.sleep(1)
        os._exit(0)
os.wait(), os.wait()
"""


def test_the_spread_is_that_of_the_first_io(tmp_path: Path) -> None:
    trial = tmp_path / "trial"
    trial.touch()
    try:
        os.close(os.open(trial, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip(f"{tmp_path}: its file system does not support O_DIRECT; set TMPDIR elsewhere")
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)]) as parent:
        watch = StartWatch(parent.pid, jobs=2)
        end = time.monotonic() + 10
        while not watch.over and time.monotonic() < end:
            watch.look()
            time.sleep(0.01)
    assert len(watch.seen) == 2
    # Not exact: a busy machine delays the children, but never to before their time.
    assert 0.3 < watch.spread_s < 3


def test_a_process_that_is_gone_has_no_spread() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
        watch = StartWatch(gone.pid, jobs=4)
        watch.look()
    assert watch.spread_s == 0
