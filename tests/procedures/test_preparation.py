"""What is left to do of a run that was begun, and that it waits for others of its machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disklab import spec
from disklab.cli.app import app
from disklab.errors import UserError
from disklab.events import PhaseStarted
from disklab.procedures import preparation
from disklab.procedures.rehearsal import Calm
from disklab.results import Run, Status, TrialResult
from typer.testing import CliRunner

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "cassandra-disk-caching-threads.yaml"
ENDS: dict[tuple[int, int], Status] = {(0, 0): "ok", (1, 0): "failed", (2, 0): "invalid"}


@pytest.mark.machine
def test_what_failed_is_tried_again_when_asked_and_what_it_said_stays(tmp_path: Path) -> None:
    options = preparation.Options(quick=True, repeats=1)
    begun = preparation.prepare(spec.load(EXPERIMENT), options, tmp_path, lambda _: None)
    run = begun.run
    for (trial, repeat), status in ENDS.items():
        factors = dict(begun.trials[trial].factors)
        result = TrialResult(
            experiment="", mode="rehearse", trial=trial, repeat=repeat, factors=factors
        )
        run.append(result.model_copy(update={"status": status}))

    def left(*again: Status) -> list[tuple[int, int]]:
        prepared = preparation.resume(run.info.id, tmp_path, lambda _: None, again)
        return [turn.key for turn in prepared.turns]

    drawn = [turn.key for turn in begun.turns]
    assert len(drawn) == 8
    assert left() == [key for key in drawn if key not in ENDS]
    assert left("failed") == [key for key in drawn if ENDS.get(key, "failed") == "failed"]
    assert left("failed", "invalid") == [key for key in drawn if ENDS.get(key) != "ok"]
    # More repeats come after what was drawn, and the run knows of them; fewer are refused.
    first = left()
    more = preparation.resume(run.info.id, tmp_path, lambda _: None, repeats=2)
    assert [turn.key for turn in more.turns if turn.repeat == 0] == first
    assert len([turn for turn in more.turns if turn.repeat == 1]) == 8
    assert Run.open(run.folder).info.repeats == 2
    with pytest.raises(UserError, match="started with 2 repeats"):
        preparation.resume(run.info.id, tmp_path, lambda _: None, repeats=1)
    # The later result counts, and the file has both.
    run.append(run.results()[1].model_copy(update={"status": "ok"}))
    assert [one.status for one in Run.open(run.folder).results()] == ["ok", "ok", "invalid"]
    assert len((run.folder / "trials.jsonl").read_text().splitlines()) == 4


@pytest.mark.machine
def test_a_rate_that_no_client_offers_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    text = EXPERIMENT.read_text().replace("{threads: 128}", "{rate: 900M/s}")
    text = text[: text.index("factors:")] + text[text.index("rehearse:") :]
    options = preparation.Options(quick=True, repeats=1)
    with pytest.raises(UserError) as refused:
        preparation.prepare(spec.parse(text), options, tmp_path / "runs", lambda _: None)
    told = str(refused.value)
    assert "900,000,000/s" in told
    assert "of it 150,000,000/s fall to this machine; at most 10,000,000/s" in told
    assert not (tmp_path / "runs").exists()


def test_another_try_needs_a_run() -> None:
    asked = ["rehearse", str(EXPERIMENT), "--again", "failed"]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code != 0
    assert "only a run that was begun has results" in str(refused.exception)


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
