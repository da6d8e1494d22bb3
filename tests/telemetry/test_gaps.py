"""Somebody stands still while it is measured: how long, and when that spoils the figures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from disklab.telemetry.gaps import Gaps, Pulse, client_gap_s, suspended

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
