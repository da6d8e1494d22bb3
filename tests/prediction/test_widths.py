"""How wide bands are on machines that no calibration has seen: fitted on studies left out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from disklab.prediction.uncertain import ranges
from disklab.results.bands import band

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return scripts/widths.py."""
    found = importlib.util.spec_from_file_location("widths", ROOT / "scripts" / "widths.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("figure", ["ops_per_s", "p99_ms"])
def test_each_study_left_out_has_seven_to_nine_of_ten_figures_inside(
    script: ModuleType, figure: str
) -> None:
    studies = script.parts()[figure]
    assert 0.7 <= script.share_inside(studies) <= 0.9
    fitted = script.width([*studies.values()])
    assert ranges().abroad.widths[figure] == pytest.approx(fitted, abs=0.05)


def test_a_width_scales_both_sides_by_their_logarithms() -> None:
    usual, half = band([0.2, -0.1, 0.3, -0.4], 1.2), band([0.2, -0.1, 0.3, -0.4], 1.2, 0.5)
    assert half.high**2 == pytest.approx(usual.high)
    assert half.low**2 == pytest.approx(usual.low)


def test_a_part_is_one_at_the_end_of_a_band(script: ModuleType) -> None:
    # Published at 1.5 times the predicted, at the upper end; and below half of it.
    assert script.part(1 / 1.5, 0.5, 1.5) == 1.0
    assert script.part(4.0, 0.5, 1.5) == 2.0
    # With a band that was made half as wide, that is half as far off as its ranges tell.
    assert script.part(1 / 1.5, 0.5, 1.5, width=0.5) == 0.5
