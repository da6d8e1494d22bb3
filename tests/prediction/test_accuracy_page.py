"""docs/accuracy.md and docs/left-out.md fit the studies and the calibration they are of."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from disklab.databases.simulating import host_profile
from disklab.machines.binary import find_engine
from disklab.prediction import calibration_for
from disklab.prediction.counted import SEARCHED
from disklab.results.bands import off_by, told

from scripts import accuracy_page, left_out
from scripts.accuracy_page import load, published_part
from scripts.mechanisms import MECHANISMS
from tests.programs import ended

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "accuracy_page.py"


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_what_no_longer_fits_is_named() -> None:
    page = accuracy_page.PAGE.read_text(encoding="utf-8")
    assert list(accuracy_page.stale(page)) == []
    without_row = re.sub(r"\| None, 64 \|.*\n", "", page)
    assert list(accuracy_page.stale(without_row)) == [
        "cassandra-disk-caching-threads has other rows"
    ]
    mark = re.compile(r"(<!-- ablations: calibration )\w+")
    (problem,) = accuracy_page.stale(mark.sub(r"\g<1>00000000", page))
    assert problem == "ablations was simulated with another calibration or catalogue"
    (problem,) = accuracy_page.stale(page.replace("azure-local-disks:", "azure-disks:"))
    assert problem == "azure-local-disks is missing"
    (problem,) = accuracy_page.stale(page.replace("| `overhead_ns` | ", "| `overhead_ns` | 1"))
    differs = "the calibration's parameters or rows, or the errors at a glance differ"
    assert problem == differs
    # A figure of a cell that counts, and what its study says of it.
    better = re.sub(r"27,000 -> [\d,]+ \(\+\d+ %\)", "27,000 -> 27,519 (+2 %)", page)
    assert better != page
    assert list(accuracy_page.stale(better)) == [
        differs,
        "cassandra-disk-caching-threads has other notes, or another summary, than follow from its"
        " table",
    ]


def test_another_engine_is_noticed() -> None:
    page = accuracy_page.PAGE.read_text(encoding="utf-8")
    found = accuracy_page.ENGINE_MARK.search(page)
    figures = [float(text) for text in found[1].split()]
    assert len(figures) == 2 * len(accuracy_page.ENGINE_CELLS)
    assert not accuracy_page.other_engine(page)
    figures[2] *= 1.03
    other = " ".join(map(str, figures))
    assert accuracy_page.other_engine(page.replace(found[0], f"<!-- engine: {other} -->"))
    assert accuracy_page.other_engine(page.replace(found[0], ""))


def test_another_catalogue_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    section = accuracy_page.SECTIONS[0]
    before = section.digest()
    monkeypatch.setattr(
        accuracy_page, "host_profile", lambda spec: {**host_profile(spec), "cached": []}
    )
    assert section.digest() != before


def test_every_mechanism_of_the_simulator_is_switched_off_once() -> None:
    job = json.dumps({"cell": 0, "seed": 1, "ablate": ["gravity"]})
    command = [str(find_engine()), "simulate"]
    ran = ended(command, input=job)
    named = re.findall(r"`(\w+)`", (ran.stdout + ran.stderr).partition("expected one of")[2])
    assert named, ran.stdout + ran.stderr
    assert sorted(MECHANISMS) == sorted(named)


def test_sql_mechanisms_are_some_of_all() -> None:
    assert set(accuracy_page.SQL_MECHANISMS) < set(MECHANISMS)


PAGE = (ROOT / "docs" / "left-out.md").read_text(encoding="utf-8")


def test_every_fitted_parameter_has_a_value_that_no_study_has_touched() -> None:
    calibration = calibration_for("cassandra")
    blank = left_out.untouched(calibration)
    for name, one in blank.parameters.items():
        if name in left_out.UNTOUCHED:
            assert one.value == left_out.UNTOUCHED[name][0]
            # What is known of it was learnt from the studies, too.
            assert (one.status, one.within) == ("assumed", None)
        else:
            assert one == calibration.parameters[name]
    assert not blank.residuals


def test_what_the_others_do_not_tell_is_known_as_well_as_what_they_do() -> None:
    calibration = calibration_for("cassandra")
    fold = left_out.FOLDS[1]
    blank = left_out.untouched(calibration)
    twice = {
        name: one.model_copy(update={"value": 2 * one.value}) if name in fold.told else one
        for name, one in blank.parameters.items()
    }
    found: Any = SimpleNamespace(
        calibration=blank.model_copy(update={"parameters": twice}), at_bound=[fold.told[0]]
    )
    # Each assumed value was off by a factor of two: a standard deviation, of which eight in ten
    # lie within 1.28.
    factor = left_out.off_of_assumed(fold, found)
    assert factor == pytest.approx(2**1.2816, rel=1e-3)
    ranged = left_out.with_assumed_within(fold, found).parameters
    within = {name for name, one in ranged.items() if one.within == factor}
    assert within == {*left_out.UNTOUCHED} - {*fold.told} | {fold.told[0]}


def test_what_the_study_of_vm_types_does_not_state_has_a_range(tmp_path: Path) -> None:
    ranged = left_out.left_open(tmp_path)
    assert [one.name.partition(" ")[0] for one in ranged.ranges] == [
        "read_ahead",
        "working_set",
        "dataset.row",
    ]
    published = published_part(load(SEARCHED)).trials("predict")
    trials = published_part(ranged.middle).trials("predict")
    assert [one.factors for one in trials] == [one.factors for one in published]


def test_no_fold_is_fitted_on_what_it_leaves_out() -> None:
    calibration = calibration_for("cassandra")
    fitted_on = {row.experiment for row in calibration.calibration_rows}
    assert {name for fold in left_out.FOLDS for name in fold.left_out} == fitted_on
    for fold in left_out.FOLDS:
        assert fitted_on - set(fold.left_out)
        assert set(fold.told) <= set(left_out.UNTOUCHED)


def test_the_summary_follows_from_the_cells() -> None:
    summaries = dict(re.findall(r"^\| (cassandra-\S+) \| \d+ \| ([^|]+) \|", PAGE, re.MULTILINE))
    for name in (name for fold in left_out.FOLDS for name in fold.left_out):
        block = PAGE.partition(f"### {name}\n")[2].partition("\n#")[0]
        pairs = re.findall(r"^\| [^|]+ \| ([\d,]+) -> ([\d,]+) \(", block, re.MULTILINE)
        ratios = [float(b.replace(",", "")) / float(a.replace(",", "")) for a, b in pairs]
        assert len(ratios) == len(published_part(load(name)).trials("predict"))
        middle = told(statistics.median(off_by(one) for one in ratios))
        assert summaries[name].startswith(f"{middle},")
