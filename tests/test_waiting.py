"""Waits have a name, a since, a what-for and a limit; who follows them hears of those that last."""

from __future__ import annotations

import ast
import threading
from io import StringIO
from pathlib import Path

import pytest
from disklab import waiting
from disklab.cli.run_progress import RunView, waiting_text
from disklab.events import PhaseStarted, Waiting
from disklab.waiting import Wait, WaitState
from rich.console import Console

DATABASES = Path(waiting.__file__).with_name("databases")


def test_a_wait_that_lasts_is_told_of_and_so_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "TELL_SECONDS", 0.02)
    states: list[WaitState] = []
    heard = threading.Event()

    def hear(state: WaitState) -> None:
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
    states: list[WaitState] = []
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


def test_databases_sleep_in_waits_alone() -> None:
    """So that each of them has a name and a limit."""
    found = []
    for file in DATABASES.rglob("*.py"):
        found += [
            f"{file.relative_to(DATABASES)}:{node.lineno}"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute) and node.attr == "sleep"
        ]
    assert found == []
