"""Campaigns judge what they measured: demos, and trials beside other work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from disklab.spec import parse

from campaigns.busy import KINDS, LOOP, QUIET, TRIALS, beside, judged, page, working
from campaigns.demos.__main__ import Demo
from campaigns.demos.stillness import Look, Span, Watch, longest_still, phases, stills, waits


def test_a_wait_counts_by_what_did_not_run_in_it() -> None:
    # Half a core for ten seconds, nothing for thirty, half a core again.
    cpu = [0.5 * second for second in range(11)]
    cpu += [cpu[-1]] * 30
    cpu += [cpu[-1] + 0.5 * second for second in range(1, 11)]
    quiet = stills(Look(float(at), used) for at, used in enumerate(cpu))
    assert quiet == [Span(10.0, 40.0)]
    assert longest_still(Span(0.0, 9.0), quiet) == 0.0
    assert longest_still(Span(5.0, 25.0), quiet) == 15.0
    assert longest_still(Span(0.0, 60.0), quiet) == 30.0


def test_each_wait_of_a_run_is_one() -> None:
    def waiting(second: int, name: str, since_s: float) -> str:
        told = {"t": f"2026-11-27T01:00:{second:02}.000Z", "event": "Waiting", "name": name}
        return json.dumps({**told, "what": "", "since_s": since_s, "limit_s": 300, "ended": False})

    other = json.dumps({"t": "2026-11-27T01:00:01.000Z", "event": "PhaseStarted"})
    events = [other, waiting(4, "n1: start", 3.0), waiting(5, "n1: start", 4.0)]
    events += [waiting(30, "n1: start", 2.5)]
    assert [(wait.name, wait.span.seconds) for wait in waits(events)] == [
        ("n1: start", 4.0),
        ("n1: start", 2.5),
    ]


def test_a_phase_lasts_until_the_next_one_or_a_result() -> None:
    def event(second: int, kind: str, **fields: str) -> str:
        return json.dumps({"t": f"2026-11-27T01:00:{second:02}.000Z", "event": kind, **fields})

    events = [
        event(1, "PhaseStarted", phase="fill"),
        event(5, "Progress", phase="fill"),
        event(9, "PhaseStarted", phase="measure"),
        event(30, "TrialFinished"),
        event(40, "PhaseStarted", phase="clean up"),
        event(42, "RunFinished"),
    ]
    assert [(phase.name, phase.span.seconds) for phase in phases(events)] == [
        ("fill", 8.0),
        ("measure", 21.0),
        ("clean up", 2.0),
    ]


def test_a_demo_that_stands_still_in_a_wait_or_a_phase_is_bad() -> None:
    assert not Demo(0, 100.0, 1.0, 19.0, {}, {"settle": (60.0, 19.0)}).is_bad
    assert Demo(0, 100.0, 1.0, 44.0, {}, {"settle": (60.0, 44.0)}).is_bad
    assert Demo(0, 100.0, 1.0, 44.0, {"n1: start": (60.0, 44.0)}, {}).is_bad


def test_what_a_program_started_counts_when_it_has_lost_its_parent() -> None:
    orphan = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    busy = "import time; end = time.process_time() + 1\nwhile time.process_time() < end: pass"
    with Watch() as watch:
        subprocess.run([sys.executable, "-c", orphan, busy], check=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(look.cpu_s >= 0.8 for look in watch.looks):
            time.sleep(0.2)
    assert max(look.cpu_s for look in watch.looks) >= 0.8


NAME = "fio"


def line(kind: str, rate: float, p99: float, spoiled: dict[str, str]) -> dict[str, Any]:
    figures = {"rate": rate, "median": 1.0, "tail": p99}
    told = {"trial": NAME, "beside": kind, "load": 1.0, "status": "ok", "invalid": []}
    return {**told, "spoiled": spoiled, "figures": figures}


def test_a_figure_is_right_by_the_quiet_ones_and_counts_by_its_marks() -> None:
    lines = [line(QUIET, 100.0, 10.0, {}), line(QUIET, 102.0, 10.0, {})]
    # The rate is right and counts, the tail is wrong and does not.
    lines.append(line("loops", 95.0, 40.0, {"tail": "late"}))
    # The rate is wrong and counts, the tail is right and does not.
    lines.append(line("a compiler", 80.0, 11.0, {"tail": "late"}))
    loaded = [one for one in judged(lines) if one.line["beside"] != QUIET]
    seen = {(one.line["beside"], one.name): (one.right, one.counts) for one in loaded}
    assert seen["loops", "rate"] == (True, True)
    assert seen["loops", "tail"] == (False, False)
    assert seen["a compiler", "rate"] == (False, True)
    assert seen["a compiler", "tail"] == (True, False)
    text = page(lines)
    assert "count: 3 of 4 are right" in text
    assert "right: 3 of 4 count" in text
    assert "do not count: 0 (wanted: 0)" in text


def test_without_a_quiet_trial_nothing_is_claimed() -> None:
    assert (
        page([line("loops", 95.0, 40.0, {})]).count(
            "unknown: no trial ran on a quiet machine to compare with"
        )
        == 2
    )


def test_its_trials_are_experiments_and_its_work_ends(tmp_path: Path) -> None:
    for text in TRIALS.values():
        assert parse(text).trials("rehearse")[0].refused is None
    assert all(beside(kind, tmp_path) or kind == QUIET for kind in KINDS)
    before = set(os.listdir("/proc"))
    with working([[sys.executable, "-c", LOOP]] * 2, os.environ):
        time.sleep(0.2)
        (own,) = {os.getpgid(os.getpid())}
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        assert len(set(children) - before) == 2
        assert all(os.getpgid(int(pid)) != own for pid in children if pid not in before)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children if pid not in before)
