"""`disklab reproduce`, and the experiment files that come with disklab by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from disklab import spec
from disklab.cli.reproduce import STUDIES
from disklab.results import reference_runs
from disklab.spec import bundled

from tests.in_process import disklab

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def run(
    folder: Path, *words: str, code: int = 0, busy: int = 0
) -> subprocess.CompletedProcess[str]:
    ran = disklab(*words, folder=folder)
    assert ran.returncode in {code, busy or code}, ran.stdout + ran.stderr
    return ran


def test_every_experiment_of_the_repository_comes_with_the_package() -> None:
    # A wheel takes linked files, and no linked folder.
    assert bundled.names() == sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
    for name in bundled.names():
        there = bundled.found(Path(name))
        assert there.resolve() == (EXPERIMENTS / f"{name}.yaml").resolve()


def test_a_file_of_the_user_is_taken_before_a_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "cassandra-vm-types"
    assert bundled.found(Path(name)) != Path(name)
    as_pages_say = Path("experiments") / f"{name}.yaml"
    assert bundled.found(as_pages_say) == bundled.found(Path(name))
    (tmp_path / name).write_text("title: mine\n")
    assert bundled.found(Path(name)) == Path(name)
    assert bundled.found(Path("elsewhere") / name) == Path("elsewhere") / name


def test_every_published_study_is_in_one_of_them() -> None:
    known = {one.info.experiment.title for one in reference_runs()}
    ours = [name for study in STUDIES.values() for name in study.experiments]
    assert {spec.load(bundled.found(Path(name))).title for name in ours} >= known


def test_the_list_of_studies(tmp_path: Path) -> None:
    assert "next: disklab reproduce STUDY" in run(tmp_path, "reproduce").stdout
    assert list(json.loads(run(tmp_path, "reproduce", "--json").stdout)) == list(STUDIES)
    wrong = run(tmp_path, "reproduce", "host-cashing", code=2).stderr
    assert "did you mean host-caching?" in wrong


@pytest.mark.parametrize(
    "device", ["Intel temp disk", pytest.param("NVMe", marks=pytest.mark.long)]
)
def test_a_study_is_predicted_beside_its_figures(tmp_path: Path, device: str) -> None:
    words = ("reproduce", "local-disks", "--only", f"device={device}")
    told = json.loads(run(tmp_path, *words, "--json").stdout)
    (report,) = told["reports"]
    page = (tmp_path / report["page"]).read_text(encoding="utf-8")
    assert "published" in page
    assert "compared with published" in run(tmp_path, *words).stdout


@pytest.mark.machine
@pytest.mark.long
def test_a_study_is_rehearsed_beside_its_figures(tmp_path: Path) -> None:
    only = ("--only", "device=NVMe", "--json")
    # 1: this machine was too busy for its figures to be usable, which the report says.
    ran = run(tmp_path, "reproduce", "local-disks", "--rehearse", *only, busy=1)
    told = json.loads(ran.stdout)
    (report,) = told["reports"]
    assert [
        json.loads((tmp_path / one / "run.json").read_text())["mode"] for one in report["runs"]
    ] == [
        "predict",
        "rehearse",
    ]
