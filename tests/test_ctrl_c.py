"""Ctrl-C ends a command that waits for a program's next line, whatever libraries are loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disklab.errors import MachineError
from disklab.machines.child import LocalChild

from tests.programs import ended

DISKLAB = Path(sys.executable).with_name("disklab")
LONG = {
    "time": """
title: A cell that lasts
device: {vm: azure/Standard_E16s_v5, volume: {disks: azure/P30}}
workload: {fio: {rw: randread, bs: 4k, jobs: 8, depth: 32}, stop: {duration: 24h}}
""",
    "operations": """
title: A cell that lasts
cluster:
  nodes: 3
  vm: azure/Standard_E16s_v5
  volumes: {data: {disks: azure/P30, filesystem: xfs}}
client: {nodes: 1, vm: azure/Standard_E16s_v5}
database: {engine: cassandra, replication_factor: 3, consistency: LOCAL_QUORUM}
dataset: {rows: 10M, row: 1 x 1000B}
workload:
  operations: {read: 80%, write: 20%}
  keys: uniform
  load: {threads: 64}
  stop: {operations: 1000G}
""",
}


@pytest.mark.parametrize("what", LONG)
def test_one_ends_a_prediction_of_a_long_cell(tmp_path: Path, what: str) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(LONG[what])
    with subprocess.Popen(
        [DISKLAB, "predict", file, "--out", tmp_path / "runs"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as running:
        deadline = time.monotonic() + 60
        while not engines(running.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert engines(running.pid)
        time.sleep(2)
        begun = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert time.monotonic() - begun < 10
    assert b"Traceback" not in stderr


def engines(parent: int) -> list[str]:
    """Return the engines that a process has started."""
    told = ended(["ps", "--ppid", str(parent), "-o", "comm="])
    return [name for name in told.stdout.split() if "disklab-engin" in name]


def test_a_loaded_library_takes_no_ctrl_c_away() -> None:
    program = (
        "import disklab.results, os, signal, threading, time\n"
        "read, write = os.pipe()\n"
        "threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        "threading.Timer(20.0, os.write, [write, b'late']).start()\n"
        "begun = time.monotonic()\n"
        "try:\n"
        "    os.read(read, 4)\n"
        "except KeyboardInterrupt:\n"
        "    os._exit(0 if time.monotonic() - begun < 10 else 1)\n"
        "os._exit(2)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        timeout=60,
        env={**os.environ},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ran.returncode == 0


def test_a_line_that_does_not_come_is_waited_for_so_long() -> None:
    with LocalChild.start(["sh", "-c", "echo one; printf two; sleep 100"]) as child:
        assert child.line(20.0) == b"one"
        begun = time.monotonic()
        with pytest.raises(MachineError, match="said nothing more within 1 s"):
            child.line(1.0)
        assert 0.9 < time.monotonic() - begun < 10


def test_a_line_without_end_is_left() -> None:
    with (
        LocalChild.start(["sh", "-c", "yes | tr -d '\\n'"]) as child,
        pytest.raises(MachineError, match="a line of more than 1000000 bytes"),
    ):
        child.line(60.0, 1_000_000)


def test_lines_come_whole_and_the_last_one_without_its_end() -> None:
    text = "a\n\n" + "b" * 300_000 + "\nlast"
    with LocalChild.start(["cat"], stdin=text.encode()) as child:
        assert [*child.lines()] == text.encode().split(b"\n")
        assert child.line() is None


@pytest.mark.parametrize("words", [["--help"], ["catalog"], ["disk", "list"], ["predict", "none"]])
def test_one_in_the_first_moments_ends_without_a_traceback(words: list[str]) -> None:
    for moment in (0.1, 0.2, 0.35, 0.6):
        with subprocess.Popen(
            [DISKLAB, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        ) as running:
            time.sleep(moment)
            running.send_signal(signal.SIGINT)
            _, stderr = running.communicate(timeout=60)
        # Before Python itself hears it, a signal ends the process as any other.
        assert b"disklab/" not in stderr or b"Traceback" not in stderr, stderr.decode()
        assert running.returncode in {130, 0, 2, -signal.SIGINT}
