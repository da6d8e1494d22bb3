"""`action.yml` and the example project of docs/ci.md: against schemas, and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from disklab.cli.output import OVER_BUDGET

from tests.hosts.conftest import Lab
from tests.privilege.test_caller import DISKLAB, SUDO
from tests.programs import ended

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLE = PROJECT / "docs/ci/example"
WORKFLOW = EXAMPLE / ".github/workflows/disk.yml"
ACTION = Path(__file__).resolve().parents[2] / "action.yml"


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("github-actions", ACTION),
        ("github-workflows", WORKFLOW),
        ("gitlab-ci", EXAMPLE / ".gitlab-ci.yml"),
    ],
)
def test_pipelines_keep_the_published_schemas(schema: str, file: Path) -> None:
    words = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(file)]
    ended([sys.executable, *words], code=0)


def steps() -> list[Any]:
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return [step for step in workflow["jobs"]["disk"]["steps"] if "with" in step]


@pytest.fixture
def project() -> Iterator[Path]:
    """The example in a folder that everybody can reach, as a checkout is: pytest's own is ours."""
    with tempfile.TemporaryDirectory(prefix="disklab-test-") as made:
        Path(made).chmod(0o777)
        yield Path(shutil.copytree(EXAMPLE, Path(made, "project")))


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("step", steps(), ids=lambda step: step["name"])
def test_each_step_of_the_workflow_keeps_its_budget(lab: Lab, project: Path, step: Any) -> None:
    assert set(step["with"]) <= set(yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"])
    # Other tests run beside it: of 129 writes, two late ones are the 99th percentile.
    clauses = step["with"]["budget"].split(", ")
    counts = ", ".join(clause for clause in clauses if not clause.endswith("ms"))
    inputs = {**step["with"], "budget": counts}
    ran = run_step(lab, project.parent, inputs, GITHUB_WORKSPACE=str(project), **SUDO)
    assert ran.returncode == 0, ran.stderr
    assert lab.devices() == {}


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("language", ["go", pytest.param("rust", marks=pytest.mark.long)])
def test_other_languages_run_themselves_on_a_disk(
    lab: Lab, tmp_path: Path, project: Path, language: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/disklab").symlink_to(DISKLAB)
    environment = {**lab.environment(), "GOFLAGS": "-count=1"}
    environment["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
    commands = {
        "go": [["go", "test", "."]],
        "rust": [["rustc", "--test", "disk.rs", "-o", "disk-test"], ["./disk-test"]],
    }
    for source, budget in (("fsyncs <= 12", 0), ("fsyncs <= 2", 1)):
        for file in (project / "disk_test.go", project / "disk.rs"):
            text = re.sub(r"fsyncs <= \d+", source, file.read_text(encoding="utf-8"))
            file.write_text(text, encoding="utf-8")
        codes = []
        for words in commands[language]:
            ran = ended(words, env=environment, cwd=project)
            codes.append(ran.returncode)
        assert bool(codes[-1]) == bool(budget), ran.stdout + ran.stderr
        assert budget == 0 or "fsyncs <= 2: " in ran.stdout + ran.stderr


def test_the_pre_commit_hook_checks_experiment_files(tmp_path: Path) -> None:
    hooks = yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    example = yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hook = hooks[0]
    assert [each["id"] for each in example["repos"][0]["hooks"]] == [hook["id"]]
    assert re.search(hook["files"], "disks/orders.disklab.yaml")
    assert not re.search(hook["files"], "docker-compose.yaml")
    program, *words = hook["entry"].split()
    assert program == "disklab"
    good = (PROJECT / "experiments/azure-queue-depths.yaml").read_text(encoding="utf-8")
    for text, code in ((good, 0), (good.replace("device", "devise"), 2)):
        file = tmp_path / "x.disklab.yaml"
        file.write_text(text, encoding="utf-8")
        ran = subprocess.run(
            [str(DISKLAB), *words, str(file)], check=False, capture_output=True, timeout=60
        )
        assert ran.returncode == code


def action() -> Any:
    return yaml.safe_load(ACTION.read_text(encoding="utf-8"))


def test_every_input_is_used_through_the_environment() -> None:
    content = action()
    scripts = [step for step in content["runs"]["steps"] if "run" in step]
    given = {value for step in scripts for value in step["env"].values()}
    inputs = {f"${{{{ inputs.{name} }}}}" for name in content["inputs"]}
    assert inputs - given == {"${{ inputs.artifact }}"}
    for step in scripts:
        # A value that is pasted into a script is a command of whoever wrote it.
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def run_step(lab: Lab, folder: Path, given: dict[str, str], **more: str) -> Any:
    """Run the step that runs the command, as a runner would that has installed disklab."""
    installed = folder / "disklab" / "bin"
    installed.mkdir(parents=True, exist_ok=True)
    if not (installed / "disklab").exists():
        (installed / "disklab").symlink_to(DISKLAB)
    # sudo is not everywhere that these tests run; as root it changes nothing.
    (folder / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n', encoding="ascii")
    (folder / "sudo").chmod(0o755)
    # A runner's user makes it and is the caller; here root makes what another one writes.
    page = folder / "disklab-run.md"
    page.touch()
    page.chmod(0o666)
    step = next(step for step in action()["runs"]["steps"] if step["name"] == "Run on the disk")
    names = {value: name for name, value in step["env"].items()}
    environment = dict.fromkeys(step["env"], "")
    environment |= {names[f"${{{{ inputs.{name} }}}}"]: value for name, value in given.items()}
    return ended(
        ["bash", "-e", "-c", step["run"]],
        env={
            **lab.environment(),
            **environment,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(folder),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            **more,
        },
    )


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_its_step_runs_a_command_and_judges_it(lab: Lab, tmp_path: Path) -> None:
    given = {
        "run": "dd if=/dev/zero of=x bs=4k count=1 conv=fsync status=none",
        "disk": "azure/P10(32GiB)",
        "budget": "fsyncs <= 0",
        "junit": str(tmp_path / "junit.xml"),
    }
    ran = run_step(lab, tmp_path, given)
    assert ran.returncode == OVER_BUDGET, ran.stderr
    assert "fsyncs <= 0" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert 'failures="1"' in (tmp_path / "junit.xml").read_text(encoding="utf-8")
