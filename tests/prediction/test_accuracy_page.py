"""docs/accuracy.md fits the studies, the calibration and the simulator it was written from."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from disklab.machines.binary import find_engine

from tests.programs import ended

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "accuracy_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    found = importlib.util.spec_from_file_location("accuracy_page", SCRIPT)
    module = importlib.util.module_from_spec(found)
    # Dataclasses look their module up by name.
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_what_no_longer_fits_is_named(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    assert list(script.stale(page)) == []
    without_row = re.sub(r"\| None, 64 \|.*\n", "", page)
    assert list(script.stale(without_row)) == ["cassandra-disk-caching-threads has other rows"]
    mark = re.compile(r"(<!-- ablations: calibration )\w+")
    (problem,) = script.stale(mark.sub(r"\g<1>00000000", page))
    assert problem == "ablations was simulated with another calibration or catalogue"
    (problem,) = script.stale(page.replace("azure-local-disks:", "azure-disks:"))
    assert problem == "azure-local-disks is missing"
    (problem,) = script.stale(page.replace("| `overhead_ns` | ", "| `overhead_ns` | 1"))
    differs = "the calibration's parameters or rows, or the errors at a glance differ"
    assert problem == differs
    # A figure of a cell that counts, and what its study says of it.
    better = re.sub(r"27,000 -> [\d,]+ \(\+\d+ %\)", "27,000 -> 27,519 (+2 %)", page)
    assert better != page
    assert list(script.stale(better)) == [
        differs,
        "cassandra-disk-caching-threads has other notes, or another summary, than follow from its"
        " table",
    ]


def test_another_engine_is_noticed(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    found = script.ENGINE_MARK.search(page)
    figures = [float(text) for text in found[1].split()]
    assert len(figures) == 2 * len(script.ENGINE_CELLS)
    assert not script.other_engine(page)
    figures[2] *= 1.03
    other = " ".join(map(str, figures))
    assert script.other_engine(page.replace(found[0], f"<!-- engine: {other} -->"))
    assert script.other_engine(page.replace(found[0], ""))


def test_another_catalogue_is_noticed(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    section = script.SECTIONS[0]
    before = section.digest()
    known = script.host_profile
    monkeypatch.setattr(script, "host_profile", lambda spec: {**known(spec), "cached": []})
    assert section.digest() != before


def test_every_mechanism_of_the_simulator_is_switched_off_once(script: ModuleType) -> None:
    job = json.dumps({"cell": 0, "seed": 1, "ablate": ["gravity"]})
    command = [str(find_engine()), "simulate"]
    ran = ended(command, input=job)
    named = re.findall(r"`(\w+)`", (ran.stdout + ran.stderr).partition("expected one of")[2])
    assert named, ran.stdout + ran.stderr
    assert sorted(script.MECHANISMS) == sorted(named)


def test_sql_mechanisms_are_some_of_all(script: ModuleType) -> None:
    assert set(script.SQL_MECHANISMS) < set(script.MECHANISMS)
