"""`action.yml`: its steps, run as a runner of GitHub's would run them, but for the installation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from disklab.cli.output import OVER_BUDGET

from tests.hosts.conftest import Lab
from tests.privilege.test_caller import DISKLAB
from tests.programs import ended

ACTION = Path(__file__).resolve().parents[2] / "action.yml"


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
