"""The question of `etcd-which-disk` for one disk: a rehearsal that ends in its answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import IN_CI
from tests.hosts.conftest import Lab

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "etcd-which-disk.yaml"


@pytest.mark.machine
@pytest.mark.alone
def test_a_disk_is_held_against_the_rule(lab: Lab, tmp_path: Path) -> None:
    if shutil.which("etcd") is None:
        assert not IN_CI, "scripts/setup.sh installs etcd in CI"
        pytest.skip("etcd is not installed")
    small = tmp_path / "small.yaml"
    text = EXPERIMENT.read_text(encoding="utf-8")
    small.write_text(text.replace("rows: 20k", "rows: 500").replace("60s", "4s"), encoding="utf-8")
    out = tmp_path / "runs"
    only = ("--only", "disk=local NVMe", "--nodes", "1", "--quick")
    said = lab.run("rehearse", str(small), *only, "--out", str(out), "--json")
    assert said.returncode == 0, said.stderr
    result = json.loads(said.stdout.splitlines()[0])
    # On a busy machine the emulator may be late, and then the figures are no answer.
    assert result["status"] in {"ok", "invalid"}, result
    assert not result["errors"], result
    (fsync, *_) = result["rules"]
    assert (fsync["subject"], fsync["below_ms"]) == ("etcd", 10.0)
    assert 0 < fsync["found_ms"] < 5_000
    assert lab.processes() == []
    (run,) = out.iterdir()
    report = lab.run("report", str(run), "--json")
    assert report.returncode == 0, report.stderr
    if result["status"] == "ok":
        assert json.loads(report.stdout)["verdict"][0]["text"].startswith("Good enough for etcd?")
