"""The page of left-out studies: every study is there, and its summary is that of its cells."""

from __future__ import annotations

import importlib.util
import re
import statistics
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from disklab.prediction import calibration_for
from disklab.results.bands import off_by, told

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "left-out.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return scripts/left_out.py, which imports its neighbour."""
    path = ROOT / "scripts" / "left_out.py"
    sys.path.insert(0, str(path.parent))
    try:
        found = importlib.util.spec_from_file_location("left_out", path)
        module = importlib.util.module_from_spec(found)
        sys.modules["left_out"] = module
        found.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(path.parent))


def test_every_fitted_parameter_has_a_value_that_no_study_has_touched(script: ModuleType) -> None:
    calibration = calibration_for("cassandra")
    blank = script.untouched(calibration)
    for name, one in blank.parameters.items():
        if name in script.UNTOUCHED:
            assert one.value == script.UNTOUCHED[name][0]
            # What is known of it was learnt from the studies, too.
            assert (one.status, one.within) == ("assumed", None)
        else:
            assert one == calibration.parameters[name]
    assert not blank.residuals


def test_what_the_others_do_not_tell_is_known_as_well_as_what_they_do(script: ModuleType) -> None:
    calibration = calibration_for("cassandra")
    fold = script.FOLDS[1]
    blank = script.untouched(calibration)
    twice = {
        name: one.model_copy(update={"value": 2 * one.value}) if name in fold.told else one
        for name, one in blank.parameters.items()
    }
    found = SimpleNamespace(
        calibration=blank.model_copy(update={"parameters": twice}), at_bound=[fold.told[0]]
    )
    # Each assumed value was off by a factor of two: a standard deviation, of which eight in ten
    # lie within 1.28.
    factor = script.off_of_assumed(fold, found)
    assert factor == pytest.approx(2**1.2816, rel=1e-3)
    ranged = script.with_assumed_within(fold, found).parameters
    within = {name for name, one in ranged.items() if one.within == factor}
    assert within == {*script.UNTOUCHED} - {*fold.told} | {fold.told[0]}


def test_what_the_study_of_vm_types_does_not_state_has_a_range(
    script: ModuleType, tmp_path: Path
) -> None:
    ranged = script.left_open(tmp_path)
    assert [one.name.partition(" ")[0] for one in ranged.ranges] == [
        "read_ahead",
        "working_set",
        "dataset.row",
    ]
    published = script.published_part(script.load(script.SEARCHED)).trials("predict")
    trials = script.published_part(ranged.middle).trials("predict")
    assert [one.factors for one in trials] == [one.factors for one in published]


def test_no_fold_is_fitted_on_what_it_leaves_out(script: ModuleType) -> None:
    calibration = calibration_for("cassandra")
    fitted_on = {row.experiment for row in calibration.calibration_rows}
    assert {name for fold in script.FOLDS for name in fold.left_out} == fitted_on
    for fold in script.FOLDS:
        assert fitted_on - set(fold.left_out)
        assert set(fold.told) <= set(script.UNTOUCHED)


def test_the_summary_follows_from_the_cells(script: ModuleType) -> None:
    summaries = dict(re.findall(r"^\| (cassandra-\S+) \| \d+ \| ([^|]+) \|", PAGE, re.MULTILINE))
    for name in (name for fold in script.FOLDS for name in fold.left_out):
        block = PAGE.partition(f"### {name}\n")[2].partition("\n#")[0]
        pairs = re.findall(r"^\| [^|]+ \| ([\d,]+) -> ([\d,]+) \(", block, re.MULTILINE)
        ratios = [float(b.replace(",", "")) / float(a.replace(",", "")) for a, b in pairs]
        assert len(ratios) == len(script.published_part(script.load(name)).trials("predict"))
        middle = told(statistics.median(off_by(one) for one in ratios))
        assert summaries[name].startswith(f"{middle},")
