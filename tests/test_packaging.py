"""What packages install beside the program, and the experiments that come with it by name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from disklab import spec
from disklab.cli.reproduce import STUDIES
from disklab.results import reference_runs
from disklab.spec import bundled
from disklab.web.server import FAMILIES

from tests.in_process import disklab

ROOT = Path(__file__).parents[1]
SHARE = ROOT / "installer" / "data" / "share"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_renders_without_a_warning() -> None:
    ran = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(SHARE / "man" / "man1" / "disklab.1")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not ran.stderr
    assert "which disks should my distributed database live on?" in ran.stdout
    assert "disklab reproduce" in ran.stdout


def test_bash_takes_the_completion() -> None:
    file = SHARE / "bash-completion" / "completions" / "disklab"
    told = f"source {file}; complete -p disklab"
    ran = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True)
    assert "_disklab_completion disklab" in ran.stdout


def test_what_the_demo_installs_is_a_part_of_what_is_locked() -> None:
    locks = [(ROOT / name).read_text() for name in ("requirements.lock", "requirements.run.lock")]
    # A package is pinned by its first line; what is behind it says where, and then come its hashes.
    whole, part = (
        {block.split(maxsplit=1)[0]: set(re.findall("sha256:[0-9a-f]+", block)) for block in blocks}
        for blocks in (re.split(r"\n(?=\S)", lock.strip()) for lock in locks)
    )
    assert part.items() <= whole.items()
    assert any(pin.startswith("maturin==") for pin in part)


def test_the_scripts_are_sound() -> None:
    for name in ("release.sh", "setup.sh", "demo.sh"):
        subprocess.run(["bash", "-n", str(ROOT / "scripts" / name)], check=True)


def test_recipes_ask_for_what_the_package_asks_for() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/recipe.yaml").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    python = re.search(r'^requires-python = "(.*)"', project, re.MULTILINE)
    needed = [line.replace(" ", "") for line in recipe["requirements"]["run"]]
    assert needed == [f"python{python[1]}", *re.findall(r'"(.*)"', listed[1])]


def test_the_schema_store_is_given_the_committed_schemas() -> None:
    entries = json.loads((ROOT / "packaging/schemastore.json").read_text(encoding="utf-8"))
    for entry in entries:
        schema = json.loads(
            (ROOT / "docs" / entry["url"].rpartition("/")[2]).read_text(encoding="utf-8")
        )
        assert (schema["$id"], schema["title"]) == (entry["url"], entry["name"])


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    text = (ROOT / "docs/grafana-dashboard.json").read_text(encoding="utf-8")
    dashboard = json.loads(text)
    inputs = [f"${{{each['name']}}}" for each in dashboard["__inputs"]]
    assert [each["current"]["value"] for each in dashboard["templating"]["list"][:1]] == inputs
    names = {name.removesuffix("_info") for name in re.findall(r"disklab_run\w*", text)}
    assert names <= set(FAMILIES)


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
