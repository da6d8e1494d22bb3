"""An engine, or fio, that stands still in a measured phase: the trial is invalid and says so."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disklab.engine.control import Control

from tests.hosts.conftest import DISKLAB, Lab

pytestmark = [pytest.mark.machine, pytest.mark.alone]

EXPERIMENT = """
title: A disk whose engine, or client, stands still
device:
  vm: azure/Standard_D2s_v5
  volume: {disks: azure/P10}
workload:
  fio: {rw: randread, bs: 4k}
  stop: {duration: 15s}
rehearse: {time_dilation: 1}
"""
STOPPED_S = 4.0
# The disk is attached and filled before.
BEGIN_S = 180.0


def stopped_in_the_middle(
    lab: Lab, folder: Path, processes: Callable[[int], list[int]]
) -> dict[str, Any]:
    """Return the result of a trial in whose measured phase these processes were stopped."""
    file = folder / "e.yaml"
    file.write_text(EXPERIMENT)
    command = [str(DISKLAB), "rehearse", str(file), "--json", "--repeat", "1"]
    with subprocess.Popen(
        [*command, "--out", str(folder / "runs")],
        stdout=subprocess.PIPE,
        text=True,
        env=lab.environment(),
    ) as run:
        try:
            wait_for_measure(folder / "runs", run)
            pids = processes(run.pid)
            assert pids
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            result: dict[str, Any] = json.loads(run.stdout.readline())
        except BaseException:
            run.terminate()
            raise
    return result


def wait_for_measure(runs: Path, run: subprocess.Popen[str]) -> None:
    """Return when the measured phase has lasted for a second or two."""
    deadline = time.monotonic() + BEGIN_S
    while time.monotonic() < deadline and run.poll() is None:
        for file in runs.glob("*/events.jsonl"):
            events = [json.loads(line) for line in file.read_text().splitlines(keepends=True)[:-1]]
            seen = [event for event in events if event["event"] == "Progress"]
            if any(event["phase"] == "measure" and event["done"] for event in seen):
                return
        time.sleep(0.2)
    raise AssertionError("it did not begin to measure")


def fio_of(run: int) -> list[int]:
    """Return the processes of fio that descend from a run."""
    parents, names = {}, {}
    for process in Path("/proc").iterdir():
        try:
            name, rest = (process / "stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        pid = int(process.name) if process.name.isdigit() else 0
        parents[pid], names[pid] = int(rest.split()[1]), name.partition("(")[2]
    below = {run}
    while grown := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= grown
    return [pid for pid in below if names.get(pid) == "fio"]


def test_a_stop_counts_in_which_nothing_was_to_be_done(lab: Lab) -> None:
    lab.attach("azure/P10")
    with Control(lab.host() / "control.sock") as control:
        (volume,) = control.volumes()
        before = control.show(volume.name).emulator
        os.kill(lab.engine(), signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(lab.engine(), signal.SIGCONT)
        after = control.show(volume.name).emulator
    # Up to half a second of it the engine would have slept anyway.
    assert 0.95 < after.longest_stop_s(before) < 3.0, after.still_ns
    assert after.replies == before.replies


def test_an_engine_that_stood_still_makes_the_trial_invalid(lab: Lab, tmp_path: Path) -> None:
    result = stopped_in_the_middle(lab, tmp_path, lambda _: lab.processes())
    assert result["status"] == "invalid", result
    reasons = result["invalid_reasons"]
    told = [re.match(r"the emulator stood still for ([0-9.]+) s", reason) for reason in reasons]
    (length_s,) = [float(match[1]) for match in told if match]
    # A bucket of the histogram is 6 % wide, and half a second the engine may sleep anyway.
    assert STOPPED_S - 0.55 < length_s < STOPPED_S + 2, reasons


@pytest.mark.long
def test_fio_that_stood_still_makes_the_trial_invalid(lab: Lab, tmp_path: Path) -> None:
    result = stopped_in_the_middle(lab, tmp_path, fio_of)
    assert result["status"] == "invalid", result
    reasons = result["invalid_reasons"]
    assert any(one.startswith("fio stood still for") for one in reasons), reasons
