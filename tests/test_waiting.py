"""Waits have a name, a since, a what-for and a limit; who follows them hears of those that last."""

from __future__ import annotations

import ast
import threading
from io import StringIO
from pathlib import Path

import pytest
from disklab import waiting
from disklab.cli import run_progress
from disklab.cli.run_progress import RunView, waiting_text
from disklab.errors import MachineError
from disklab.events import PhaseStarted
from disklab.results.event_log import EventLog, read_events
from disklab.waiting import Wait, Waiting
from rich.console import Console


def test_a_wait_that_lasts_is_told_of_and_so_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "TELL_SECONDS", 0.02)
    states: list[Waiting] = []
    heard = threading.Event()

    def hear(state: Waiting) -> None:
        states.append(state)
        heard.set()

    with waiting.followed(hear), Wait("compactions end", 30.0) as wait:
        while not heard.is_set() and not wait.is_over:
            wait.pause(0.01, "2 pending")
    first, last = states[0], states[-1]
    assert (first.name, first.what, first.limit_s) == ("compactions end", "2 pending", 30.0)
    assert first.since_s >= 0.05
    assert not first.ended
    assert last.ended


def test_a_short_wait_is_nobodys_business() -> None:
    states: list[Waiting] = []
    with waiting.followed(states.append), Wait("the ports of n1 are free", 30.0):
        pass
    assert states == []


def test_a_wait_is_over_after_its_limit() -> None:
    with Wait("n1 is ready", 0.0) as wait:
        wait.pause(0.01)
        assert wait.is_over
        assert wait.left_s == 0.0


def test_the_terminal_says_what_is_waited_for_and_how_long_at_most() -> None:
    shown = StringIO()
    view = RunView(Console(file=shown, width=120))
    view(PhaseStarted("settle", ""))
    view._said_at -= 60.0
    event = Waiting("compactions end", "2 pending, running: none", 75.2, 1800.0, ended=False)
    view(event)
    text = "waiting until compactions end (2 pending, running: none): 1:15 min of at most 30:00 min"
    assert waiting_text(event) == text
    assert f"settle: {text}" in " ".join(shown.getvalue().split())


def test_in_a_block_within_a_block_the_inner_one_alone_hears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "TELL_SECONDS", 0.02)
    outer: list[Waiting] = []
    inner: list[Waiting] = []
    with waiting.followed(outer.append):
        with waiting.followed(inner.append), Wait("the inner one", 30.0) as wait:
            while not inner and not wait.is_over:
                wait.pause(0.01)
        with Wait("the outer one", 30.0) as wait:
            while not outer and not wait.is_over:
                wait.pause(0.01)
    assert {state.name for state in inner} == {"the inner one"}
    assert {state.name for state in outer} == {"the outer one"}


def test_who_follows_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "TELL_SECONDS", 0.02)
    heard = threading.Event()

    def gone(state: Waiting) -> None:
        heard.set()
        raise MachineError("nobody hears it")

    with waiting.followed(gone), Wait("the bed is taken away", 30.0) as wait:
        while not heard.is_set() and not wait.is_over:
            wait.pause(0.01)
    assert heard.is_set()


def test_a_wait_goes_by_the_clock_that_it_is_given() -> None:
    class Hours:
        at = 0.0

        def monotonic(self) -> float:
            return self.at

        def sleep(self, seconds: float, /) -> None:
            self.at += seconds

    with Wait("all instances run", 3600.0, clock=Hours()) as wait:
        wait.pause(3000.0)
        assert wait.left_s == 600.0
        wait.pause(700.0)
        assert wait.is_over


def test_waits_outside_of_a_run_are_shown_and_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(waiting, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "TELL_SECONDS", 0.02)
    monkeypatch.setattr(run_progress, "PLAIN_EVERY_S", 0.1)
    text = "waiting until the new hosts are ready (n1: no answer): "
    shown = StringIO()
    with (
        EventLog(tmp_path) as log,
        run_progress.waits_shown(Console(file=shown, width=200), log),
        Wait("the new hosts are ready", 900.0, "n1: no answer") as wait,
    ):
        while text not in shown.getvalue() and not wait.since_s > 30.0:
            wait.pause(0.01)
    assert text in shown.getvalue()
    assert "of at most 15:00 min" in shown.getvalue()
    events = read_events(tmp_path).events
    assert {event["event"] for event in events} == {"Waiting"}
    assert [event["ended"] for event in events][-1] is True
    assert {event["limit_s"] for event in events} == {900.0}


MAY_SLEEP = {
    "waiting.py": "the wait itself",
    "cloud/protocol.py": "the clock of waits for a cloud",
    "cli/disk.py": "a table that is shown anew each second, until Ctrl-C",
    "web/server.py": "a page that is open asks for news",
    "observation/machine.py": "a second reading needs some time after the first",
    "procedures/life.py": "who paused the run decides how long; the phase is called so",
    "hosts/keeper.py": "nobody is left to tell: what it cleans up after was killed",
    "command/recording.py": "five seconds at most, for a log whose writer has ended",
    "kits/harness.py": "load programs of kits, which import nothing of ours",
    "machines/foreground.py": "the user's own command has ended; nobody is told of its children",
}
"""By file of the package: why it sleeps outside of a wait."""


def test_all_sleep_in_waits_alone() -> None:
    """So that each of them has a name and a limit, and is told of."""
    package = Path(waiting.__file__).parent
    sleeping = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "sleep":
                sleeping.add(str(file.relative_to(package)))
    assert sleeping == set(MAY_SLEEP)
