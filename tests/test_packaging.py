"""What packages install beside the program: a man page that renders, and completion."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from disklab.web.server import FAMILIES

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
