"""A minute of the crash campaign, and the defects that it found, each at its own step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.points import Point, steps_of, try_point
from tests.campaign.scenarios import ENGINE, SCENARIOS
from tests.campaign.tracing import different_first

pytestmark = [pytest.mark.machine, pytest.mark.alone]

SEED = 1


def test_some_steps_of_some_commands_are_killed_and_nothing_is_lost_or_left(tmp_path: Path) -> None:
    chosen = ["attach second", "set caching", "detach", "clean dead host"]
    options = [word for name in chosen for word in ("--scenario", name)]
    state = ["--state", str(tmp_path / "state.jsonl")]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.campaign", "--points", "4", *options, *state],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 tried" in ran.stdout


def test_an_engine_that_is_killed_while_it_makes_a_loop_device_ends() -> None:
    """Its last thread closes its own file on the mount; a flush there never ended."""
    attach = next(one for one in SCENARIOS if one.name == "attach")
    steps = [one for one in steps_of(attach, SEED) if one.program == ENGINE]
    settings = [one for one in steps if one.what.endswith("queue/rq_affinity")]
    assert settings, list(different_first(steps))
    point = Point(attach.name, ENGINE, settings[0].number, "alone")
    outcome = try_point(attach, point, SEED)
    assert outcome.step
    assert not outcome.found
