"""The live page beside a rehearsal that really runs: fio on an emulated disk of this machine."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.hosts.conftest import DISKLAB, Lab, lab
from tests.web.test_live_page import TOKEN, served, tab

__all__ = ["lab", "tab"]
pytestmark = pytest.mark.machine

# Three trials, of which the buttons leave two. Long enough that a look a second sees each measured;
# slow enough that a busy machine still keeps the disk's time for most of them.
EXPERIMENT = """\
title: Depths of a small disk, watched
device:
  vm: azure/Standard_DS2_v2
  volume: {disks: azure/P10, caching: None, filesystem: ext4}
workload:
  fio: {rw: randread, bs: 8k, jobs: 1, depth: 2}
  stop: {duration: 5s}
factors:
  workload.fio.depth: [2, 3, 4]
"""
TRIALS = 3
# Of one thing to show: a disk is made, filled and measured in 12 s when nothing else runs.
PATIENCE_MS = 60_000


@contextmanager
def rehearsing(lab: Lab) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Yield a rehearsal that goes on and the folder of its runs."""
    file, runs = lab.root / "watched.yaml", lab.root / "runs"
    file.write_text(EXPERIMENT)
    runs.mkdir()
    command = [str(DISKLAB), "rehearse", str(file), "--repeat", "1", "--out", str(runs)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=lab.environment()
    ) as process:
        try:
            yield process, runs
        finally:
            # Ctrl-C leaves nothing behind, and so does the lab.
            process.terminate()


def only(runs: Path) -> Path:
    (run,) = runs.iterdir()
    return run


def results(run: Path) -> list[dict[str, object]]:
    file = run / "trials.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def card(tab: Page, name: str) -> Locator:
    """Return where a card of the page shows its figure."""
    return tab.locator(".card", has_text=name).locator("b")


def test_a_browser_pauses_and_stops_a_rehearsal_that_really_runs(lab: Lab, tab: Page) -> None:
    noted: list[str] = []
    tab.on("pageerror", lambda error: noted.append(str(error)))
    tab.on("console", lambda message: noted.append(message.text))
    tab.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    with rehearsing(lab) as (process, runs), served(runs) as server:
        # The list leads to the only run as soon as it has begun.
        tab.goto(f"http://127.0.0.1:{server.port}/?token={TOKEN}")
        tab.wait_for_url("**/runs/watched-rehearse-*")
        main = tab.locator("main")
        expect(main).to_contain_text(re.compile(rf"Trial 1 of {TRIALS}: depth \d; repeat 1"))
        expect(main).to_contain_text("measure: 1 x")
        tab.get_by_role("button", name="Pause after this trial").click()
        tab.get_by_text("Pauses after this trial").wait_for()

        # What fio does at this moment, long before it tells anything itself.
        expect(card(tab, "operations")).to_have_text(re.compile(r"^[1-9][\d,.]*/s$"))
        expect(tab.locator("tbody", has_text="device").first).to_be_visible()
        expect(card(tab, "time left")).to_have_text(re.compile(r"^about (\d+ s|\d:\d\d min)$"))
        expect(tab.get_by_role("heading", name="Rate", exact=True)).to_be_visible()
        assert re.search(r" left · Depths of a small disk, watched$", tab.title())

        tab.get_by_text("Paused.").wait_for()
        run = only(runs)
        paused = results(run)
        assert len(paused) == 1
        assert lab.devices() == {}, "no disk is left while nobody measures"
        # A paused run looks twice a second whether it may go on.
        tab.wait_for_timeout(2_000)
        assert len(results(run)) == 1
        assert process.poll() is None

        tab.get_by_role("button", name="Go on").click()
        expect(main).to_contain_text(f"Trial 2 of {TRIALS}")
        tab.get_by_role("button", name="Stop after this trial").click()
        tab.get_by_text("Stops after this trial").wait_for()
        tab.get_by_text("stopped; go on with disklab rehearse --resume").wait_for()
        expect(tab.locator("tbody tr", has_text="repeat 1")).to_have_count(2)
        said = process.communicate(timeout=PATIENCE_MS / 1000)[0]

        # As Ctrl-C; what is left is for `--resume`.
        assert process.returncode == 130, said
        assert len(results(run)) == 2, said
        # The rates that were shown are those of the disk that was measured.
        measured = {one["trial"]: one["ops_per_s"] for one in results(run)}
        for trial, rate in shown(run).items():
            assert rate == pytest.approx(measured[trial], rel=0.25)
        tab.get_by_role("link", name="Open the report").click()
        tab.wait_for_url("**/report?key=*")
        assert "Depths of a small disk, watched" in tab.inner_text("body")
    assert lab.devices() == {}
    assert noted == [], "no script error, nothing refused by the policy"


def shown(run: Path) -> dict[int, float]:
    """Return the mean of the rates that the page was sent while each trial was measured."""
    rates: dict[int, list[float]] = {}
    for line in (run / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "Progress" and event["phase"] == "measure":
            rates.setdefault(event["trial"], []).append(event["ops_per_s"])
    return {trial: sum(one) / len(one) for trial, one in rates.items()}
