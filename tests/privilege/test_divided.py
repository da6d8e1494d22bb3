"""A rehearsal under sudo: the caller's part plans and writes, root's part makes the bed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from disklab.databases.postgresql.installation import find_postgresql
from disklab.errors import UserError
from disklab.results import Run

from tests.hosts.conftest import Lab
from tests.programs import wait_until

from .conftest import CALLER
from .test_caller import DISKLAB, SUDO, check_unprivileged, facts, owners

pytestmark = pytest.mark.machine

EXPERIMENT = """
title: Whose are the results?
cluster:
  nodes: 1
  vm: azure/Standard_D2s_v5
  volumes: {data: {disks: azure/P15, size: 50GiB, filesystem: ext4}}
database: {engine: postgresql}
workload:
  sysbench: {script: oltp_read, tables: 1, rows_per_table: 5M, threads: 2}
  stop: {duration: 500s}
rehearse: {scale: 1/500, time_dilation: 1}
"""


@pytest.fixture(autouse=True)
def has_postgresql() -> None:
    try:
        find_postgresql()
    except UserError as error:
        pytest.skip(str(error))


def heed() -> None:
    """Ignore no signal, whatever who started the tests ignores."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def as_caller(lab: Lab, mine: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command in the caller's folder as sudo would; it is ended with the block."""
    started = subprocess.Popen(
        [str(DISKLAB), *words],
        env={**lab.environment(), **SUDO},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=mine,
        # These tests hold under nohup and in a script's background, too.
        preexec_fn=heed,  # noqa: PLW1509
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.terminate()
            started.wait(60)
        started.stdout.close()


@contextmanager
def rehearsal(
    lab: Lab, mine: Path, experiment: str = EXPERIMENT
) -> Iterator[subprocess.Popen[str]]:
    """Start a rehearsal as sudo would; it is ended with the block."""
    file = mine / "experiment.yaml"
    file.write_text(experiment)
    # Closed to everybody else: root's part gets by without it.
    file.chmod(0o600)
    os.chown(file, CALLER, CALLER)
    out = str(mine / "runs")
    with as_caller(lab, mine, "rehearse", str(file), "--quick", "--out", out) as started:
        yield started


def read_until(started: subprocess.Popen[str], text: str) -> str:
    """Return what it has said when it says this."""
    said = ""
    while text not in said:
        line = started.stdout.readline()
        assert line, f"it ended without {text!r}:\n{said}"
        said += line
    return said


def caller_of(started: subprocess.Popen[str]) -> int:
    """Return the process of the caller's part: the child of root's."""
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    found = [int(pid) for pid in children if facts(int(pid))["Uid"][0] == str(CALLER)]
    assert len(found) == 1
    return found[0]


TOOLS = frozenset({"sync", "umount", "mount", "setpriv", "nsenter", "unshare", "env", "sh"})
"""Short programs: of file systems, and such as become another program, as another user."""


@contextmanager
def roots_programs(started: subprocess.Popen[str], lab: Lab) -> Iterator[set[str]]:
    """Yield what root runs of a rehearsal while the block lasts, looked for again and again."""
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            seen.update(_programs_of_root(started.pid, lab))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _programs_of_root(first: int, lab: Lab) -> Iterator[str]:
    """Yield the programs of a process and of all below it, and the lab's, that are root's."""
    above, words, root = {}, {}, set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        pid = int(process.name)
        with suppress(OSError, KeyError):
            # Its program first: setpriv gives root up before it becomes the next one, so a name
            # that is read while root has it was never anything but root's.
            line = (process / "cmdline").read_bytes().decode(errors="replace")
            told = facts(pid)
            above[pid] = int(told["PPid"][0])
            # What has ended, and waits for being asked about, runs nothing.
            if line and "0" in told["Uid"]:
                words[pid] = line.split("\0")
                root.add(pid)
    for pid in root:
        one = pid
        while one not in (0, first):
            one = above.get(one, 0)
        if one == first or str(lab.run_dir) in words[pid]:
            name = Path(words[pid][0]).name
            yield f"{name} {words[pid][1]}" if name == "disklab-engine" else name


def nothing_left(lab: Lab) -> Any:
    databases = lab.run_dir / "databases"
    left = list(databases.iterdir()) if databases.exists() else []
    return lab.devices(), lab.mounts(), lab.processes(), left


NOTHING: Any = ({}, [], [], [])


def test_results_are_the_callers_and_root_makes_the_bed(lab: Lab, mine: Path) -> None:
    # sysbench takes its scripts from the working directory where they are there.
    hostile = [mine / name for name in ("oltp_read_only", "oltp_read_only.lua", "oltp_common.lua")]
    for script in hostile:
        script.write_text(f'io.open("{mine}/was-here", "w"):close()\n')
        os.chown(script, CALLER, CALLER)
    with rehearsal(lab, mine) as started:
        read_until(started, "fill")
        told = facts(caller_of(started))
        assert facts(started.pid)["Uid"] == ["0"] * 4
        with roots_programs(started, lab) as seen:
            said, _ = started.communicate(timeout=180)
        assert started.returncode in (0, 1), said
    check_unprivileged(told)
    # Of root's: its part, the emulator, and programs that make or take away what only root can.
    assert seen - TOOLS == {"python", "disklab-engine emulate"}
    assert not (mine / "was-here").exists(), "a program of root's took a file of the caller's"
    assert set(owners(mine).values()) == {CALLER}
    (folder,) = (mine / "runs").iterdir()
    run = Run.open(folder)
    (result,) = run.results()
    assert result.status in ("ok", "invalid"), result
    assert list(run.seconds(*result.key))
    assert run.telemetry(*result.key).collect().height > 0
    assert (folder / "report.html").exists()
    assert "database system is ready" in (folder / "logs/n1-output.log").read_text()
    assert nothing_left(lab) == NOTHING


def test_root_takes_its_bed_away_when_the_caller_is_killed(lab: Lab, mine: Path) -> None:
    """A conductor that was killed used to leave everything to `disklab clean`."""
    with rehearsal(lab, mine) as started:
        read_until(started, "fill")
        os.kill(caller_of(started), signal.SIGKILL)
        assert started.wait(180) == 128 + signal.SIGKILL
    assert nothing_left(lab) == NOTHING


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_either_part_ends_both_in_order(
    lab: Lab, mine: Path, number: signal.Signals
) -> None:
    with rehearsal(lab, mine) as started:
        read_until(started, "fill")
        # Ctrl-C and a lost terminal go to both; `kill` to the one that the shell knows.
        for _ in range(1 if number == signal.SIGTERM else 3):
            both = number != signal.SIGTERM
            os.killpg(started.pid, number) if both else started.send_signal(number)
            time.sleep(0.2)
        said, _ = started.communicate(timeout=60)
        assert started.returncode == 130, said
    assert "--resume" in said or "left" in said
    assert nothing_left(lab) == NOTHING
    assert set(owners(mine).values()) == {CALLER}


@pytest.mark.long
def test_the_caller_is_told_when_root_is_killed(lab: Lab, mine: Path) -> None:
    with rehearsal(lab, mine) as started:
        read_until(started, "fill")
        caller = caller_of(started)
        started.kill()
        said, _ = started.communicate(timeout=60)
    assert "root's part of disklab has ended; run `disklab clean`" in said
    wait_until(lambda: not Path(f"/proc/{caller}").exists())
    lab.run("clean")
    assert nothing_left(lab) == NOTHING


TRACE = """
title: A trace of the caller's alone
device:
  vm: azure/Standard_D8s_v3
  volume: {disks: azure/P10, caching: ReadOnly}
workload: {trace: mine.csv}
before: {host_cache: empty}
rehearse: {time_dilation: 1}
"""


def test_a_trace_that_only_the_caller_may_read_is_replayed(lab: Lab, mine: Path) -> None:
    """The caller's part reads it; root's part gets columns of numbers and replays them."""
    lines = [
        f"{10**17 + n * 100_000},h,0,{'Write' if n % 4 == 0 else 'Read'},{n % 50 * 16384},8192,0"
        for n in range(200)
    ]
    trace = mine / "mine.csv"
    trace.write_text("\n".join(lines) + "\n")
    trace.chmod(0o600)
    os.chown(trace, CALLER, CALLER)
    with rehearsal(lab, mine, TRACE) as started:
        said, _ = started.communicate(timeout=120)
        assert started.returncode in (0, 1), said
    (folder,) = (mine / "runs").iterdir()
    (result,) = Run.open(folder).results()
    # A busy machine makes it invalid, and says so; what was done is the same.
    assert result.status in ("ok", "invalid"), result
    done = {side: one.operations for side, one in result.per_operation.items()}
    assert done == {"read": 150, "write": 50}
    assert set(owners(mine).values()) == {CALLER}
    assert nothing_left(lab) == NOTHING
