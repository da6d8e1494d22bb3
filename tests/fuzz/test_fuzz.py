"""Each target for a second: its corpus, and mutations of it. `make fuzz` goes on for longer."""

from __future__ import annotations

import pytest

from campaigns.fuzz.__main__ import fuzz
from campaigns.fuzz.targets import TARGETS, Target

pytestmark = pytest.mark.machine


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)
def test_nothing_crashes_or_hangs(target: Target) -> None:
    tried, faults = fuzz(target, seconds=1.0, seed=1)
    assert tried >= len(target.corpus())
    assert faults == []
