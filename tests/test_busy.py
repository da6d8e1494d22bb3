"""The campaign beside other work judges what it measured, and ends what it began."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from disklab.spec import parse

from campaigns.busy import KINDS, LOOP, QUIET, TRIALS, beside, judged, page, working

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
