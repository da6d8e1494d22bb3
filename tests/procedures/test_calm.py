"""A run waits for others on its machine to end: once, for a while, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from disklab.events import PhaseStarted
from disklab.procedures.rehearsal import Calm


@pytest.fixture
def _busy() -> Iterator[None]:
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in os.sched_getaffinity(0)
    ]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


@pytest.mark.usefixtures("_busy")
def test_a_busy_machine_is_waited_for_once_in_a_run_and_told() -> None:
    told: list[object] = []
    calm = Calm(left_s=1.0)
    begun = time.monotonic()
    calm.wait(told.append)
    assert 1.0 <= time.monotonic() - begun < 10
    ((event,)) = told
    assert isinstance(event, PhaseStarted)
    assert event.detail.startswith("waiting for a calmer machine: others use ")
    begun = time.monotonic()
    calm.wait(told.append)
    assert time.monotonic() - begun < 0.5
    assert len(told) == 1


def test_who_shares_the_machine_on_purpose_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLAB_CALM_WAIT", "0")
    assert Calm().left_s == 0
    monkeypatch.delenv("DISKLAB_CALM_WAIT")
    assert Calm().left_s == 60
