"""One trial of an experiment, rehearsed to its end by the command, and what it came to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.hosts.conftest import DISKLAB, Lab
from tests.programs import ended


def rehearsed(lab: Lab, file: Path, *options: str, most_s: float) -> tuple[dict[str, Any], Path]:
    """Return the result of the only trial, and the folder of its run beside the file.

    On a busy machine the emulator may be late: the trial is invalid then, and no failure.
    """
    out = file.with_suffix(".runs")
    command = [str(DISKLAB), "rehearse", str(file), *options, "--quick", "--json"]
    said = ended([*command, "--out", str(out)], most_s=most_s, env=lab.environment())
    # 1: nothing is valid.
    assert said.returncode in {0, 1}, said.stderr
    result: dict[str, Any] = json.loads(said.stdout.splitlines()[0])
    assert result["status"] in {"ok", "invalid"}, result
    (run,) = out.iterdir()
    return result, run


def only_result(file: Path, mode: str = "rehearse") -> dict[str, Any]:
    """Return the only result of a device's experiment, predicted or rehearsed in its folder."""
    folder = file.parent
    env = {
        **os.environ,
        "DISKLAB_RUN_DIR": str(folder / "run"),
        "DISKLAB_DATA_DIR": str(folder / "data"),
    }
    command = [str(DISKLAB), mode, str(file), "--json", "--repeat", "1"]
    ran = ended([*command, "--out", str(folder / mode)], env=env)
    assert ran.returncode in (0, 1), ran.stderr
    (result,) = [json.loads(line) for line in ran.stdout.splitlines()]
    # A busy machine makes a rehearsal invalid, and says so; what was done is the same.
    assert result["status"] in ("ok", "invalid"), result
    return dict(result)
